//! Errors that end a run, and their exit codes.

use fib::{EngineError, IsaError};
use std::any::Any;

pub(crate) const FAILED: u8 = 1;
pub(crate) const BAD_USAGE: u8 = 2;

pub(crate) const NO_DEVICE: u8 = 3;

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The command line is contradictory, or names something unknown.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Feed(#[from] fib::feed::FeedError),
    #[error(transparent)]
    Generate(#[from] fib::generate::GenerateError),
    #[error(transparent)]
    Traffic(#[from] fib::traffic::TrafficError),
    #[error("{engine}: {source}")]
    Engine { engine: String, source: EngineError },
    #[cfg(feature = "dpdk")]
    #[error("{engine}: {source}")]
    Peer { engine: String, source: dpdk_ffi::DpdkError },
    #[cfg(feature = "dpdk")]
    #[error("{engine}: {what}: {used} needed, at most {limit} fit")]
    PeerFull { engine: String, what: &'static str, used: u64, limit: u64 },
    #[cfg(feature = "dpdk")]
    #[error("DPDK did not start with '{arguments}': {source}")]
    Eal { arguments: String, source: dpdk_ffi::DpdkError },
    #[error("cannot pin a thread to CPU {cpu}; this process may run on: {allowed}")]
    Pin { cpu: usize, allowed: String },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: std::io::Error },
    #[error("{0}")]
    Measurement(String),
}

impl Fault {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Generate(_) | Self::Pin { .. } => BAD_USAGE,
            Self::Engine { source: EngineError::Isa(_) | EngineError::Unknown { .. }, .. } => BAD_USAGE,
            Self::Engine { source: EngineError::Parameter { .. }, .. } => BAD_USAGE,
            Self::Engine { source: EngineError::NoDevice { .. }, .. } => NO_DEVICE,
            _ => FAILED,
        }
    }

    pub(crate) fn refused_by(engine: &str) -> impl Fn(EngineError) -> Self {
        move |source| Self::Engine { engine: engine.to_owned(), source }
    }

    pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Self {
        Self::Measurement("a lookup thread panicked".into())
    }

    /// Whether a device is absent: no failure of the run while others are measured.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Engine { source: EngineError::NoDevice { .. }, .. })
    }

    /// Whether a table does not fit, which is a finding and not a failure of the run.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Engine { source: EngineError::Full { .. }, .. } => true,
            #[cfg(feature = "dpdk")]
            Self::PeerFull { .. } => true,
            _ => false,
        }
    }
}

impl From<IsaError> for Fault {
    fn from(why: IsaError) -> Self {
        Self::Usage(why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_usage_from_failure() {
        assert_eq!(Fault::Usage("x".into()).exit_code(), BAD_USAGE);
        assert_eq!(Fault::Measurement("x".into()).exit_code(), FAILED);
        let full = EngineError::Full { what: "next hops", used: 9, limit: 8 };
        let full = Fault::Engine { engine: "bloom".into(), source: full };
        assert_eq!((full.exit_code(), full.is_refusal()), (FAILED, true));
        assert_eq!(full.to_string(), "bloom: next hops: 9 needed, at most 8 fit");
        let absent = EngineError::NoDevice { engine: "gamt", device: "GPU", reason: "none".into() };
        let absent = Fault::Engine { engine: "gamt".into(), source: absent };
        assert_eq!((absent.exit_code(), absent.is_refusal(), absent.is_absence()), (NO_DEVICE, false, true));
        let isa = IsaError::Unknown { name: "sse9".into() };
        assert_eq!(Fault::from(isa).exit_code(), BAD_USAGE);
    }
}
