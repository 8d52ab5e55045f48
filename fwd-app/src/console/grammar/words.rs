//! The words of a line, and errors about them.

use fib::PrefixError;
use fib::feed::LineError;
use std::net::IpAddr;

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
        Self::from_words(words.collect())
    }

    pub(super) fn from_words(words: Vec<&'a str>) -> Self {
        Self { words, at: 0, is_about_vrf: false }
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

    /// The number of words after the cursor.
    pub(super) fn left(&self) -> usize {
        self.words.len() - self.at
    }

    pub(super) fn last_of_line(&self) -> Option<&'a str> {
        self.words.last().copied()
    }

    pub(super) fn want_address(&mut self) -> Result<IpAddr, WordsError> {
        address(self.want("an address")?)
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

pub(super) fn starting_with<'c>(
    choices: &'c [&'static str],
    word: &'c str,
) -> impl Iterator<Item = &'static str> + 'c {
    choices.iter().copied().filter(move |choice| choice.starts_with(word))
}
