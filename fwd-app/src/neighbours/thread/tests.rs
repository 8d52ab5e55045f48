//! The router's own packets, with drivers that hold on to sent mbufs.

use super::*;
use crate::datapath::counters::BusyClock;
use crate::datapath::punt::PuntCause;
use crate::datapath::test_frames::V4;
use crate::datapath::tx::{HoldLimit, Tx, TxParts};
use crate::datapath::watch::Watch;
use crate::datapath::{Batch, Latency};
use crate::neighbours::arp;
use crate::neighbours::entries::NeighbourState;
use crate::neighbours::frame::Tags;
use crate::ports::address::InterfaceAddress;
use crate::ports::own::punt_addresses;
use crate::ports::{PortRecord, PortTable};
use crate::topology::punts::waiting_max;
use dpdk_ffi::{Port, PortConfig, QueueId, RingPort, RingSync, SocketId};
use fib::{MacAddr, NextHop, NextHopId, NextHopTable, PortRef};
use rusty_fork::rusty_fork_test;

const DESCRIPTORS: u32 = 1024;
/// The next hop of 198.18.0.9, behind port 0.
const GATEWAY: NextHopId = NextHopId::from_answer(1);

/// A port whose driver frees a sent mbuf only when it needs the descriptor, modelled by a full ring.
struct Keeper {
    port: Port,
    kept: Ring,
    reused: RingConsumer,
}

impl Keeper {
    fn new(eal: &Eal, pool: &Mempool, name: &str) -> Self {
        let ring = |way, size| {
            Ring::new(eal, &format!("{name}_{way}"), size, RingSync::SpSc, SocketId::ANY).unwrap()
        };
        let (rx, kept) = (ring("rx", 8), ring("tx", DESCRIPTORS));
        let port =
            RingPort::from_rings(eal, name, &[rx], std::slice::from_ref(&kept), SocketId::ANY).unwrap();
        port.configure(&PortConfig::default(), std::slice::from_ref(pool)).unwrap();
        port.start().unwrap();
        Self { port, reused: kept.consumer().unwrap(), kept }
    }

    /// Frees the oldest packets when their descriptors are needed, a batch at a time; returns the number freed.
    fn reuse(&mut self, scratch: &mut Burst) -> usize {
        if self.kept.count() + scratch.capacity() <= self.kept.capacity() {
            return 0;
        }
        let freed = self.reused.dequeue_burst(scratch);
        scratch.free_all();
        freed
    }
}

struct ThreadRig {
    ports: Vec<Keeper>,
    punts: PuntRings,
    tx: Tx,
    router: RouterLoop,
}

impl ThreadRig {
    fn new(eal: &Eal, ports: u16) -> Self {
        let pool = Mempool::new(eal, "packets", &MempoolConfig::default()).unwrap();
        let ports: Vec<_> =
            (0..ports).map(|port| Keeper::new(eal, &pool, &format!("keeper{port}"))).collect();
        let interface = |id: u8| {
            let mut port =
                PortRecord::new(id.into(), format!("keeper{id}"), MacAddr([2, 0, 0, 0, 0, 1]), 1500);
            port.configure(vec![InterfaceAddress::new([198, 18, id, 1].into(), 24).unwrap()]).unwrap();
            port
        };
        let table = PortTable::new((0..).take(ports.len()).map(interface).collect());
        let gateway = NextHop::Gateway { gateway: [198, 18, 0, 9].into(), port: PortRef::Index(0) };
        let mut hops = NextHopTable::new();
        assert_eq!(hops.intern(gateway).unwrap(), GATEWAY);
        let egress = Arc::new(ArcSwap::from_pointee(EgressTable::new(&hops, &table.egress()).unwrap()));
        let ours = table
            .ports
            .iter()
            .map(|port| Some(Arc::new(ArcSwap::from_pointee(punt_addresses(&table, port)?))));
        let granted = ports.iter().map(|keeper| keeper.port.granted().unwrap().tx_descriptors);
        let punts = PuntRings::new(eal, ours.collect(), granted).unwrap();
        let queue = |keeper: &Keeper| (keeper.port.take_tx_queue(QueueId(0)).unwrap(), Arc::default());
        let (queues, ends) = (ports.iter().map(queue).collect(), punts.ends(eal, 0, BURST).unwrap());
        let (latency, watch) = (Latency::new(1_000_000_000), Arc::new(Watch::default()));
        let parts = TxParts {
            queues,
            batch_max: BURST,
            hold: HoldLimit::default(),
            punts: Some(ends),
            fragments: None,
            latency,
            clock: BusyClock::default(),
            watch,
        };
        let tx = Tx::new(eal, parts);
        let (sender, (_, asked)) = (bounded(EVENTS).0, asked::RouterHandle::new());
        let age = Duration::from_secs(30);
        let ports_table = Arc::new(ArcSwap::from_pointee(table));
        let shared =
            RouterShared { punts: &punts, ports: ports_table, egress: vec![egress], watch: Arc::default() };
        let mut router = RouterLoop::new(eal, asked, age, Taps::default(), shared, sender).unwrap();
        // Discards the initial announcements.
        router.actions.clear();
        Self { ports, punts, tx, router }
    }
}

