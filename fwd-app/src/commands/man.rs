//! `fwd-app man`: manual pages of all commands from their options, and the words of `ctl`.

use crate::console::grammar;
use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  fwd-app man /usr/local/share/man/man8
  fwd-app man . && man -l fwd-app-run.8";

const SECTION: &str = "8";

/// `fwd-app man`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, one for each command
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn main(args: &ManArgs, program: Command) -> anyhow::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    pages(&program, &args.folder)
}

fn pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        pages(subcommand, folder)?;
    }
    let man = Man::new(command.clone()).section(SECTION).manual("fwd-app");
    let path = folder.join(man.get_filename());
    let page = page(&man, command).context("cannot make a manual page")?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn page(man: &Man, command: &Command) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::default();
    if command.get_name() == "ctl" {
        words(&mut roff);
    }
    if let Some(text) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        examples(&mut roff, &text.to_string());
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

fn words(roff: &mut Roff) {
    roff.control("SH", ["WORDS"]);
    for (usage, help) in grammar::all() {
        roff.control("TP", []);
        roff.text([bold(usage)]);
        roff.text([roman(help)]);
    }
}

fn examples(roff: &mut Roff, text: &str) {
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    text.lines().filter(|line| *line != "Examples:").for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Cli;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    fn names(command: &Command, prefix: &str, all: &mut BTreeSet<String>) {
        let name = format!("{prefix}{}", command.get_name());
        command.get_subcommands().for_each(|subcommand| names(subcommand, &format!("{name}-"), all));
        all.insert(format!("{name}.8"));
    }

    #[test]
    fn every_command_has_a_page_and_every_word_of_ctl_is_in_its_page() {
        let folder = tempfile::tempdir().unwrap();
        main(&ManArgs { folder: folder.path().to_owned() }, Cli::command()).unwrap();
        let written = fs::read_dir(folder.path()).unwrap();
        let written: BTreeSet<_> =
            written.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut wanted = BTreeSet::new();
        names(&Cli::command(), "", &mut wanted);
        assert_eq!(written, wanted);
        // Roff escapes hyphens, points and apostrophes.
        let read = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            text.replace("\\*(Aq", "'").replace('\\', "")
        };
        let ctl = read("fwd-app-ctl.8");
        for (usage, help) in grammar::all() {
            assert!(ctl.contains(&usage) && ctl.contains(help), "{usage}: {help}");
        }
        let run = read("fwd-app-run.8");
        for option in ["--fib", "--engine", "--tap-netns", ".nf"] {
            assert!(run.contains(option), "{option}");
        }
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error() {
        let error = main(&ManArgs { folder: "/nonexistent".into() }, Cli::command()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write /nonexistent/"), "{error}");
    }
}
