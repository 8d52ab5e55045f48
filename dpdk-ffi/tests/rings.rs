//! Rings, and ports made of rings: how the harness feeds packets to a forwarder.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test helpers may panic, and their counts are small"
)]

use std::slice::from_ref;

use dpdk_ffi::{
    Burst, DpdkError, Eal, Mempool, MempoolConfig, Port, PortConfig, QueueId, Ring, RingPort, RingSync,
    SocketId, testing,
};

fn ring(eal: &Eal, name: &str, size: u32) -> Ring {
    Ring::new(eal, name, size, RingSync::SpSc, SocketId::ANY).unwrap()
}

#[test]
fn packets_go_through_two_ports_in_order_and_unchanged() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "through", 1023);
    let (feed, sent) = (ring(eal, "feed", 512), ring(eal, "sent", 512));
    let idle = [ring(eal, "idle0", 64), ring(eal, "idle1", 64)];
    let receiving =
        RingPort::from_rings(eal, "in", from_ref(&feed), &[idle[0].clone()], SocketId::ANY).unwrap();
    let sending =
        RingPort::from_rings(eal, "out", &[idle[1].clone()], from_ref(&sent), SocketId::ANY).unwrap();
    assert_eq!((receiving.name(), sending.name()), ("net_ring_in", "net_ring_out"));
    for port in [&receiving, &sending] {
        port.configure(&PortConfig::default(), from_ref(&pool)).unwrap();
        port.start().unwrap();
        assert!(port.link().unwrap().up);
    }
    let mut producer = feed.producer().unwrap();
    let mut consumer = sent.consumer().unwrap();
    let (mut rx, mut tx) =
        (receiving.take_rx_queue(QueueId(0)).unwrap(), sending.take_tx_queue(QueueId(0)).unwrap());
    let mut burst = Burst::with_capacity(eal, 32);
    let mut received = Vec::new();
    for round in 0..50_u32 {
        let frames: Vec<Vec<u8>> =
            (0..32_u32).map(|i| vec![(round * 32 + i) as u8; 60 + i as usize]).collect();
        pool.copy_burst(&mut burst, &frames).unwrap();
        assert_eq!(producer.enqueue_burst(&mut burst), 32);
        assert_eq!(rx.rx_burst(&mut burst), 32);
        assert_eq!(tx.tx_burst(&mut burst), 32);
        assert_eq!(consumer.dequeue_burst(&mut burst), 32);
        received.extend(burst.iter().map(|packet| packet.data().to_vec()).zip(frames));
        burst.free_all();
    }
    assert_eq!(received.len(), 1600);
    assert!(received.iter().all(|(got, put)| got == put));
    assert_eq!(pool.in_use(), 0);
    assert_eq!((receiving.stats().unwrap().ipackets, sending.stats().unwrap().opackets), (1600, 1600));
}

