//! A connection: one request, one response.

use super::HttpLimits;
use super::response::Responder;
use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

const READ_BYTES: usize = 4 << 10;
const READS_A_TURN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Requesting,
    Responding,
    /// Waits for the client to close: closing with unread input could reset the connection and lose the response.
    Closing,
}

pub(super) struct HttpConnection {
    stream: TcpStream,
    phase: Phase,
    begun: Instant,
    moved: Instant,
    /// The request so far, then the response.
    bytes: Vec<u8>,
    sent: usize,
}

impl HttpConnection {
    /// `stream` must be nonblocking.
    pub(super) fn new(stream: TcpStream) -> Self {
        let now = Instant::now();
        Self { stream, phase: Phase::Requesting, begun: now, moved: now, bytes: Vec::new(), sent: 0 }
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn interest(&self) -> PollFlags {
        if self.phase == Phase::Responding { PollFlags::OUT } else { PollFlags::IN }
    }

    pub(super) fn deadline(&self, limits: &HttpLimits) -> Instant {
        match self.phase {
            Phase::Requesting => self.begun + limits.request,
            Phase::Responding => (self.begun + limits.response).min(self.moved + limits.stalled),
            Phase::Closing => self.begun + limits.closing,
        }
    }

    pub(super) fn advance(&mut self, limits: &HttpLimits, responder: &mut Responder) -> bool {
        let advanced = match self.phase {
            Phase::Requesting => self.receive(limits, responder),
            Phase::Responding => self.send(),
            Phase::Closing => self.discard(),
        };
        match advanced {
            Ok(stays) => stays,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.begun, self.moved) = (phase, Instant::now(), Instant::now());
    }

    fn receive(&mut self, limits: &HttpLimits, responder: &mut Responder) -> io::Result<bool> {
        loop {
            let mut bytes = [0; READ_BYTES];
            let count = self.stream.read(&mut bytes)?;
            if count == 0 {
                return Ok(false);
            }
            self.bytes.extend_from_slice(&bytes[..count]);
            if let Some(response) = responder.answer(&self.bytes, limits.request_bytes_max) {
                self.bytes = response;
                self.enter(Phase::Responding);
                return self.send();
            }
        }
    }

    fn send(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            self.sent += self.stream.write(rest)?;
            self.moved = Instant::now();
        }
        self.stream.shutdown(Shutdown::Write)?;
        self.bytes = Vec::new();
        self.enter(Phase::Closing);
        self.discard()
    }

    fn discard(&mut self) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        for _ in 0..READS_A_TURN {
            if self.stream.read(&mut bytes)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
