//! The harness of `replay`: drives a forwarder with a capture, measures it, and judges what comes out.
//!
//! The stages are those of `run`, over `net_ring` ports: the [`feeder`] puts packets in the ports' RX rings, the [`sink`] takes
//! them from their TX rings. Both are polled by the main lcore; the forwarder's stages run on lcores of their own, or, on a
//! single CPU, are polled in turn with them. At full speed, when nobody looks at what leaves, there is neither feeder nor sink: the
//! packets lie [`ready`] in mbufs, and the main lcore only waits.
//!
//! | module | what lives there |
//! |---|---|
//! | [`trace`] | the capture in memory |
//! | [`interfaces`] | `--port-of`: ports by interface of the capture |
//! | [`deal`] | the input and the VRF of each frame |
//! | [`source`] | what is fed: a trace in memory, or one that is read meanwhile |
//! | [`stream`], [`read_ahead`] | a trace that is read while it is replayed |
//! | [`make`] | packets that are made, and changes to those of a capture |
//! | [`pcap_file`] | captures that are written |
//! | [`setup`] | lcores, queues, sizes, EAL arguments |
//! | [`schedule`] | when each packet is meant to be sent |
//! | [`trials`] | what is sent one after the other: a warm-up, a search, a curve by load |
//! | [`feeder`] | packets into the forwarder |
//! | [`ready`] | packets that lie ready in mbufs: full speed without a feeder |
//! | [`sink`] | packets out of it: order, latency, captures |
//! | [`link`] | a link of a known rate behind a port |
//! | [`mod@reference`] | what must become of a packet, by the definition |
//! | [`verify`] | `--verify`: the results against the reference |
//! | [`history`] | for `--verify`: the next hops that a frame can have while `--updates` are applied |
//! | [`drive`] | the ports, rings and pools |
//! | [`turns`] | the loop of the main lcore |

pub(crate) mod deal;
pub(crate) mod drive;
pub(crate) mod feeder;
pub(crate) mod history;
pub(crate) mod interfaces;
mod link;
pub(crate) mod make;
#[cfg(test)]
mod panics;
mod pcap_file;
mod read_ahead;
mod ready;
pub(crate) mod reference;
#[cfg(test)]
mod retired;
pub(crate) mod schedule;
pub(crate) mod setup;
mod sink;
pub(crate) mod source;
pub(crate) mod stream;
#[cfg(test)]
mod test_replay;
pub(crate) mod trace;
pub(crate) mod trials;
mod turns;
pub(crate) mod verify;

pub(crate) use drive::{Replay, ReplayOutcome};
pub(crate) use schedule::{OfferedRate, RateUnit};
pub(crate) use trials::SearchSpec;

use crate::datapath::fragment::Cut;
use crate::error::ConfigError;
use crate::forwarder::updates::UpdateSpec;
use crate::ports::{PortRecord, PortTable};
use fib::MacAddr;
use interfaces::PortOf;
use reference::checked;
use std::path::PathBuf;
use std::time::Duration;
use trace::Trace;

/// How a capture is replayed.
#[derive(Clone, Debug)]
pub(crate) struct HarnessSpec {
    /// Ports of the forwarder.
    pub(crate) ports: u16,
    /// Times the trace is sent, at most.
    pub(crate) loops: u64,
    /// How long it is sent, at most.
    pub(crate) duration: Option<Duration>,
    /// How long it is sent before that, without being measured.
    pub(crate) warmup: Option<Duration>,
    /// How long the rate rises at the start.
    pub(crate) ramp: Option<Duration>,
    /// The search that is made instead.
    pub(crate) search: Option<SearchSpec>,
    /// Speed the trace is offered at.
    pub(crate) rate: OfferedRate,
    /// Whether the trace is dealt by flow over all ports.
    pub(crate) spread: bool,
    /// Else packets of these interfaces of the capture arrive on these ports, and all others on port 0.
    pub(crate) port_of: Vec<PortOf>,
    /// Where to write what leaves by each port.
    pub(crate) out: Option<PathBuf>,
    /// Lcores of the forwarder when no queue map says.
    pub(crate) lcores: Option<u16>,
    /// The sink takes packets on one poll in so many.
    pub(crate) tx_slow: u32,
    /// The rate of the link behind each port.
    pub(crate) tx_rate: Option<OfferedRate>,
    /// How the update stream is applied.
    pub(crate) updates: UpdateSpec,
    /// Mbufs for packets; as many as may be inside when `None`.
    pub(crate) mbufs: Option<u32>,
}

