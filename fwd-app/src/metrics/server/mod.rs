//! The HTTP server: a thread that polls the listener and all connections without blocking on any.
//!
//! At the limit of connections the oldest without a response in progress is closed, so that new clients are served while others hold
//! theirs. The thread starts before EAL pins the main thread, and runs on CPUs without an lcore.

mod connection;
mod response;
#[cfg(test)]
mod server_test;

use super::{Publisher, SharedSnapshot};
use crate::threads::{await_end, spawn};
use connection::{HttpConnection, Phase};
use response::Responder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ACCEPTED_A_TURN: usize = 64;
/// Pause of the listener when file descriptors are exhausted.
const REST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLimits {
    pub(crate) connections_max: usize,
    /// Bytes of a request up to the empty line.
    pub(crate) request_bytes_max: usize,
    pub(crate) request: Duration,
    /// Time without progress while reading the response.
    pub(crate) stalled: Duration,
    pub(crate) response: Duration,
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

#[derive(Debug)]
pub(crate) struct MetricsServer {
    address: SocketAddr,
    snapshot: SharedSnapshot,
    thread: Option<JoinHandle<()>>,
    /// Closing it ends the thread.
    alive: Option<UnixStream>,
}

impl MetricsServer {
    /// Serves the latest snapshot at `address` on a new thread; port 0 selects a free port.
    ///
    /// # Errors
    /// The system's error, such as for a port in use.
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

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn publisher(&self, tsc_hz: u64) -> Publisher {
        Publisher::new(Arc::clone(&self.snapshot), tsc_hz)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.alive.take());
        self.thread.take().into_iter().for_each(await_end);
    }
}

struct Serving {
    listener: TcpListener,
    told: UnixStream,
    limits: HttpLimits,
    responder: Responder,
    /// Oldest first.
    connections: Vec<HttpConnection>,
    rest_until: Option<Instant>,
}

struct ReadySockets {
    has_ended: bool,
    listener: bool,
    connections: Vec<PollFlags>,
}

impl Serving {
    fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else {
                // Interrupted by a signal, or the kernel lacks memory.
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

    fn wait(&mut self) -> io::Result<ReadySockets> {
        let now = Instant::now();
        self.rest_until = self.rest_until.filter(|until| *until > now);
        let deadlines = self.connections.iter().map(|connection| connection.deadline(&self.limits));
        let timeout = deadlines.chain(self.rest_until).min().map(|end| end.saturating_duration_since(now));
        // Rounded up, so that the deadline has passed after the poll.
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

    fn serve(&mut self, events: &[PollFlags]) {
        let (now, Self { connections, limits, responder, .. }) = (Instant::now(), self);
        let mut events = events.iter();
        connections.retain_mut(|connection| {
            let events = events.next().copied().unwrap_or(PollFlags::empty());
            let goes_on = events.is_empty() || connection.advance(limits, responder);
            goes_on && now < connection.deadline(limits)
        });
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_A_TURN {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_ok() && self.has_room() {
                        let mut connection = HttpConnection::new(stream);
                        // Usually the request has arrived.
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

    /// Whether there is room for another connection; closes the oldest one without a response in progress if needed.
    fn has_room(&mut self) -> bool {
        if self.connections.len() < self.limits.connections_max {
            return true;
        }
        let is_idle = |connection: &HttpConnection| connection.phase() != Phase::Responding;
        let oldest = self.connections.iter().position(is_idle);
        oldest.map(|at| self.connections.remove(at)).is_some()
    }
}
