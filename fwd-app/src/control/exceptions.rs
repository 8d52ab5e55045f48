//! The exception thread: gives the exceptions of the datapath to the router, and does what the router says.
//!
//! It owns the [`Router`]. Answers, and packets whose neighbour is known at last, go to a sending stage; what is learned of neighbours
//! goes to the session, which makes egress entries of it. It counts what it makes, takes and drops, so that every packet is still
//! counted once.
//!
//! What is for the router and not answered by it goes to the kernel by the [`Taps`], and what the kernel sends there leaves as it is. Such
//! frames need no neighbour here: the kernel asks for its own, and gets copies of the answers.

use super::interfaces::Resolved;
use super::taps::{Sent, Taps};
use super::thread::pin;
use crate::datapath::check;
use crate::datapath::exception::{Exception, Note};
use crate::datapath::rewrite::hop;
use crate::datapath::{Counters, DropReason, EgressTable, Published};
use crate::notice;
use crate::router::action::Unsent;
use crate::router::config::NeighbourConfig;
use crate::router::entries::Key;
use crate::router::frame::{Layer2, Tags};
use crate::router::icmp_errors::Cause;
use crate::router::receive::Disposition;
use crate::router::{Action, ErrorAnswer, Interface, InterfaceId, Reason, Router, RouterConfig};
use crate::topology::Outcome;
use crate::topology::punts::{Punts, RING_SLOTS};
use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use dpdk_ffi::{Burst, DpdkError, Eal, Mbuf, Mempool, MempoolConfig, Ring, RingConsumer, RingProducer};
use fib::{MacAddr, NextHopId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Exceptions that are dealt with before other work has its turn.
const BURST: usize = 32;
/// How often the rings are looked at when nothing comes.
const NAP: Duration = Duration::from_micros(100);
/// How often gateways are asked for that could not be before.
const GATEWAY_PERIOD: Duration = Duration::from_secs(1);
/// Events that wait for the session.
const EVENTS: usize = 4096;
/// Frames that are taken from one TAP before other work has its turn.
const TAP_BURST: usize = 32;
/// The shortest frame, without its checksum: what the kernel sends may be shorter.
const FRAME_BYTES_MIN: usize = 60;
/// The header of a frame, with two VLAN tags.
const HEADER_BYTES: usize = 22;
/// Packets of the router's own, in its pool.
const MBUFS: u32 = 2047;
/// Most packets that wait for one neighbour, and neighbours that are asked for at once on an interface.
const WAITING: (usize, usize) = (8, 128);

/// Packets that the exceptions of one interface can hold: in the ring, waiting for neighbours, on their way back.
pub(crate) const HELD_MAX: usize = 2 * RING_SLOTS as usize + WAITING.0 * WAITING.1;

/// The running exception thread.
pub(crate) struct ExceptionThread {
    /// `None` once it has been joined.
    thread: Option<JoinHandle<Outcome>>,
    is_stopping: Arc<AtomicBool>,
}

impl ExceptionThread {
    /// Starts the router of `interfaces`, which may change to those that come from `changes`, on the CPUs `cpus`, or on those of this
    /// thread if there are none. Returns the events for the session too.
    ///
    /// # Errors
    /// When there is no memory for packets, or the system refuses a thread.
    pub(crate) fn start(
        eal: &Eal,
        (interfaces, changes): (Vec<Interface>, Receiver<Interface>),
        neighbour_age: Duration,
        taps: Taps,
        punts: &Punts,
        cpus: Vec<u16>,
    ) -> anyhow::Result<(Self, Receiver<Resolved>)> {
        let (sender, events) = bounded(EVENTS);
        let mut exceptions = Exceptions::new(eal, (interfaces, changes), neighbour_age, taps, punts, sender)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&is_stopping);
        let run = move || {
            pin(&cpus);
            while !theirs.load(Ordering::Acquire) {
                if !exceptions.turn() {
                    exceptions.taps.wait(NAP);
                }
            }
            exceptions.finish()
        };
        let thread = Builder::new().name("exceptions".into()).spawn(run)?;
        Ok((Self { thread: Some(thread), is_stopping }, events))
    }

    /// Ends the thread, after all stages have ended. Returns its counters.
    pub(crate) fn stop(mut self) -> Outcome {
        self.join()
    }

    fn join(&mut self) -> Outcome {
        self.is_stopping.store(true, Ordering::Release);
        let joined = self.thread.take().map_or(Ok(Outcome::default()), JoinHandle::join);
        joined.unwrap_or_else(|_| {
            notice::warn("the exception thread has panicked: its packets are not counted");
            Outcome::default()
        })
    }
}

