//! Wire format: one line of JSON per request and per reply.

use crate::console::answer::{Answer, Refusal};
use crate::report::output::SCHEMA;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// Without the line end.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// With the line end.
pub(crate) const REPLY_BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    pub(crate) line: String,
    #[serde(default)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Reply {
    pub(crate) ok: bool,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) data: serde_json::Value,
    #[serde(default)]
    pub(crate) part: Option<String>,
    /// The request for the following lines, absent in the last part.
    #[serde(default)]
    pub(crate) next: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// Appends the reply to a request for `json` or text. An answer that is too long becomes an error.
pub(super) fn write_reply(out: &mut Vec<u8>, json: bool, result: &Result<Answer, Refusal>) {
    let start = out.len();
    let written = match result {
        Ok(answer) => write_answer(out, json, answer),
        Err(refusal) => return write_error(out, refusal),
    };
    if let Err(error) = written {
        out.truncate(start);
        if error.is_io() {
            let limit = REPLY_BYTES_MAX;
            write_error(out, &format!("the answer is longer than {limit} bytes; ask for less"));
        } else {
            write_error(out, &format!("the answer cannot be written as JSON: {error}"));
        }
    }
}

fn write_answer(out: &mut Vec<u8>, json: bool, answer: &Answer) -> serde_json::Result<()> {
    let key = match json {
        _ if answer.is_part() => "part",
        true => "data",
        false => "text",
    };
    let next = answer.next_line().map(|line| format!(r#","next":{}"#, serde_json::Value::from(line)));
    let next = next.unwrap_or_default();
    out.extend_from_slice(format!(r#"{{"ok":true,"{key}":"#).as_bytes());
    let mut out = Bounded { room: REPLY_BYTES_MAX - ENDS_BYTES - next.len(), out };
    if json && !answer.is_part() {
        answer.json(&mut WithSchema { out: &mut out, at: ObjectStart::Before })?
    } else if json {
        answer.json(&mut out)?
    } else {
        answer.text(&mut out)?
    }
    out.out.extend_from_slice(next.as_bytes());
    out.out.extend_from_slice(b"}\n");
    Ok(())
}

/// Bytes of a reply around the answer.
const ENDS_BYTES: usize = br#"{"ok":true,"data":}"#.len() + 1;

pub(super) fn write_error(out: &mut Vec<u8>, error: &impl std::fmt::Display) {
    let error = serde_json::Value::from(error.to_string());
    out.extend_from_slice(format!("{{\"ok\":false,\"error\":{error}}}\n").as_bytes());
}

struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.room = self.room.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectStart {
    Before,
    /// Inside the opening brace of an object, after `schema`.
    Brace,
    /// Past it, or not an object.
    Inside,
}

/// Inserts `schema` as the first key of an object.
struct WithSchema<'a, W> {
    out: &'a mut W,
    at: ObjectStart,
}

impl<W: Write> Write for WithSchema<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(first) = bytes.first() else { return Ok(0) };
        match self.at {
            ObjectStart::Before if *first == b'{' => {
                write!(self.out, "{{\"schema\":{SCHEMA}")?;
                self.at = ObjectStart::Brace;
                return Ok(1);
            }
            ObjectStart::Brace if *first != b'}' => self.out.write_all(b",")?,
            _ => {}
        }
        self.at = ObjectStart::Inside;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(json: bool, result: &Result<Answer, Refusal>) -> Reply {
        let mut out = b"before".to_vec();
        write_reply(&mut out, json, result);
        assert!(out.len() <= REPLY_BYTES_MAX + 6 && out.ends_with(b"\n"));
        assert!(!out[..out.len() - 1].contains(&b'\n'));
        serde_json::from_slice(&out[6..]).unwrap()
    }

    #[test]
    fn replies() {
        let text = reply(false, &Ok(Answer::new("two\nlines")));
        assert_eq!((text.ok, text.text.as_deref(), text.error), (true, Some("two\nlines"), None));
        assert_eq!(reply(true, &Ok(Answer::new(7))).data, serde_json::json!(7));
        let done = reply(true, &Ok(Answer::done()));
        assert!(done.ok && done.data.is_null());
        assert_eq!(reply(false, &Ok(Answer::done())).text.as_deref(), Some(""));
        let refused = reply(true, &Err(anyhow::anyhow!("no port 9").context("set link").into()));
        assert_eq!((refused.ok, refused.error.as_deref()), (false, Some("set link: no port 9")));
    }

    #[test]
    fn an_object_has_the_version_of_its_keys() {
        use serde_json::json;
        struct Object(serde_json::Value);
        impl serde::Serialize for Object {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(serializer)
            }
        }
        impl std::fmt::Display for Object {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
        let data = |value| reply(true, &Ok(Answer::new(Object(value)))).data;
        assert_eq!(data(json!({"a": {"b": 1}, "c": []})), json!({"schema": 1, "a": {"b": 1}, "c": []}));
        assert_eq!(data(json!({})), json!({"schema": 1}));
        assert_eq!(data(json!([{"a": 1}])), json!([{"a": 1}]));
        assert_eq!(data(json!("{")), json!("{"));
    }

    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let room = REPLY_BYTES_MAX - ENDS_BYTES - 2;
        for json in [false, true] {
            assert!(reply(json, &Ok(Answer::new("x".repeat(room)))).ok);
            let error = reply(json, &Ok(Answer::new("x".repeat(room + 1)))).error.unwrap();
            assert_eq!(error, "the answer is longer than 4194304 bytes; ask for less");
        }
    }
}
