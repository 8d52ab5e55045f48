//! Samples all counters once a second, and computes rates from the last samples.
//!
//! It runs on the control thread. Each turn reads the counters of one port, since some drivers take milliseconds.

use super::alarms::Alarms;
use super::history::History;
use super::{LcoreRates, PortRates, Rates, VrfRates};
use crate::datapath::{Counters, DropReason};
use crate::forwarder::Forwarder;
use crate::notice;
use crate::topology::plan::LcorePlan;
use dpdk_ffi::{Mempool, PortStats};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);
/// A slower driver gets a tenth of the control thread's time.
const SLOW: Duration = Duration::from_millis(1);

/// Reads the counters of the port with an index; `None` when they cannot be read.
pub(crate) type ReadPort = Box<dyn FnMut(usize) -> Option<PortStats> + Send>;

struct SampledPort {
    name: String,
    history: History<PortStats>,
}

impl SampledPort {
    fn sample(&mut self, at: Instant, stats: Option<PortStats>) {
        let Some(stats) = stats else { return self.history.clear() };
        if self.history.last().is_some_and(|before| has_gone_back(before, &stats)) {
            self.history.clear();
        }
        self.history.push(at, stats);
    }

    fn rates(&self, port: u16) -> PortRates {
        let over = |count: fn(&PortStats) -> u64| self.history.per_second(count);
        PortRates {
            port,
            name: self.name.clone(),
            seconds: self.history.seconds(),
            rx_pps: over(|stats| stats.ipackets),
            tx_pps: over(|stats| stats.opackets),
            rx_bps: over(|stats| stats.ibytes).map(bits),
            tx_bps: over(|stats| stats.obytes).map(bits),
            rx_missed: over(|stats| stats.imissed),
            rx_errors: over(|stats| stats.ierrors),
            rx_nombuf: over(|stats| stats.rx_nombuf),
            tx_errors: over(|stats| stats.oerrors),
            total: self.history.last().copied(),
        }
    }
}

/// Whether any counter has decreased: the device was reset, its counters were cleared, or one has wrapped.
fn has_gone_back(before: &PortStats, now: &PortStats) -> bool {
    let counters = |stats: &PortStats| {
        let PortStats { ipackets, opackets, ibytes, obytes, imissed, ierrors, oerrors, rx_nombuf } = *stats;
        [ipackets, opackets, ibytes, obytes, imissed, ierrors, oerrors, rx_nombuf]
    };
    counters(before).iter().zip(counters(now)).any(|(before, now)| now < *before)
}

fn bits(bytes: Option<f64>) -> Option<f64> {
    bytes.map(|bytes| bytes * 8.0)
}

struct Counted {
    tsc: u64,
    lcores: Vec<(u32, Counters)>,
    /// Packets and bytes received.
    vrfs: Vec<[u64; 2]>,
    all: Counters,
}

pub(crate) struct Sampler {
    ports: Vec<SampledPort>,
    read: ReadPort,
    /// Usable lcores without a stage.
    spare: Vec<u32>,
    counted: History<Counted>,
    alarms: Option<Alarms>,
    /// The mbuf pools, each with the most mbufs that lcore caches can hold.
    pools: Vec<(Mempool, usize)>,
    empty_pools: u64,
    /// The port to read next in the current sample; `None` between samples.
    at: Option<usize>,
    begun: Instant,
    due: Instant,
}

impl Sampler {
    /// Samples ports with these names through `read`, the lcores of a forwarder, and `spare` lcores.
    pub(crate) fn new(names: impl IntoIterator<Item = String>, read: ReadPort, spare: Vec<u32>) -> Self {
        let port = |name| SampledPort { name, history: History::default() };
        let ports = names.into_iter().map(port).collect();
        let now = Instant::now();
        let (counted, alarms, pools) = (History::default(), None, Vec::new());
        Self { ports, read, spare, counted, alarms, pools, empty_pools: 0, at: None, begun: now, due: now }
    }

    pub(crate) fn with_pools(mut self, pools: Vec<(Mempool, usize)>) -> Self {
        self.pools = pools;
        self
    }

    pub(crate) fn with_alarms(mut self, plan: &LcorePlan) -> Self {
        self.alarms = Some(Alarms::new(plan));
        self
    }