fn other() -> PortRecord {
    PortRecord::new(0, "gateway".to_owned(), MacAddr([2, 0, 0, 0, 0, 9]), 1500)
}

fn punt(tx: &mut Tx, eal: &Eal, pool: &Mempool, (frame, count): (&[u8], usize), counters: &mut Counters) {
    for _ in 0..count.div_ceil(BURST) {
        let mut batch = Batch::alone(Burst::with_capacity(eal, BURST));
        for place in 0..BURST.min(count) {
            batch.packets.push(pool.copy(frame).unwrap()).unwrap();
            let tag = PuntTag { cause: PuntCause::for_us(frame), port: 0, input: 0, value: 0 };
            batch.packets.set_tag(place, tag.tag());
            batch.ports[place] = 1;
            batch.bytes += u64::from(batch.packets.pkt_len(place));
        }
        tx.send(&mut batch, counters);
    }
}

rusty_fork_test! {
    #![rusty_fork(timeout_ms = 30_000)]

    /// Regression: all classes shared a ring, and the answer was dropped with the flood.
    #[test]
    fn a_flood_for_the_kernel_leaves_answers_of_neighbours_alone() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let ThreadRig { ports: _ports, punts, mut tx, mut router } = ThreadRig::new(eal, 1);
        let pool = Mempool::new(eal, "flood", &MempoolConfig { mbufs: 8191, ..MempoolConfig::default() }).unwrap();
        let (key, mut counters) = (Key::untagged(InterfaceId(0), [198, 18, 0, 9].into()), Counters::default());
        assert!(router.router.pin(Duration::ZERO, key, Tags::NONE, &mut router.actions));
        let Action::Send { frame: request, .. } = &router.actions[0] else { panic!("it asks") };
        let mut answer = request.clone();
        let (ours, theirs) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
        for (at, mac) in [(0, ours), (6, theirs), (22, theirs), (32, ours)] {
            answer[at..at + 6].copy_from_slice(&mac);
        }
        answer[21] = 2;
        answer[28..32].copy_from_slice(&[198, 18, 0, 9]);
        answer[38..42].copy_from_slice(&[198, 18, 0, 1]);
        let telnet = V4 { destination: [198, 18, 0, 1], ..V4::default() }.frame();
        punt(&mut tx, eal, &pool, (&telnet, 4096), &mut counters);
        punt(&mut tx, eal, &pool, (&answer, 1), &mut counters);
        assert_eq!(counters.lost.get(PuntClass::Local), 4096 - u64::from(RING_SLOTS - 1));
        assert_eq!(counters.drops.get(DropReason::PuntFull), counters.lost.get(PuntClass::Local));
        assert!(!punts.have_lost_answers[0].load(Ordering::Relaxed));
        router.run_once();
        let entry = router.router.neighbour(key).unwrap();
        assert_eq!(entry.mac, Some(MacAddr([2, 0, 0, 0, 0, 9])));
        punt(&mut tx, eal, &pool, (&answer, 2048), &mut counters);
        assert!(counters.lost.get(PuntClass::Resolution) > 0);
        assert!(punts.have_lost_answers[0].load(Ordering::Relaxed));
        router.run_once();
        assert!(!punts.have_lost_answers[0].load(Ordering::Relaxed));
    }

    /// Regression: each pair of VLANs pinned an entry and its packets, until table and pool were exhausted.
    #[test]
    fn packets_for_a_silent_gateway_in_many_vlans_are_bounded_and_end() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let ThreadRig { ports: _ports, punts: _punts, tx: _tx, mut router } = ThreadRig::new(eal, 1);
        let config = MempoolConfig { mbufs: 16_383, ..MempoolConfig::default() };
        let pool = Mempool::new(eal, "vlans", &config).unwrap();
        router.follow();
        let tag = PuntTag { cause: PuntCause::NoNeighbour, port: 0, input: 0, value: GATEWAY.get() };
        let resolve = |router: &mut RouterLoop, vlan: u16| {
            let mut frame = V4 { destination: [10, 1, 1, 1], ..V4::default() }.tagged(&[0x8100]);
            frame[14..16].copy_from_slice(&vlan.to_be_bytes());
            router.resolve(Waiting { packet: pool.copy(&frame).unwrap(), tag });
            router.act();
            router.flush();
        };
        for vlan in (1..=700).flat_map(|vlan| [vlan; 10]) {
            resolve(&mut router, vlan);
        }
        router.follow();
        let waiting = waiting_max(1);
        assert!(pool.in_use() <= waiting, "{} packets wait", pool.in_use());
        assert!(router.router.neighbours().count() <= 1 + WAITING.1);
        // An entry that answers is pinned as long as it stays confirmed.
        let key = |vlan| Key { vlans: [vlan, 0], ..Key::untagged(InterfaceId(0), [198, 18, 0, 9].into()) };
        let is_pinned = |router: &RouterLoop, vlan| {
            router.router.neighbour(key(vlan)).is_some_and(|entry| entry.is_pinned)
        };
        resolve(&mut router, 700);
        // On a busy host the limits of new neighbours may have refused it.
        while router.router.neighbour(key(700)).is_none() {
            std::thread::sleep(Duration::from_millis(10));
            resolve(&mut router, 700);
        }
        assert!(!is_pinned(&router, 700));
        let mut answer = arp::request(&other(), [198, 18, 0, 9].into(), [198, 18, 0, 1].into(), None, Tags::NONE);
        answer[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        answer[21] = 2;
        answer.splice(12..12, [0x81, 0, 2, 0xbc]);
        let (now, mut out) = (router.now(), Vec::new());
        router.router.receive(now, InterfaceId(0), &answer, &mut out);
        assert_eq!(router.router.neighbour(key(700)).unwrap().state, NeighbourState::Reachable);
        router.followed.0.clear();
        router.follow();
        assert!(is_pinned(&router, 700) && !is_pinned(&router, 699));
        for seconds in 1..60 {
            router.router.tick(now + Duration::from_secs(seconds), &mut out);
            router.followed.0.clear();
            router.follow();
        }
        out.clear();
        assert_eq!((router.router.neighbours().count(), router.pinned.len(), pool.in_use()), (1, 1, 0));
    }

    #[test]
    fn a_gateway_that_moves_is_logged_some_times_a_second() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let ThreadRig { ports: _ports, punts: _punts, tx: _tx, mut router } = ThreadRig::new(eal, 1);
        router.follow();
        let key = |last| Key::untagged(InterfaceId(0), [198, 18, 0, last].into());
        let mut has_logged = |last| {
            let before = router.moves;
            let (old, new) = (MacAddr([2; 6]), MacAddr([4; 6]));
            router.actions.push(Action::Changed { key: key(last), old, new });
            router.act();
            router.moves != before
        };
        assert!(!has_logged(7), "a host");
        assert!((1..=11).contains(&(0..1000).filter(|_| has_logged(9)).count()));
    }

    #[test]
    fn quiet_ports_that_keep_what_they_sent_do_not_silence_the_router() {
        const PINGS: usize = 1300;
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let ThreadRig { mut ports, punts: _punts, mut tx, mut router } = ThreadRig::new(eal, 3);
        let (mut counters, mut scratch) = (Counters::default(), Burst::with_capacity(eal, BURST));
        // Answers to one host, then to the next: the first port's driver holds on to the mbufs sent there.
        for (port, keeper) in (0..).zip(&mut ports) {
            let mut left = 0;
            for _ in 0..PINGS {
                left += keeper.reuse(&mut scratch);
                router.send(port, &[0; 98]);
                router.flush();
                tx.originate(&mut counters);
            }
            let answered = left + keeper.kept.count();
            assert_eq!(answered, PINGS, "port {port}, {:?}", router.counters.drops);
        }
    }

    #[test]
    fn a_pool_that_runs_low_has_drivers_free_what_has_left() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let ThreadRig { ports: _ports, punts, mut tx, mut router } = ThreadRig::new(eal, 1);
        let mut counters = Counters::default();
        let is_short = || punts.is_short.load(Ordering::Relaxed);
        let mut elsewhere = Vec::new();
        router.send(0, &[0; 98]);
        router.flush();
        assert!(!is_short(), "there are enough");
        while router.pool.available() >= SHORT {
            elsewhere.push(router.pool.alloc().unwrap());
        }
        router.flush();
        assert!(!is_short(), "nothing is to be sent");
        router.send(0, &[0; 98]);
        router.flush();
        assert!(is_short());
        tx.originate(&mut counters);
        assert!(!is_short(), "the stage that sends has asked the drivers");
        assert_eq!(counters.tx_packets, 2);
    }
}

