//! The thread that listens for zebra: it moves bytes to [`Fpm`] and its events to the consumer. While the consumer is behind, it does not
//! read, and TCP holds the peer back. A peer that may not announce routes is closed at once and affects no other connection.

use super::peers::{FpmPeer, who};
use super::{ConnectionId, Fpm, FpmOptions};
use crate::notice;
use crate::routes::feeds::thread::{FeedThread, LinksRead, Outlet, Stopped, wait};
use crate::routes::feeds::{ChangeSet, FeedEvent};
use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The most bytes of one read, which bounds a change set.
const READ_BYTES: usize = 1 << 16;
/// The most connections accepted between two reads.
const ACCEPTS_MAX: usize = 64;

const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Listens on `address` and sends the peer's events to `sender` until the returned value is dropped. Port 0 is any free port. Accepts
/// connections once the kernel's links, which routes name, are read. Also returns the bound address.
///
/// # Errors
/// When the address cannot be listened on, or the system refuses a thread.
pub(crate) fn listen(
    address: SocketAddr,
    options: FpmOptions,
    sender: Sender<ChangeSet>,
    links: LinksRead,
) -> io::Result<(FeedThread, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    if !address.ip().to_canonical().is_loopback() {
        notice::warn(format_args!(
            "--fpm {address}: any host that reaches this address may announce routes, since the users of other hosts are unknown; with \
             a loopback address, also in a network namespace (--tap-netns), only root, the user of this process and --fpm-user may"
        ));
    }
    let feed = options.feed;
    let users = [&[0, rustix::process::geteuid().as_raw()], &options.users[..]].concat();
    let work = move |outlet: &Outlet| {
        outlet.wait_for(&links);
        let fpm = Fpm::new(options);
        let (streams, events) = (Vec::new(), Vec::new());
        let mut server = Server { listener, users, streams, opened: 0, fpm, events, warned: None };
        while !outlet.is_stopping() && server.poll_once(outlet).is_ok() {}
    };
    Ok((FeedThread::start("fpm", feed, sender, work)?, address))
}

struct FpmStream {
    id: ConnectionId,
    stream: TcpStream,
    from: SocketAddr,
    peer: FpmPeer,
}

struct Server {
    listener: TcpListener,
    users: Vec<u32>,
    /// At most two: the connection in use, and one on probation.
    streams: Vec<FpmStream>,
    opened: u64,
    fpm: Fpm,
    events: Vec<FeedEvent>,
    warned: Option<Instant>,
}

