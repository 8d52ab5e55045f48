//! `net_pcap` ports: a capture in, a capture out, every byte the same.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test helpers may panic, and their counts are small"
)]

use dpdk_ffi::{Burst, DpdkError, Port, PortConfig, QueueId, testing};

/// A classic capture of Ethernet frames, microseconds, in this machine's byte order.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend(word.to_ne_bytes());
    }
    for (frame, second) in frames.iter().zip(1_700_000_000_u32..) {
        let len = u32::try_from(frame.len()).unwrap();
        for word in [second, 0, len, len] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(frame);
    }
    file
}

/// The frames of a classic capture, by a reader independent of this crate.
fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let mut at = 24;
    let mut frames = Vec::new();
    while at < file.len() {
        let len = u32::from_ne_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
        frames.push(file[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

#[test]
fn a_capture_goes_through_byte_exact() {
    let Some(eal) = testing::eal() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sent: Vec<Vec<u8>> =
        (0..500_usize).map(|i| (0..60 + i * 7 % 3000).map(|j| (i + j * 3) as u8).collect()).collect();
    std::fs::write(path("in.pcap"), capture(&sent)).unwrap();
    let files = format!("rx_pcap={},tx_pcap={}", path("in.pcap"), path("out.pcap"));
    eal.vdev_create("net_pcap0", &files).unwrap();
    let port = Port::by_name(eal, "net_pcap0").unwrap();
    assert_eq!(port.device_info().unwrap().driver, "net_pcap");
    let pool = testing::start(eal, &port);
    let (mut rx, mut tx) = (port.take_rx_queue(QueueId(0)).unwrap(), port.take_tx_queue(QueueId(0)).unwrap());
    let mut burst = Burst::with_capacity(eal, 64);
    let mut at = 0;
    loop {
        if rx.rx_burst(&mut burst) == 0 {
            break;
        }
        for i in 0..burst.len() {
            let mut whole = Vec::new();
            burst.copy_to(i, &mut whole);
            assert_eq!(whole, sent[at], "frame {at}");
            assert_eq!(usize::from(burst.segments(i)), whole.len().div_ceil(2048));
            at += 1;
        }
        let received = burst.len();
        assert_eq!((tx.tx_burst(&mut burst), burst.len()), (received, 0));
    }
    assert_eq!((at, pool.in_use()), (500, 0));
    drop((rx, tx));
    port.stop().unwrap(); // closes the file
    assert_eq!(frames(&std::fs::read(path("out.pcap")).unwrap()), sent);
    port.remove().unwrap();
}

#[test]
fn a_missing_capture_is_an_error() {
    let Some(eal) = testing::eal() else { return };
    for (name, path) in [("net_pcap7", "all.pcap".to_owned()), ("net_pcap8", "a".repeat(200))] {
        let made = eal.vdev_create(name, &format!("rx_pcap=/nowhere/at/{path}"));
        let outcome = made.and_then(|()| {
            let port = Port::by_name(eal, name)?;
            port.configure(&PortConfig::default(), &[testing::pool(eal, name, 63)])?;
            port.start()
        });
        let refused = outcome.unwrap_err();
        assert!(matches!(refused, DpdkError::NamedCall { .. } | DpdkError::PortCall { .. }), "{refused}");
        assert!(Port::by_name(eal, name).is_err(), "nothing half made is left");
    }
}
