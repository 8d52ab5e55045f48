//! Names of engines, and how each is made. The one place that knows which engines there are.
//!
//! An engine checks its own options; what is checked here is what every engine shares: the name, and that this CPU has
//! the instruction set asked for.

use fib::oracle::OracleEngine;
use fib::{EngineError, EngineOptions, EngineWriter};
use lpm_phi::bloom::BloomEngine;

/// What `--engine auto` stands for: the fastest engine that every host can run. `bloom` has a kernel for each
/// instruction set, so no host is without one.
pub(crate) const AUTO: &str = BloomEngine::NAME;

/// Every name that `--engine` takes, in the order in which messages list them.
pub(crate) const NAMES: [&str; 3] = ["auto", OracleEngine::NAME, BloomEngine::NAME];

/// An empty engine.
///
/// # Errors
/// [`EngineError::Unknown`] for a name that is not in [`NAMES`], [`EngineError::Isa`] when this CPU lacks the
/// instruction set, and the engine's own errors.
pub(crate) fn make(name: &str, options: &EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    if let Some(isa) = options.isa {
        isa.checked()?;
    }
    match if name == "auto" { AUTO } else { name } {
        OracleEngine::NAME => Ok(Box::new(OracleEngine::new(options))),
        BloomEngine::NAME => Ok(Box::new(BloomEngine::new(options)?)),
        _ => Err(EngineError::Unknown { name: name.to_owned(), known: NAMES.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Isa;

    #[test]
    fn every_name_makes_its_engine() {
        let options = EngineOptions { isa: Some(Isa::Scalar), ..EngineOptions::default() };
        for name in NAMES {
            let engine = make(name, &options).unwrap();
            assert_eq!(engine.name(), if name == "auto" { AUTO } else { name });
            assert_eq!(engine.isa(), Isa::Scalar);
        }
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let Err(error) = make("bloomy", &EngineOptions::default()) else { panic!("made an engine 'bloomy'") };
        assert_eq!(error.to_string(), "'bloomy' is no engine; known are: auto, oracle, bloom");
    }

    #[test]
    fn an_instruction_set_that_is_not_there_is_refused_by_every_engine() {
        let Some(isa) = Isa::ALL.into_iter().find(|isa| !isa.is_available()) else {
            eprintln!("SKIPPED: this CPU has every instruction set");
            return;
        };
        for name in NAMES {
            let options = EngineOptions { isa: Some(isa), ..EngineOptions::default() };
            assert!(matches!(make(name, &options), Err(EngineError::Isa(_))), "{name}");
        }
    }
}
