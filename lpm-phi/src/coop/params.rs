//! Parameters of the engine `coop` and of its two engines.

use fib::{EngineError, EngineOptions};
use std::time::Duration;

const THREADS_MAX: usize = 64;
/// The default limit for a half to keep a batch: far above the time of any batch, far below a person's patience.
const STALL_US: u64 = 1_000_000;

/// Parameters, from the command line's `name=value` pairs.
#[derive(Clone, Debug)]
pub struct CoopParams {
    /// The name of the first half's engine; `None` leaves it to the caller.
    pub first: Option<String>,
    /// The name of the second half's engine; `None` leaves it to the caller.
    pub second: Option<String>,
    /// The first half's share of every batch, 0..=1; `None` measures it.
    pub split: Option<f64>,
    /// Helper threads of each reader.
    pub threads: usize,
    /// The CPUs of the helper threads, assigned in turn; if empty, the system chooses, without the CPU of a pinned caller.
    pub cpus: Vec<usize>,
    /// The time limit for a half to keep a batch.
    pub stall: Duration,
    /// Options of the first engine.
    pub first_options: EngineOptions,
    /// Options of the second engine.
    pub second_options: EngineOptions,
}

impl CoopParams {
    /// Reads `first`, `second` (names of engines), `split` (0..1), `threads` (1..64), `cpus` (comma-separated numbers), `stall-us`
    /// (100..60000000); `first.NAME=VALUE` and `second.NAME=VALUE` are parameters of the two engines.
    ///
    /// # Errors
    /// [`EngineError::Parameter`] for an unknown parameter or value.
    pub fn from_options(options: &EngineOptions) -> Result<Self, EngineError> {
        let bare = EngineOptions { parameters: Vec::new(), ..options.clone() };
        let mut params = Self {
            first: None,
            second: None,
            split: None,
            threads: 1,
            cpus: Vec::new(),
            stall: Duration::from_micros(STALL_US),
            first_options: bare.clone(),
            second_options: bare,
        };
        for (name, value) in &options.parameters {
            params.read(name, value)?;
        }
        Ok(params)
    }

    fn read(&mut self, name: &str, value: &str) -> Result<(), EngineError> {
        let refuse =
            |parameter, wanted| EngineError::Parameter { parameter, value: value.to_owned(), wanted };
        match name {
            "first" => self.first = Some(value.to_owned()),
            "second" => self.second = Some(value.to_owned()),
            "split" => {
                let split = value.parse().ok().filter(|split| (0.0..=1.0).contains(split));
                self.split = Some(split.ok_or_else(|| refuse("split", "wanted a fraction between 0 and 1"))?);
            }
            "threads" => {
                let threads = value.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
                self.threads = threads.ok_or_else(|| refuse("threads", "wanted 1 to 64 helper threads"))?;
            }
            "cpus" => {
                let cpus = value.split(',').map(|cpu| cpu.trim().parse().ok()).collect::<Option<_>>();
                self.cpus = cpus.ok_or_else(|| refuse("cpus", "wanted CPU numbers with commas between"))?;
            }
            "stall-us" => {
                let stall_us = value.parse().ok().filter(|us| (100..=60_000_000).contains(us));
                let stall_us =
                    stall_us.ok_or_else(|| refuse("stall-us", "wanted 100 to 60000000 microseconds"))?;
                self.stall = Duration::from_micros(stall_us);
            }
            _ => {
                let pair = |name: &str| (name.to_owned(), value.to_owned());
                if let Some(name) = name.strip_prefix("first.") {
                    self.first_options.parameters.push(pair(name));
                } else if let Some(name) = name.strip_prefix("second.") {
                    self.second_options.parameters.push(pair(name));
                } else {
                    return Err(EngineError::Parameter {
                        parameter: "engine parameter",
                        value: format!("{name}={value}"),
                        wanted: "the parameters of engine coop are first, second, split, threads, cpus, stall-us, \
                                 first.NAME and second.NAME",
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(not(model))]
#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<CoopParams, EngineError> {
        CoopParams::from_options(&EngineOptions::with_parameters(pairs))
    }

    #[test]
    fn parameters_are_read_and_handed_on() {
        let params = read(&[
            ("first", "gamt"),
            ("second", "bloom"),
            ("split", "0.25"),
            ("threads", "2"),
            ("cpus", "1, 3"),
            ("stall-us", "5000"),
            ("first.mode", "mapped"),
            ("second.fpr", "0.1"),
        ])
        .unwrap();
        assert_eq!((params.first.as_deref(), params.second.as_deref()), (Some("gamt"), Some("bloom")));
        assert_eq!((params.split, params.threads, params.cpus), (Some(0.25), 2, vec![1, 3]));
        assert_eq!(params.stall, Duration::from_millis(5));
        assert_eq!(params.first_options.parameters, [("mode".to_owned(), "mapped".to_owned())]);
        assert_eq!(params.second_options.parameters, [("fpr".to_owned(), "0.1".to_owned())]);
    }

    #[test]
    fn wrong_parameters_are_refused() {
        for (name, value) in [
            ("split", "1.5"),
            ("split", "-0.1"),
            ("split", "NaN"),
            ("split", "half"),
            ("threads", "0"),
            ("threads", "65"),
            ("cpus", ""),
            ("cpus", "1,x"),
            ("stall-us", "1"),
            ("fpr", "0.1"),
        ] {
            assert!(matches!(read(&[(name, value)]), Err(EngineError::Parameter { .. })), "{name}={value}");
        }
    }
}
