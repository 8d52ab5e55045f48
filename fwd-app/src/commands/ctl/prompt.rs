//! The prompt of `fwd-app ctl`: line editing, completion, and a history across sessions.

use super::RemoteForwarder;
use crate::commands::exit;
use crate::console::grammar;
use crate::report::console::say;
use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::path::PathBuf;

const PROMPT: &str = "fwd-app> ";
const HISTORY_LINES: usize = 1000;

/// Runs commands until `quit`, Ctrl-D or Ctrl-C; continues after errors.
pub(super) fn main(forwarder: &RemoteForwarder) -> anyhow::Result<()> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(HISTORY_LINES)
        .and_then(|config| config.history_ignore_dups(true))
        .map(|config| config.history_ignore_space(true).build());
    let mut editor: Editor<Grammar, DefaultHistory> =
        config.and_then(Editor::with_config).context("cannot read from this terminal")?;
    editor.set_helper(Some(Grammar));
    let history = history();
    if let Some(path) = &history {
        let _ = editor.load_history(path);
    }
    loop {
        let line = match editor.readline(PROMPT) {
            Ok(line) => line,
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => break,
            Err(error) => return Err(error).context("cannot read from the terminal"),
        };
        if grammar::is_blank(&line) {
            continue;
        }
        let _ = editor.add_history_entry(&line);
        match forwarder.run(&line) {
            Ok(flow) if flow.is_break() => break,
            Ok(_) => {}
            Err(error) => say(exit::message(&error)),
        }
    }
    if let Some(path) = &history {
        // Without a writable folder the history ends with the session.
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = editor.save_history(path);
    }
    Ok(())
}

fn history() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let states = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")))?;
    Some(states.join("fwd-app").join("ctl-history"))
}

struct Grammar;

impl Completer for Grammar {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (start, words) = grammar::complete(&line[..position]);
        Ok((start, words.into_iter().map(|word| format!("{word} ")).collect()))
    }
}

impl Hinter for Grammar {
    type Hint = String;
}

impl Highlighter for Grammar {}
impl Validator for Grammar {}
impl Helper for Grammar {}
