//! Rates: what each port, lcore and VRF did over the last second and the last ten.
//!
//! The control thread takes a sample of all counters once a second ([`sampler`]) and makes a [`Rates`] of the last ones, which replaces
//! the one before as a whole. Any thread reads it, and its age, without waiting for the control thread.
//!
//! A rate is over the time that passed between two samples ([`history`]), so a sample that comes late is exact. There is none before the
//! second sample. A port whose counters cannot be read has no rates, and one whose counters go back (a device that was reset, `clear port
//! stats`) starts anew.
//!
//! | module | what lives there |
//! |---|---|
//! | this one | [`Rates`]: what is shown |
//! | [`sampler`] | [`Sampler`](sampler::Sampler): takes samples in turn with the other work of the control thread |
//! | [`history`] | the last samples of one thing, and rates over them |
//! | [`alarms`] | warnings of losses and of busy lcores |

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

/// Where the newest rates are; each is replaced as a whole.
pub(crate) type SharedRates = Arc<ArcSwap<Rates>>;

/// The rates of a forwarder, and what it had counted when they were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates {
    /// When they were made; `None` before the first sample.
    pub(crate) made: Option<Instant>,
    /// How many seconds the rates are over, but those of ports.
    pub(crate) seconds: Over,
    /// By index.
    pub(crate) ports: Vec<PortRates>,
    /// The lcores that run stages, and those that could.
    pub(crate) lcores: Vec<LcoreRates>,
    /// By number.
    pub(crate) vrfs: Vec<VrfRates>,
    /// Dropped packets a second, in the order of [`DropReason::ALL`].
    pub(crate) drops: Vec<(DropReason, Over)>,
    /// What all stages and the router had counted.
    pub(crate) counters: Counters,
    /// Times that the control thread has found a pool of packets without an mbuf outside the caches of lcores. Some drivers neither receive nor
    /// count anything then.
    pub(crate) empty_pools: u64,
}

/// What the driver of a port counted a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortRates {
    /// Its index.
    pub(crate) port: u16,
    /// Its name.
    pub(crate) name: String,
    /// How many seconds the rates are over.
    pub(crate) seconds: Over,
    /// Packets received.
    pub(crate) rx_pps: Over,
    /// Packets sent.
    pub(crate) tx_pps: Over,
    /// Bits received, frames without their checksum (layer 2).
    pub(crate) rx_bps: Over,
    /// Bits sent, as those received.
    pub(crate) tx_bps: Over,
    /// Packets lost because the RX queue was full.
    pub(crate) rx_missed: Over,
    /// Packets received with an error.
    pub(crate) rx_errors: Over,
    /// Times that the mempool had no mbuf for a packet.
    pub(crate) rx_nombuf: Over,
    /// Packets that could not be sent.
    pub(crate) tx_errors: Over,
    /// The counters themselves, since the start or the last reset; `None` when they cannot be read.
    pub(crate) total: Option<PortStats>,
}

/// What an lcore did a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct LcoreRates {
    /// Its number.
    pub(crate) lcore: u32,
    /// The share of the time that it worked on packets, 0 to 1.
    pub(crate) busy: Over,
    /// Packets that its stages received.
    pub(crate) rx_pps: Over,
    /// Packets that its stages sent.
    pub(crate) tx_pps: Over,
    /// Packets that its stages dropped.
    pub(crate) dropped_pps: Over,
    /// What its stages had counted.
    pub(crate) counters: Counters,
}

/// What was received in a VRF a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct VrfRates {
    /// Its name.
    pub(crate) name: String,
    /// Packets received.
    pub(crate) rx_pps: Over,
    /// Bits received (layer 2).
    pub(crate) rx_bps: Over,
    /// Packets received since the start.
    pub(crate) packets: u64,
    /// Bytes received since the start.
    pub(crate) bytes: u64,
}

/// Losses of NICs: packets missed, received with an error, and without an mbuf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicLosses {
    /// Packets lost because the RX queue was full.
    pub(crate) missed: u64,
    /// Packets received with an error.
    pub(crate) errors: u64,
    /// Times that the mempool had no mbuf for a packet.
    pub(crate) nombuf: u64,
}

impl Rates {
    /// How long ago they were made.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.made.map(|made| made.elapsed())
    }

    /// What the NICs have lost since `before`. Ports whose counters could not be read then or now, or have gone back, have lost nothing.
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
    /// Its rates, with their names.
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

/// Adds each value under its name with `_1s` and `_10s`.
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
