//! The thread of the control socket: polls the listener and all clients, and never blocks on one of them.
//!
//! It starts before EAL pins the main thread, and runs on CPUs without lcores.

pub(crate) mod access;
mod closer;
pub(crate) mod connection;
pub(crate) mod inbox;
#[cfg(test)]
mod server_test;
pub(crate) mod socket;
pub(crate) mod wire;

use crate::console::answer::{Answer, Refusal};
use crate::console::grammar::request::Request;
use crate::console::server::access::{ClientRights, ClientUser, CtlGroups, GroupLookups};
use crate::console::server::closer::Closer;
use crate::console::server::connection::CtlConnection;
use crate::console::server::inbox::{ClientCommand, Inbox, Replies, WAITING_MAX};
use crate::console::server::socket::{Socket, SocketError};
use crate::threads::{await_end, spawn};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause of the listener when the process is out of descriptors, and of other users when too many wait to be closed.
const REST: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 16 << 10;
/// The most descriptors of a message (`SCM_MAX_FD`).
const FILES_MAX: usize = 253;
/// Places reserved for root and the own user.
const OWN_PLACES: usize = 4;
/// Idle time after which a client may lose its place to a new one. A client sends its request sooner after connecting.
const YIELD_AFTER: Duration = Duration::from_secs(1);
/// Lines served per client before the others.
const LINES_A_TURN: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// One more client replaces an idle one, or gets an error and is closed.
    pub(crate) clients_max: usize,
    pub(crate) idle: Duration,
    /// Timeout while a reply is not read.
    pub(crate) stalled: Duration,
    pub(crate) groups: CtlGroups,
}

