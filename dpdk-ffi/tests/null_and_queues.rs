//! `net_null` ports: life cycle, queue handles, names, counters, granted features.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::time::Duration;

use dpdk_ffi::{
    Burst, DpdkError, Eal, Mempool, Port, PortConfig, PortEvents, PortId, QueueId, RssTypes, RxOffloads,
    TxOffloads, testing,
};

fn started(eal: &Eal, name: &str, args: &str) -> (Port, Mempool) {
    eal.vdev_create(name, args).unwrap();
    let port = Port::by_name(eal, name).unwrap();
    let pool = testing::start(eal, &port);
    (port, pool)
}

#[test]
fn packets_come_and_go_and_every_mbuf_returns() {
    let Some(eal) = testing::eal() else { return };
    let (port, pool) = started(eal, "net_null0", "size=60");
    let (mut rx, mut tx) = (port.take_rx_queue(QueueId(0)).unwrap(), port.take_tx_queue(QueueId(0)).unwrap());
    let mut burst = Burst::with_capacity(eal, 64);
    for _ in 0..100 {
        assert_eq!(rx.rx_burst_limit(&mut burst, 32), 32);
        assert_eq!(rx.rx_burst(&mut burst), 32, "the second fills the room that is left");
        assert_eq!(rx.rx_burst(&mut burst), 0, "a full burst receives nothing");
        assert!(burst.iter().all(|packet| packet.pkt_len() == 60 && packet.data().len() == 60));
        assert_eq!(pool.in_use(), 64);
        assert_eq!(tx.tx_burst(&mut burst), 64);
    }
    assert_eq!(pool.in_use(), 0);
    let stats = port.stats().unwrap();
    assert_eq!((stats.ipackets, stats.opackets, stats.imissed), (6400, 6400, 0));
    let xstats = port.xstats().unwrap();
    assert!(xstats.contains(&("rx_good_packets".to_owned(), 6400)), "{xstats:?}");
    port.reset_stats().unwrap();
    port.reset_xstats().unwrap();
    assert_eq!(port.stats().unwrap().opackets, 0);
    // net_null cannot switch its link.
    assert!(matches!(port.set_link(false), Err(DpdkError::PortCall { .. })));
}

#[test]
fn a_queue_is_taken_once_and_a_port_in_use_stays_up() {
    let Some(eal) = testing::eal() else { return };
    let (port, _pool) = started(eal, "net_null1", "");
    let other_handle = Port::by_name(eal, "net_null1").unwrap();
    let rx = port.take_rx_queue(QueueId(0)).unwrap();
    let (id, queue) = (port.id(), QueueId(0));
    let again = other_handle.take_rx_queue(queue).err();
    assert_eq!(again, Some(DpdkError::QueueTaken { port: id, direction: "rx", queue }));
    let beyond = port.take_tx_queue(QueueId(1)).err();
    let unknown = DpdkError::UnknownQueue { port: id, direction: "tx", queue: QueueId(1), count: 1 };
    assert_eq!(beyond, Some(unknown));
    let tx = port.take_tx_queue(queue).unwrap();
    assert_eq!(port.stop(), Err(DpdkError::QueuesInUse { port: id, rx: 1, tx: 1 }));
    assert_eq!(other_handle.close(), Err(DpdkError::QueuesInUse { port: id, rx: 1, tx: 1 }));
    assert_eq!(other_handle.remove(), Err(DpdkError::QueuesInUse { port: id, rx: 1, tx: 1 }));
    drop((rx, tx));
    let taken_again = port.take_rx_queue(queue).unwrap();
    drop(taken_again);
    port.stop().unwrap();
    assert!(matches!(port.take_rx_queue(queue), Err(DpdkError::PortState { is: "stopped", .. })));
    port.start().unwrap();
    let keeps_the_port = port.take_rx_queue(queue).unwrap();
    drop((port, other_handle));
    let port = Port::by_name(eal, "net_null1").unwrap();
    assert_eq!(
        port.remove(),
        Err(DpdkError::QueuesInUse { port: id, rx: 1, tx: 0 }),
        "a queue handle alone keeps its port"
    );
    drop(keeps_the_port);
    port.remove().unwrap();
    assert!(matches!(Port::by_name(eal, "net_null1"), Err(DpdkError::UnknownPort { .. })));
}

