//! `fwd-app completions`: completion scripts for shells, and the answers to them.
//!
//! The script runs this program at each key press with [`VARIABLE`] set, so a shell knows the words of `ctl` and this build's engines.

use crate::console::grammar;
use crate::engines::ENGINES;
use crate::report::output;
use anyhow::Context as _;
use clap::{ArgMatches, Args, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use std::ffi::{OsStr, OsString};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app completions bash > /etc/bash_completion.d/fwd-app
  fwd-app completions zsh > ~/.zfunc/_fwd-app
  fwd-app completions fish > ~/.config/fish/completions/fwd-app.fish

The script runs `fwd-app`, found in PATH, to list the completions at the cursor.";

const VARIABLE: &str = "FWD_APP_COMPLETE";

/// `fwd-app completions`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell of the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn main(args: &CompletionsArgs, program: &Command) -> anyhow::Result<()> {
    let (name, shell) = (program.get_name(), args.shell.to_string());
    let shells = Shells::builtins();
    let shell = shells.completer(&shell).with_context(|| format!("no completion for {shell}"))?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, name, name, name, &mut script)?;
    output::write_to(None, |out| Ok(out.write_all(&script)?))
}

/// Answers a request of a completion script; returns whether there was one.
///
/// # Errors
/// The shell is unknown, or stdout cannot be written.
pub(crate) fn answer(program: fn() -> Command) -> Result<bool, clap::Error> {
    if std::env::var_os(VARIABLE).is_none_or(|shell| shell.is_empty() || shell == "0") {
        return Ok(false);
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    let line = args.iter().skip_while(|arg| *arg != "--").skip(1).cloned().collect::<Vec<_>>();
    // bash and zsh give the index of the word at the cursor; for fish it is the last.
    let index = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse::<usize>().ok());
    let before = &line[..index.unwrap_or(usize::MAX).min(line.len().saturating_sub(1))];
    let words = ctl_words(program(), before);
    CompleteEnv::with_factory(|| with_values(program(), &words)).var(VARIABLE).try_complete(args, None)
}

fn ctl_words(program: Command, line: &[OsString]) -> Vec<String> {
    let matches = program.ignore_errors(true).try_get_matches_from(line);
    let ctl = matches.as_ref().ok().and_then(|matches| matches.subcommand_matches("ctl"));
    let words = ctl.and_then(|ctl: &ArgMatches| ctl.get_many::<String>("words"));
    words.into_iter().flatten().cloned().collect()
}

fn with_values(program: Command, words: &[String]) -> Command {
    let words = words.iter().map(|word| format!("{word} ")).collect::<String>();
    let next_word = move |start: &OsStr| {
        let line = format!("{words}{}", start.to_string_lossy());
        let found = grammar::complete(&line).1;
        found.into_iter().map(CompletionCandidate::new).collect::<Vec<_>>()
    };
    let engine = |start: &OsStr| {
        let start = start.to_string_lossy();
        let found = ENGINES.names().into_iter().filter(|name| name.starts_with(&*start));
        found.map(CompletionCandidate::new).collect::<Vec<_>>()
    };
    program.mut_subcommands(|command| match command.get_name() {
        "ctl" => command.mut_arg("words", |arg| arg.add(ArgValueCompleter::new(next_word.clone()))),
        _ => command.mut_args(|arg| match arg.get_long() {
            Some("engine" | "fallback") => arg.add(ArgValueCompleter::new(engine)),
            _ => arg,
        }),
    })
}
