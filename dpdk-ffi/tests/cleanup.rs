//! EAL ends only after its last handle. One test, because a process has one EAL.

use dpdk_ffi::{Burst, DpdkError, Eal, Mempool, MempoolConfig, Port, PortConfig, QueueId};

#[test]
fn eal_ends_with_its_last_handle() {
    let prefix = format!("fwd-test-{}", std::process::id());
    let args =
        ["--no-huge", "-m", "64", "--no-pci", "--no-shconf", "--no-telemetry", "--file-prefix", &prefix];
    let eal = match Eal::init(&args) {
        Ok(eal) => eal,
        Err(why) => return dpdk_ffi::testing::skip("dpdk", format_args!("EAL does not start here: {why}")),
    };
    assert!(!eal.has_hugepages());
    eal.vdev_create("net_null0", "").unwrap();
    let pool =
        Mempool::new(&eal, "pool", &MempoolConfig { mbufs: 1023, ..MempoolConfig::default() }).unwrap();
    let port = Port::by_name(&eal, "net_null0").unwrap();
    port.configure(&PortConfig::default(), std::slice::from_ref(&pool)).unwrap();
    port.start().unwrap();
    let mut rx = port.take_rx_queue(QueueId(0)).unwrap();
    let mut burst = Burst::with_capacity(&eal, 32);
    assert_eq!(eal.handles(), 3, "pool, port (with its queue), burst");
    drop(eal);
    // The `Eal` value is gone and EAL still runs: the handles keep working, and may be dropped in any order on any thread.
    assert_eq!(rx.rx_burst(&mut burst), 32);
    drop((port, pool));
    assert_eq!(burst.data(31).len(), 64);
    std::thread::spawn(move || drop(burst)).join().unwrap();
    drop(rx);
    assert_eq!(Eal::init(&args).unwrap_err(), DpdkError::AlreadyInitialised, "not even after cleanup");
}
