//! Parser, `help` and completion of command lines, all derived from [`COMMANDS`].
//!
//! A word that starts with `#` begins a comment. Fixed words may be abbreviated while unambiguous (`sh po st`). Prefixes, next hops, MACs
//! and neighbours are parsed as in route files (`fib::feed`).

pub(crate) mod request;
mod routes;
mod table;
mod words;
#[cfg(test)]
mod words_test;

use crate::console::answer::Answer;
use crate::console::grammar::request::Request;
use crate::console::grammar::table::{COMMANDS, Command, VRF};
pub(crate) use crate::console::grammar::words::WordsError;
use crate::console::grammar::words::{CommandWords, or, pick, starting_with, wrong};
use crate::report::columns::Columns;
use serde::Serialize;
use std::fmt;
use std::num::NonZeroU64;

pub(crate) const COUNT_OPTION: &str = "--count";

#[derive(Debug)]
pub(crate) enum CtlLine {
    /// A request to the forwarder.
    Ask(Request),
    /// `help`, and the answer to it.
    Help(Help),
    /// `route diff`, which the client carries out.
    RouteDiff(RouteDiff),
    /// `top`: the client requests the rates every second, at most `count` times.
    Top { count: Option<NonZeroU64> },
    /// `quit`: the client leaves.
    Quit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteDiff {
    /// A path on the client's side.
    pub(crate) file: String,
    pub(crate) list: Request,
}

impl CommandWords<'_> {
    /// Follows the words down the paths of the commands. Returns the matching commands, and the number of path words that matched.
    fn follow(&mut self) -> Result<(Vec<&'static Command>, usize), WordsError> {
        let mut commands: Vec<&Command> = COMMANDS.iter().collect();
        for depth in 0.. {
            let choices = choices(&commands, depth);
            let Some(word) = (!choices.is_empty()).then(|| self.next()).flatten() else {
                return Ok((commands, depth));
            };
            let chosen = pick(word, &choices)?;
            commands.retain(|command| command.path[depth] == chosen);
        }
        Ok((commands, 0))
    }
}

pub(crate) fn is_blank(line: &str) -> bool {
    CommandWords::new(line).next().is_none()
}

pub(crate) fn parse(line: &str) -> Result<CtlLine, WordsError> {
    parse_next(&mut CommandWords::new(line))
}

fn parse_next(words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
    let (commands, depth) = words.follow()?;
    let [command] = commands[..] else { return Err(ends(words, &commands, depth)) };
    if depth < command.path.len() {
        return Err(ends(words, &commands, depth));
    }
    let input = (command.make)(words)?;
    match words.next() {
        None => Ok(input),
        Some(word) => Err(wrong(word, "the end of the line")),
    }
}

/// The error for a line that ends before it selects a command.
fn ends(words: &mut CommandWords<'_>, commands: &[&'static Command], depth: usize) -> WordsError {
    words.want(&or(&choices(commands, depth))).err().unwrap_or(WordsError::Empty)
}

fn choices(commands: &[&'static Command], depth: usize) -> Vec<&'static str> {
    let mut words: Vec<_> = commands.iter().filter_map(|command| command.path.get(depth).copied()).collect();
    words.dedup();
    words
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Help(Vec<HelpLine>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HelpLine {
    usage: String,
    help: &'static str,
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = Columns::new([]);
        self.0.iter().for_each(|line| columns.row([line.usage.clone(), line.help.to_owned()]));
        columns.fmt(f)
    }
}

impl From<Help> for Answer {
    fn from(help: Help) -> Self {
        Self::new(help)
    }
}

/// Help on the commands that start with these words, which may be abbreviated; without words on all commands.
///
/// # Errors
/// No command matches.
pub(crate) fn help(start: &[&str]) -> Result<Help, WordsError> {
    let mut words = CommandWords::from_words(start.to_vec());
    let (commands, _) = words.follow()?;
    let line = |command: &&Command| HelpLine { usage: usage(command), help: command.help };
    Ok(Help(commands.iter().map(line).collect()))
}

fn usage(command: &Command) -> String {
    let args = command.args.iter().map(|arg| arg.usage);
    command.path.iter().copied().chain(args).collect::<Vec<_>>().join(" ")
}

pub(crate) fn all() -> impl Iterator<Item = (String, &'static str)> {
    COMMANDS.iter().map(|command| (usage(command), command.help))
}

/// Completions of the last word of `line`, which is empty after a blank, and the byte offset of that word.
pub(crate) fn complete(line: &str) -> (usize, Vec<&'static str>) {
    let start = line.rfind(|c: char| c.is_ascii_whitespace()).map_or(0, |at| at + 1);
    let (before, last) = line.split_at(start);
    let mut words = CommandWords::new(before);
    let mut followed = words.follow();
    if let Ok(([command], 1)) = followed.as_ref().map(|(commands, depth)| (&commands[..], *depth))
        && command.path == VRF
        && words.next().is_some()
    {
        followed = words.follow();
    }
    let Ok((commands, depth)) = followed else { return (start, Vec::new()) };
    let given = words.left();
    let choices = match commands[..] {
        // Complete path: completes the argument, of which the last may have several words.
        [command] if depth == command.path.len() => {
            let at = given.min(command.args.len().saturating_sub(1));
            let previous = words.last_of_line();
            command.args.get(at).map_or(Vec::new(), |arg| arg.words_after(previous))
        }
        _ => choices(&commands, depth),
    };
    let found = starting_with(&choices, last).collect();
    (start, found)
}