    /// Continues a sample or begins one; returns whether there was work.
    pub(in crate::forwarder) fn sample_if_due(&mut self, forwarder: &Forwarder) -> bool {
        let now = Instant::now();
        // Every turn, since a pool is often empty for less than a period.
        let empty = self.pools.iter().filter(|(pool, cached)| pool.available() <= *cached);
        self.empty_pools += empty.count() as u64;
        if now < self.due {
            return false;
        }
        let index = self.at.unwrap_or_else(|| {
            self.begun = now;
            self.counted.push(now, count(forwarder, &self.spare));
            0
        });
        if let Some(port) = self.ports.get_mut(index) {
            let stats = (self.read)(index);
            port.sample(Instant::now(), stats);
            if now.elapsed() > SLOW {
                self.due = now + now.elapsed() * 10;
            }
            self.at = Some(index + 1);
            return true;
        }
        (self.at, self.due) = (None, self.begun + PERIOD);
        let rates = Arc::new(self.rates(forwarder));
        if let Some(alarms) = &mut self.alarms {
            alarms.check(&rates, Instant::now()).into_iter().for_each(notice::warn);
        }
        forwarder.rates().store(rates);
        true
    }

    fn rates(&self, forwarder: &Forwarder) -> Rates {
        let Some(last) = self.counted.last() else { return Rates::default() };
        let lcore = |(at, (lcore, counters)): (usize, &(u32, Counters))| {
            let over = |count: fn(&Counters) -> u64| {
                self.counted.per_second(move |counted| count(&counted.lcores[at].1))
            };
            LcoreRates {
                lcore: *lcore,
                busy: self.counted.share(|counted| counted.lcores[at].1.busy_cycles, |counted| counted.tsc),
                rx_pps: over(|counters| counters.rx_packets),
                tx_pps: over(|counters| counters.tx_packets),
                dropped_pps: over(|counters| counters.drops.total()),
                counters: *counters,
            }
        };
        let vrf = |(at, [packets, bytes]): (usize, &[u64; 2])| VrfRates {
            name: forwarder.vrf(at).name.clone(),
            rx_pps: self.counted.per_second(|counted| counted.vrfs[at][0]),
            rx_bps: self.counted.per_second(|counted| counted.vrfs[at][1]).map(bits),
            packets: *packets,
            bytes: *bytes,
        };
        let drops = |reason| (reason, self.counted.per_second(|counted| counted.all.drops.get(reason)));
        Rates {
            made: Some(Instant::now()),
            seconds: self.counted.seconds(),
            ports: (0..).zip(&self.ports).map(|(index, port)| port.rates(index)).collect(),
            lcores: last.lcores.iter().enumerate().map(lcore).collect(),
            vrfs: last.vrfs.iter().enumerate().map(vrf).collect(),
            drops: DropReason::ALL.into_iter().map(drops).collect(),
            counters: last.all,
            empty_pools: self.empty_pools,
        }
    }
}

