//! Parameters of the GPU engines, from the command line's `name=value` pairs.

use crate::gamt::options::{LEVELS_V4, LEVELS_V6};
pub use crate::gamt::{GamtOptions, Layout, NextHops};
use fib::{EngineError, EngineOptions};
use lpm_core::params::Parameter;
use std::time::Duration;

/// Name of the GALE poster's engine, the GAMT paper's baseline.
pub const GALE: &str = "gale";
/// Most streams of a reader: the paper's range (section 5.4.4).
pub const STREAMS_MAX: u16 = 24;

/// Largest device number accepted; far above any driver's count.
const DEVICE_MAX: u32 = 1023;

/// Transport of a batch to the device and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Copy in, kernel, copy out: three calls and an event (section 4.4).
    Copy,
    /// The kernel reads keys from mapped host memory, and writes answers to it: one call and an event.
    Mapped,
    /// A persistent kernel polls mapped memory for batches: no call.
    Persistent,
}

impl Mode {
    /// Every mode with its name on the command line.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Copy, "copy"), (Self::Mapped, "mapped"), (Self::Persistent, "persistent")];
}

/// Parameters of a GPU engine. The engine chooses fields that are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuParams {
    /// The device, by the driver's number in this process.
    pub device: u32,
    /// Options of GAMT tables, and those common to all tables.
    pub gamt: GamtOptions,
    /// Levels of the IPv6 trie, 8..=30.
    pub levels6: Option<u8>,
    /// Streams of a reader, `1..=STREAMS_MAX`.
    pub streams: Option<u16>,
    /// Transport of batches. `None`, `auto`: measured for each size of readers.
    pub mode: Option<Mode>,
    /// Blocks of a lookup kernel.
    pub blocks: Option<u32>,
    /// Threads of a block, a multiple of 32.
    pub threads: Option<u32>,
    /// Stages of GALE's table, 1 or 2.
    pub stages: Option<u8>,
    /// Threads of the block that runs GALE's operations, a multiple of 32.
    pub update_threads: Option<u32>,
    /// Target latency of a batch: batch size and stream count are calibrated for it at start.
    pub latency_target_us: Option<u64>,
    /// Never write tables in service: each delta goes to the second table, and the two swap.
    pub frozen: bool,
    /// How long a lookup waits for a batch ([`EngineOptions::stall_us`]).
    pub stall: Option<Duration>,
}

const KNOWN: &str = "the parameters are device, layout, next-hops, levels, levels6, transaction-bytes, headroom, stages, \
                     update-threads, streams, mode, blocks, threads, latency-target-us and frozen";

impl GpuParams {
    /// Reads `options`.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for an unknown parameter or one out of range.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let mut params = Self { stall: options.stall_us.map(Duration::from_micros), ..Self::default() };
        params.gamt.table_bytes_max = options.table_bytes_max;
        for parameter in Parameter::all(options) {
            params.set(parameter)?;
        }
        Ok(params)
    }

    /// Refuses parameters that `engine` does not have.
    ///
    /// # Errors
    /// [`EngineError::Parameter`].
    pub fn check_engine(&self, engine: &str) -> Result<(), EngineError> {
        let given = [
            ("stages", self.stages.map(|stages| stages.to_string())),
            ("update-threads", self.update_threads.map(|threads| threads.to_string())),
        ];
        match given.into_iter().find_map(|(parameter, value)| Some((parameter, value?))) {
            Some((parameter, value)) if engine != GALE => Err(EngineError::Parameter {
                parameter,
                value,
                wanted: "only the engine gale has this parameter",
            }),
            _ => Ok(()),
        }
    }

    fn set(&mut self, parameter: Parameter<'_>) -> Result<(), EngineError> {
        let gamt = &mut self.gamt;
        match parameter.name {
            "device" => {
                let wanted = "wanted the number of a device, from 0 on";
                self.device = parameter.within("device", &(0..=DEVICE_MAX), wanted)?;
            }
            "layout" => {
                let known = [(Layout::Flat, "flat"), (Layout::Paper, "paper")];
                gamt.layout = choice(parameter, "layout", "wanted flat or paper", &known)?;
            }
            "next-hops" => {
                let known = [(NextHops::Together, "together"), (NextHops::Apart, "apart")];
                gamt.next_hops = choice(parameter, "next-hops", "wanted together or apart", &known)?;
            }
            "levels" => {
                let wanted = "wanted auto or 4 to 20 levels";
                gamt.levels = parameter.auto_or_within("levels", &LEVELS_V4, wanted)?;
            }
            "levels6" => {
                let wanted = "wanted auto or 8 to 30 levels";
                self.levels6 = parameter.auto_or_within("levels6", &LEVELS_V6, wanted)?;
            }
            "transaction-bytes" => {
                let wanted = "wanted a power of two from 32 to 4096";
                gamt.transaction_bytes = parameter.within("transaction-bytes", &(32..=4096), wanted)?;
                if !gamt.transaction_bytes.is_power_of_two() {
                    return Err(parameter.refuse("transaction-bytes", wanted));
                }
            }
            "headroom" => {
                gamt.headroom_percent =
                    parameter.within("headroom", &(0..=1000), "wanted 0 to 1000 percent")?;
            }
            "streams" => {
                self.streams =
                    Some(parameter.within("streams", &(1..=STREAMS_MAX), "wanted 1 to 24 streams")?);
            }
            "mode" => {
                let wanted = "wanted auto, copy, mapped or persistent";
                self.mode = match parameter.value {
                    "auto" => None,
                    _ => Some(choice(parameter, "mode", wanted, &Mode::ALL)?),
                };
            }
            "blocks" => {
                self.blocks = Some(parameter.within("blocks", &(1..=65_535), "wanted 1 to 65535 blocks")?);
            }
            "threads" => self.threads = Some(threads(parameter, "threads")?),
            "update-threads" => self.update_threads = Some(threads(parameter, "update-threads")?),
            "stages" => {
                self.stages = Some(parameter.within("stages", &(1..=2), "wanted 1 or 2 stages")?);
            }
            "latency-target-us" => {
                let wanted = "wanted 1 to 1000000 microseconds";
                self.latency_target_us =
                    Some(parameter.within("latency-target-us", &(1..=1_000_000), wanted)?);
            }
            "frozen" => {
                let known = [(false, "0"), (true, "1")];
                self.frozen = choice(parameter, "frozen", "wanted 0 or 1", &known)?;
            }
            _ => return Err(parameter.refuse_name(KNOWN)),
        }
        Ok(())
    }
}

