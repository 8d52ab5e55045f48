//! Answers to requests: any value that serializes and has a text form; text and JSON come from one value. The control thread only gathers
//! the value; the thread of the control socket formats it, up to a limit of bytes.

use crate::console::grammar::request::Request;
use serde::Serialize;
use std::fmt::{self, Display};
use std::io::Write;

pub(crate) struct Answer {
    value: Box<dyn AnswerValue + Send>,
    part: Option<ListPart>,
}

struct ListPart {
    /// `None` after the last lines.
    next: Option<Request>,
}

impl Answer {
    pub(crate) fn new(value: impl Serialize + Display + Send + 'static) -> Self {
        Self { value: Box::new(value), part: None }
    }

    pub(crate) fn part<T: Serialize + Display + Send + 'static>(
        lines: Vec<T>,
        next: Option<Request>,
    ) -> Self {
        Self { value: Box::new(ListLines(lines)), part: Some(ListPart { next }) }
    }

    pub(crate) fn asking_by(mut self, ask: impl FnOnce(Request) -> Request) -> Self {
        if let Some(part) = &mut self.part {
            part.next = part.next.take().map(ask);
        }
        self
    }

    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The command line that requests the next part.
    pub(super) fn next_line(&self) -> Option<String> {
        Some(self.part.as_ref()?.next.as_ref()?.to_string())
    }

    pub(crate) fn done() -> Self {
        Self::new(Done)
    }

    pub(crate) fn value(&self) -> serde_json::Value {
        let mut json = Vec::new();
        // Values of this program always serialize.
        self.json(&mut json).and_then(|()| serde_json::from_slice(&json)).unwrap_or_default()
    }

    /// Writes the value as JSON; a list becomes a string with a value on each line.
    ///
    /// # Errors
    /// When `out` is full, or the value does not serialize.
    pub(super) fn json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.value.json(out)
    }

    /// # Errors
    /// When `out` is full.
    pub(super) fn text(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        self.value.text(out)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// Why a request was refused; it has changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// Not available in this forwarder.
    #[error("{what}: {why}")]
    Unavailable {
        what: String,
        /// Why it cannot be done here.
        why: String,
    },
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
    #[error("the forwarder is busy: {waiting} requests wait; try again")]
    Busy {
        /// How many.
        waiting: usize,
    },
    #[error("this user may read only: show, route get, route list; see --ctl-group")]
    ReadOnly,
    /// The forwarder ended, or dropped the request.
    #[error("the forwarder has ended without an answer")]
    Ended,
}

/// Object-safe subset of `Serialize` and `Display`.
trait AnswerValue {
    fn json(&self, out: &mut dyn Write) -> serde_json::Result<()>;
    fn text(&self, out: &mut dyn Write) -> serde_json::Result<()>;
}

impl<T: Serialize + Display> AnswerValue for T {
    fn json(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        serde_json::to_writer(out, self)
    }

    fn text(&self, out: &mut dyn Write) -> serde_json::Result<()> {
        serde_json::to_writer(out, &Text(self))
    }
}

struct Text<'a, T>(&'a T);

impl<T: Display> Serialize for Text<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

struct ListLines<T>(Vec<T>);

impl<T: Display> Display for ListLines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl<T: Serialize> Serialize for ListLines<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&JsonLines(&self.0))
    }
}

struct JsonLines<'a, T>(&'a [T]);

impl<T: Serialize> Display for JsonLines<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|line| writeln!(f, "{}", serde_json::to_string(line).map_err(|_| fmt::Error)?))
    }
}

#[derive(Serialize)]
struct Done;

impl Display for Done {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
