//! Parser, `help` and completion of command lines, all derived from [`COMMANDS`].
//!
//! A word that starts with `#` begins a comment. Fixed words may be abbreviated while unambiguous (`sh po st`). Prefixes, next hops, MACs
//! and neighbours are parsed as in route files (`fib::feed`).

pub(crate) mod request;
mod routes;
mod table;
#[cfg(test)]
mod words_test;

use crate::console::answer::Answer;
use crate::console::grammar::request::Request;
use crate::console::grammar::table::{COMMANDS, Command, VRF};
use crate::report::columns::Columns;
use fib::PrefixError;
use fib::feed::LineError;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WordsError {
    #[error("no command is given; 'help' lists them")]
    Empty,
    #[error("'{word}' is not understood here, wanted {wanted}")]
    Word {
        /// The word.
        word: String,
        wanted: String,
    },
    #[error("'{word}' is ambiguous: {candidates}")]
    Ambiguous {
        /// The abbreviation.
        word: String,
        candidates: String,
    },
    #[error("wanted {wanted} after '{word}'")]
    Ends {
        /// Its last word.
        word: String,
        wanted: String,
    },
    /// A route or a neighbour that is invalid in route files too.
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Prefix(#[from] PrefixError),
}

/// A cursor over the words of a line, up to a comment.
#[derive(Clone, Debug)]
pub(super) struct CommandWords<'a> {
    words: Vec<&'a str>,
    at: usize,
    /// Whether `vrf NAME` came before the remaining words.
    pub(super) is_about_vrf: bool,
}

impl<'a> CommandWords<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        let words = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
        Self { words: words.collect(), at: 0, is_about_vrf: false }
    }

    /// The next word; the error names the `wanted` one.
    pub(super) fn want(&mut self, wanted: &str) -> Result<&'a str, WordsError> {
        let last = self.at.checked_sub(1).map(|last| self.words[last]);
        self.next().ok_or_else(|| match last {
            None => WordsError::Empty,
            Some(last) => WordsError::Ends { word: excerpt(last), wanted: wanted.to_owned() },
        })
    }

    pub(super) fn rest(&mut self) -> String {
        let rest = self.words[self.at..].join(" ");
        self.at = self.words.len();
        rest
    }

    pub(super) fn want_address(&mut self) -> Result<IpAddr, WordsError> {
        address(self.want("an address")?)
    }

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

impl<'a> Iterator for CommandWords<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let word = *self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }
}

pub(super) fn address(word: &str) -> Result<IpAddr, WordsError> {
    word.parse().map_err(|_| wrong(word, "an IPv4 or IPv6 address"))
}

pub(super) fn wrong(word: &str, wanted: &str) -> WordsError {
    WordsError::Word { word: excerpt(word), wanted: wanted.to_owned() }
}

pub(super) fn pick(word: &str, choices: &[&'static str]) -> Result<&'static str, WordsError> {
    if let Some(same) = choices.iter().find(|choice| **choice == word) {
        return Ok(same);
    }
    let candidates: Vec<_> = starting_with(choices, word).collect();
    match candidates[..] {
        [] => Err(wrong(word, &or(choices))),
        [only] => Ok(only),
        _ => Err(WordsError::Ambiguous { word: excerpt(word), candidates: or(&candidates) }),
    }
}

pub(crate) fn is_blank(line: &str) -> bool {
    CommandWords::new(line).next().is_none()
}

pub(crate) fn parse(line: &str) -> Result<CtlLine, WordsError> {
    parse_next(&mut CommandWords::new(line))
}

pub(super) fn parse_next(words: &mut CommandWords<'_>) -> Result<CtlLine, WordsError> {
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

fn starting_with<'c>(choices: &'c [&'static str], word: &'c str) -> impl Iterator<Item = &'static str> + 'c {
    choices.iter().copied().filter(move |choice| choice.starts_with(word))
}

pub(super) fn or(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// The first 64 characters, with control characters escaped.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect::<String>().escape_debug().to_string()
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
    let mut words = CommandWords { words: start.to_vec(), at: 0, is_about_vrf: false };
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
    let given = words.words.len() - words.at;
    let choices = match commands[..] {
        // Complete path: completes the argument, of which the last may have several words.
        [command] if depth == command.path.len() => {
            let at = given.min(command.args.len().saturating_sub(1));
            let previous = words.words.last().copied();
            command.args.get(at).map_or(Vec::new(), |arg| arg.words_after(previous))
        }
        _ => choices(&commands, depth),
    };
    let found = starting_with(&choices, last).collect();
    (start, found)
}