impl HarnessSpec {
    /// # Errors
    /// [`ConfigError::Invalid`] for what does not go together.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let rules = self.search.as_ref().map(|search| &search.rules);
        let is_timed = self.duration.is_some() || self.ramp.is_some() || self.loops > 1;
        let message = match self.rate {
            _ if rules.is_some() && (is_timed || self.rate != OfferedRate::Max) => {
                "--search and --curve: without --rate, --ramp, --loops and --duration, which the trials have of their own"
            }
            _ if self.tx_rate.is_some() && self.tx_slow > 1 => "--tx-rate: without --tx-slow",
            _ if self.rate.is_relative() && self.duration.is_none() => {
                "--rate N%: with a --duration only; the search before takes as much of the trace as it needs"
            }
            _ if self.warmup.is_some() && self.duration.is_none() && rules.is_none() => {
                "--warmup: with a --duration only, or there may be nothing left to measure"
            }
            OfferedRate::Max | OfferedRate::Times(_) if self.ramp.is_some() => {
                "--ramp: only with a --rate in pps, in bps or in percent"
            }
            OfferedRate::Between(..) if self.ramp.is_none() && self.duration.is_none() => {
                "--rate A..B: only with a --ramp or a --duration, within which the rate changes"
            }
            _ if rules.is_some_and(|rules| rules.duration_sum_s < rules.final_trial_s) => {
                "--search-sum: one trial at least, see --search-trial"
            }
            _ if rules.is_some_and(|rules| rules.width <= 0.0) => "--search-width: more than 0",
            _ => return Ok(()),
        };
        Err(ConfigError::Invalid(message.to_owned()))
    }

    /// Whether packets that find no room in the forwarder are lost in some of the trials.
    pub(crate) fn has_lossy_trials(&self) -> bool {
        self.search.is_some() || self.rate.is_relative()
    }

    /// How often the trace is sent at most; without an end where trials have times of their own.
    pub(crate) fn source_loops(&self) -> u64 {
        if self.has_lossy_trials() { u64::MAX } else { self.loops }
    }

    /// Whether the receiving side is slow on purpose.
    pub(crate) fn has_slow_sink(&self) -> bool {
        self.tx_slow > 1 || self.tx_rate.is_some()
    }
}

/// The MTU of a replay's ports, bytes of IP packet.
const MTU_BYTES: u16 = 1500;

/// The ports of a replay: `net_ring_port0`, .. with MACs `02:f0:00:00:00:PP`.
pub(crate) fn ports(count: u16) -> PortTable {
    let port = |i: u16| {
        let [high, low] = i.to_be_bytes();
        PortRecord::new(i, format!("net_ring_port{i}"), MacAddr([0x02, 0xf0, 0, 0, high, low]), MTU_BYTES)
    };
    PortTable::of((0..count).map(port).collect())
}

/// Whether a packet of the trace leaves a replay as fragments, if it has a route.
pub(crate) fn has_fragments(trace: &Trace) -> bool {
    let is_cut = |frame: &[u8]| {
        let long = checked(frame).ok().filter(|checked| checked.ip_bytes > u32::from(MTU_BYTES));
        long.and_then(|checked| Cut::new(frame, usize::from(checked.ip_at), MTU_BYTES)).is_some()
    };
    (0..trace.len()).any(|frame| is_cut(trace.frame(frame)))
}

#[cfg(test)]
impl HarnessSpec {
    /// What the command line says when it says nothing.
    pub(crate) fn usual() -> Self {
        Self {
            ports: 4,
            loops: 1,
            duration: None,
            warmup: None,
            ramp: None,
            search: None,
            rate: OfferedRate::Max,
            spread: false,
            port_of: Vec::new(),
            out: None,
            lcores: None,
            tx_slow: 1,
            tx_rate: None,
            updates: UpdateSpec { rate: None, loops: 1, per_commit: 1024 },
            mbufs: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_together_is_refused() {
        let second = Some(Duration::from_secs(1));
        let usual = HarnessSpec::usual;
        let even = OfferedRate::Pps(1e6);
        let between = OfferedRate::Between(1.0, 2.0, RateUnit::Pps);
        assert_eq!(usual().check(), Ok(()));
        for (spec, said) in [
            (HarnessSpec { warmup: second, ..usual() }, Some("--warmup")),
            (HarnessSpec { warmup: second, duration: second, ..usual() }, None),
            (HarnessSpec { ramp: second, ..usual() }, Some("--ramp")),
            (HarnessSpec { ramp: second, rate: OfferedRate::Times(1.0), ..usual() }, Some("--ramp")),
            (HarnessSpec { ramp: second, rate: even, ..usual() }, None),
            (HarnessSpec { rate: OfferedRate::Percent(5.0), ..usual() }, Some("--rate N%")),
            (HarnessSpec { rate: OfferedRate::Percent(5.0), duration: second, ..usual() }, None),
            (HarnessSpec { rate: between, ..usual() }, Some("--rate A..B")),
            (HarnessSpec { rate: between, duration: second, ..usual() }, None),
            (HarnessSpec { rate: between, ramp: second, ..usual() }, None),
            (HarnessSpec { tx_rate: Some(even), tx_slow: 2, ..usual() }, Some("--tx-rate")),
        ] {
            match said {
                None => assert_eq!(spec.check(), Ok(()), "{spec:?}"),
                Some(said) => {
                    let error = spec.check().unwrap_err().to_string();
                    assert!(error.starts_with(said), "{error}");
                }
            }
        }
    }
}
