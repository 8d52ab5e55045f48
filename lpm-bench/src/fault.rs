//! Why a run ends early, and with which exit code.
//!
//! 0: done. 1: a failure, or a wrong answer was found. 2: the command line or the configuration is wrong. 3: a device that
//! a named engine needs is absent.

use fib::{EngineError, IsaError};
use std::any::Any;

/// The exit code of a run that failed or found wrong answers.
pub(crate) const FAILED: u8 = 1;
/// The exit code for bad usage or configuration.
pub(crate) const BAD_USAGE: u8 = 2;

/// The exit code for a device that is absent.
pub(crate) const NO_DEVICE: u8 = 3;

/// What a step of a run gives, unless the run ends there.
pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// Why a run ends early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The command line names what there is not, or contradicts itself.
    #[error("{0}")]
    Usage(String),
    /// A route file or an update file cannot be read.
    #[error(transparent)]
    Feed(#[from] fib::feed::FeedError),
    /// A table cannot be generated as asked.
    #[error(transparent)]
    Generate(#[from] fib::generate::GenerateError),
    /// Traffic cannot be made.
    #[error(transparent)]
    Traffic(#[from] fib::traffic::TrafficError),
    /// An engine refused.
    #[error("{engine}: {source}")]
    Engine {
        /// The engine's name.
        engine: String,
        /// What it said.
        source: EngineError,
    },
    /// A peer refused.
    #[cfg(feature = "dpdk")]
    #[error("{engine}: {source}")]
    Peer {
        /// The peer's name.
        engine: String,
        /// What it said.
        source: dpdk_ffi::DpdkError,
    },
    /// A peer cannot hold the table.
    #[cfg(feature = "dpdk")]
    #[error("{engine}: {what}: {used} needed, at most {limit} fit")]
    PeerFull {
        /// The peer's name.
        engine: String,
        /// What ran out.
        what: &'static str,
        /// What the table would need.
        used: u64,
        /// What the peer can hold.
        limit: u64,
    },
    /// EAL did not start.
    #[cfg(feature = "dpdk")]
    #[error("DPDK did not start with '{arguments}': {source}")]
    Eal {
        /// The arguments that EAL was given.
        arguments: String,
        /// What DPDK said.
        source: dpdk_ffi::DpdkError,
    },
    /// A thread cannot be pinned.
    #[error("cannot pin a thread to CPU {cpu}; this process may run on: {allowed}")]
    Pin {
        /// The CPU that was asked for.
        cpu: usize,
        /// The CPUs there are.
        allowed: String,
    },
    /// A result cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A measurement broke its own rules.
    #[error("{0}")]
    Measurement(String),
}

impl Fault {
    /// The exit code that this ends the process with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Generate(_) | Self::Pin { .. } => BAD_USAGE,
            Self::Engine { source: EngineError::Isa(_) | EngineError::Unknown { .. }, .. } => BAD_USAGE,
            Self::Engine { source: EngineError::Parameter { .. }, .. } => BAD_USAGE,
            Self::Engine { source: EngineError::NoDevice { .. }, .. } => NO_DEVICE,
            _ => FAILED,
        }
    }

    /// What `engine` refused.
    pub(crate) fn refused_by(engine: &str) -> impl Fn(EngineError) -> Self {
        move |source| Self::Engine { engine: engine.to_owned(), source }
    }

    /// What a thread that was joined says when it has panicked.
    pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Self {
        Self::Measurement("a thread of the lookups panicked".into())
    }

    /// Whether this is a device that is absent: no failure of the run where others are measured.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Engine { source: EngineError::NoDevice { .. }, .. })
    }

    /// Whether this is a table that does not fit, which is a finding and not a failure of the run.
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