#[test]
fn the_end_of_the_thread_is_seen_and_told() {
    let is_stopping = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&is_stopping);
    let run = move || {
        while !theirs.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        panic!("an invariant, broken on purpose")
    };
    let thread =
        RouterThread { thread: Some(std::thread::spawn(run)), is_stopping, heartbeat: Arc::default() };
    assert!(!thread.has_ended());
    thread.is_stopping.store(true, Ordering::Release);
    while !thread.has_ended() {
        std::thread::yield_now();
    }
    let error = thread.stop().unwrap_err().to_string();
    assert_eq!(error, "the router's thread panicked: an invariant, broken on purpose");
}

#[test]
fn a_thread_that_does_not_end_is_an_error_with_its_step() {
    let (_blocked, wait) = bounded::<()>(0);
    let heartbeat = Arc::<Heartbeat>::default();
    let (theirs, (inside, is_inside)) = (Arc::clone(&heartbeat), bounded(0));
    let run = move || {
        theirs.step("packets of the kernel", || {
            inside.send(()).unwrap();
            let _ = wait.recv();
        });
        StageOutcome::default()
    };
    let mut thread =
        RouterThread { thread: Some(std::thread::spawn(run)), is_stopping: Arc::default(), heartbeat };
    is_inside.recv().unwrap();
    let why = thread.end_within(Duration::from_millis(20)).unwrap_err().to_string();
    assert_eq!(why, "the router's thread has not ended after 0 s, in the step 'packets of the kernel'");
}
