//! Parameters of the GPU engines, from the command line's `name=value` pairs.

pub use crate::gamt::{Layout, NextHops};
use fib::{EngineError, EngineOptions};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Most streams a reader uses: as many as the paper tried (section 5.4.4).
pub const STREAMS_MAX: u16 = 24;

/// How a batch reaches the device and its answers come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Copy in, kernel, copy out: three calls and an event (section 4.4).
    Copy,
    /// The same three as one CUDA graph: one call and an event.
    Graph,
    /// The kernel reads keys from, and writes answers to, host memory that is mapped into the device: one call, an event.
    Mapped,
    /// A kernel that stays on the device polls for batches in mapped memory: no call at all.
    Persistent,
}

impl Mode {
    /// Every mode, with its name on the command line.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Copy, "copy"),
        (Self::Graph, "graph"),
        (Self::Mapped, "mapped"),
        (Self::Persistent, "persistent"),
    ];

    /// A number for `EngineStats::details`: the mode's place in [`Self::ALL`].
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Copy => 0,
            Self::Graph => 1,
            Self::Mapped => 2,
            Self::Persistent => 3,
        }
    }
}

/// Parameters of a GPU engine. Fields that are `None` are chosen by the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The layout of GAMT tables.
    pub layout: Layout,
    /// Where GAMT keeps next hops.
    pub next_hops: NextHops,
    /// Levels of the IPv4 trie, 4..=20.
    pub levels: Option<u8>,
    /// Levels of the IPv6 trie, 8..=30.
    pub levels6: Option<u8>,
    /// Bytes of a memory transaction, for Algorithm 3; the paper's GPU has 128.
    pub transaction_bytes: u32,
    /// Room that each level is given beyond what it needs, percent of it.
    pub headroom_percent: u32,
    /// Streams of a reader, `1..=STREAMS_MAX`.
    pub streams: Option<u16>,
    /// How batches travel.
    pub mode: Option<Mode>,
    /// Blocks of a lookup kernel.
    pub blocks: Option<u32>,
    /// Threads of a block, a multiple of 32.
    pub threads: Option<u32>,
    /// The latency that a batch should stay under; batch size and stream count are measured out for it at start.
    pub latency_target_us: Option<u64>,
    /// Whether tables in service are never written: each delta goes to the second table and the two swap.
    pub frozen: bool,
    /// Bytes of device memory at most, the second table not counted.
    pub table_bytes_max: u64,
    /// How long a lookup waits for a batch, of [`EngineOptions::stall_us`].
    pub stall: Option<Duration>,
}

/// The names, for messages.
const KNOWN: &str = "the parameters are layout, next-hops, levels, levels6, transaction-bytes, headroom, streams, mode, blocks, \
                     threads, latency-target-us and frozen";

impl Default for Params {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            next_hops: NextHops::default(),
            levels: None,
            levels6: None,
            transaction_bytes: 128,
            headroom_percent: 25,
            streams: None,
            mode: None,
            blocks: None,
            threads: None,
            latency_target_us: None,
            frozen: false,
            table_bytes_max: EngineOptions::default().table_bytes_max,
            stall: None,
        }
    }
}

impl Params {
    /// Reads `options`.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for a parameter that is unknown or out of range.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let stall = options.stall_us.map(Duration::from_micros);
        let mut params = Self { table_bytes_max: options.table_bytes_max, stall, ..Self::default() };
        for (name, value) in &options.parameters {
            params.set(name, value)?;
        }
        Ok(params)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), EngineError> {
        match name {
            "layout" => {
                self.layout = choice(
                    "layout",
                    value,
                    "wanted flat or paper",
                    &[(Layout::Flat, "flat"), (Layout::Paper, "paper")],
                )?;
            }
            "next-hops" => {
                let known = [(NextHops::Together, "together"), (NextHops::Apart, "apart")];
                self.next_hops = choice("next-hops", value, "wanted together or apart", &known)?;
            }
            "levels" => self.levels = or_auto("levels", value, 4..=20, "wanted auto or 4 to 20 levels")?,
            "levels6" => self.levels6 = or_auto("levels6", value, 8..=30, "wanted auto or 8 to 30 levels")?,
            "transaction-bytes" => {
                let wanted = "wanted a power of two from 32 to 4096";
                let bytes: u32 = number("transaction-bytes", value, 32..=4096, wanted)?;
                if !bytes.is_power_of_two() {
                    return Err(refused("transaction-bytes", value, wanted));
                }
                self.transaction_bytes = bytes;
            }
            "headroom" => {
                self.headroom_percent = number("headroom", value, 0..=1000, "wanted 0 to 1000 percent")?;
            }
            "streams" => {
                self.streams = Some(number("streams", value, 1..=STREAMS_MAX, "wanted 1 to 24 streams")?);
            }
            "mode" => {
                let wanted = "wanted copy, graph, mapped or persistent";
                self.mode = Some(choice("mode", value, wanted, &Mode::ALL)?);
            }
            "blocks" => self.blocks = Some(number("blocks", value, 1..=65_535, "wanted 1 to 65535 blocks")?),
            "threads" => {
                let wanted = "wanted a multiple of 32 from 32 to 1024";
                let threads: u32 = number("threads", value, 32..=1024, wanted)?;
                if !threads.is_multiple_of(32) {
                    return Err(refused("threads", value, wanted));
                }
                self.threads = Some(threads);
            }
            "latency-target-us" => {
                let wanted = "wanted 1 to 1000000 microseconds";
                self.latency_target_us = Some(number("latency-target-us", value, 1..=1_000_000, wanted)?);
            }
            "frozen" => self.frozen = choice("frozen", value, "wanted 0 or 1", &[(false, "0"), (true, "1")])?,
            _ => {
                let value = format!("{name}={value}");
                return Err(EngineError::Parameter { parameter: "engine parameter", value, wanted: KNOWN });
            }
        }
        Ok(())
    }
}

