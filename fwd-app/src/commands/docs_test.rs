//! Every command line of README.md, of docs and of the examples in `--help` parses, including the words of `ctl`.

use super::{Cli, Command};
use crate::console::grammar;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use fib::testing::docs::{self, CommandLine};

fn refused(line: &CommandLine) -> Option<String> {
    let mut words = line.words.clone();
    for at in 1..words.len() {
        // Users and groups may be unknown on this host.
        if ["--fpm-user", "--ctl-group"].contains(&words[at - 1].as_str()) {
            words[at] = "0".to_owned();
        }
    }
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Ctl(args) }) => {
            let words = args.line();
            // Words with a shell variable are unknown here; no words start the prompt.
            let is_known = !words.is_empty() && !words.contains('$');
            is_known.then(|| grammar::parse(&words).err()).flatten().map(|error| error.to_string())
        }
        Ok(_) => None,
        Err(error) => {
            // The file gives the missing arguments.
            let has_file = line.words.iter().any(|word| word == "config" || word == "--config-file");
            let is_cut_short = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            ) && (line.is_inline || has_file);
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let is_fine = is_help || is_cut_short;
            (!is_fine).then(|| error.to_string())
        }
    }
}

fn examples(command: &clap::Command, found: &mut Vec<CommandLine>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    found.extend(docs::command_lines(command.get_name(), &text, "fwd-app"));
    command.get_subcommands().for_each(|command| examples(command, found));
}

#[test]
fn documented_command_lines_parse() {
    let mut lines = docs::documented("fwd-app");
    assert!(lines.len() > 40, "{lines:#?}");
    examples(&Cli::command(), &mut lines);
    let wrong = lines
        .iter()
        .filter_map(|line| Some(format!("{}: {}\n  {}", line.place, line.words.join(" "), refused(line)?)));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_line_is_refused() {
    let text =
        "fwd-app run --fib a --no-such-option -- -l 1\nfwd-app run -- -l 1\nfwd-app ctl show nonsense\n";
    let lines = docs::command_lines("page", text, "fwd-app");
    assert!(lines.len() == 3 && lines.iter().all(|line| refused(line).is_some()), "{lines:?}");
}