impl Default for Limits {
    fn default() -> Self {
        let (idle, stalled) = (Duration::from_secs(60), Duration::from_secs(10));
        Self { clients_max: 16, idle, stalled, groups: CtlGroups::default() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ServerTally {
    pub(crate) clients: u64,
    /// Clients refused for lack of a place or of rights.
    pub(crate) turned_away: u64,
    /// Clients disconnected after a timeout, or while idle in favour of another client.
    pub(crate) timed_out: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
}

#[derive(Debug, Default)]
struct ServerShared {
    stop: AtomicBool,
    clients: AtomicU64,
    turned_away: AtomicU64,
    timed_out: AtomicU64,
    requests: AtomicU64,
    errors: AtomicU64,
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[derive(Debug)]
pub(crate) struct Server {
    thread: Option<JoinHandle<()>>,
    shared: Arc<ServerShared>,
    replies: Replies,
}

impl Server {
    /// Listens at `path` and serves clients on a new thread. Requests go to the inbox.
    pub(crate) fn start(path: &Path, limits: Limits) -> Result<(Self, Inbox), SocketError> {
        let failed = |source| SocketError::System { path: path.to_owned(), what: "cannot be served", source };
        let socket = Socket::listen(path, limits.groups.is_some())?;
        let (woken, waker) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).and_then(|()| waker.set_nonblocking(true)).map_err(failed)?;
        let (commands, waiting) = bounded(WAITING_MAX);
        let (of_others, others_waiting) = bounded(WAITING_MAX);
        let (sender, answers) = unbounded();
        let replies = Replies { sender, waker: Arc::new(waker) };
        let lookups = if limits.groups.is_some() {
            let replies = replies.clone();
            Some(GroupLookups::start(limits.groups, move || replies.wake()).map_err(failed)?)
        } else {
            None
        };
        let shared = Arc::new(ServerShared::default());
        let closer = Closer::start().map_err(failed)?;
        let serving = Serving {
            socket,
            limits,
            lookups,
            shared: Arc::clone(&shared),
            commands,
            of_others,
            answers,
            replies: replies.clone(),
            woken,
            closer,
            peers: Vec::new(),
            last_id: 0,
            rest_until: None,
        };
        let thread = spawn("ctl", move || serving.run()).map_err(failed)?;
        Ok((Self { thread: Some(thread), shared, replies }, Inbox::new(waiting, others_waiting)))
    }

    pub(crate) fn tally(&self) -> ServerTally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ServerShared { clients, turned_away, timed_out, requests, errors, .. } = &*self.shared;
        ServerTally {
            clients: read(clients),
            turned_away: read(turned_away),
            timed_out: read(timed_out),
            requests: read(requests),
            errors: read(errors),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.replies.wake();
        self.thread.take().into_iter().for_each(await_end);
    }
}

struct Peer {
    id: u64,
    stream: UnixStream,
    connection: CtlConnection,
    rights: ClientRights,
    is_own: bool,
    /// The last file it passed, until a request takes it.
    file: Option<File>,
    since: Instant,
    /// Whether unserved lines may remain for the next turn.
    unfinished: bool,
}

struct Serving {
    socket: Socket,
    limits: Limits,
    /// `None` without groups, where other users cannot connect.
    lookups: Option<GroupLookups>,
    shared: Arc<ServerShared>,
    commands: Sender<ClientCommand>,
    of_others: Sender<ClientCommand>,
    answers: Receiver<(u64, Result<Answer, Refusal>)>,
    replies: Replies,
    /// Readable after an answer or a stop.
    woken: UnixStream,
    closer: Closer,
    peers: Vec<Peer>,
    last_id: u64,
    /// Accepts no client before this time.
    rest_until: Option<Instant>,
}

impl Serving {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            let Ok(ready) = self.wait() else {
                // A signal, or the kernel is short of memory.
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if ready.woken {
                drain(&self.woken);
            }
            self.deliver();
            self.serve(&ready.peers);
            self.admit_members();
            if ready.listener {
                self.accept();
            }
        }
        // Sends the answer to the request that ended the forwarder.
        self.deliver();
        self.peers.iter_mut().for_each(|peer| drop(peer.send()));
        self.peers.drain(..).for_each(|peer| self.closer.close(peer));
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let now = Instant::now();
        self.rest_until = self.rest_until.filter(|until| *until > now);
        let at_once = self.peers.iter().any(|peer| peer.unfinished).then_some(now);
        let is_full = self.closer.is_full();
        // Only the clients that have connected by now add to those that wait.
        let is_open = self.socket.set_open(self.limits.groups.is_some() && !is_full);
        let resting = is_full.then(|| now + REST).or(self.rest_until);
        let deadlines = self.peers.iter().filter_map(|peer| peer.deadline(&self.limits)).chain(at_once);
        let timeout = deadlines.chain(resting).min().map(|end| end.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| {
            // Rounded up, so that the deadline has passed when checked.
            Timespec::try_from(timeout + Duration::from_micros(1)).ok()
        });
        let rests = self.rest_until.is_some() || is_full && is_open;
        let listens = if rests { PollFlags::empty() } else { PollFlags::IN };
        let mut polled =
            vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(self.socket.listener(), listens)];
        polled.extend(self.peers.iter().map(|peer| {
            let ignored = if is_full && !peer.is_own { PollFlags::IN } else { PollFlags::empty() };
            PollFd::new(&peer.stream, peer.interest() - ignored)
        }));
        poll(&mut polled, timeout.as_ref())?;
        let events: Vec<_> = polled.iter().map(PollFd::revents).collect();
        Ok(Ready {
            woken: !events[0].is_empty(),
            listener: !events[1].is_empty(),
            peers: events[2..].to_vec(),
        })
    }

    fn deliver(&mut self) {
        for (id, result) in self.answers.try_iter() {
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == id) {
                peer.connection.answer(&result);
                peer.since = Instant::now();
            }
        }
    }

    fn serve(&mut self, events: &[PollFlags]) {
        let Self { peers, limits, shared, commands, of_others, replies, closer, .. } = self;
        let mut events = events.iter();
        let over = peers.extract_if(.., |peer| {
            let events = events.next().copied().unwrap_or(PollFlags::empty());
            let commands = if peer.is_own { &*commands } else { &*of_others };
            let alive = peer.advance(events, closer, |request, file, id| {
                count(&shared.requests, 1);
                hand_over(commands, ClientCommand::new(request, file, id, replies), closer);
            });
            count(&shared.errors, peer.connection.take_errors());
            let in_time = peer.deadline(limits).is_none_or(|deadline| Instant::now() < deadline);
            count(&shared.timed_out, u64::from(alive && !in_time));
            !(alive && in_time)
        });
        over.for_each(|peer| peer.close(closer));
    }