impl Drop for ExceptionThread {
    /// A start that fails later leaves no thread behind.
    fn drop(&mut self) {
        self.join();
    }
}

/// A packet that waits for a neighbour.
#[derive(Debug)]
struct Waiting {
    packet: Mbuf,
    note: Note,
}

/// The router between its rings.
struct Exceptions {
    router: Router<Waiting>,
    actions: Vec<Action<Waiting>>,
    from: RingConsumer,
    to: RingProducer,
    originated: Ring,
    came: Burst,
    going: Burst,
    pool: Mempool,
    taps: Taps,
    /// A frame of the kernel's.
    frame: Vec<u8>,
    /// Interfaces with other addresses than before.
    changes: Receiver<Interface>,
    /// The egress table of each port's VRF, then those of VRFs without ports.
    egress: Vec<Arc<ArcSwap<EgressTable>>>,
    /// The egress tables whose gateways and links were looked at last, and when.
    followed: (Vec<Arc<EgressTable>>, Instant),
    /// Which interfaces have a link.
    links: BTreeMap<InterfaceId, bool>,
    pinned: BTreeSet<Key>,
    events: Sender<Resolved>,
    /// Events that found the channel full.
    late: VecDeque<Resolved>,
    counters: Counters,
    published: Arc<Published>,
    start: Instant,
}

