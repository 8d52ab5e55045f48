//! Numbered lines of a text feed, and the words of a line.

use super::format::excerpt;
use super::{FeedError, FeedErrorKind, FeedSource, LineError};
use std::io::{BufRead, Read};
use std::str::SplitAsciiWhitespace;

/// Far longer than any route. Without a limit a file without line ends would be read into memory as a whole.
const LINE_BYTES_MAX: usize = 64 << 10;

pub(super) struct Lines {
    pub(super) source: FeedSource,
    line: Vec<u8>,
    /// The number of the line last returned by [`Self::next_line`], from 1.
    pub(super) number: u64,
}

impl Lines {
    /// The lines of `source` from its current position, without a byte order mark.
    pub(super) fn new(mut source: FeedSource) -> Self {
        source.skip_mark();
        Self { source, line: Vec::with_capacity(256), number: 0 }
    }

    /// The next line without its line end (LF or CR LF); `None` at the end of the file.
    pub(super) fn next_line(&mut self) -> Result<Option<&[u8]>, FeedError> {
        self.line.clear();
        let mut limited = self.source.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        if let Err(error) = limited.read_until(b'\n', &mut self.line) {
            return Err(self.source.error(error));
        }
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        }
        if self.line.len() > LINE_BYTES_MAX {
            return Err(self.error_at(self.number, LineError::TooLong { limit_bytes: LINE_BYTES_MAX }));
        }
        Ok(Some(&self.line))
    }

    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    pub(super) fn error_at(&self, line: u64, source: LineError) -> FeedError {
        FeedErrorKind::Line { line, source }.with_path(self.source.path())
    }
}

/// The words of a line, up to a comment: a word that starts with `#`.
#[derive(Clone)]
pub(super) struct LineWords<'a> {
    rest: SplitAsciiWhitespace<'a>,
    last: &'a str,
}

impl<'a> LineWords<'a> {
    pub(super) fn new(line: &'a [u8]) -> Result<Self, LineError> {
        let text = str::from_utf8(line).map_err(|_| LineError::NotText)?;
        Ok(Self { rest: text.split_ascii_whitespace(), last: "" })
    }

    /// The next word. At the end of the line the error names the `wanted` word.
    pub(super) fn want(&mut self, wanted: &'static str) -> Result<&'a str, LineError> {
        let word = excerpt(self.last);
        self.next().ok_or(LineError::Ends { word, wanted })
    }

    pub(super) fn end(&mut self) -> Result<(), LineError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(LineError::word(word, "the end of the line")),
        }
    }
}

impl<'a> Iterator for LineWords<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let word = self.rest.next()?;
        if word.starts_with('#') {
            self.rest = "".split_ascii_whitespace();
            return None;
        }
        self.last = word;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_start_with_a_word() {
        let words = |line: &'static str| LineWords::new(line.as_bytes()).unwrap().collect::<Vec<_>>();
        assert_eq!(words(" a\tb#c  d # e f"), ["a", "b#c", "d"]);
        assert!(words("#").is_empty() && words("").is_empty());
        let mut words = LineWords::new(b"a b # c").unwrap();
        assert_eq!(words.want("x"), Ok("a"));
        assert!(words.clone().end().is_err());
        assert_eq!(words.next(), Some("b"));
        assert_eq!(words.want("x"), Err(LineError::Ends { word: "b".to_owned(), wanted: "x" }));
        assert_eq!(words.end(), Ok(()));
    }
}