    /// Accepts one client per turn; the listener stays readable for more.
    fn accept(&mut self) {
        let stream = match self.socket.listener().accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let gone = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
                if !gone.contains(&error.kind()) {
                    self.rest_until = Some(Instant::now() + REST);
                }
                return;
            }
        };
        count(&self.shared.clients, 1);
        // The kernel discards a byte out of band, and closes its descriptors in the reading thread, unless it is in line.
        if stream.set_nonblocking(true).is_err() || set_socket_oobinline(&stream, true).is_err() {
            return;
        }
        let refused = match (self.limits.groups.user_of(&stream), &self.lookups) {
            (Ok(ClientUser::Own), _) => return self.admit(stream, ClientRights::All, true),
            (Ok(ClientUser::Other { user, group }), Some(lookups)) => lookups.ask(stream, user, group).err(),
            _ => Some(stream),
        };
        if let Some(stream) = refused {
            self.turn_away(stream, &"too many clients wait for the lookup of their groups; try again");
        }
    }

    fn admit_members(&mut self) {
        let found = |serving: &Self| serving.lookups.as_ref()?.found.try_recv().ok();
        while let Some((stream, rights)) = found(self) {
            if rights == ClientRights::None {
                let why = "this user may not use the socket; see --ctl-group and --ctl-read-group";
                self.turn_away(stream, &why);
            } else {
                self.admit(stream, rights, false);
            }
        }
    }

    fn turn_away(&self, stream: UnixStream, why: &impl Display) {
        count(&self.shared.turned_away, 1);
        dismiss(&stream, why);
        close(stream, &self.closer);
    }

    fn admit(&mut self, stream: UnixStream, rights: ClientRights, is_own: bool) {
        if !self.make_room(is_own) {
            let limit = self.limits.clients_max;
            let why = format!("{limit} clients are connected, which is the limit; try again");
            return self.turn_away(stream, &why);
        }
        self.last_id += 1;
        let (connection, since) = (CtlConnection::new(), Instant::now());
        let (id, file) = (self.last_id, None);
        self.peers.push(Peer { id, stream, connection, rights, is_own, file, since, unfinished: false });
    }

    /// Makes a place, if necessary by closing the longest idle client; others cannot displace root and the own user (`is_own`).
    fn make_room(&mut self, is_own: bool) -> bool {
        let max = self.limits.clients_max;
        let others = self.peers.iter().filter(|peer| !peer.is_own).count();
        if self.peers.len() < max && (is_own || others + OWN_PLACES < max) {
            return true;
        }
        let may_go = |peer: &Peer| (is_own || !peer.is_own) && peer.is_idle();
        let peers = self.peers.iter().enumerate().filter(|(_, peer)| may_go(peer));
        let Some((at, _)) = peers.min_by_key(|(_, peer)| (peer.is_own, peer.since)) else { return false };
        count(&self.shared.timed_out, 1);
        let peer = self.peers.remove(at);
        dismiss(&peer.stream, &"the connection was idle, and another client needed its place");
        peer.close(&self.closer);
        true
    }
}

struct Ready {
    woken: bool,
    listener: bool,
    peers: Vec<PollFlags>,
}

fn hand_over(commands: &Sender<ClientCommand>, command: ClientCommand, closer: &Closer) {
    match commands.try_send(command) {
        Ok(()) => {}
        Err(TrySendError::Full(mut command)) => {
            command.take_file().into_iter().for_each(|file| closer.close(file));
            command.answer(Err(Refusal::Busy { waiting: WAITING_MAX }));
        }
        // The forwarder has ended; dropping the command answers it.
        Err(TrySendError::Disconnected(mut command)) => {
            command.take_file().into_iter().for_each(|file| closer.close(file));
        }
    }
}

