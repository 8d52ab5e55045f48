//! The conformance suite on the engine `oracle`.

use fib::EngineOptions;
use fib::oracle::OracleEngine;

fib::conformance_tests!(oracle, || Ok(Box::new(OracleEngine::new(&EngineOptions::default()))));