fn refused(parameter: &'static str, value: &str, wanted: &'static str) -> EngineError {
    EngineError::Parameter { parameter, value: value.to_owned(), wanted }
}

fn number<N: FromStr + PartialOrd>(
    parameter: &'static str,
    value: &str,
    range: RangeInclusive<N>,
    wanted: &'static str,
) -> Result<N, EngineError> {
    value
        .parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| refused(parameter, value, wanted))
}

fn or_auto(
    parameter: &'static str,
    value: &str,
    range: RangeInclusive<u8>,
    wanted: &'static str,
) -> Result<Option<u8>, EngineError> {
    if value == "auto" { Ok(None) } else { number(parameter, value, range, wanted).map(Some) }
}

fn choice<T: Copy>(
    parameter: &'static str,
    value: &str,
    wanted: &'static str,
    known: &[(T, &'static str)],
) -> Result<T, EngineError> {
    known
        .iter()
        .find(|(_, name)| *name == value)
        .map(|(choice, _)| *choice)
        .ok_or_else(|| refused(parameter, value, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Params, EngineError> {
        Params::from_options(&EngineOptions::of(&[(name, value)]))
    }

    #[test]
    fn every_parameter_is_read() {
        assert_eq!(with("layout", "paper").unwrap().layout, Layout::Paper);
        assert_eq!(with("next-hops", "apart").unwrap().next_hops, NextHops::Apart);
        assert_eq!(with("levels", "6").unwrap().levels, Some(6));
        assert_eq!(with("levels", "auto").unwrap().levels, None);
        assert_eq!(with("levels6", "30").unwrap().levels6, Some(30));
        assert_eq!(with("transaction-bytes", "64").unwrap().transaction_bytes, 64);
        assert_eq!(with("headroom", "0").unwrap().headroom_percent, 0);
        assert_eq!(with("streams", "24").unwrap().streams, Some(24));
        assert_eq!(with("blocks", "64").unwrap().blocks, Some(64));
        assert_eq!(with("threads", "1024").unwrap().threads, Some(1024));
        assert_eq!(with("latency-target-us", "100").unwrap().latency_target_us, Some(100));
        assert!(with("frozen", "1").unwrap().frozen);
        for (mode, name) in Mode::ALL {
            assert_eq!(with("mode", name).unwrap().mode, Some(mode));
            assert_eq!(Mode::ALL[usize::from(mode.number())].0, mode);
        }
    }

    #[test]
    fn what_is_out_of_range_or_unknown_is_refused_by_name() {
        for (name, value) in [
            ("layout", "tall"),
            ("next-hops", ""),
            ("levels", "3"),
            ("levels", "21"),
            ("levels6", "7"),
            ("levels6", "31"),
            ("transaction-bytes", "100"),
            ("transaction-bytes", "16"),
            ("headroom", "-1"),
            ("streams", "0"),
            ("streams", "25"),
            ("mode", "magic"),
            ("blocks", "0"),
            ("threads", "48"),
            ("threads", "2048"),
            ("latency-target-us", "0"),
            ("frozen", "yes"),
        ] {
            match with(name, value) {
                Err(EngineError::Parameter { parameter, .. }) => assert_eq!(parameter, name),
                other => panic!("{name}={value}: {other:?}"),
            }
        }
        let error = with("colour", "red").unwrap_err().to_string();
        assert!(error.contains("colour=red") && error.contains("latency-target-us"), "{error}");
    }
}
