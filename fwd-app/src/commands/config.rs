//! `fwd-app config`: the configuration that `run` would use, as a file with the origin of each value; and the file for a command line.

use crate::cli::args::RunArgs;
use crate::cli::config::show::{Shown, shown, toml};
use crate::cli::config::{Layers, SHOW};
use crate::report::output;
use crate::routes::spec::VrfSpec;
use clap::{Args, Command};
use std::ffi::{OsStr, OsString};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app config
  fwd-app config --config-file edge.toml --rx-burst 64
  fwd-app config --from-flags -- run --fib routes.txt --config '(0,0,1)' -- -l 1 -a 0000:03:00.0 > edge.toml

Nothing is started. Options that are not given are printed as comments with their defaults.

Exit codes: 0 valid, 2 invalid; the message has the file and line.";

/// `fwd-app config`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print the configuration file for the command line of run or replay that follows --
    ///
    /// The environment and other files are left out.
    #[arg(long)]
    from_flags: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

pub(crate) fn main(args: &ConfigArgs, shown: &[Shown]) -> anyhow::Result<()> {
    let run = &args.run;
    let vrfs = VrfSpec::all(&run.vrfs.vrf, &run.vrfs.vrf_fib)?;
    let engine = &run.tables.engine;
    run.tables.spec().check()?;
    run.tables.spec().engine.make_for_vrfs(1 + vrfs.len())?;
    let feeds = run.feeds.spec(&run.order, engine.routes_max, !run.ports.tap.is_empty());
    feeds.for_vrfs(&vrfs, &run.feeds.vrf_table)?;
    for named in &run.updates.vrf_updates {
        VrfSpec::number_of(&vrfs, "--vrf-updates", &named.vrf)?;
    }
    print(&toml(shown, true))
}

/// The command line after `config --from-flags --`, as a line of its command; `None` if `words` are another command.
pub(super) fn line_to_show(words: &[OsString]) -> Option<Vec<OsString>> {
    let is_asked = words.get(1).is_some_and(|name| name == SHOW)
        && words.iter().take_while(|word| *word != "--").any(|word| word == "--from-flags");
    let line = words.split(|word| word == "--").nth(1).filter(|_| is_asked)?;
    let start = words.len() - words.iter().skip_while(|word| *word != "--").count() + 1;
    let mut rest = &words[start..];
    // Complete, or only from its options on.
    if line.first().is_some_and(|name| name.to_string_lossy().ends_with("fwd-app")) {
        rest = &rest[1..];
    }
    let command: &[&OsStr] = if rest.first().is_some_and(|name| name == "run" || name == "replay") {
        &[]
    } else {
        &[OsStr::new("run")]
    };
    let program = words.first().map(OsString::as_os_str).into_iter();
    Some(
        program
            .chain(command.iter().copied())
            .chain(rest.iter().map(OsString::as_os_str))
            .map(OsStr::to_owned)
            .collect(),
    )
}

/// Prints the file for a command line.
///
/// # Errors
/// clap's, for an invalid line.
pub(super) fn from_flags(program: &Command, line: &[OsString]) -> Result<anyhow::Result<()>, clap::Error> {
    let matches = program.clone().try_get_matches_from(line)?;
    let text = matches.subcommand().and_then(|(name, given)| {
        Some(toml(&shown(program.find_subcommand(name)?, given, &Layers::default()), false))
    });
    Ok(print(&text.unwrap_or_default()))
}

fn print(text: &str) -> anyhow::Result<()> {
    output::write_to(None, |out| Ok(out.write_all(text.as_bytes())?))
}