impl Exceptions {
    fn new(
        eal: &Eal,
        (interfaces, changes): (Vec<Interface>, Receiver<Interface>),
        neighbour_age: Duration,
        taps: Taps,
        punts: &Punts,
        events: Sender<Resolved>,
    ) -> Result<Self, DpdkError> {
        let (waiting_max, incomplete_max) = WAITING;
        let neighbours = NeighbourConfig { waiting_max, incomplete_max, ..NeighbourConfig::default() };
        let neighbours = neighbours.with_reachable(neighbour_age);
        let mut router = Router::new(&RouterConfig { neighbours, ..RouterConfig::default() });
        let mut actions = Vec::new();
        let links = interfaces.iter().map(|interface| (interface.id(), true)).collect();
        let longest = interfaces.iter().map(|interface| usize::from(interface.mtu_bytes())).max();
        let frame = vec![0; longest.unwrap_or(0) + HEADER_BYTES + 1];
        for interface in interfaces {
            router.set_interface(interface, &mut actions);
        }
        let mut config = MempoolConfig { mbufs: MBUFS, cache_mbufs: 0, ..MempoolConfig::default() };
        if taps.ids().next().is_some() {
            config.data_room_bytes =
                config.data_room_bytes.max(u16::try_from(frame.len()).unwrap_or(u16::MAX));
        }
        Ok(Self {
            router,
            actions,
            from: punts.exceptions.consumer()?,
            to: punts.originated.producer()?,
            originated: punts.originated.clone(),
            came: Burst::with_capacity(eal, BURST),
            going: Burst::with_capacity(eal, BURST),
            pool: Mempool::new(eal, "originated", &config)?,
            taps,
            frame,
            changes,
            egress: punts.egress.clone(),
            followed: (Vec::new(), Instant::now()),
            links,
            pinned: BTreeSet::new(),
            events,
            late: VecDeque::new(),
            counters: Counters::default(),
            published: Arc::clone(&punts.published),
            start: Instant::now(),
        })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Does some of what there is to do; returns whether there was anything.
    fn turn(&mut self) -> bool {
        let mut worked = self.receive();
        worked |= self.take_from_kernel();
        for interface in self.changes.try_iter() {
            self.router.set_interface(interface, &mut self.actions);
        }
        let now = self.now();
        if self.router.next_due().is_some_and(|due| due <= now) {
            self.router.tick(now, &mut self.actions);
        }
        self.follow();
        worked |= !self.actions.is_empty();
        self.act();
        self.flush();
        self.tell();
        self.published.publish(&self.counters);
        worked
    }

    /// Deals with exceptions that have come; returns whether there were any.
    fn receive(&mut self) -> bool {
        if self.from.dequeue_burst(&mut self.came) == 0 {
            return false;
        }
        let mut packets: Vec<Mbuf> = std::iter::from_fn(|| self.came.pop()).collect();
        // They were taken from the end.
        packets.reverse();
        for packet in packets {
            let note = Note::of(packet.tag());
            match note.exception {
                Exception::ForUs => self.for_us(note, &packet),
                Exception::NoNeighbour => self.resolve(Waiting { packet, note }),
                Exception::TtlExpired => self.refuse(note, &packet, Cause::TimeExceeded),
                Exception::NoRoute => self.refuse(note, &packet, Cause::NoRoute),
                Exception::MtuExceeded => {
                    let mtu_bytes = u16::try_from(note.value).unwrap_or(u16::MAX);
                    self.refuse(note, &packet, Cause::TooBig { mtu_bytes });
                }
            }
            self.act();
        }
        true
    }

    /// A frame for the router.
    fn for_us(&mut self, note: Note, packet: &Mbuf) {
        let (on, now) = (InterfaceId(note.port), self.now());
        let mut whole = Vec::new();
        let frame = if packet.segments() == 1 {
            packet.data()
        } else {
            packet.copy_to(&mut whole);
            &whole
        };
        match self.router.receive(now, on, frame, &mut self.actions) {
            Disposition::Answered(answer) => {
                self.counters.punted += 1;
                self.send(note.port, &answer);
            }
            Disposition::Neighbour { kernel_too } => {
                self.counters.punted += 1;
                if kernel_too {
                    // A copy: the frame is counted already.
                    self.taps.send(on, frame);
                }
            }
            Disposition::Ignored(Reason::IcmpLimited) => {
                self.counters.punted += 1;
                self.limited();
            }
            Disposition::Ignored(reason) => self.counters.drops.add(reason_of(reason), 1),
            Disposition::ForKernel => match self.taps.send(on, frame) {
                Sent::Taken => self.counters.punted += 1,
                Sent::Refused => self.counters.drops.add(DropReason::PuntFull, 1),
                Sent::NoTap => self.counters.drops.add(DropReason::NotForUs, 1),
            },
        }
    }

    /// Sends what the kernel has sent by its TAPs, some of it, as long as the stage that sends has room. Returns whether there was any.
    fn take_from_kernel(&mut self) -> bool {
        let mut room = self.originated.capacity().saturating_sub(self.originated.count() + self.going.len());
        let ids: Vec<InterfaceId> = self.taps.ids().collect();
        let mut frame = std::mem::take(&mut self.frame);
        let mut any = false;
        for id in ids {
            for _ in 0..TAP_BURST.min(room) {
                let Some(bytes) = self.taps.recv(id, &mut frame) else { break };
                (any, room) = (true, room - 1);
                let mtu_bytes = self.router.interfaces().get(id).map_or(0, Interface::mtu_bytes);
                // Somebody may have given the TAP a greater MTU; a frame that fills the buffer has been cut.
                if bytes > usize::from(mtu_bytes) + HEADER_BYTES {
                    self.counters.originated += 1;
                    self.counters.drops.add(DropReason::MtuExceeded, 1);
                    continue;
                }
                let padded = bytes.max(FRAME_BYTES_MIN);
                frame[bytes..padded].fill(0);
                self.send(id.0, &frame[..padded]);
            }
        }
        self.frame = frame;
        any
    }

    /// Counts an answer that the rate limit of ICMP does not allow.
    fn limited(&mut self) {
        self.counters.originated += 1;
        self.counters.drops.add(DropReason::IcmpLimited, 1);
    }

    /// Drops a packet, and tells its sender if that may be.
    fn refuse(&mut self, note: Note, packet: &Mbuf, cause: Cause) {
        self.counters.drops.add(note.exception.reason(), 1);
        self.tell_sender(note, packet, cause);
    }

    fn tell_sender(&mut self, note: Note, packet: &Mbuf, cause: Cause) {
        let (now, on) = (self.now(), InterfaceId(note.port));
        let frame = (packet.data(), packet.pkt_len() as usize);
        match self.router.icmp_error(now, on, frame, cause) {
            ErrorAnswer::Send(frame) => self.send(note.port, &frame),
            ErrorAnswer::Limited => self.limited(),
            ErrorAnswer::Not(_) => {}
        }
    }

    /// Sends a packet to its neighbour as soon as that is known.
    fn resolve(&mut self, waiting: Waiting) {
        let (now, packet) = (self.now(), &waiting.packet);
        let found = destination(packet).and_then(|destination| {
            let at = usize::from(waiting.note.port);
            let table = self.egress.get(at)?.load();
            let (address, port) = table.wanted(NextHopId::from_answer(waiting.note.value), destination)?;
            self.key(at, &table, address, port)
        });
        let tags = Layer2::parse(packet.data()).map_or(Tags::NONE, |layer2| layer2.tags);
        match found {
            Some(key) => self.router.resolve(now, key, waiting, tags, &mut self.actions),
            None => self.counters.drops.add(DropReason::NoNeighbour, 1),
        }
    }

    /// The neighbour at an address on a port, or on the first interface in the VRF of port `at` whose link has that address; `None` when the
    /// link is down. `table` is that of the VRF.
    fn key(&self, at: usize, table: &EgressTable, address: IpAddr, port: Option<u16>) -> Option<Key> {
        let is_in_vrf = |interface: &&Interface| {
            let its = self.egress.get(usize::from(interface.id().0)).zip(self.egress.get(at));
            its.is_some_and(|(its, ours)| Arc::ptr_eq(its, ours))
        };
        let interfaces = || self.router.interfaces().iter().filter(is_in_vrf);
        let on_link = || interfaces().find(|interface| interface.is_on_link(address));
        let id = port.map(InterfaceId).or_else(|| on_link().map(Interface::id))?;
        table.is_up(id.0).then_some((id, address))
    }

    /// Keeps gateways resolved, and follows the links, when the egress table is a new one or time has passed.
    fn follow(&mut self) {
        let is_same = |(egress, followed): (&ArcSwap<EgressTable>, &Arc<EgressTable>)| {
            Arc::ptr_eq(&egress.load(), followed)
        };
        let mut both = self.egress.iter().map(Arc::as_ref).zip(&self.followed.0);
        let has_changed = self.followed.0.len() != self.egress.len() || !both.all(is_same);
        if !has_changed && self.followed.1.elapsed() < GATEWAY_PERIOD {
            return;
        }
        let tables: Vec<_> = self.egress.iter().map(|egress| egress.load_full()).collect();
        let now = self.now();
        for (id, was_up) in &mut self.links {
            let is_up = tables.get(usize::from(id.0)).is_some_and(|table| table.is_up(id.0));
            if *was_up != is_up {
                self.taps.set_carrier(*id, is_up);
            }
            match (*was_up, is_up) {
                (true, false) => self.router.link_down(now, *id, &mut self.actions),
                (false, true) => self.router.announce(*id, &mut self.actions),
                _ => {}
            }
            *was_up = is_up;
        }
        let mut gateways = BTreeSet::<Key>::new();
        for (at, table) in tables.iter().enumerate() {
            let keys = table.gateways().filter_map(|(address, port)| self.key(at, table, address, port));
            gateways.extend(keys);
        }
        for key in self.pinned.difference(&gateways) {
            self.router.unpin(*key);
        }
        self.pinned.retain(|key| gateways.contains(key));
        for key in gateways {
            if !self.pinned.contains(&key) && self.router.pin(now, key, Tags::NONE, &mut self.actions) {
                self.pinned.insert(key);
            }
        }
        self.followed = (tables, Instant::now());
    }

    /// Does what the router says.
    fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Send { interface, frame } => self.send(interface.0, &frame),
                Action::Resolved { interface, address, mac }
                | Action::Changed { interface, address, new: mac, .. } => {
                    self.late.push_back(Resolved { address, port: interface.0, mac: Some(mac) });
                }
                Action::Lost { interface, address, .. } => {
                    self.late.push_back(Resolved { address, port: interface.0, mac: None });
                }
                Action::Release { interface, mac, packets, .. } => {
                    for waiting in packets {
                        self.forward(interface, mac, waiting);
                    }
                }
                Action::Dropped { why, packets, .. } => {
                    self.counters.drops.add(DropReason::NoNeighbour, packets.len() as u64);
                    for Waiting { packet, note } in packets.iter().filter(|_| why == Unsent::Unreachable) {
                        self.tell_sender(*note, packet, Cause::AddressUnreachable);
                    }
                }
                Action::Conflict { interface, address, mac } => notice::warn(format_args!(
                    "port {}: {mac} uses {address}, which is an address of this router",
                    interface.0
                )),
            }
        }
        self.actions = actions;
    }

    /// Forwards a packet that has waited for its neighbour.
    fn forward(&mut self, by: InterfaceId, mac: MacAddr, waiting: Waiting) {
        let Waiting { mut packet, note } = waiting;
        let checked = check::check(packet.data(), packet.pkt_len());
        let (Some(interface), Ok(checked)) = (self.router.interfaces().get(by), checked) else {
            return self.counters.drops.add(DropReason::NoNeighbour, 1);
        };
        let (mtu_bytes, source) = (interface.mtu_bytes(), interface.mac());
        if checked.ip_bytes > u32::from(mtu_bytes) {
            let note = Note { exception: Exception::MtuExceeded, ..note };
            return self.refuse(note, &packet, Cause::TooBig { mtu_bytes });
        }
        let data = packet.data_mut();
        data[..6].copy_from_slice(&mac.0);
        data[6..12].copy_from_slice(&source.0);
        let is_v6 = matches!(checked.destination, check::Destination::V6(_));
        hop(&mut data[usize::from(checked.ip_at)..], is_v6);
        self.go(by.0, packet);
    }

    /// Sends a frame of the router.
    fn send(&mut self, port: u16, frame: &[u8]) {
        self.counters.originated += 1;
        match self.pool.copy(frame) {
            Ok(packet) => self.go(port, packet),
            Err(_) => self.counters.drops.add(DropReason::TxFull, 1),
        }
    }

    /// Gives a packet to the stage that sends.
    fn go(&mut self, port: u16, mut packet: Mbuf) {
        packet.set_tag(port.into());
        if self.going.room() == 0 {
            self.flush();
        }
        // Has room: flush has emptied it.
        drop(self.going.push(packet));
    }

    fn flush(&mut self) {
        self.to.enqueue_burst(&mut self.going);
        self.counters.drops.add(DropReason::TxFull, self.going.len() as u64);
        self.going.free_all();
    }

    /// Tells the session what was learned.
    fn tell(&mut self) {
        while let Some(event) = self.late.pop_front() {
            if let Err(TrySendError::Full(event)) = self.events.try_send(event) {
                return self.late.push_front(event);
            }
        }
    }

    /// Ends: deals with what has come, and drops what nobody sends any more.
    fn finish(mut self) -> Outcome {
        while self.receive() {}
        let ids: Vec<_> = self.router.interfaces().iter().map(Interface::id).collect();
        for id in ids {
            self.router.remove_interface(id, &mut self.actions);
        }
        self.act();
        self.flush();
        // The stage that sends has ended, so its end of the ring is free.
        if let Ok(mut left) = self.originated.consumer() {
            loop {
                let count = left.dequeue_burst(&mut self.came);
                if count == 0 {
                    break;
                }
                self.counters.drops.add(DropReason::TxFull, count as u64);
                self.came.free_all();
            }
        }
        self.published.publish(&self.counters);
        Outcome { counters: self.counters, latency: None, held: 0 }
    }
}

