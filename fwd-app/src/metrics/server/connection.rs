//! One connection: a request comes, its response goes, and the connection ends.

use super::HttpLimits;
use super::response::Responder;
use rustix::event::PollFlags;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

/// Bytes read at once.
const READ_BYTES: usize = 4 << 10;
/// Reads a turn of what nobody wants, at most.
const READS_A_TURN: usize = 16;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The rest of the request.
    Requesting,
    /// That the client reads the response.
    Responding,
    /// That the client closes the connection. Closed here before all that it has sent is read, the response could be lost.
    Closing,
}

/// A connection.
pub(super) struct HttpConnection {
    stream: TcpStream,
    phase: Phase,
    /// When the phase began.
    begun: Instant,
    /// When the client last read something.
    moved: Instant,
    /// What came of the request, then the response.
    bytes: Vec<u8>,
    /// Bytes of the response that were sent.
    sent: usize,
}

impl HttpConnection {
    /// A connection that does not block.
    pub(super) fn new(stream: TcpStream) -> Self {
        let now = Instant::now();
        Self { stream, phase: Phase::Requesting, begun: now, moved: now, bytes: Vec::new(), sent: 0 }
    }

    /// Its socket.
    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it waits for.
    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// What it is polled for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.phase == Phase::Responding { PollFlags::OUT } else { PollFlags::IN }
    }

    /// When it is closed if nothing happens.
    pub(super) fn deadline(&self, limits: &HttpLimits) -> Instant {
        match self.phase {
            Phase::Requesting => self.begun + limits.request,
            Phase::Responding => (self.begun + limits.response).min(self.moved + limits.stalled),
            Phase::Closing => self.begun + limits.closing,
        }
    }

    /// Goes on as far as that is possible without waiting. Returns whether the connection stays.
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

    /// Reads, and begins to respond when the request is there or will never be right.
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

    /// Writes what the socket takes.
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

    /// Reads what nobody wants until the client closes.
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