impl Server {
    fn poll_once(&mut self, outlet: &Outlet) -> Result<(), Stopped> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.streams.iter().map(|known| PollFd::new(&known.stream, PollFlags::IN)));
        wait(&mut fds, self.fpm.deadline());
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let ready = self.streams.iter().zip(&is_ready[1..]).filter(|(_, is_ready)| **is_ready);
        let ready: Vec<ConnectionId> = ready.map(|(known, _)| known.id).collect();
        for id in ready {
            self.read(id);
            outlet.send(&mut self.events)?;
        }
        if is_ready[0] {
            // Accept queued connections, but let reads continue.
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

    /// Accepts one connection; `false` if none waits. A failure, such as a lack of descriptors, is ignored.
    fn accept(&mut self) -> bool {
        let Ok((stream, from)) = self.listener.accept() else { return false };
        let peer = match stream.local_addr().and_then(|local| who(local, from)) {
            Ok(peer) => peer,
            Err(error) => {
                self.refuse(from, &format!("since its user is unknown ({error})"));
                return true;
            }
        };
        match peer {
            FpmPeer::User(user) if !self.users.contains(&user) => {
                self.refuse(
                    from,
                    &format!("of user {user}, wanted root, the user of this process or a user of --fpm-user"),
                );
            }
            FpmPeer::Gone => self.refuse(
                from,
                "since its user is unknown: it has disconnected, or the kernel has no tcp_diag",
            ),
            FpmPeer::Remote if self.is_used_by_other(from) => {
                self.refuse(from, "while another peer is connected");
            }
            FpmPeer::User(_) | FpmPeer::Remote if stream.set_nonblocking(true).is_ok() => {
                self.open(FpmStream { id: ConnectionId(self.opened + 1), stream, from, peer });
            }
            FpmPeer::User(_) | FpmPeer::Remote => {}
        }
        true
    }

    fn open(&mut self, connection: FpmStream) {
        self.opened += 1;
        if let Some(other) = self.fpm.opened(connection.id) {
            self.close(other);
        }
        self.streams.push(connection);
    }

    fn is_used_by_other(&self, from: SocketAddr) -> bool {
        let in_use = self.fpm.in_use();
        self.streams.iter().any(|known| Some(known.id) == in_use && known.from.ip() != from.ip())
    }

    /// Counts a refused peer, and warns of it unless a warning is recent.
    fn refuse(&mut self, from: SocketAddr, why: &str) {
        self.fpm.refused();
        if self.warned.is_none_or(|warned| warned.elapsed() >= WARNING_INTERVAL) {
            self.warned = Some(Instant::now());
            notice::warn(format_args!("fpm: refused peer {from} {why}"));
        }
    }

    fn read(&mut self, id: ConnectionId) {
        let mut bytes = [0; READ_BYTES];
        let Some(known) = self.streams.iter_mut().find(|known| known.id == id) else { return };
        let (from, peer) = (known.from, known.peer);
        match known.stream.read(&mut bytes) {
            Ok(len) if len > 0 => {
                let result = self.fpm.received(id, &bytes[..len], Instant::now(), &mut self.events);
                if self.events.contains(&FeedEvent::Connected) {
                    match peer {
                        FpmPeer::User(user) => {
                            notice::post(format_args!("fpm: {from} of user {user} announces routes"))
                        }
                        _ => notice::post(format_args!("fpm: {from} announces routes")),
                    }
                }
                match result {
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
        self.streams.retain(|known| known.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::feeds::fpm::tests::route_frame;
    use crate::routes::feeds::test_peers::{NOBODY, nobody_says, strangers};
    use crossbeam_channel::{Receiver, bounded};
    use std::io::Write as _;

    fn start(capacity: usize) -> (FeedThread, SocketAddr, Receiver<ChangeSet>) {
        start_with(capacity, FpmOptions::default())
    }

    fn start_with(capacity: usize, options: FpmOptions) -> (FeedThread, SocketAddr, Receiver<ChangeSet>) {
        let (sender, receiver) = bounded(capacity);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (_, links) = bounded(0);
        let (thread, address) = listen(any, options, sender, links).unwrap();
        (thread, address, receiver)
    }

    #[test]
    fn nothing_is_taken_before_the_links_are_read() {
        let (sender, receiver) = bounded(64);
        let (unread, links) = bounded(0);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = FpmOptions::default();
        let (_thread, address) = listen(any, options, sender, links).unwrap();
        let mut zebra = TcpStream::connect(address).unwrap();
        zebra.write_all(&route_frame(1)).unwrap();
        assert!(receiver.recv_timeout(Duration::from_millis(300)).is_err());
        drop(unread);
        assert_eq!(until(&receiver, is_announce), 1, "after the connection");
    }

    /// Receives events until one is `wanted`, and returns how many preceded it.
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

    /// Connections so far. The user of a stranger that leaves at once may be unknown.
    fn came(thread: &FeedThread) -> u64 {
        thread.counts().sessions + thread.counts().refused
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
            // Stay within the listener's backlog, so that no connection waits for a retry of TCP.
            while number % 50 == 0 && came(&thread) <= u64::from(number) {
                std::thread::sleep(Duration::from_millis(1));
            }
            TcpStream::connect(address).unwrap()
        });
        zebra.write_all(&route_frame(2)).unwrap();
        assert_eq!(until(&receiver, is_announce), 0, "the strangers caused no events");
        while came(&thread) < 10_001 {
            std::thread::yield_now();
        }
        drop(zebra);
        until(&receiver, |event| *event == FeedEvent::Stale);
        assert!(!thread.has_ended());
    }

    #[test]
    fn another_user_neither_announces_routes_nor_displaces_zebra() {
        let (thread, address, receiver) = start(64);
        let mut zebra = TcpStream::connect(address).unwrap();
        zebra.write_all(&route_frame(1)).unwrap();
        until(&receiver, is_announce);
        let Some(mut stranger) = nobody_says(address, &route_frame(3)) else {
            return fib::testing::skip("root", "only root can start a process of another user");
        };
        stranger.wait().unwrap();
        while came(&thread) < 2 {
            std::thread::yield_now();
        }
        zebra.write_all(&route_frame(2)).unwrap();
        assert_eq!(until(&receiver, is_announce), 0, "the stranger caused no events");
        assert_eq!((thread.counts().refused, thread.counts().sessions), (1, 1));
        // Nor while zebra is gone and its routes are held.
        drop(zebra);
        until(&receiver, |event| *event == FeedEvent::Stale);
        nobody_says(address, &route_frame(3)).unwrap().wait().unwrap();
        let mut zebra = TcpStream::connect(address).unwrap();
        zebra.write_all(&route_frame(4)).unwrap();
        assert_eq!(until(&receiver, is_announce), 1, "zebra is there, and that is all");
        assert_eq!((thread.counts().refused, thread.counts().sessions), (2, 2));
    }

    #[test]
    fn a_user_that_is_named_announces_routes() {
        let options = FpmOptions { users: vec![NOBODY], ..FpmOptions::default() };
        let (thread, address, receiver) = start_with(64, options);
        let Some(mut zebra) = nobody_says(address, &route_frame(1)) else {
            return fib::testing::skip("root", "only root can start a process of another user");
        };
        until(&receiver, is_announce);
        assert_eq!((thread.counts().refused, thread.counts().sessions), (0, 1));
        drop(thread);
        zebra.wait().unwrap();
    }

    #[test]
    fn a_peer_of_another_address_does_not_replace_the_one_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let from = "192.0.2.1:5000".parse().unwrap();
        let zebra = FpmStream { id: ConnectionId(1), stream, from, peer: FpmPeer::Remote };
        let fpm = Fpm::new(FpmOptions::default());
        let (streams, events) = (Vec::new(), Vec::new());
        let mut server = Server { listener, users: vec![0], streams, opened: 0, fpm, events, warned: None };
        server.open(zebra);
        let another = "192.0.2.2:6000".parse().unwrap();
        assert!(!server.is_used_by_other(another), "it has not said anything");
        server.fpm.received(ConnectionId(1), &route_frame(1), Instant::now(), &mut server.events).unwrap();
        assert!(server.is_used_by_other(another));
        assert!(!server.is_used_by_other("192.0.2.1:6000".parse().unwrap()), "zebra again");
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
