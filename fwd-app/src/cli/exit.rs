//! Exit codes: the one place where an error becomes a number.
//!
//! | code | meaning | errors |
//! |---|---|---|
//! | 0 | done | |
//! | 1 | failed | everything not named below: a file that cannot be read, a table that does not fit |
//! | 2 | bad usage or configuration | [`CliError::Usage`], an engine or instruction set that is not there |
//! | 3 | a named device is absent | [`CliError::NoDevice`], an engine's device that is not there |

use super::message::say;
use clap::error::ErrorKind;
use fib::{EngineError, IsaError};
use std::process::ExitCode;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_DEVICE: u8 = 3;

/// An error whose kind decides the exit code. Raise it with `?` or `return Err(CliError::..into())`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CliError {
    /// The options contradict each other or the configuration is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A port or device that was named is absent: exit code 3.
    #[error("{0}")]
    NoDevice(String),
}

/// Prints clap's message in our form; `--help` and `--version` go to stdout and are no error.
pub(crate) fn of_clap(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone away (`--help | head`) is no failure.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        say(format_args!("a command is wanted, none was given\n\n{}", text.trim_end()));
    } else {
        say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    }
    ExitCode::from(USAGE)
}

/// Prints `fwd-app: MESSAGE` with all its causes on one line, and gives the exit code.
pub(crate) fn of_error(error: &anyhow::Error) -> ExitCode {
    say(message(error));
    ExitCode::from(code(error))
}

/// The error and its causes, outermost first. A cause that the message before it quotes already is not said twice.
fn message(error: &anyhow::Error) -> String {
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

fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of_cause).unwrap_or(FAILED)
}

fn code_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if let Some(error) = cause.downcast_ref::<CliError>() {
        return Some(match error {
            CliError::Usage(_) => USAGE,
            CliError::NoDevice(_) => NO_DEVICE,
        });
    }
    if cause.is::<IsaError>() {
        return Some(USAGE);
    }
    match cause.downcast_ref::<EngineError>()? {
        EngineError::Isa(_) | EngineError::Unknown { .. } | EngineError::Parameter { .. } => Some(USAGE),
        EngineError::NoDevice { .. } => Some(NO_DEVICE),
        EngineError::Full { .. }
        | EngineError::Memory { .. }
        | EngineError::Device { .. }
        | EngineError::Batch { .. } => Some(FAILED),
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
        struct Quoting(#[source] CliError);
        let error = anyhow::Error::from(Quoting(CliError::Usage("no id".into()))).context("cannot load");
        assert_eq!(message(&error), "cannot load: routes.txt:3: no id");
        let error = anyhow::Error::from(CliError::Usage("no id".into())).context("cannot load");
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
            (CliError::Usage("x".into()).into(), USAGE),
            (EngineError::from(isa.clone()).into(), USAGE),
            (isa.into(), USAGE),
            (no_device.into(), NO_DEVICE),
            (CliError::NoDevice("port 9".into()).into(), NO_DEVICE),
        ] {
            assert_eq!(code(&error), wanted, "{error}");
            assert_eq!(code(&wrap(error)), wanted);
        }
    }
}