fn threads(parameter: Parameter<'_>, name: &'static str) -> Result<u32, EngineError> {
    let wanted = "wanted a multiple of 32 from 32 to 1024";
    let threads: u32 = parameter.within(name, &(32..=1024), wanted)?;
    if threads.is_multiple_of(32) { Ok(threads) } else { Err(parameter.refuse(name, wanted)) }
}

fn choice<T: Copy>(
    parameter: Parameter<'_>,
    name: &'static str,
    wanted: &'static str,
    known: &[(T, &'static str)],
) -> Result<T, EngineError> {
    let found = known.iter().find(|(_, word)| *word == parameter.value);
    found.map(|(choice, _)| *choice).ok_or_else(|| parameter.refuse(name, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<GpuParams, EngineError> {
        GpuParams::from_options(&EngineOptions::with_parameters(&[(name, value)]))
    }

    #[test]
    fn every_parameter_is_read() {
        assert_eq!(with("device", "3").unwrap().device, 3);
        assert_eq!(with("layout", "paper").unwrap().gamt.layout, Layout::Paper);
        assert_eq!(with("next-hops", "apart").unwrap().gamt.next_hops, NextHops::Apart);
        assert_eq!(with("levels", "6").unwrap().gamt.levels, Some(6));
        assert_eq!(with("levels", "auto").unwrap().gamt.levels, None);
        assert_eq!(with("levels6", "30").unwrap().levels6, Some(30));
        assert_eq!(with("transaction-bytes", "64").unwrap().gamt.transaction_bytes, 64);
        assert_eq!(with("headroom", "0").unwrap().gamt.headroom_percent, 0);
        assert_eq!(with("streams", "24").unwrap().streams, Some(24));
        assert_eq!(with("blocks", "64").unwrap().blocks, Some(64));
        assert_eq!(with("threads", "1024").unwrap().threads, Some(1024));
        assert_eq!(with("stages", "1").unwrap().stages, Some(1));
        assert_eq!(with("update-threads", "64").unwrap().update_threads, Some(64));
        assert_eq!(with("latency-target-us", "100").unwrap().latency_target_us, Some(100));
        assert!(with("frozen", "1").unwrap().frozen);
        assert_eq!(with("mode", "auto").unwrap().mode, None);
        for (mode, name) in Mode::ALL {
            assert_eq!(with("mode", name).unwrap().mode, Some(mode));
            assert_eq!(Mode::ALL[mode as usize].0, mode);
        }
    }

    #[test]
    fn parameters_of_gale_are_refused_elsewhere() {
        let params = with("stages", "1").unwrap();
        assert!(params.check_engine(GALE).is_ok());
        let refused = params.check_engine("gamt").unwrap_err().to_string();
        assert!(refused.contains("stages = 1") && refused.contains("gale"), "{refused}");
    }

    #[test]
    fn what_is_out_of_range_or_unknown_is_refused_by_name() {
        for (name, value) in [
            ("device", "-1"),
            ("device", "1024"),
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
            ("update-threads", "33"),
            ("stages", "0"),
            ("stages", "3"),
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
