//! The harness of `replay`: drives a forwarder with a capture, measures it and verifies its output.
//!
//! The stages are the same as in `run`, over `net_ring` ports. The main lcore polls [`feeder`] and [`sink`]; on a single CPU it polls the
//! stages too. At full speed without an observer of the output the packets are prepared in mbufs instead ([`ready`]).
//!
//! | module | contents |
//! |---|---|
//! | [`trace`] | the capture in memory |
//! | [`interfaces`] | `--port-of`: ports by interface of the capture |
//! | [`deal`] | input, VRF and expected result of each frame |
//! | [`expected`] | for `--verify`: the correct result of each frame |
//! | [`source`] | the frames to feed, from memory or streamed |
//! | [`stream`], [`read_ahead`] | a trace read during the replay |
//! | [`make`] | generated packets, and changes to captured ones |
//! | [`pcap_file`] | writes captures |
//! | [`setup`] | lcores, queues, sizes, EAL arguments |
//! | [`schedule`] | intended send times |
//! | [`trials`] | the sequence of trials: warm-up, search, curve over load |
//! | [`feeder`] | packets into the forwarder |
//! | [`ready`] | packets prepared in mbufs: full speed without a feeder |
//! | [`sink`] | packets out of the forwarder: order, latency, captures |
//! | [`link`] | a link of a known rate behind a port |
//! | [`mod@reference`] | the correct treatment of a packet, computed independently |
//! | [`verify`] | `--verify`: the results against the reference |
//! | [`history`] | for `--verify`: the valid next hops of a frame during `--updates` |
//! | [`drive`] | the ports, rings and pools |
//! | [`turns`] | the loop of the main lcore |

#[cfg(test)]
mod audited;
pub(crate) mod deal;
pub(crate) mod drive;
pub(crate) mod expected;
pub(crate) mod feeder;
pub(crate) mod history;
pub(crate) mod interfaces;
mod link;
pub(crate) mod make;
#[cfg(test)]
mod panics;
mod pcap_file;
pub(crate) mod read_ahead;
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

#[derive(Clone, Debug)]
pub(crate) struct HarnessSpec {
    pub(crate) ports: u16,
    pub(crate) loops: u64,
    pub(crate) duration: Option<Duration>,
    pub(crate) warmup: Option<Duration>,
    /// Time over which the rate rises at the start.
    pub(crate) ramp: Option<Duration>,
    /// `--search` or `--curve`, which replace the plain replay.
    pub(crate) search: Option<SearchSpec>,
    pub(crate) rate: OfferedRate,
    pub(crate) spread: bool,
    /// Without `spread`: the ports of the capture's interfaces; others arrive on port 0.
    pub(crate) port_of: Vec<PortOf>,
    /// Folder for a capture of each port's output.
    pub(crate) out: Option<PathBuf>,
    /// Lcores of the forwarder, unless a queue map gives them.
    pub(crate) lcores: Option<u16>,
    /// The sink takes packets on every n-th poll only.
    pub(crate) tx_slow: u32,
    pub(crate) tx_rate: Option<OfferedRate>,
    pub(crate) updates: UpdateSpec,
    /// Mbufs for packets; `None` derives them from the window.
    pub(crate) mbufs: Option<u32>,
}

impl HarnessSpec {
    /// # Errors
    /// [`ConfigError::Invalid`] for options that exclude each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let rules = self.search.as_ref().map(|search| &search.rules);
        let is_timed = self.duration.is_some() || self.ramp.is_some() || self.loops > 1;
        let message = match self.rate {
            _ if rules.is_some() && (is_timed || self.rate != OfferedRate::Max) => {
                "--search and --curve exclude --rate, --ramp, --loops and --duration, which the trials set"
            }
            _ if self.tx_rate.is_some() && self.tx_slow > 1 => "--tx-rate excludes --tx-slow",
            _ if self.rate.is_relative() && self.duration.is_none() => {
                "--rate N% needs --duration; the search before it takes as much of the trace as it needs"
            }
            _ if self.warmup.is_some() && self.duration.is_none() && rules.is_none() => {
                "--warmup needs --duration, so that packets are left to measure"
            }
            OfferedRate::Max | OfferedRate::Times(_) if self.ramp.is_some() => {
                "--ramp needs a --rate in pps, in bps or in percent"
            }
            OfferedRate::Between(..) if self.ramp.is_none() && self.duration.is_none() => {
                "--rate A..B needs --ramp or --duration, within which the rate changes"
            }
            _ if rules.is_some_and(|rules| rules.duration_sum_s < rules.final_trial_s) => {
                "--search-sum must be at least one trial, see --search-trial"
            }
            _ if rules.is_some_and(|rules| rules.width <= 0.0) => "--search-width must be above 0",
            _ => return Ok(()),
        };
        Err(ConfigError::Invalid(message.to_owned()))
    }

    pub(crate) fn has_lossy_trials(&self) -> bool {
        self.search.is_some() || self.rate.is_relative()
    }

    /// Most passes over the trace; unlimited where trials are limited in time.
    pub(crate) fn source_loops(&self) -> u64 {
        if self.has_lossy_trials() { u64::MAX } else { self.loops }
    }

    pub(crate) fn has_slow_sink(&self) -> bool {
        self.tx_slow > 1 || self.tx_rate.is_some()
    }
}

/// Bytes of IP packet.
const MTU_BYTES: u16 = 1500;

/// `net_ring_port0`, .. with MACs `02:f0:00:00:00:PP`.
pub(crate) fn ports(count: u16) -> PortTable {
    let port = |i: u16| {
        let [high, low] = i.to_be_bytes();
        PortRecord::new(i, format!("net_ring_port{i}"), MacAddr([0x02, 0xf0, 0, 0, high, low]), MTU_BYTES)
    };
    PortTable::new((0..count).map(port).collect())
}

/// Whether a packet of the trace would be fragmented when routed.
pub(crate) fn has_fragments(trace: &Trace) -> bool {
    let is_cut = |frame: &[u8]| {
        let long = checked(frame).ok().filter(|checked| checked.ip_bytes > u32::from(MTU_BYTES));
        long.and_then(|checked| Cut::new(frame, usize::from(checked.ip_at), MTU_BYTES)).is_some()
    };
    (0..trace.len()).any(|frame| is_cut(trace.frame(frame)))
}

#[cfg(test)]
impl HarnessSpec {
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