#[test]
fn a_full_ring_leaves_the_rest_in_order() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "overfull", 1023);
    let small = ring(eal, "small", 16);
    let port =
        RingPort::from_rings(eal, "slow", &[ring(eal, "slow_idle", 64)], from_ref(&small), SocketId::ANY)
            .unwrap();
    port.configure(&PortConfig::default(), from_ref(&pool)).unwrap();
    port.start().unwrap();
    let mut tx = port.take_tx_queue(QueueId(0)).unwrap();
    let mut burst = Burst::with_capacity(eal, 20);
    pool.copy_burst(&mut burst, &(0..20_u8).map(|i| [i; 60]).collect::<Vec<_>>()).unwrap();
    assert_eq!(tx.tx_burst(&mut burst), 15, "a ring of 16 holds 15");
    assert_eq!(burst.iter().map(|packet| packet.data()[0]).collect::<Vec<_>>(), [15, 16, 17, 18, 19]);
    assert_eq!((small.count(), small.capacity(), pool.in_use()), (15, 15, 20));
    drop((tx, port));
    let mut consumer = small.consumer().unwrap();
    let mut out = Burst::with_capacity(eal, 64);
    assert_eq!(consumer.dequeue_burst(&mut out), 15, "packets outlive the port in its ring");
    assert_eq!(out.data(14)[0], 14);
    drop((burst, out));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn an_end_for_one_is_handed_out_once() {
    let Some(eal) = testing::eal() else { return };
    let one = ring(eal, "ends", 64);
    let first = one.producer().unwrap();
    let taken = one.producer().err();
    assert_eq!(taken, Some(DpdkError::RingEndTaken { ring: "ends".into(), end: "producer" }));
    let as_tx = RingPort::from_rings(eal, "ends", &[], from_ref(&one), SocketId::ANY);
    assert!(matches!(as_tx, Err(DpdkError::RingEndTaken { end: "producer", .. })));
    drop(first);
    let idle = [ring(eal, "ends_idle0", 64), ring(eal, "ends_idle1", 64)];
    let one_way = RingPort::from_rings(eal, "ends", &[], from_ref(&one), SocketId::ANY);
    assert!(matches!(one_way, Err(DpdkError::NamedCall { errno: 22, .. })), "net_ring wants a ring each way");
    let port = RingPort::from_rings(eal, "ends", &idle[..1], from_ref(&one), SocketId::ANY).unwrap();
    assert!(one.producer().is_err(), "the port holds it");
    assert!(one.consumer().is_ok());
    let again = RingPort::from_rings(eal, "ends", &idle[1..], &idle[1..], SocketId::ANY).unwrap_err();
    assert!(matches!(again, DpdkError::NamedCall { call: "rte_eth_from_rings", .. }), "{again}");
    port.close().unwrap();
    assert!(one.producer().is_ok(), "a closed port lets go");
    assert!(matches!(Port::by_name(eal, "net_ring_ends"), Err(DpdkError::UnknownPort { .. })));
    let many = Ring::new(eal, "many", 64, RingSync::MpMc, SocketId::ANY).unwrap();
    let ends = (
        many.producer().unwrap(),
        many.producer().unwrap(),
        many.consumer().unwrap(),
        many.consumer().unwrap(),
    );
    drop(ends);
    let twice = vec![one; 17];
    let refused = RingPort::from_rings(eal, "wide", &twice, &[], SocketId::ANY).unwrap_err();
    assert!(matches!(refused, DpdkError::TooMuch { wanted: 17, limit: 16, .. }));
}

#[test]
fn a_rings_errors_are_typed() {
    let Some(eal) = testing::eal() else { return };
    let _first = ring(eal, "same", 64);
    let errno = |made: Result<Ring, DpdkError>| match made {
        Err(DpdkError::NamedCall { errno, .. }) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(Ring::new(eal, "same", 64, RingSync::MpMc, SocketId::ANY)), 17);
    assert_eq!(errno(Ring::new(eal, "odd", 63, RingSync::MpMc, SocketId::ANY)), 22);
    assert_eq!(errno(Ring::new(eal, &"n".repeat(60), 64, RingSync::MpMc, SocketId::ANY)), 36);
}

#[test]
fn a_dropped_ring_frees_its_packets() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "left", 1023);
    for _ in 0..3 {
        let ring = ring(eal, "left", 256);
        let mut burst = Burst::with_capacity(eal, 200);
        pool.alloc_burst(&mut burst, 200).unwrap();
        assert_eq!(ring.producer().unwrap().enqueue_burst(&mut burst), 200);
        assert!(burst.is_empty());
        assert_eq!(pool.in_use(), 200);
        drop(ring);
        assert_eq!(pool.in_use(), 0, "and the name is free for the next round");
    }
}