#[test]
fn an_unknown_port_names_those_that_exist() {
    let Some(eal) = testing::eal() else { return };
    eal.vdev_create("net_null2", "").unwrap();
    for missing in [Port::by_name(eal, "eth9").unwrap_err(), Port::open(eal, PortId(31)).unwrap_err()] {
        let DpdkError::UnknownPort { known, .. } = &missing else { panic!("{missing}") };
        assert!(known.contains(&"net_null2".to_string()), "{known:?}");
        assert!(missing.to_string().contains("net_null2"), "{missing}");
    }
    assert!(matches!(eal.vdev_create("net_null2", ""), Err(DpdkError::NamedCall { errno: 17, .. })));
    assert!(matches!(eal.vdev_create("no_such_driver0", ""), Err(DpdkError::NamedCall { .. })));
    assert!(eal.ports().contains(&Port::by_name(eal, "net_null2").unwrap().id()));
}

#[test]
fn what_a_port_lacks_is_not_granted() {
    let Some(eal) = testing::eal() else { return };
    eal.vdev_create("net_null3", "").unwrap();
    let (port, pool) = (Port::by_name(eal, "net_null3").unwrap(), testing::pool(eal, "net_null3", 2047));
    let info = port.device_info().unwrap();
    assert_eq!((info.driver.as_str(), info.device.as_str()), ("net_null", "net_null3"));
    let all = PortConfig {
        rx_queues: 1,
        tx_queues: 4,
        mtu: Some(1400),
        rx_offloads: RxOffloads::all(),
        tx_offloads: TxOffloads::all(),
        ..PortConfig::default()
    };
    // net_null has one queue a direction by default.
    if info.max_tx_queues < 4 {
        let refused = port.configure(&all, std::slice::from_ref(&pool)).unwrap_err();
        assert!(matches!(refused, DpdkError::TooMuch { wanted: 4, .. }), "{refused}");
    }
    let config = PortConfig { tx_queues: 1, ..all };
    assert!(matches!(port.configure(&config, &[]), Err(DpdkError::TooMuch { wanted: 1, limit: 0, .. })));
    // Below Ethernet's minimum: the error has the request, with the wrong value.
    let small = PortConfig { mtu: Some(40), ..config.clone() };
    let refused = port.configure(&small, std::slice::from_ref(&pool)).unwrap_err().to_string();
    assert!(refused.contains("refuses 1 RX and 1 TX queues, MTU 40,"), "{refused}");
    assert!(matches!(port.start(), Err(DpdkError::PortState { is: "not configured", .. })));
    let granted = port.configure(&config, &[pool]).unwrap();
    assert_eq!(granted.rx_offloads, RxOffloads::all() & info.rx_offloads);
    assert_eq!(granted.tx_offloads, TxOffloads::all() & info.tx_offloads);
    assert!(!granted.rx_offloads.contains(RxOffloads::IPV4_CKSUM), "net_null has no checksum unit");
    assert_eq!(granted.rss, RssTypes::empty(), "one queue needs no RSS");
    assert_eq!((granted.mtu, port.mtu().unwrap()), (1400, 1400));
    port.set_mtu(1300).unwrap();
    assert_eq!(port.mtu(), Ok(1300));
    assert_eq!(port.granted(), Some(granted));
    port.start().unwrap();
    assert!(matches!(
        port.configure(&PortConfig::default(), &[]),
        Err(DpdkError::PortState { is: "started", .. })
    ));
    let link = port.wait_link(Duration::from_secs(2)).unwrap();
    assert!(link.up && link.full_duplex && link.speed_mbps.is_some(), "{link:?}");
    assert_ne!(port.mac_addr().unwrap(), [0; 6]);
    assert_eq!(port.name(), "net_null3");
    let other = Port::open(eal, port.id()).unwrap();
    port.close().unwrap();
    assert!(matches!(other.stats(), Err(DpdkError::PortState { is: "closed", .. })));
    assert!(matches!(other.close(), Err(DpdkError::PortState { is: "closed", .. })));
    assert!(matches!(other.start(), Err(DpdkError::PortState { is: "closed", .. })));
}

