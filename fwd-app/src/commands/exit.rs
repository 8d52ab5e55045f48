//! Exit codes: the only place where an error is mapped to a number.
//!
//! | code | meaning | errors |
//! |---|---|---|
//! | 0 | done | |
//! | 1 | failed | everything not named below: a file that cannot be read, a table that does not fit |
//! | 2 | bad usage or configuration | [`ConfigError::Invalid`], a wrong configuration file ([`ConfigMistake`]), unknown engine or parameter, unavailable instruction set |
//! | 3 | a named device is absent | [`ConfigError::NoDevice`], [`EngineError::NoDevice`]; of `ctl`, that no forwarder listens |

use crate::cli::config::ConfigMistake;
use crate::console::client::ClientError;
use crate::error::ConfigError;
use crate::report::console::say;
use clap::error::ErrorKind;
use fib::{EngineError, IsaError};
use std::process::ExitCode;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_DEVICE: u8 = 3;

pub(super) fn of_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe (`--help | head`) is not a failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(format_args!("no command is given\n\n{}", text.trim_end()));
    } else {
        say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    }
    ExitCode::from(USAGE)
}

pub(super) fn of_error(error: &anyhow::Error) -> ExitCode {
    say(message(error));
    ExitCode::from(code(error))
}

/// The error and its causes, outermost first, without repeating a cause that the previous message ends with.
pub(super) fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

pub(super) fn is_configuration(error: &anyhow::Error) -> bool {
    [USAGE, NO_DEVICE].contains(&code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of_cause).unwrap_or(FAILED)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = cause.downcast_ref::<ConfigError>() {
        return Some(match error {
            ConfigError::Invalid(_) => USAGE,
            ConfigError::NoDevice(_) => NO_DEVICE,
        });
    }
    if cause.is::<IsaError>() || cause.is::<ConfigMistake>() {
        return Some(USAGE);
    }
    if let Some(ClientError::Absent { .. } | ClientError::None { .. }) = cause.downcast_ref() {
        return Some(NO_DEVICE);
    }
    match cause.downcast_ref::<EngineError>()? {
        EngineError::Isa(_) | EngineError::Unknown { .. } | EngineError::Parameter { .. } => Some(USAGE),
        EngineError::NoDevice { .. } => Some(NO_DEVICE),
        EngineError::Full { .. }
        | EngineError::Prefix { .. }
        | EngineError::Memory { .. }
        | EngineError::Device { .. }
        | EngineError::Reader { .. }
        | EngineError::Batch { .. }
        | EngineError::NoFib { .. } => Some(FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;
    use fib::Isa;

    #[test]
    fn a_cause_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("routes.txt:3: {0}")]
        struct Quoting(#[source] ConfigError);
        let error = anyhow::Error::from(Quoting(ConfigError::Invalid("no id".into()))).context("cannot load");
        assert_eq!(message(&error), "cannot load: routes.txt:3: no id");
        let error = anyhow::Error::from(ConfigError::Invalid("no id".into())).context("cannot load");
        assert_eq!(message(&error), "cannot load: no id");
    }

    #[test]
    fn the_kind_of_an_error_decides_however_deep_it_lies() {
        let wrap = |error: anyhow::Error| Err::<(), _>(error).context("while starting").unwrap_err();
        let isa = IsaError::Unavailable { isa: Isa::Avx512f, available: "scalar".into() };
        let no_device = EngineError::NoDevice { engine: "gamt", device: "a GPU", reason: "none".into() };
        let full = EngineError::Full { what: "table bytes", used: 2, limit: 1 };
        for (error, wanted) in [
            (anyhow::anyhow!("a file"), FAILED),
            (full.into(), FAILED),
            (ConfigError::Invalid("x".into()).into(), USAGE),
            (EngineError::from(isa.clone()).into(), USAGE),
            (isa.into(), USAGE),
            (no_device.into(), NO_DEVICE),
            (ConfigError::NoDevice("port 9".into()).into(), NO_DEVICE),
            (ClientError::None { folder: "/run".into() }.into(), NO_DEVICE),
        ] {
            assert_eq!(code(&error), wanted, "{error}");
            assert_eq!(code(&wrap(error)), wanted);
        }
    }
}
