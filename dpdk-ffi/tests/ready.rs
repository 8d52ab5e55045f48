//! Prepared packets: handed out again and again, never while they are inside, and returned to their pool at the end.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::slice::from_ref;

use dpdk_ffi::{
    Burst, DROP, DpdkError, Eal, Mempool, Port, PortConfig, QueueId, Ring, RingPort, RingSync, RxQueue,
    SocketId, TxQueue, testing,
};

const PACKETS: usize = 24;

struct ReadyRig {
    pool: Mempool,
    port: Port,
    rx: RxQueue,
    tx: TxQueue,
    ready: dpdk_ffi::ReadyPackets,
}

fn frames() -> Vec<Vec<u8>> {
    (0..PACKETS).map(|i| vec![u8::try_from(i).unwrap(); 60 + i * 3]).collect()
}

fn rig(eal: &Eal, name: &str, count: u64) -> ReadyRig {
    rig_of(eal, name, &frames(), (PACKETS, count))
}

/// Hands out `count` packets with the contents of `frames`.
fn rig_of(eal: &Eal, name: &str, frames: &[Vec<u8>], (mbufs, count): (usize, u64)) -> ReadyRig {
    let pool = testing::pool(eal, name, 127);
    let ring =
        |end: &str| Ring::new(eal, &format!("{name}-{end}"), 64, RingSync::SpSc, SocketId::ANY).unwrap();
    let (empty, sent) = (ring("rx"), ring("tx"));
    let port = RingPort::from_rings(eal, name, from_ref(&empty), from_ref(&sent), SocketId::ANY).unwrap();
    let mut packets = Burst::with_capacity(eal, mbufs);
    pool.alloc_burst(&mut packets, mbufs).unwrap();
    port.configure(&PortConfig::default(), from_ref(&pool)).unwrap();
    let ready = port.receive_ready(QueueId(0), packets, frames, count).unwrap();
    port.discard_sent(QueueId(0), sent.consumer().unwrap()).unwrap();
    port.start().unwrap();
    let (rx, tx) = (port.take_rx_queue(QueueId(0)).unwrap(), port.take_tx_queue(QueueId(0)).unwrap());
    ReadyRig { pool, port, rx, tx, ready }
}

#[test]
fn packets_come_round_as_they_were_until_their_number_is_reached() {
    let Some(eal) = testing::eal() else { return };
    come_round(eal, rig(eal, "round", 1000), &frames());
}

#[test]
fn short_frames_share_a_few_mbufs() {
    let Some(eal) = testing::eal() else { return };
    let short: Vec<_> = frames().into_iter().map(|mut frame| frame.split_off(frame.len() * 2 / 3)).collect();
    for mbufs in [1, 5, 23, 40] {
        let name = format!("short{mbufs}");
        come_round(eal, rig_of(eal, &name, &short, (mbufs, 1000)), &short);
    }
}

fn come_round(eal: &Eal, ReadyRig { pool, port, mut rx, mut tx, ready }: ReadyRig, frames: &[Vec<u8>]) {
    let mut burst = Burst::with_capacity(eal, 16);
    let (mut received, mut bytes, mut sent) = (0_usize, 0, 0);
    while rx.rx_burst(&mut burst) > 0 {
        for i in 0..burst.len() {
            assert_eq!(burst.data(i), frames[received % PACKETS]);
            bytes += u64::from(burst.pkt_len(i));
            received += 1;
            // The part that a forwarder changes.
            let changed = burst.data(i).len().min(40);
            burst.data_mut(i)[..changed].fill(0xee);
        }
        // Some are dropped, the others sent.
        burst.truncate_free(burst.len() * 3 / 4);
        let count = burst.len();
        assert_eq!(tx.tx_burst(&mut burst), count);
        sent += count as u64;
    }
    assert_eq!((received, ready.received()), (1000, (1000, bytes)));
    assert_eq!(port.stats().unwrap().opackets, sent);
    drop((rx, tx));
    drop(port);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_packet_that_is_still_inside_is_not_handed_out_again() {
    let Some(eal) = testing::eal() else { return };
    let ReadyRig { pool, port, mut rx, mut tx, ready } = rig(eal, "inside", u64::MAX);
    let (mut first, mut second) = (Burst::with_capacity(eal, 16), Burst::with_capacity(eal, 16));
    assert_eq!((rx.rx_burst(&mut first), rx.rx_burst(&mut second)), (16, PACKETS - 16));
    let mut third = Burst::with_capacity(eal, 16);
    assert_eq!(rx.rx_burst(&mut third), 0, "all of them are inside");
    // The first packet stays inside, so the following ones wait.
    let (mut held, mut dropped) = (Burst::with_capacity(eal, 1), Burst::with_capacity(eal, 15));
    let targets: Vec<u16> = (0..16).map(|i| if i == 0 { 0 } else { DROP }).collect();
    assert_eq!(first.scatter(&targets, std::slice::from_mut(&mut held), &mut dropped), 0);
    dropped.free_all();
    assert_eq!(rx.rx_burst(&mut third), 0);
    assert_eq!(tx.tx_burst(&mut held), 1);
    assert_eq!(rx.rx_burst(&mut third), 16);
    assert_eq!(rx.rx_burst_limit(&mut held, 1), 0, "the rest of the second burst is inside");
    ready.stop();
    second.free_all();
    assert_eq!((rx.rx_burst(&mut second), ready.received().0), (0, 16 + 8 + 16));
    drop((rx, tx, first, second, held));
    drop(port);
    // Packets that outlive the port still have the table's reference.
    assert_eq!(pool.in_use(), 16);
    drop(third);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn what_cannot_lie_ready_is_refused() {
    let Some(eal) = testing::eal() else { return };
    let ReadyRig { pool, port, rx, tx, .. } = rig(eal, "refused", 1);
    let receive = |queue, frames: &[Vec<u8>]| {
        let mut mbuf = Burst::with_capacity(eal, 1);
        pool.alloc_burst(&mut mbuf, 1).unwrap();
        port.receive_ready(QueueId(queue), mbuf, frames, 1).unwrap_err()
    };
    let state = |is| DpdkError::PortState { port: port.id(), is, must: "configured and stopped" };
    assert_eq!(receive(0, &[vec![0; 60]]), state("started"));
    drop((rx, tx));
    port.stop().unwrap();
    assert!(matches!(receive(7, &[vec![0; 60]]), DpdkError::PortCall { .. }));
    assert!(matches!(receive(0, &[vec![0; 4000]]), DpdkError::TooMuch { wanted: 4000, .. }));
    // Two frames in one mbuf.
    assert!(matches!(
        receive(0, &[vec![0; 65], vec![0; 60]]),
        DpdkError::TooMuch { wanted: 65, limit: 64, .. }
    ));
    drop(port);
    assert_eq!(pool.in_use(), 0);
}