#[test]
fn eal_starts_once_a_process() {
    let Some(_eal) = testing::eal() else { return };
    assert_eq!(Eal::init(&["--no-huge"]).unwrap_err(), DpdkError::AlreadyInitialised);
}

#[test]
fn port_handles_may_be_made_and_dropped_by_many_threads() {
    let Some(eal) = testing::eal() else { return };
    eal.vdev_create("net_null4", "").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    match Port::by_name(eal, "net_null4") {
                        Ok(port) => assert!(port.device_info().is_ok()),
                        // Another thread is dropping the last handle.
                        Err(DpdkError::PortState { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
}

/// EAL's message to other processes has room for 127 bytes of a device and its arguments.
#[test]
fn a_device_has_all_its_arguments_however_long_they_are_and_when_it_comes_back() {
    let Some(eal) = testing::eal() else { return };
    for (number, digits) in (8..).zip([2, 200, 2000]) {
        let (name, size) = (format!("net_null{number}"), format!("size=0x{:0>digits$}", "3c"));
        let (port, pool) = started(eal, &name, &size);
        let received = || {
            let (mut burst, mut rx) = (Burst::with_capacity(eal, 8), port.take_rx_queue(QueueId(0)).unwrap());
            rx.rx_burst(&mut burst);
            burst.iter().map(|packet| packet.pkt_len()).collect::<Vec<_>>()
        };
        assert_eq!(received(), [60; 8], "{digits} digits");
        port.remove().unwrap();
        testing::add_device(&port).unwrap();
        assert_eq!(port.reopen(), Ok(true));
        port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
        port.start().unwrap();
        assert_eq!(received(), [60; 8], "{digits} digits, when it is back");
        port.remove().unwrap();
    }
}

#[test]
fn a_device_that_is_removed_or_reset_is_used_again_under_the_same_handles() {
    let Some(eal) = testing::eal() else { return };
    let (port, pool) = started(eal, "net_null5", "");
    let other = Port::by_name(eal, "net_null5").unwrap();
    let (nothing, removed) =
        (PortEvents::default(), PortEvents { is_removed: true, ..PortEvents::default() });
    assert_eq!(port.take_events(), nothing);
    testing::report(&port, PortEvents { is_reset: true, ..removed });
    assert_eq!(other.take_events(), PortEvents { is_reset: true, is_removed: true });
    assert_eq!(port.take_events(), nothing, "taken once");
    let mut tx = port.take_tx_queue(QueueId(0)).unwrap();
    assert_eq!(tx.free_sent(), None, "net_null keeps nothing");
    assert!(matches!(port.remove(), Err(DpdkError::QueuesInUse { tx: 1, .. })));
    assert!(matches!(port.reset(), Err(DpdkError::QueuesInUse { tx: 1, .. })));
    drop(tx);
    port.remove().unwrap();
    assert!(!other.is_open() && !other.is_started() && Port::by_name(eal, "net_null5").is_err());
    assert!(matches!(port.stats(), Err(DpdkError::PortState { is: "closed", .. })));
    assert_eq!(port.reopen(), Ok(false), "nobody has created it");
    // Another device may get its number.
    eal.vdev_create("net_null6", "").unwrap();
    eal.vdev_create("net_null5", "").unwrap();
    testing::report(&Port::by_name(eal, "net_null6").unwrap(), removed);
    assert_eq!(port.reopen(), Ok(true));
    assert_eq!((port.take_events(), other.name(), other.id()), (nothing, "net_null5", port.id()));
    assert_eq!(Port::by_name(eal, "net_null5").unwrap().id(), port.id());
    assert!(matches!(port.start(), Err(DpdkError::PortState { is: "not configured", .. })));
    for _ in 0..2 {
        port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
        port.start().unwrap();
        assert!(other.is_open() && other.is_started());
        let mut burst = Burst::with_capacity(eal, 8);
        assert_eq!(other.take_rx_queue(QueueId(0)).unwrap().rx_burst(&mut burst), 8);
        // net_null has no reset function.
        port.reset().unwrap();
        assert!(other.is_open() && !other.is_started());
    }
}
