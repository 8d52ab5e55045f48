//! The HTTP server: a thread that polls the listener and all connections, and never waits for one of them.
//!
//! A connection is for one request ([`connection`]), so that whoever comes is served while others hold theirs: when there are as many
//! connections as may be, the one that has waited longest for its request to come makes room. It starts before EAL pins the main
//! thread, and runs where no lcore does ([`crate::threads`]).

mod connection;
mod response;
#[cfg(test)]
mod server_test;

use super::{Publisher, SharedSnapshot};
use crate::threads::spawn;
use connection::{HttpConnection, Phase};
use response::Responder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that are accepted before those there are have their turn.
const ACCEPTED_A_TURN: usize = 64;
/// How long the listener rests when the system has no descriptor for another connection.
const REST: Duration = Duration::from_millis(100);

/// What clients may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLimits {
    /// Connections at once.
    pub(crate) connections_max: usize,
    /// Bytes of a request, up to the empty line.
    pub(crate) request_bytes_max: usize,
    /// How long a request may take to come.
    pub(crate) request: Duration,
    /// How long a client may read nothing of its response.
    pub(crate) stalled: Duration,
    /// How long it may take to read all of it.
    pub(crate) response: Duration,
    /// How long it may take to close after that.
    pub(crate) closing: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            request_bytes_max: 8 << 10,
            request: Duration::from_secs(5),
            stalled: Duration::from_secs(5),
            response: Duration::from_secs(30),
            closing: Duration::from_secs(1),
        }
    }
}

/// A listening HTTP server. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    snapshot: SharedSnapshot,
    thread: Option<JoinHandle<()>>,
    /// The thread ends when this is closed.
    alive: Option<UnixStream>,
}

impl MetricsServer {
    /// Serves the newest snapshot at `address`, port 0 for a free one, on a thread of its own.
    ///
    /// # Errors
    /// The system's, as when the port is taken.
    pub(crate) fn start(address: SocketAddr, limits: HttpLimits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let (address, (alive, told)) = (listener.local_addr()?, UnixStream::pair()?);
        let snapshot = SharedSnapshot::default();
        let responder = Responder::new(Arc::clone(&snapshot));
        let serving =
            Serving { listener, told, limits, responder, connections: Vec::new(), rest_until: None };
        let thread = spawn("metrics", move || serving.run())?;
        Ok(Self { address, snapshot, thread: Some(thread), alive: Some(alive) })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the snapshots of a forwarder that starts now, on a clock of `tsc_hz`.
    pub(crate) fn publisher(&self, tsc_hz: u64) -> Publisher {
        Publisher::new(Arc::clone(&self.snapshot), tsc_hz)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Serving {
    listener: TcpListener,
    /// Closed at its other end when the server ends.
    told: UnixStream,
    limits: HttpLimits,
    responder: Responder,
    /// The oldest first.
    connections: Vec<HttpConnection>,
    /// No connection is accepted before this.
    rest_until: Option<Instant>,
}

/// What is ready.
struct ReadySockets {
    has_ended: bool,
    listener: bool,
    connections: Vec<PollFlags>,
}

impl Serving {
    fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else {
                // Interrupted by a signal, or the kernel is short of memory.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if ready.has_ended {
                return;
            }
            self.serve(&ready.connections);
            if ready.listener {
                self.accept();
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> io::Result<ReadySockets> {
        let now = Instant::now();
        self.rest_until = self.rest_until.filter(|until| *until > now);
        let deadlines = self.connections.iter().map(|connection| connection.deadline(&self.limits));
        let timeout = deadlines.chain(self.rest_until).min().map(|end| end.saturating_duration_since(now));
        // Rounded up, so that the deadline has passed when it is looked at.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout + Duration::from_micros(1)).ok());
        let listens = if self.rest_until.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&self.told, PollFlags::IN), PollFd::new(&self.listener, listens)];
        polled.extend(self.connections.iter().map(|at| PollFd::new(at.stream(), at.interest())));
        poll(&mut polled, timeout.as_ref())?;
        let events: Vec<_> = polled.iter().map(PollFd::revents).collect();
        Ok(ReadySockets {
            has_ended: !events[0].is_empty(),
            listener: !events[1].is_empty(),
            connections: events[2..].to_vec(),
        })
    }

    /// Moves every connection on, as far as it goes without waiting.
    fn serve(&mut self, events: &[PollFlags]) {
        let (now, Self { connections, limits, responder, .. }) = (Instant::now(), self);
        let mut events = events.iter();
        connections.retain_mut(|connection| {
            let events = events.next().copied().unwrap_or(PollFlags::empty());
            let goes_on = events.is_empty() || connection.advance(limits, responder);
            goes_on && now < connection.deadline(limits)
        });
    }

    /// Accepts some of those that wait.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED_A_TURN {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() && self.has_room() {
                        let mut connection = HttpConnection::new(stream);
                        // Most requests are there by now.
                        if connection.advance(&self.limits, &mut self.responder) {
                            self.connections.push(connection);
                        }
                    }
                }
                Err(error) => {
                    let gone = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
                    if !gone.contains(&error.kind()) {
                        self.rest_until = Some(Instant::now() + REST);
                    }
                    return;
                }
            }
        }
    }

    /// Whether there is room for another connection, for which an older one that sends no request, or has its response, may have to go.
    fn has_room(&mut self) -> bool {
        if self.connections.len() < self.limits.connections_max {
            return true;
        }
        let is_idle = |connection: &HttpConnection| connection.phase() != Phase::Responding;
        let oldest = self.connections.iter().position(is_idle);
        oldest.map(|at| self.connections.remove(at)).is_some()
    }
}