fn count(forwarder: &Forwarder, spare: &[u32]) -> Counted {
    let (running, tsc) = (forwarder.running(), dpdk_ffi::tsc());
    let spare = spare.iter().map(|lcore| (*lcore, Counters::default()));
    let mut lcores: Vec<_> = running.counters_by_lcore().chain(spare).collect();
    lcores.sort_unstable_by_key(|(lcore, _)| *lcore);
    let all = running.counters();
    let vrfs = running.received_by_vrf(forwarder.vrfs().len(), &all);
    Counted { tsc, lcores, vrfs, all }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::test_forwarder::forwarder;
    use dpdk_ffi::MempoolConfig;

    const SECOND: Duration = Duration::from_secs(1);

    fn port() -> SampledPort {
        SampledPort { name: "p0".to_owned(), history: History::default() }
    }

    /// The rates of a port after samples a second apart.
    fn rates(samples: &[Option<PortStats>]) -> PortRates {
        let (mut port, mut at) = (port(), Instant::now());
        for stats in samples {
            port.sample(at, *stats);
            at += SECOND;
        }
        port.rates(0)
    }

    fn stats(ipackets: u64, opackets: u64) -> Option<PortStats> {
        let (ibytes, obytes) = (ipackets * 100, opackets * 50);
        Some(PortStats { ipackets, opackets, ibytes, obytes, ..PortStats::default() })
    }

    #[test]
    fn rates_of_a_port_are_those_of_its_counters() {
        let mut last = stats(3000, 500).unwrap();
        (last.imissed, last.ierrors, last.rx_nombuf, last.oerrors) = (4, 6, 8, 10);
        let rates = rates(&[stats(0, 0), stats(1000, 500), Some(last)]);
        assert_eq!((rates.rx_pps, rates.tx_pps), ([Some(2000.0), Some(1500.0)], [Some(0.0), Some(250.0)]));
        assert_eq!(rates.rx_bps, [Some(1_600_000.0), Some(1_200_000.0)]);
        assert_eq!((rates.tx_bps[1], rates.rx_missed), (Some(100_000.0), [Some(4.0), Some(2.0)]));
        assert_eq!(
            (rates.rx_errors[0], rates.rx_nombuf[0], rates.tx_errors[0]),
            (Some(6.0), Some(8.0), Some(10.0))
        );
        assert_eq!((rates.seconds, rates.total), ([Some(1.0), Some(2.0)], Some(last)));
    }

    #[test]
    fn a_read_that_fails_is_not_zero() {
        let failed = rates(&[stats(0, 0), stats(1000, 1000), None]);
        assert_eq!((failed.rx_pps, failed.tx_bps, failed.total), ([None; 2], [None; 2], None));
        // The interval without counters is not part of a rate.
        let back = rates(&[stats(0, 0), None, stats(5000, 0)]);
        assert_eq!((back.rx_pps, back.total), ([None; 2], stats(5000, 0)));
        let again = rates(&[stats(0, 0), None, stats(5000, 0), stats(5100, 0)]);
        assert_eq!(again.rx_pps, [Some(100.0), Some(100.0)]);
    }

    #[test]
    fn counters_that_go_back_start_anew() {
        let reset = rates(&[stats(0, 0), stats(9000, 0), stats(10, 5)]);
        assert_eq!((reset.rx_pps, reset.tx_pps, reset.total), ([None; 2], [None; 2], stats(10, 5)));
        let after = rates(&[stats(0, 0), stats(9000, 0), stats(10, 5), stats(30, 5)]);
        assert_eq!((after.rx_pps, after.tx_pps), ([Some(20.0); 2], [Some(0.0); 2]));
        // A wrapped counter has decreased.
        let wrapped = rates(&[stats(u64::MAX / 200, 0), stats(3, 0)]);
        assert_eq!(wrapped.rx_pps, [None; 2]);
    }

    #[test]
    fn an_empty_pool_is_counted_at_each_turn() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let (forwarder, config) = (forwarder(), MempoolConfig { cache_mbufs: 0, ..MempoolConfig::default() });
        let pool = Mempool::new(eal, "sampled", &config).unwrap();
        let mut sampler =
            Sampler::new([], Box::new(|_| None), Vec::new()).with_pools(vec![(pool.clone(), 3)]);
        assert!(sampler.sample_if_due(&forwarder) && !sampler.sample_if_due(&forwarder));
        let mut taken: Vec<_> = (0..pool.size() - 4).map(|_| pool.alloc().unwrap()).collect();
        sampler.sample_if_due(&forwarder);
        taken.push(pool.alloc().unwrap());
        assert!((0..7).all(|_| !sampler.sample_if_due(&forwarder)));
        taken.pop();
        sampler.due = Instant::now();
        assert!(sampler.sample_if_due(&forwarder));
        assert_eq!(forwarder.rates().load().empty_pools, 7);
    }

    #[test]
    fn a_forwarder_is_sampled_a_port_a_turn() {
        let forwarder = forwarder();
        let mut reads = 0;
        let read = move |index: usize| {
            reads += 1;
            (index == 0).then(|| PortStats { ipackets: reads * 100, ..PortStats::default() })
        };
        let names = ["p0", "p1"].map(str::to_owned);
        let mut sampler = Sampler::new(names, Box::new(read), vec![7]);
        assert!(forwarder.rates().load().age().is_none());
        // Two ports, then publication.
        assert!((0..3).all(|_| sampler.sample_if_due(&forwarder)));
        assert!(!sampler.sample_if_due(&forwarder), "the next one is due in a second");
        let first = forwarder.rates().load_full();
        assert!(first.age().is_some() && first.seconds == [None; 2]);
        assert_eq!(first.ports[0].rx_pps, [None; 2]);
        assert_eq!(
            (first.ports[0].total.map(|total| total.ipackets), first.ports[1].total),
            (Some(100), None)
        );
        sampler.due = Instant::now();
        assert!((0..3).all(|_| sampler.sample_if_due(&forwarder)));
        let json = serde_json::to_value(&**forwarder.rates().load()).unwrap();
        assert_eq!((&json["ports"][0]["name"], &json["ports"][1]["rx_pps_1s"]), (&"p0".into(), &().into()));
        assert!(json["ports"][0]["rx_pps_1s"].as_f64().unwrap() > 0.0, "{json}");
        assert_eq!((&json["lcores"][0]["lcore"], &json["lcores"][0]["busy_10s"]), (&7.into(), &0.0.into()));
        assert_eq!(
            (&json["vrfs"][0]["name"], &json["vrfs"][0]["rx_pps_1s"]),
            (&"default".into(), &0.0.into())
        );
        assert_eq!(json["drops_1s"]["no_route"], 0.0);
        for key in
            ["rx_missed_1s", "rx_errors_10s", "rx_nombuf_1s", "tx_errors_1s", "tx_bps_10s", "seconds_1s"]
        {
            assert!(json["ports"][0][key].is_number() && json["ports"][1][key].is_null(), "{key}: {json}");
        }
    }
}
