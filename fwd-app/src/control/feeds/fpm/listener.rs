//! The thread that listens for zebra.
//!
//! It accepts connections, moves their bytes to [`Fpm`] and its events to the consumer. While the consumer does not keep up, it reads
//! nothing, and TCP holds the peer back.

use super::{ConnectionId, Fpm, FpmOptions};
use crate::control::feeds::thread::{FeedThread, Outlet, Stopped, wait};
use crate::control::feeds::{ChangeSet, FeedEvent, FeedId};
use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

/// The most bytes of one read, and so the size of a change set.
const READ_BYTES: usize = 1 << 16;
/// The most connections that are accepted between two reads.
const ACCEPTS_MAX: usize = 64;

/// Listens on `address` and sends what the peer says to `senders`, one a VRF, until the returned value is dropped. Port 0 is any free port.
/// Returns the address in use, too.
///
/// # Errors
/// When the address cannot be listened on, or the system refuses a thread.
pub(crate) fn listen(
    address: SocketAddr,
    feed: FeedId,
    options: FpmOptions,
    senders: Vec<Sender<ChangeSet>>,
) -> io::Result<(FeedThread, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let work = move |outlet: &Outlet| {
        let fpm = Fpm::new(options);
        let streams = Vec::new();
        let mut server = Server { listener, streams, opened: 0, fpm, events: Vec::new() };
        while !outlet.is_stopping() && server.turn(outlet).is_ok() {}
    };
    Ok((FeedThread::start("fpm", feed, senders, work)?, address))
}

/// The listener, its connections (two at most) and the protocol's state.
struct Server {
    listener: TcpListener,
    streams: Vec<(ConnectionId, TcpStream)>,
    opened: u64,
    fpm: Fpm,
    events: Vec<FeedEvent>,
}