#[test]
fn a_ring_between_threads_loses_nothing() {
    let Some(eal) = testing::eal() else { return };
    let pool = testing::pool(eal, "threads", 1023);
    let ring = ring(eal, "threads", 128);
    let (mut producer, mut consumer) = (ring.producer().unwrap(), ring.consumer().unwrap());
    const PACKETS: u32 = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut burst = Burst::with_capacity(eal, 1);
            for number in 0..PACKETS {
                while pool.copy_burst(&mut burst, &[number.to_be_bytes()]).is_err() {
                    std::thread::yield_now();
                }
                while producer.enqueue_burst(&mut burst) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut burst = Burst::with_capacity(eal, 32);
        let mut next = 0;
        while next < PACKETS {
            if consumer.dequeue_burst(&mut burst) == 0 {
                std::thread::yield_now();
            }
            for packet in burst.iter() {
                assert_eq!(packet.data(), next.to_be_bytes());
                next += 1;
            }
            burst.free_all();
        }
    });
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn lcores_forward_each_its_own_queue() {
    let Some(eal) = testing::eal() else { return };
    const QUEUES: u16 = 2;
    const PACKETS: usize = 5000;
    let pool =
        Mempool::new(eal, "lcores", &MempoolConfig { mbufs: 2047, ..MempoolConfig::default() }).unwrap();
    let rings = |way: &str| (0..QUEUES).map(|q| ring(eal, &format!("{way}{q}"), 256)).collect::<Vec<_>>();
    let (feeds, sinks) = (rings("lcore_in"), rings("lcore_out"));
    let port = RingPort::from_rings(eal, "lcores", &feeds, &sinks, SocketId::ANY).unwrap();
    let config = PortConfig { rx_queues: QUEUES, tx_queues: QUEUES, ..PortConfig::default() };
    port.configure(&config, from_ref(&pool)).unwrap();
    port.start().unwrap();
    let jobs: Vec<_> = (0..QUEUES)
        .zip(eal.lcores().into_iter().filter(|lcore| *lcore != eal.main_lcore()))
        .map(|(queue, lcore)| {
            let (mut rx, mut tx) =
                (port.take_rx_queue(QueueId(queue)).unwrap(), port.take_tx_queue(QueueId(queue)).unwrap());
            let mut burst = Burst::with_capacity(eal, 32);
            let forward = move || {
                let mut sent = 0;
                while sent < PACKETS {
                    if rx.rx_burst(&mut burst) == 0 {
                        std::thread::yield_now();
                    }
                    for i in 0..burst.len() {
                        burst.data_mut(i)[0] += 1 + u8::try_from(queue).unwrap();
                    }
                    while !burst.is_empty() {
                        sent += tx.tx_burst(&mut burst);
                    }
                }
                sent
            };
            eal.launch(lcore, forward).unwrap()
        })
        .collect();
    let mut ends: Vec<_> = feeds
        .iter()
        .zip(&sinks)
        .map(|(feed, sink)| (feed.producer().unwrap(), sink.consumer().unwrap()))
        .collect();
    let (mut fed, mut received) = ([0; QUEUES as usize], [0; QUEUES as usize]);
    let (mut put, mut got) = (Burst::with_capacity(eal, 1), Burst::with_capacity(eal, 64));
    while received.iter().any(|&received| received < PACKETS) {
        for (queue, (producer, consumer)) in ends.iter_mut().enumerate() {
            if fed[queue] < PACKETS && pool.copy_burst(&mut put, &[[0_u8; 60]]).is_ok() {
                fed[queue] += producer.enqueue_burst(&mut put);
                put.free_all();
            }
            received[queue] += consumer.dequeue_burst(&mut got);
            assert!(got.iter().all(|packet| usize::from(packet.data()[0]) == 1 + queue));
            got.free_all();
        }
    }
    for job in jobs {
        assert_eq!(job.wait().unwrap(), PACKETS);
    }
    assert_eq!((fed, received, pool.in_use()), ([PACKETS; 2], [PACKETS; 2], 0));
    port.stop().unwrap();
}
