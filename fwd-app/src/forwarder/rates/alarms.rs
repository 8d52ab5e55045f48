//! Warnings from rates: NICs that lose packets, empty mempools, busy lcores, and idle lcores while another one is busy.
//!
//! A warning is issued when its cause begins, and once a minute while it lasts. One line covers all warnings of a kind, so there is at most
//! one line of each kind a second.

use super::{LcoreRates, PortRates, Rates};
use crate::topology::plan::LcorePlan;
use fib::units::count_text;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const BUSY: f64 = 0.95;
const IDLE: f64 = 0.05;
const REPEATED: Duration = Duration::from_mins(1);
/// A shorter gap does not end a cause.
const PAUSE: Duration = Duration::from_secs(10);

struct Alarm {
    seen: Instant,
    said: Instant,
}

#[derive(Default)]
struct AlarmsOfKind(BTreeMap<u32, Alarm>);

impl AlarmsOfKind {
    fn is_news(&mut self, which: u32, now: Instant) -> bool {
        let Some(alarm) = self.0.get_mut(&which) else {
            self.0.insert(which, Alarm { seen: now, said: now });
            return true;
        };
        let is_new = now.duration_since(alarm.seen) > PAUSE || now.duration_since(alarm.said) >= REPEATED;
        alarm.seen = now;
        if is_new {
            alarm.said = now;
        }
        is_new
    }
}

pub(super) struct Alarms {
    /// The ports with one RX queue, each with the lcore of the queue.
    of_one_queue: Vec<(u16, u32)>,
    losing: AlarmsOfKind,
    busy: AlarmsOfKind,
    beside: AlarmsOfKind,
    empty: AlarmsOfKind,
    empty_pools: u64,
}

impl Alarms {
    pub(super) fn new(plan: &LcorePlan) -> Self {
        let tuples = plan.map.tuples();
        let is_alone = |port: u16| tuples.iter().filter(|tuple| tuple.port == port).count() == 1;
        let of_one_queue = tuples.iter().filter(|tuple| is_alone(tuple.port));
        Self {
            of_one_queue: of_one_queue.map(|tuple| (tuple.port, tuple.lcore.into())).collect(),
            losing: AlarmsOfKind::default(),
            busy: AlarmsOfKind::default(),
            beside: AlarmsOfKind::default(),
            empty: AlarmsOfKind::default(),
            empty_pools: 0,
        }
    }

    /// Warnings for new `rates`; at most one line of each kind.
    pub(super) fn check(&mut self, rates: &Rates, now: Instant) -> Vec<String> {
        let losing: Vec<_> = rates
            .ports
            .iter()
            .filter_map(|port| Some((port, losses(port)?)))
            .filter(|(port, _)| self.losing.is_news(port.port.into(), now))
            .map(|(port, losses)| format!("port {} ({}) loses packets: {losses}", port.port, port.name))
            .collect();
        let is_busy = |lcore: &&LcoreRates| lcore.busy[0] >= Some(BUSY);
        let busy: Vec<_> = rates
            .lcores
            .iter()
            .filter(is_busy)
            .filter(|lcore| self.busy.is_news(lcore.lcore, now))
            .map(|lcore| format!("lcore {} is {} busy", lcore.lcore, percent(lcore.busy[0])))
            .collect();
        let idle = rates.lcores.iter().find(|lcore| lcore.busy[0].is_some_and(|busy| busy < IDLE));
        let beside: Vec<_> = idle
            .into_iter()
            .flat_map(|idle| self.of_one_queue.iter().map(move |(port, lcore)| (idle, *port, *lcore)))
            .filter(|(.., lcore)| rates.lcores.iter().filter(is_busy).any(|busy| busy.lcore == *lcore))
            .filter(|(_, port, _)| self.beside.is_news((*port).into(), now))
            .map(|(idle, port, lcore)| {
                let name = rates.ports.get(usize::from(port)).map_or("", |port| &*port.name);
                format!(
                    "lcore {} is idle while lcore {lcore} serves all queues of port {port} ({name})",
                    idle.lcore
                )
            })
            .collect();
        let hint = "; more RX queues (--config) share the load if the device has RSS";
        let empty_before = std::mem::replace(&mut self.empty_pools, rates.empty_pools);
        let is_empty = rates.empty_pools > empty_before && self.empty.is_news(0, now);
        let empty =
            is_empty.then(|| "all mbufs of the ports are in use: the ports receive nothing".to_owned());
        let more = "; see --mbufs";
        [(losing, ""), (busy, ""), (beside, hint), (empty.into_iter().collect(), more)]
            .into_iter()
            .filter(|(parts, _)| !parts.is_empty())
            .map(|(parts, hint)| format!("{}{hint}", parts.join(", ")))
            .collect()
    }
}

/// Packets a second that a port loses before an lcore receives them, as text.
fn losses(port: &PortRates) -> Option<String> {
    let kinds = [(port.rx_missed[0], "missed"), (port.rx_nombuf[0], "without an mbuf")];
    let lost: Vec<_> = kinds
        .into_iter()
        .filter_map(|(rate, kind)| Some((rate.filter(|rate| *rate > 0.0)?, kind)))
        .map(|(rate, kind)| format!("{}/s {kind}", count_text(rate)))
        .collect();
    (!lost.is_empty()).then(|| lost.join(", "))
}

