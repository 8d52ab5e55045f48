//! Rates of each port, lcore and VRF over the last second and the last ten.
//!
//! The control thread samples all counters once a second ([`sampler`]) and publishes a new [`Rates`] for any thread. A rate is computed over
//! the time between two samples ([`history`]), so a late sample is exact. A port whose counters cannot be read has no rates, and one whose
//! counters decrease (device reset, `clear port stats`) restarts its history.

mod alarms;
mod history;
pub(crate) mod sampler;

pub(crate) use history::Over;

use crate::datapath::{Counters, DropReason};
use arc_swap::ArcSwap;
use dpdk_ffi::PortStats;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) type SharedRates = Arc<ArcSwap<Rates>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// When they were computed; `None` before the first sample.
    pub(crate) made: Option<Instant>,
    /// Seconds that the rates are computed over; ports have separate spans.
    pub(crate) seconds: Over,
    pub(crate) ports: Vec<PortRates>,
    /// Lcores with stages, and spare ones.
    pub(crate) lcores: Vec<LcoreRates>,
    pub(crate) vrfs: Vec<VrfRates>,
    /// Dropped packets a second, in the order of [`DropReason::ALL`].
    pub(crate) drops: Vec<(DropReason, Over)>,
    /// Totals of all stages and the router.
    pub(crate) counters: Counters,
    /// Times that an mbuf pool was empty outside the lcore caches. Some drivers then neither receive nor count packets.
    pub(crate) empty_pools: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PortRates {
    pub(crate) port: u16,
    pub(crate) name: String,
    pub(crate) seconds: Over,
    pub(crate) rx_pps: Over,
    pub(crate) tx_pps: Over,
    /// Bits received; frames without FCS (layer 2).
    pub(crate) rx_bps: Over,
    /// Bits sent; frames without FCS (layer 2).
    pub(crate) tx_bps: Over,
    /// Packets lost because the RX queue was full.
    pub(crate) rx_missed: Over,
    pub(crate) rx_errors: Over,
    /// Failed mbuf allocations on receive.
    pub(crate) rx_nombuf: Over,
    pub(crate) tx_errors: Over,
    /// The counters since the start or the last reset; `None` when they cannot be read.
    pub(crate) total: Option<PortStats>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LcoreRates {
    pub(crate) lcore: u32,
    /// Share of its time that the lcore was busy with packets, 0 to 1.
    pub(crate) busy: Over,
    pub(crate) rx_pps: Over,
    pub(crate) tx_pps: Over,
    pub(crate) dropped_pps: Over,
    pub(crate) counters: Counters,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct VrfRates {
    pub(crate) name: String,
    pub(crate) rx_pps: Over,
    /// Bits received (layer 2).
    pub(crate) rx_bps: Over,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicLosses {
    pub(crate) missed: u64,
    pub(crate) errors: u64,
    pub(crate) nombuf: u64,
}

impl Rates {
    pub(crate) fn age(&self) -> Option<Duration> {
        self.made.map(|made| made.elapsed())
    }

    /// Losses of the NICs since `before`. Ports whose counters are unreadable at either time, or have decreased, count as zero.
    pub(crate) fn lost_since(&self, before: &Self) -> NicLosses {
        let mut lost = NicLosses::default();
        for (port, then) in self.ports.iter().zip(&before.ports) {
            let (Some(now), Some(then)) = (&port.total, &then.total) else { continue };
            lost.missed += now.imissed.saturating_sub(then.imissed);
            lost.errors += now.ierrors.saturating_sub(then.ierrors);
            lost.nombuf += now.rx_nombuf.saturating_sub(then.rx_nombuf);
        }
        lost
    }
}

impl PortRates {
    fn named(&self) -> [(&'static str, Over); 9] {
        [
            ("seconds", self.seconds),
            ("rx_pps", self.rx_pps),
            ("tx_pps", self.tx_pps),
            ("rx_bps", self.rx_bps),
            ("tx_bps", self.tx_bps),
            ("rx_missed", self.rx_missed),
            ("rx_errors", self.rx_errors),
            ("rx_nombuf", self.rx_nombuf),
            ("tx_errors", self.tx_errors),
        ]
    }
}

fn add_all<M: SerializeMap>(map: &mut M, values: &[(&str, Over)]) -> Result<(), M::Error> {
    values.iter().try_for_each(|(name, [short, long])| {
        map.serialize_entry(&format!("{name}_1s"), short)?;
        map.serialize_entry(&format!("{name}_10s"), long)
    })
}

impl Serialize for PortRates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("port", &self.port)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("rx", &self.total.map(|total| total.ipackets))?;
        map.serialize_entry("tx", &self.total.map(|total| total.opackets))?;
        add_all(&mut map, &self.named())?;
        map.end()
    }
}

impl Serialize for LcoreRates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("lcore", &self.lcore)?;
        map.serialize_entry("rx", &self.counters.rx_packets)?;
        map.serialize_entry("tx", &self.counters.tx_packets)?;
        let Self { busy, rx_pps, tx_pps, dropped_pps, .. } = *self;
        let values = [("busy", busy), ("rx_pps", rx_pps), ("tx_pps", tx_pps), ("dropped_pps", dropped_pps)];
        add_all(&mut map, &values)?;
        map.end()
    }
}

impl Serialize for VrfRates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("rx", &self.packets)?;
        map.serialize_entry("rx_bytes", &self.bytes)?;
        add_all(&mut map, &[("rx_pps", self.rx_pps), ("rx_bps", self.rx_bps)])?;
        map.end()
    }
}

impl Serialize for Rates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("age_s", &self.age().map(|age| age.as_secs_f64()))?;
        add_all(&mut map, &[("seconds", self.seconds)])?;
        map.serialize_entry("rx", &self.counters.rx_packets)?;
        map.serialize_entry("tx", &self.counters.tx_packets)?;
        map.serialize_entry("ports", &self.ports)?;
        map.serialize_entry("lcores", &self.lcores)?;
        map.serialize_entry("vrfs", &self.vrfs)?;
        for (span, name) in ["drops_1s", "drops_10s"].into_iter().enumerate() {
            let drops = self.drops.iter().map(|(reason, over)| (reason.name(), over[span]));
            map.serialize_entry(name, &drops.collect::<BTreeMap<_, _>>())?;
        }
        map.end()
    }
}
