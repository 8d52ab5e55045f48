//! Protocol state of one client, without its socket: bytes in, requests and bytes out.
//!
//! A client has one request at a time. Until the reply is sent, its next line stays unread, which keeps replies in order and bounds memory.

use crate::console::answer::{Answer, Refusal};
use crate::console::grammar::request::Request;
use crate::console::grammar::{self, CtlLine};
use crate::console::server::wire::{self, Ask, LINE_BYTES_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    /// Waits for a line.
    Reading,
    /// The forwarder has a request; `json` is the format of the answer.
    Asked { json: bool },
    /// Closed once the last reply is sent.
    Closing,
}

#[derive(Debug)]
pub(crate) struct CtlConnection {
    input: Vec<u8>,
    /// The length of the prefix of `input` without a line end.
    searched: usize,
    ended: bool,
    /// Bytes to send; `sent` counts those already sent.
    output: Vec<u8>,
    sent: usize,
    state: ConnectionState,
    errors: u64,
}

impl CtlConnection {
    pub(crate) fn new() -> Self {
        Self {
            input: Vec::new(),
            searched: 0,
            ended: false,
            output: Vec::new(),
            sent: 0,
            state: ConnectionState::Reading,
            errors: 0,
        }
    }

    /// Bytes that may be received now.
    pub(crate) fn room(&self) -> usize {
        let wanted = self.state == ConnectionState::Reading && self.output.is_empty() && !self.ended;
        if wanted { LINE_BYTES_MAX + 1 - self.input.len() } else { 0 }
    }

    /// Adds received bytes, at most [`Self::room`]; none means the end of the input.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.ended |= bytes.is_empty();
    }

    /// The next request for the forwarder, once the last reply is sent. Invalid lines, `help` and `quit` are answered here.
    pub(crate) fn next_request(&mut self) -> Option<Request> {
        if self.state != ConnectionState::Reading || !self.output.is_empty() {
            return None;
        }
        let Some(end) = self.input[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.input.len();
            self.wait_for_more();
            return None;
        };
        let rest = self.input.split_off(self.searched + end + 1);
        let line = std::mem::replace(&mut self.input, rest);
        self.searched = 0;
        let ask: Ask = match serde_json::from_slice(&line) {
            Ok(ask) => ask,
            Err(error) => {
                self.refuse(&format!(r#"not a request such as {{"line": "show drops"}}: {error}"#));
                return None;
            }
        };
        match grammar::parse(&ask.line) {
            Ok(CtlLine::Ask(request)) => {
                self.state = ConnectionState::Asked { json: ask.json };
                return Some(request);
            }
            Ok(CtlLine::Help(help)) => wire::write_reply(&mut self.output, ask.json, &Ok(help.into())),
            Ok(CtlLine::RouteDiff(_)) => {
                self.refuse(&"route diff is a command of fwd-app ctl, which reads the file");
            }
            Ok(CtlLine::Quit) => {
                wire::write_reply(&mut self.output, ask.json, &Ok(Answer::done()));
                self.state = ConnectionState::Closing;
            }
            Ok(CtlLine::Top { .. }) => {
                self.refuse(&"top is a command of fwd-app ctl; ask for 'show rates' repeatedly")
            }
            Err(error) => self.refuse(&error),
        }
        None
    }

    fn wait_for_more(&mut self) {
        if self.input.len() > LINE_BYTES_MAX {
            self.refuse(&format!("a request is longer than {LINE_BYTES_MAX} bytes"));
            self.state = ConnectionState::Closing;
        } else if self.ended {
            self.errors += u64::from(!self.input.is_empty());
            self.state = ConnectionState::Closing;
        }
    }

    fn refuse(&mut self, error: &impl std::fmt::Display) {
        self.errors += 1;
        wire::write_error(&mut self.output, error);
    }

    pub(crate) fn is_asking(&self) -> bool {
        matches!(self.state, ConnectionState::Asked { .. })
    }

    pub(crate) fn answer(&mut self, result: &Result<Answer, Refusal>) {
        if let ConnectionState::Asked { json } = self.state {
            wire::write_reply(&mut self.output, json, result);
            self.state = ConnectionState::Reading;
        }
    }

    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.output.len() {
            // Frees the memory of a long reply.
            self.output = Vec::new();
            self.sent = 0;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == ConnectionState::Closing && self.output.is_empty()
    }

    pub(crate) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(connection: &mut CtlConnection) -> String {
        let text = String::from_utf8(connection.output().to_vec()).unwrap();
        connection.sent(text.len());
        text
    }

    #[test]
    fn one_request_at_a_time_and_in_pieces() {
        let mut client = CtlConnection::new();
        for piece in [r#"{"line""#, r#": "start"}"#] {
            client.receive(piece.as_bytes());
            assert_eq!(client.next_request(), None);
        }
        client.receive(b"\n{\"line\": \"show drops\", \"json\": true}\n{\"line\":\"qu");
        assert_eq!(client.next_request(), Some(Request::Start));
        assert!(client.next_request().is_none() && client.is_asking() && client.room() == 0);
        client.answer(&Ok(Answer::done()));
        assert_eq!(client.next_request(), None, "the reply is on its way");
        assert_eq!(sent(&mut client), "{\"ok\":true,\"text\":\"\"}\n");
        assert!(client.next_request().is_some());
        client.answer(&Ok(Answer::new(7)));
        assert_eq!(sent(&mut client), "{\"ok\":true,\"data\":7}\n");
        assert!(client.next_request().is_none() && client.room() > 0);
        client.receive(b"it\"}\nmore");
        assert_eq!(client.next_request(), None);
        assert_eq!(sent(&mut client), "{\"ok\":true,\"text\":\"\"}\n");
        assert!(client.is_over() && client.take_errors() == 0);
    }

    #[test]
    fn wrong_lines_are_errors_and_the_next_one_counts() {
        let mut client = CtlConnection::new();
        for (line, part) in [
            (&b"\n"[..], "not a request"),
            (b"\xff\n", "not a request"),
            (b"{\"line\": 7}\n", "not a request"),
            (b"{\"line\": \"start\", \"jsn\": true}\n", "unknown field `jsn`"),
            (b"{\"line\": \"\"}\n", "no command"),
            (b"{\"line\": \"start\\nstop\"}\n", "'stop' is not understood here"),
        ] {
            client.receive(line);
            assert_eq!(client.next_request(), None);
            let reply = sent(&mut client);
            assert!(reply.starts_with("{\"ok\":false,\"error\":") && reply.contains(part), "{reply}");
        }
        client.receive(b"{\"line\":\"help capture\",\"json\":true}\n{\"line\":\"cut");
        assert_eq!(client.next_request(), None);
        assert!(sent(&mut client).contains(r#""usage":"capture drops FILE N [port P]"#));
        client.receive(b"");
        assert!(client.next_request().is_none() && client.is_over());
        assert_eq!(client.take_errors(), 7);
    }

    #[test]
    fn a_line_has_a_limit() {
        let mut client = CtlConnection::new();
        while client.room() > 0 {
            let bytes = client.room().min(1000);
            client.receive(&vec![b'x'; bytes]);
            assert_eq!(client.next_request(), None);
        }
        assert!(sent(&mut client).contains("longer than 65536 bytes"));
        assert!(client.is_over());
    }
}