fn close(stream: UnixStream, closer: &Closer) {
    // The client sees the end at once, and can send no more.
    let _ = stream.shutdown(Shutdown::Both);
    // Descriptors come with bytes: without unread ones the close does not block.
    if ioctl_fionread(&stream) != Ok(0) {
        closer.close(stream);
    }
}

fn dismiss(mut stream: &UnixStream, why: &impl Display) {
    let mut line = Vec::new();
    wire::write_error(&mut line, why);
    let _ = stream.write(&line);
}

fn drain(mut woken: &UnixStream) {
    let mut bytes = [0; 256];
    while woken.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
}

impl Peer {
    fn close(self, closer: &Closer) {
        self.file.into_iter().for_each(|file| closer.close(file));
        close(self.stream, closer);
    }

    /// Events to poll for; hang-ups are always reported.
    fn interest(&self) -> PollFlags {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, self.connection.room() > 0);
        interest.set(PollFlags::OUT, !self.connection.output().is_empty());
        interest
    }

    /// Its timeout; `None` while the forwarder has its request.
    fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let limit = if self.connection.output().is_empty() { limits.idle } else { limits.stalled };
        (!self.connection.is_asking()).then(|| self.since + limit)
    }

    /// Whether it may be displaced: it has no request and no unsent reply.
    fn is_idle(&self) -> bool {
        let is_served =
            self.connection.is_asking() || !self.connection.output().is_empty() || self.unfinished;
        !is_served && self.since.elapsed() >= YIELD_AFTER
    }

    /// Receives, passes on a request and sends, without blocking. Returns false when the client is to be closed.
    fn advance(
        &mut self,
        events: PollFlags,
        closer: &Closer,
        hand_over: impl Fn(Request, Option<File>, u64),
    ) -> bool {
        self.unfinished = false;
        let gone = events.intersects(PollFlags::HUP | PollFlags::ERR);
        // One turn may bring descriptors of many clients. Those that are not received are closed with the stream, by the closer.
        let is_full = !self.is_own && closer.is_full();
        if gone && (self.connection.is_asking() || is_full) {
            return false;
        }
        if !is_full && events.intersects(PollFlags::IN | PollFlags::HUP) && self.receive(closer).is_err() {
            return false;
        }
        for _ in 0..LINES_A_TURN {
            if self.send().is_err() || self.connection.is_over() {
                return false;
            }
            if let Some(request) = self.connection.next_request() {
                self.since = Instant::now();
                if self.rights == ClientRights::Read && !request.only_reads() {
                    self.connection.answer(&Err(Refusal::ReadOnly));
                    continue;
                }
                let file = if request.takes_file() { self.file.take() } else { None };
                hand_over(request, file, self.id);
                return true;
            }
            if self.connection.output().is_empty() {
                return !self.connection.is_over();
            }
        }
        self.unfinished = true;
        true
    }

    /// Reads once, for fairness. Accepts an open file only from clients with all rights, the last of a message; others are closed.
    fn receive(&mut self, closer: &Closer) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = self.connection.room().min(READ_BYTES);
        if room == 0 {
            return Ok(());
        }
        let into = &mut [IoSliceMut::new(&mut bytes[..room])];
        match recvmsg(&self.stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => {
                for message in control.drain() {
                    let RecvAncillaryMessage::ScmRights(files) = message else { continue };
                    for file in files.map(File::from) {
                        let is_taken = self.rights == ClientRights::All;
                        let closed = if is_taken { self.file.replace(file) } else { Some(file) };
                        closed.into_iter().for_each(|file| closer.close(file));
                    }
                }
                self.connection.receive(&bytes[..received.bytes]);
                Ok(())
            }
            Err(error) if is_transient(&error.into()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            match self.stream.write(self.connection.output()) {
                Ok(count) => {
                    self.connection.sent(count);
                    self.since = Instant::now();
                }
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