fn percent(share: Option<f64>) -> String {
    format!("{:.0} %", share.unwrap_or_default() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::plan::LcoreResources;
    use crate::topology::{QueueLcore, QueueMap, TopologyKind};

    fn alarms(tuples: &[(u16, u16, u16)]) -> Alarms {
        let tuples = tuples.iter().map(|&(port, queue, lcore)| QueueLcore { port, queue, lcore });
        let map = QueueMap::new(tuples.collect()).unwrap();
        let host = LcoreResources { ports: 2, tx_queues_max: 8, lcores: &[0, 1, 2, 3], main: 0 };
        Alarms::new(&LcorePlan::new(TopologyKind::RunToCompletion, Some(&map), host).unwrap())
    }

    /// Two ports, the first with `missed` packets a second, and lcores with these busy shares.
    fn rates(missed: Option<f64>, busy: &[f64]) -> Rates {
        let port = |(port, missed)| PortRates {
            port,
            name: format!("p{port}"),
            rx_missed: [missed; 2],
            ..PortRates::default()
        };
        let lcore = |(lcore, busy): (u32, &f64)| LcoreRates {
            lcore,
            busy: [Some(*busy), Some(0.5)],
            ..LcoreRates::default()
        };
        Rates {
            ports: [(0, missed), (1, Some(0.0))].map(port).into(),
            lcores: (1..).zip(busy).map(lcore).collect(),
            ..Rates::default()
        }
    }

    #[test]
    fn a_loss_is_said_when_it_begins_and_once_a_minute() {
        let (mut alarms, start) = (alarms(&[(0, 0, 1), (1, 0, 2)]), Instant::now());
        let mut at =
            |s: u64, missed| alarms.check(&rates(missed, &[0.5, 0.5]), start + Duration::from_secs(s));
        assert!(at(0, None).is_empty() && at(1, Some(0.0)).is_empty());
        assert_eq!(at(2, Some(1500.0)), ["port 0 (p0) loses packets: 1.50k/s missed"]);
        assert!((3..62).all(|s| at(s, Some(1.0)).is_empty()), "it lasts");
        assert_eq!(at(62, Some(1.0)).len(), 1);
        // A short gap, then a long one.
        assert!(at(63, Some(0.0)).is_empty() && at(64, Some(1.0)).is_empty());
        assert!((65..76).all(|s| at(s, Some(0.0)).is_empty()));
        assert_eq!(at(76, Some(2.0)), ["port 0 (p0) loses packets: 2/s missed"]);
    }

    #[test]
    fn an_empty_pool_is_said_when_it_begins_and_once_a_minute() {
        let (mut alarms, start) = (alarms(&[(0, 0, 1), (1, 0, 2)]), Instant::now());
        let mut at = |s: u64, empty_pools| {
            let rates = Rates { empty_pools, ..rates(None, &[0.5, 0.5]) };
            alarms.check(&rates, start + Duration::from_secs(s))
        };
        assert!(at(0, 0).is_empty());
        let wanted = "all mbufs of the ports are in use: the ports receive nothing; see --mbufs";
        assert_eq!(at(1, 40), [wanted]);
        assert!((2..61).all(|s| at(s, 40 + s).is_empty()) && at(70, 99).is_empty());
        assert_eq!(at(71, 100), [wanted]);
    }

    #[test]
    fn busy_lcores_are_in_one_line() {
        let (mut alarms, start) = (alarms(&[(0, 0, 1), (0, 1, 2), (1, 0, 3)]), Instant::now());
        let mut at = |s, busy: &[f64]| alarms.check(&rates(None, busy), start + Duration::from_secs(s));
        assert!(at(0, &[0.94, 0.2, 0.1]).is_empty());
        assert_eq!(at(1, &[0.96, 1.0, 0.1]), ["lcore 1 is 96 % busy, lcore 2 is 100 % busy"]);
        assert!(at(2, &[0.96, 1.0, 0.1]).is_empty());
        assert_eq!(at(3, &[0.96, 1.0, 0.95]), ["lcore 3 is 95 % busy"]);
    }

    #[test]
    fn an_idle_lcore_is_said_beside_a_busy_one_with_all_of_a_port() {
        let (mut alarms, start) = (alarms(&[(0, 0, 1), (0, 1, 2), (1, 0, 3)]), Instant::now());
        assert_eq!(alarms.check(&rates(None, &[1.0, 0.5, 0.5, 0.0]), start).len(), 1);
        assert_eq!(alarms.check(&rates(None, &[1.0, 0.5, 1.0, 0.06]), start).len(), 1, "no lcore is idle");
        assert_eq!(
            alarms.check(&rates(None, &[1.0, 0.5, 1.0, 0.04]), start),
            [
                "lcore 4 is idle while lcore 3 serves all queues of port 1 (p1); more RX queues (--config) share the load if the \
                 device has RSS"
            ]
        );
    }
}
