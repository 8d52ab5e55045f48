//! Maps `--config` and the lcores of EAL to the jobs of each lcore.

use super::TopologyKind;
use super::queue_map::{QueueLcore, QueueMap, QueueMapError};
use crate::error::ConfigError;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) port: u16,
    pub(crate) queue: u16,
}

/// A stage to build. Inputs are indices into [`LcorePlan::inputs`]; a sender is identified by its TX queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Rx to tx for these inputs; sends through TX queue `tx` of every port.
    Worker { inputs: Vec<usize>, tx: u16 },
    /// Receives from one input for the engine stage of this number.
    Rx { input: usize, engine: usize },
    /// Looks up for a number of inputs. All batches of an input go to the same one of `senders`.
    Engine { engine: usize, inputs: usize, senders: Range<u16> },
    /// Sends through TX queue `tx` of every port.
    Tx { tx: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LcorePlan {
    pub(crate) inputs: Vec<Input>,
    /// Each lcore occurs once.
    pub(crate) lcores: Vec<(u32, Vec<Job>)>,
    pub(crate) senders: u16,
    pub(crate) map: QueueMap,
}

impl From<PlanError> for ConfigError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::NoPort { .. } | PlanError::NoPorts | PlanError::Map(QueueMapError::NoPort(_)) => {
                Self::NoDevice(error.to_string())
            }
            PlanError::NoLcore { .. } | PlanError::Senders { .. } | PlanError::Map(_) => {
                Self::Invalid(error.to_string())
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LcoreResources<'a> {
    pub(crate) ports: usize,
    pub(crate) tx_queues_max: u16,
    pub(crate) lcores: &'a [u32],
    /// The main lcore, which also handles signals and statistics.
    pub(crate) main: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("--config names port {port}, but there are {ports} (0 to {last})", last = ports.saturating_sub(1))]
    NoPort { port: u16, ports: usize },
    #[error("--config names lcore {lcore}, but EAL has {known}; see its -l or --lcores")]
    NoLcore { lcore: u16, known: String },
    #[error("{lcores} lcores would send, but a port has only {limit} TX queues; give queues to fewer lcores")]
    Senders { lcores: u16, limit: u16 },
    #[error(transparent)]
    Map(#[from] QueueMapError),
    #[error("DPDK found no port: name one with -a PCI-ADDRESS or --vdev, or see `fwd-app check`")]
    NoPorts,
}

impl LcorePlan {
    /// The lcores that look up.
    pub(crate) fn lookup_lcores(&self) -> impl Iterator<Item = u32> {
        let looks_up = |job: &Job| matches!(job, Job::Worker { .. } | Job::Engine { .. });
        self.lcores.iter().filter(move |(_, jobs)| jobs.iter().any(looks_up)).map(|(lcore, _)| *lcore)
    }

    /// Without `config`, queue 0 of every port. The main lcore gets jobs only if the config names it or it is the only one. A pipeline has
    /// at most `host.tx_queues_max` senders.
    ///
    /// # Errors
    /// [`PlanError`] for ports and lcores that do not exist, and for more sending lcores than TX queues.
    pub(crate) fn new(
        kind: TopologyKind,
        config: Option<&QueueMap>,
        host: LcoreResources<'_>,
    ) -> Result<Self, PlanError> {
        let LcoreResources { ports, tx_queues_max, lcores, main } = host;
        if ports == 0 {
            return Err(PlanError::NoPorts);
        }
        let map = match config {
            Some(map) => map.clone(),
            None => deal(kind, ports, lcores, main)?,
        };
        let config = map.tuples();
        check(config, ports, lcores)?;
        let inputs = config.iter().map(|c| Input { port: c.port, queue: c.queue }).collect();
        let rx_lcores: Vec<u32> = map.lcores().into_iter().map(u32::from).collect();
        let of = |lcore: u32| -> Vec<usize> {
            (0..config.len()).filter(|i| u32::from(config[*i].lcore) == lcore).collect()
        };
        let rx_jobs = |lcore: u32, engine: usize| -> Vec<_> {
            of(lcore).into_iter().map(|input| Job::Rx { input, engine }).collect()
        };
        match kind {
            TopologyKind::RunToCompletion | TopologyKind::InFlight => {
                let jobs = |(tx, lcore): (u16, &u32)| {
                    if kind == TopologyKind::RunToCompletion {
                        return (*lcore, vec![Job::Worker { inputs: of(*lcore), tx }]);
                    }
                    let engine = usize::from(tx);
                    let mut jobs = rx_jobs(*lcore, engine);
                    let senders = tx..tx.saturating_add(1);
                    jobs.extend([Job::Engine { engine, inputs: jobs.len(), senders }, Job::Tx { tx }]);
                    (*lcore, jobs)
                };
                let lcores: Vec<_> = (0..).zip(&rx_lcores).map(jobs).collect();
                let senders = count(&lcores);
                if senders > tx_queues_max {
                    return Err(PlanError::Senders { lcores: senders, limit: tx_queues_max });
                }
                Ok(Self { inputs, senders, lcores, map })
            }
            TopologyKind::Pipeline => {
                let mut plan: Vec<_> = rx_lcores.iter().map(|lcore| (*lcore, rx_jobs(*lcore, 0))).collect();
                let free = lcores.iter().copied().filter(|l| !rx_lcores.contains(l) && *l != main);
                let free: Vec<u32> = free.take(usize::from(tx_queues_max) + 1).collect();
                Ok(Self { senders: share(&mut plan, inputs.len(), &free), inputs, lcores: plan, map })
            }
        }
    }

    pub(crate) fn receives(&self, ports: usize) -> Vec<bool> {
        (0..).map(|port| self.rx_queues(port) > 0).take(ports).collect()
    }

    pub(crate) fn rx_queues(&self, port: u16) -> u16 {
        count(&self.inputs.iter().filter(|input| input.port == port).collect::<Vec<_>>())
    }

    pub(crate) fn engine_stages(&self) -> usize {
        let jobs = self.lcores.iter().flat_map(|(_, jobs)| jobs);
        jobs.filter(|job| matches!(job, Job::Engine { .. })).count()
    }

    /// The inputs whose batches engine stage `engine` looks up.
    pub(crate) fn inputs_of(&self, engine: usize) -> Vec<usize> {
        let jobs = self.lcores.iter().flat_map(|(_, jobs)| jobs);
        jobs.filter_map(|job| match job {
            Job::Rx { input, engine: of } if *of == engine => Some(*input),
            _ => None,
        })
        .collect()
    }

    /// Whether batches travel between stages.
    pub(crate) fn is_pipeline(&self) -> bool {
        self.engine_stages() > 0
    }
}

/// Assigns the engine and the senders to the lcores that do not receive: the first looks up, the others send; a single one does both.
/// Without such lcores, the last receiving lcore does everything. Returns the number of senders.
fn share(plan: &mut Vec<(u32, Vec<Job>)>, inputs: usize, free: &[u32]) -> u16 {
    let engine = |senders| Job::Engine { engine: 0, inputs, senders: 0..senders };
    match free {
        [] => {
            if let Some((_, jobs)) = plan.last_mut() {
                jobs.extend([engine(1), Job::Tx { tx: 0 }]);
            }
            1
        }
        [one] => {
            plan.push((*one, vec![engine(1), Job::Tx { tx: 0 }]));
            1
        }
        [first, senders @ ..] => {
            plan.push((*first, vec![engine(count(senders))]));
            plan.extend((0..).zip(senders).map(|(tx, lcore)| (*lcore, vec![Job::Tx { tx }])));
            count(senders)
        }
    }
}

fn count<T>(items: &[T]) -> u16 {
    u16::try_from(items.len()).unwrap_or(u16::MAX)
}

/// Queue 0 of every port, round robin over the lcores except the main one, if there are others. A pipeline receives on one lcore.
fn deal(kind: TopologyKind, ports: usize, lcores: &[u32], main: u32) -> Result<QueueMap, QueueMapError> {
    let mut workers: Vec<u16> =
        lcores.iter().filter(|l| **l != main).filter_map(|l| u16::try_from(*l).ok()).collect();
    if workers.is_empty() {
        workers.extend(u16::try_from(main));
    }
    if kind == TopologyKind::Pipeline {
        workers.truncate(1);
    }
    let ports = (0..u16::try_from(ports).unwrap_or(u16::MAX)).zip(workers.iter().cycle());
    QueueMap::new(ports.map(|(port, lcore)| QueueLcore { port, queue: 0, lcore: *lcore }).collect())
}

fn check(config: &[QueueLcore], ports: usize, lcores: &[u32]) -> Result<(), PlanError> {
    for tuple in config {
        if usize::from(tuple.port) >= ports {
            return Err(PlanError::NoPort { port: tuple.port, ports });
        }
        if !lcores.contains(&u32::from(tuple.lcore)) {
            let known = lcores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(PlanError::NoLcore { lcore: tuple.lcore, known });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use TopologyKind::{InFlight, Pipeline, RunToCompletion};

    fn host(ports: usize, lcores: &[u32], main: u32) -> LcoreResources<'_> {
        LcoreResources { ports, tx_queues_max: 16, lcores, main }
    }

    fn config(tuples: &[(u16, u16, u16)]) -> QueueMap {
        let tuples = tuples.iter().map(|&(port, queue, lcore)| QueueLcore { port, queue, lcore });
        QueueMap::new(tuples.collect()).unwrap()
    }

    fn polled(plan: &LcorePlan) -> Vec<QueueLcore> {
        let mut polled = Vec::new();
        for (lcore, jobs) in &plan.lcores {
            let inputs = jobs.iter().flat_map(|job| match job {
                Job::Worker { inputs, .. } => inputs.clone(),
                Job::Rx { input, .. } => vec![*input],
                Job::Engine { .. } | Job::Tx { .. } => Vec::new(),
            });
            let lcore = u16::try_from(*lcore).unwrap();
            polled.extend(inputs.map(|i| plan.inputs[i]).map(|i| QueueLcore {
                port: i.port,
                queue: i.queue,
                lcore,
            }));
        }
        polled.sort_unstable();
        polled
    }

    #[test]
    fn the_map_that_is_shown_is_the_one_that_was_planned() {
        let wanted = config(&[(0, 0, 1), (1, 0, 2), (0, 1, 1)]);
        for kind in [RunToCompletion, InFlight, Pipeline] {
            for config in [Some(&wanted), None] {
                let plan = LcorePlan::new(kind, config, host(2, &[0, 1, 2, 3], 0)).unwrap();
                let mut shown = plan.map.tuples().to_vec();
                shown.sort_unstable();
                assert_eq!(shown, polled(&plan));
                assert!(config.is_none_or(|config| *config == plan.map));
            }
        }
    }

    #[test]
    fn run_to_completion_gives_each_lcore_its_queues() {
        let config = config(&[(0, 0, 1), (1, 0, 2), (0, 1, 1)]);
        let plan = LcorePlan::new(RunToCompletion, Some(&config), host(2, &[0, 1, 2, 3], 0)).unwrap();
        assert_eq!(plan.senders, 2);
        let worker = |inputs: &[usize], tx| vec![Job::Worker { inputs: inputs.to_vec(), tx }];
        assert_eq!(plan.lcores, [(1, worker(&[0, 2], 0)), (2, worker(&[1], 1))]);
        assert_eq!(plan.lookup_lcores().collect::<Vec<_>>(), [1, 2]);
        let plan =
            LcorePlan::new(RunToCompletion, Some(&self::config(&[(0, 0, 1)])), host(2, &[1], 1)).unwrap();
        assert_eq!(plan.lcores, [(1, worker(&[0], 0))]);
    }

    #[test]
    fn with_batches_in_flight_each_lcore_has_a_pipeline() {
        let config = config(&[(0, 0, 1), (1, 0, 2), (0, 1, 1)]);
        let plan = LcorePlan::new(InFlight, Some(&config), host(2, &[0, 1, 2, 3], 0)).unwrap();
        let engine = |engine, inputs, senders| Job::Engine { engine, inputs, senders };
        let first = [Job::Rx { input: 0, engine: 0 }, Job::Rx { input: 2, engine: 0 }, engine(0, 2, 0..1)];
        let second = [Job::Rx { input: 1, engine: 1 }, engine(1, 1, 1..2), Job::Tx { tx: 1 }];
        assert_eq!(plan.lcores[0].1, [&first[..], &[Job::Tx { tx: 0 }]].concat());
        assert_eq!((plan.lcores[1].1.as_slice(), plan.senders, plan.engine_stages()), (&second[..], 2, 2));
        assert_eq!([0, 1].map(|engine| plan.inputs_of(engine)), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn without_a_config_ports_are_dealt() {
        let plan = LcorePlan::new(RunToCompletion, None, host(3, &[0, 1, 2], 0)).unwrap();
        let inputs: Vec<_> = plan.inputs.iter().map(|i| (i.port, i.queue)).collect();
        assert_eq!(inputs, [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(plan.lcores[0], (1, vec![Job::Worker { inputs: vec![0, 2], tx: 0 }]));
        let alone = LcorePlan::new(RunToCompletion, None, host(2, &[7], 7)).unwrap();
        assert_eq!(alone.lcores, [(7, vec![Job::Worker { inputs: vec![0, 1], tx: 0 }])]);
    }

    #[test]
    fn a_pipeline_takes_the_lcores_there_are() {
        let rx = Job::Rx { input: 0, engine: 0 };
        let engine = |senders| Job::Engine { engine: 0, inputs: 1, senders: 0..senders };
        let tx = |tx| Job::Tx { tx };
        let plan = |lcores: &[u32]| {
            LcorePlan::new(Pipeline, Some(&config(&[(0, 0, 1)])), host(1, lcores, 0)).unwrap()
        };
        assert_eq!(plan(&[0, 1]).lcores, [(1, vec![rx.clone(), engine(1), tx(0)])]);
        assert_eq!(plan(&[0, 1, 2]).lcores, [(1, vec![rx.clone()]), (2, vec![engine(1), tx(0)])]);
        let four = plan(&[0, 1, 2, 3, 4]);
        let wanted = [(1, vec![rx]), (2, vec![engine(2)]), (3, vec![tx(0)]), (4, vec![tx(1)])];
        assert_eq!((four.lcores.as_slice(), four.senders), (&wanted[..], 2));
        assert_eq!(four.lookup_lcores().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn senders_are_limited_by_the_ports() {
        let config = config(&[(0, 0, 1), (0, 1, 2)]);
        let lcores = [0, 1, 2, 3, 4, 5];
        let host = LcoreResources { tx_queues_max: 1, ..host(1, &lcores, 0) };
        let refused = LcorePlan::new(RunToCompletion, Some(&config), host);
        assert_eq!(refused, Err(PlanError::Senders { lcores: 2, limit: 1 }));
        assert_eq!(LcorePlan::new(Pipeline, Some(&config), host).unwrap().senders, 1);
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let plan = |tuple| LcorePlan::new(RunToCompletion, Some(&config(&[tuple])), host(2, &[0, 1], 0));
        assert_eq!(plan((2, 0, 1)), Err(PlanError::NoPort { port: 2, ports: 2 }));
        let error = plan((0, 0, 9)).unwrap_err().to_string();
        assert!(error.contains("lcore 9") && error.contains("0, 1"), "{error}");
        assert_eq!(LcorePlan::new(RunToCompletion, None, host(0, &[0], 0)), Err(PlanError::NoPorts));
    }
}
