//! `fwd-app compare`: two reports side by side.

use crate::error::ConfigError;
use crate::report::compare::{Comparison, ReportFile};
use crate::report::output::{JsonDocument, write_to};
use anyhow::Context as _;
use clap::Args;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app compare old.json new.json
  fwd-app compare old.json new.json --json compared.json

Reports are written by --json of run or replay. Two reports are compared only if routes, packets and the way the packets were
offered are the same.";

/// `fwd-app compare`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// Older report
    #[arg(value_name = "OLD.json")]
    old: PathBuf,

    /// Newer report
    #[arg(value_name = "NEW.json")]
    new: PathBuf,

    /// Write the comparison as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Prints the comparison.
///
/// # Errors
/// A file cannot be read or is no report; [`ConfigError::Invalid`] for reports of different work.
pub(crate) fn main(args: &CompareArgs) -> anyhow::Result<()> {
    let (old, new) = (ReportFile::read(&args.old)?, ReportFile::read(&args.new)?);
    old.check(new.work()).map_err(|error| ConfigError::Invalid(error.to_string()))?;
    let comparison = Comparison::new(&old, new.value());
    if args.json.is_some() {
        let text = serde_json::to_string_pretty(&JsonDocument::new("comparison", &comparison))
            .context("cannot write the comparison as JSON")?;
        write_to(args.json.as_deref(), |out| Ok(writeln!(out, "{text}")?))?;
    }
    write_to(None, |out| Ok(write!(out, "{comparison}")?))
}