/// The destination of a packet that the datapath has checked.
fn destination(packet: &Mbuf) -> Option<IpAddr> {
    let checked = check::check(packet.data(), packet.pkt_len()).ok()?;
    Some(match checked.destination {
        check::Destination::V4(address) => IpAddr::V4(address.into()),
        check::Destination::V6(address) => IpAddr::V6(address.into()),
    })
}

/// The drop reason of the same name.
fn reason_of(reason: Reason) -> DropReason {
    match reason {
        Reason::NotIp => DropReason::NotIp,
        Reason::Malformed => DropReason::Malformed,
        Reason::BadChecksum => DropReason::BadChecksum,
        Reason::Martian => DropReason::Martian,
        Reason::Multicast => DropReason::Multicast,
        Reason::NotForUs => DropReason::NotForUs,
        Reason::ArpIgnored => DropReason::ArpIgnored,
        Reason::IcmpLimited => DropReason::IcmpLimited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_one_name() {
        use Reason::{ArpIgnored, BadChecksum, IcmpLimited, Malformed, Martian, Multicast, NotForUs, NotIp};
        for reason in [NotIp, Malformed, BadChecksum, Martian, Multicast, NotForUs, ArpIgnored, IcmpLimited] {
            assert_eq!(reason_of(reason).name(), reason.name());
        }
    }
}