impl Server {
    /// Waits for something to do and does it.
    fn turn(&mut self, outlet: &Outlet) -> Result<(), Stopped> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.streams.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
        wait(&mut fds, self.fpm.deadline());
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let ready = self.streams.iter().zip(&is_ready[1..]).filter(|(_, is_ready)| **is_ready);
        let ready: Vec<ConnectionId> = ready.map(|((id, _), _)| *id).collect();
        for id in ready {
            self.read(id);
            outlet.send(&mut self.events)?;
        }
        if is_ready[0] {
            // As many as have queued up, but not for ever.
            for _ in 0..ACCEPTS_MAX {
                if !self.accept() {
                    break;
                }
            }
        }
        self.fpm.tick(Instant::now(), &mut self.events);
        outlet.count(self.fpm.counts());
        outlet.send(&mut self.events)
    }

    /// Accepts one connection; `false` if there is none. A failure (no descriptors) leaves the listener as it is.
    fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else { return false };
        if stream.set_nonblocking(true).is_err() {
            return true;
        }
        self.opened += 1;
        let id = ConnectionId(self.opened);
        if let Some(other) = self.fpm.opened(id) {
            self.close(other);
        }
        self.streams.push((id, stream));
        true
    }

    /// Reads once from a connection.
    fn read(&mut self, id: ConnectionId) {
        let mut bytes = [0; READ_BYTES];
        let Some((_, stream)) = self.streams.iter_mut().find(|(known, _)| *known == id) else { return };
        match stream.read(&mut bytes) {
            Ok(len) if len > 0 => {
                match self.fpm.received(id, &bytes[..len], Instant::now(), &mut self.events) {
                    Ok(Some(other)) => self.close(other),
                    Ok(None) => {}
                    Err(_) => self.close(id),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(_) | Err(_) => {
                self.fpm.closed(id, &mut self.events);
                self.close(id);
            }
        }
    }

    fn close(&mut self, id: ConnectionId) {
        self.streams.retain(|(known, _)| *known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::feeds::fpm::tests::route_frame;
    use crate::control::test_peers::{fpm_frame, route_bytes, strangers};
    use crossbeam_channel::{Receiver, bounded};
    use netlink_packet_route::route::{RouteAttribute, RouteType};
    use std::io::Write as _;
    use std::time::Duration;

    fn start(capacity: usize) -> (FeedThread, SocketAddr, Receiver<ChangeSet>) {
        let (sender, receiver) = bounded(capacity);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (thread, address) = listen(any, FeedId(0), FpmOptions::default(), vec![sender]).unwrap();
        (thread, address, receiver)
    }

    /// Receives events until one is `wanted`, and returns how many came before it.
    fn until(receiver: &Receiver<ChangeSet>, wanted: impl Fn(&FeedEvent) -> bool) -> usize {
        let mut before = 0;
        loop {
            let set = receiver.recv_timeout(Duration::from_secs(20)).expect("an event");
            match set.events.iter().position(&wanted) {
                Some(at) => return before + at,
                None => before += set.events.len(),
            }
        }
    }

    fn is_announce(event: &FeedEvent) -> bool {
        matches!(event, FeedEvent::Announce { .. })
    }

    #[test]
    fn ten_thousand_strangers_cost_nothing_and_zebra_stays() {
        let (thread, address, receiver) = start(64);
        let mut zebra = TcpStream::connect(address).unwrap();
        zebra.write_all(&route_frame(1)).unwrap();
        until(&receiver, is_announce);
        strangers(10_000, &route_frame(3), |number| {
            // Within the listener's backlog, so that no connection waits for a retry of TCP.
            while number % 50 == 0 && thread.counts().sessions <= u64::from(number) {
                std::thread::sleep(Duration::from_millis(1));
            }
            TcpStream::connect(address).unwrap()
        });
        zebra.write_all(&route_frame(2)).unwrap();
        assert_eq!(until(&receiver, is_announce), 0, "the strangers caused no events");
        while thread.counts().sessions < 10_001 {
            std::thread::yield_now();
        }
        drop(zebra);
        until(&receiver, |event| *event == FeedEvent::Stale);
        assert!(!thread.has_ended());
    }

    #[test]
    fn a_slow_consumer_holds_the_peer_back_and_loses_nothing() {
        const ROUTES: u32 = 200_000;
        let (thread, address, receiver) = start(1);
        let mut zebra = TcpStream::connect(address).unwrap();
        let sent = std::thread::spawn(move || {
            for chunk in (0..ROUTES).collect::<Vec<_>>().chunks(100) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|number| route_frame(*number)).collect();
                zebra.write_all(&bytes).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!sent.is_finished(), "TCP takes only so much");
        let is_last = |event: &FeedEvent| *event == FeedEvent::Disconnected;
        assert_eq!(until(&receiver, is_last), 1 + ROUTES as usize);
        sent.join().unwrap();
        assert_eq!(thread.counts().messages, u64::from(ROUTES));
    }

    #[test]
    fn each_vrf_hears_of_its_routes_and_of_the_peer() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| bounded(64)).unzip();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut options = FpmOptions::default();
        options.tables.set(10, 1);
        let (_thread, address) = listen(any, FeedId(0), options, senders).unwrap();
        let mut zebra = TcpStream::connect(address).unwrap();
        let in_table = |table| {
            let attributes = vec![RouteAttribute::Oif(1), RouteAttribute::Table(table)];
            fpm_frame(&route_bytes("10.0.0.0/8".parse().unwrap(), RouteType::Unicast, attributes))
        };
        for table in [10, 254, 10, 10] {
            zebra.write_all(&in_table(table)).unwrap();
        }
        drop(zebra);
        for (receiver, routes) in receivers.iter().zip([1, 3]) {
            assert_eq!(until(receiver, |event| *event == FeedEvent::Stale), 1 + routes + 1);
        }
    }

    #[test]
    fn a_thread_whose_consumer_is_full_ends_when_it_is_dropped() {
        let (thread, address, receiver) = start(1);
        let mut zebra = TcpStream::connect(address).unwrap();
        for number in 0..3 {
            zebra.write_all(&route_frame(number)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(thread);
        assert!(receiver.len() <= 1);
    }
}
