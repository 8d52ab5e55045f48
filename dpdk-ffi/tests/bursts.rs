//! Mempools, mbufs and bursts: nothing is lost, nothing is invented, an empty pool is an error.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "test helpers may panic, and their counts are small"
)]

use dpdk_ffi::{Burst, DROP, DpdkError, Eal, LcoreId, Mempool, MempoolConfig, testing};
use proptest::prelude::*;

fn pool(eal: &Eal, name: &str, mbufs: u32) -> Mempool {
    let config = MempoolConfig { mbufs, cache_mbufs: 0, data_room_bytes: 256, ..MempoolConfig::default() };
    Mempool::new(eal, name, &config).unwrap()
}

fn numbered(eal: &Eal, pool: &Mempool, count: u16) -> Burst {
    let frames: Vec<_> = (0..count).map(u16::to_be_bytes).collect();
    let mut burst = Burst::with_capacity(eal, usize::from(count));
    pool.copy_burst(&mut burst, &frames).unwrap();
    burst
}

fn numbers(burst: &Burst) -> Vec<u16> {
    burst.iter().map(|packet| u16::from_be_bytes(packet.data().try_into().unwrap())).collect()
}

#[test]
fn an_exhausted_pool_is_an_error_and_recovers() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "exhaust", 63);
    let mut burst = Burst::with_capacity(eal, 100);
    pool.alloc_burst(&mut burst, 60).unwrap();
    let refused = pool.alloc_burst(&mut burst, 4).unwrap_err();
    assert_eq!(refused, DpdkError::Exhausted { pool: "exhaust".into(), wanted: 4, available: 3, size: 63 });
    assert_eq!((burst.len(), pool.available()), (60, 3), "all or none");
    let refused = pool.alloc_burst(&mut burst, 41).unwrap_err();
    assert_eq!(refused, DpdkError::TooMuch { what: "mbufs in a burst", wanted: 41, limit: 40 });
    // Any thread can allocate 0 mbufs.
    std::thread::scope(|scope| scope.spawn(|| pool.alloc_burst(&mut burst, 0)).join().unwrap()).unwrap();
    let singles: Vec<_> = (0..3).map(|_| pool.alloc().unwrap()).collect();
    assert!(matches!(pool.alloc(), Err(DpdkError::Exhausted { available: 0, .. })));
    // A packet longer than the mbufs left: the mbufs allocated for it are freed.
    burst.truncate_free(58);
    assert!(matches!(pool.copy(&[7; 256 * 4]), Err(DpdkError::Exhausted { .. })));
    assert_eq!(pool.available(), 2);
    let before = burst.len();
    assert!(matches!(
        pool.copy_burst(&mut burst, &[vec![1; 10], vec![2; 2000]]),
        Err(DpdkError::Exhausted { .. })
    ));
    assert_eq!((burst.len(), pool.available()), (before, 2), "all frames or none");
    drop((burst, singles));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn two_pools_of_one_name_are_refused() {
    let Some(eal) = testing::eal() else { return };
    let _first = pool(eal, "twice", 63);
    let again = Mempool::new(eal, "twice", &MempoolConfig::default()).unwrap_err();
    assert!(matches!(again, DpdkError::NamedCall { errno: 17, .. }), "{again}");
    let huge = MempoolConfig { mbufs: 100_000_000, ..MempoolConfig::default() };
    let no_memory = Mempool::new(eal, "huge", &huge).unwrap_err();
    assert!(matches!(no_memory, DpdkError::NamedCall { errno: 12, .. }), "{no_memory}");
    let room = MempoolConfig { data_room_bytes: u16::MAX, ..MempoolConfig::default() };
    assert!(matches!(Mempool::new(eal, "room", &room), Err(DpdkError::TooMuch { limit: 65535, .. })));
}

#[test]
fn long_frames_become_chains_and_read_back_whole() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "chains", 255);
    for len in [0, 1, 255, 256, 257, 512, 1514, 9000_usize] {
        let frame: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let mut mbuf = pool.copy(&frame).unwrap();
        let segments = len.div_ceil(256).max(1);
        assert_eq!((mbuf.pkt_len() as usize, usize::from(mbuf.segments())), (len, segments));
        assert_eq!(mbuf.data(), &frame[..len.min(256)]);
        let mut whole = Vec::new();
        mbuf.copy_to(&mut whole);
        assert_eq!(whole, frame);
        assert_eq!(pool.in_use(), segments);
        mbuf.append(b"tail", &pool).unwrap();
        let mut burst = Burst::with_capacity(eal, 1);
        burst.push(mbuf).unwrap();
        whole.clear();
        burst.copy_to(0, &mut whole);
        assert_eq!(whole, [&frame[..], b"tail"].concat());
        assert_eq!(burst.segments(0), burst.pkt_len(0).div_ceil(256).max(1) as u16);
        drop(burst);
        assert_eq!(pool.in_use(), 0, "the chain went back");
    }
}

#[test]
fn chains_become_one_segment_or_are_freed() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "one_segment", 255);
    let mut burst = Burst::with_capacity(eal, 8);
    let (long, short) = ([7; 300], [1; 100]);
    assert!(!burst.has_chains());
    for frame in [&short[..], &long, &short, &long[..257], &short] {
        burst.push(pool.copy(frame).unwrap()).unwrap();
        assert_eq!(burst.has_chains(), burst.len() > 1);
    }
    // Short segments, as from a driver that splits headers from payload.
    let mut split = pool.copy(&[1; 60]).unwrap();
    testing::chain(&mut split, pool.copy(&[1; 40]).unwrap());
    assert_eq!((split.segments(), split.pkt_len()), (2, 100));
    burst.push(split).unwrap();
    assert_eq!(burst.linearize_or_free(), (2, 557));
    assert_eq!(burst.len(), 4);
    assert!(burst.iter().all(|packet| packet.segments() == 1 && packet.data() == short));
    assert_eq!(pool.in_use(), 4, "the others went back");
    assert_eq!(burst.linearize_or_free(), (0, 0));
    assert!(!burst.has_chains());
}

#[test]
fn a_full_burst_gives_a_pushed_packet_back() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "full", 63);
    let mut burst = numbered(eal, &pool, 2);
    let back = burst.push(pool.copy(b"x").unwrap()).unwrap_err();
    assert_eq!(back.data(), b"x");
    let mut none = Burst::with_capacity(eal, 0);
    assert!(none.push(back).is_err() && none.pop().is_none() && none.is_empty());
    assert_eq!(pool.in_use(), 2, "the packet that nobody took was freed");
}

#[test]
fn writing_reaches_the_packet_and_only_it() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "write", 63);
    let mut burst = Burst::with_capacity(eal, 4);
    pool.copy_burst(&mut burst, &[[1_u8; 64], [2; 64], [3; 64]]).unwrap();
    for (i, at, value) in [(1, 63, 9), (0, 0, 8), (2, 5, 7)] {
        burst.data_mut(i)[at] = value;
    }
    assert_eq!((burst.data(0)[0], burst.data(1)[63], burst.data(2)[5]), (8, 9, 7));
    assert_eq!((&burst.data(0)[1..], &burst.data(1)[..63]), (&[1; 63][..], &[2; 63][..]));
    assert_eq!((burst.header::<64>(1), burst.header::<65>(1)), (burst.data(1).first_chunk(), None));
    assert_eq!(burst.load::<4>(0, 0), Some([8, 1, 1, 1]));
    assert_eq!((burst.load::<4>(0, 60), burst.load::<4>(0, 61)), (Some([1; 4]), None));
    assert_eq!(burst.load::<1>(0, usize::MAX), None);
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn an_index_past_the_packets_panics_within_the_capacity_too() {
    let Some(eal) = testing::eal() else { panic!("index out of bounds: SKIPPED") };
    let pool = pool(eal, "index", 63);
    let mut burst = numbered(eal, &pool, 4);
    burst.truncate_free(2);
    let _ = burst.data(2);
}

#[test]
fn scatter_keeps_order_and_leaves_what_does_not_fit() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "scatter", 255);
    let mut burst = numbered(eal, &pool, 8);
    let mut outs = vec![Burst::with_capacity(eal, 8), Burst::with_capacity(eal, 1)];
    let mut dropped = Burst::with_capacity(eal, 8);
    let stay = burst.scatter(&[0, 1, DROP, 1, 0, 5, DROP, 0], &mut outs, &mut dropped);
    assert_eq!(stay, 2);
    assert_eq!(numbers(&burst), [3, 5], "a full target and an unknown one");
    assert_eq!((numbers(&outs[0]), numbers(&outs[1])), (vec![0, 4, 7], vec![1]));
    assert_eq!(numbers(&dropped), [2, 6]);
    dropped.free_all();
    assert_eq!(pool.in_use(), 6);
    drop((burst, outs));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn moving_between_bursts_keeps_every_packet() {
    let Some(eal) = testing::eal() else { return };
    let pool = pool(eal, "moving", 255);
    let mut a = numbered(eal, &pool, 6);
    let mut b = Burst::with_capacity(eal, 4);
    assert_eq!(b.append(&mut a), 4);
    assert_eq!((numbers(&a), numbers(&b)), (vec![4, 5], vec![0, 1, 2, 3]));
    a.swap(&mut b);
    assert_eq!((a.capacity(), b.capacity(), a.len()), (4, 6, 4));
    assert_eq!(pool.in_use(), 6);
}

#[derive(Debug, Clone)]
enum BurstStep {
    Alloc(usize),
    Append,
    AppendBack,
    Swap,
    Truncate(usize),
    Scatter(Vec<u16>),
    Push,
    PushLast,
    Pop,
}

fn steps() -> impl Strategy<Value = Vec<BurstStep>> {
    let target = prop_oneof![0..4_u16, Just(DROP), Just(9)];
    let step = prop_oneof![
        (0..20_usize).prop_map(BurstStep::Alloc),
        Just(BurstStep::Append),
        Just(BurstStep::AppendBack),
        Just(BurstStep::Swap),
        (0..20_usize).prop_map(BurstStep::Truncate),
        prop::collection::vec(target, 64).prop_map(BurstStep::Scatter),
        Just(BurstStep::Push),
        Just(BurstStep::PushLast),
        Just(BurstStep::Pop),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn mbufs_are_conserved(steps in steps()) {
        let Some(eal) = testing::eal() else { return Ok(()) };
        static POOL: std::sync::OnceLock<Mempool> = std::sync::OnceLock::new();
        let pool = POOL.get_or_init(|| pool(eal, "walk", 511));
        let (mut a, mut b) = (Burst::with_capacity(eal, 24), Burst::with_capacity(eal, 17));
        let mut outs: Vec<_> = (0..4).map(|port| Burst::with_capacity(eal, port * 8)).collect();
        let mut dropped = Burst::with_capacity(eal, 16);
        for step in steps {
            match step {
                BurstStep::Alloc(count) => { let _ = pool.alloc_burst(&mut a, count); }
                BurstStep::Append => { b.append(&mut a); }
                BurstStep::AppendBack => { a.append(&mut b); }
                BurstStep::Swap => a.swap(&mut b),
                BurstStep::Truncate(len) => b.truncate_free(len),
                BurstStep::Scatter(to) => { a.scatter(&to, &mut outs, &mut dropped); }
                BurstStep::Push => { let _ = a.push(pool.alloc().unwrap()); }
                BurstStep::PushLast => { b.push_last_of(&mut a); }
                BurstStep::Pop => { b.pop(); }
            }
            let held = a.len() + b.len() + dropped.len() + outs.iter().map(Burst::len).sum::<usize>();
            prop_assert_eq!(pool.in_use(), held);
        }
        drop((a, b, outs, dropped));
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn lcores_run_jobs_and_catch_their_panics() {
    let Some(eal) = testing::eal() else { return };
    let main = eal.main_lcore();
    let workers: Vec<_> = eal.lcores().into_iter().filter(|lcore| *lcore != main).collect();
    assert_eq!((eal.lcores().len(), workers.len()), (4, 3));
    let pool = Mempool::new(eal, "jobs", &MempoolConfig { mbufs: 1023, ..MempoolConfig::default() }).unwrap();
    let jobs: Vec<_> = workers
        .iter()
        .map(|&lcore| {
            let mut burst = Burst::with_capacity(eal, 32);
            let pool = pool.clone();
            let job = eal.launch(lcore, move || {
                for _ in 0..1000 {
                    pool.alloc_burst(&mut burst, 32)?;
                    burst.free_all();
                }
                pool.alloc_burst(&mut burst, 3)?;
                Ok::<_, DpdkError>(burst)
            });
            (lcore, job.unwrap())
        })
        .collect();
    for (lcore, job) in jobs {
        assert_eq!(job.lcore(), lcore);
        assert_eq!(job.wait().unwrap().unwrap().len(), 3, "the burst came back to this thread");
    }
    assert_eq!(pool.in_use(), 0, "caches count as available");
    assert_eq!(eal.launch(main, || ()).err(), Some(DpdkError::LcoreBusy { lcore: main, main: true }));
    let unknown = eal.launch(LcoreId(99), || ()).err();
    assert!(
        matches!(unknown, Some(DpdkError::UnknownLcore { ref known, .. }) if known.len() == 4),
        "{unknown:?}"
    );
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let busy = eal.launch(workers[0], move || wait.recv().is_ok()).unwrap();
    assert_eq!(
        eal.launch(workers[0], || ()).err(),
        Some(DpdkError::LcoreBusy { lcore: workers[0], main: false })
    );
    assert!(!busy.is_finished());
    go.send(()).unwrap();
    assert!(busy.wait().unwrap());
    let panicked = eal.launch(workers[1], || panic!("number {}", 7)).unwrap().wait();
    assert_eq!(panicked, Err(DpdkError::Panicked { lcore: workers[1], message: "number 7".into() }));
    assert!(eal.launch(workers[1], || ()).unwrap().wait().is_ok(), "the lcore survives its job's panic");
    assert!(!eal.lcore_cpus(workers[0]).unwrap().is_empty());
    assert!(eal.lcore_socket(workers[0]).is_ok() && eal.lcore_socket(LcoreId(500)).is_err());
    assert!(dpdk_ffi::tsc_hz(eal) > 100_000_000);
}

#[test]
fn a_pool_that_threads_use_beside_lcores_has_nobody_wait() {
    let Some(eal) = testing::eal() else { return };
    let config =
        MempoolConfig { mbufs: 127, cache_mbufs: 0, is_preemptible: true, ..MempoolConfig::default() };
    let pool = Mempool::new(eal, "preemptible", &config).unwrap();
    assert_eq!(pool.operations(), "ring_mt_rts");
    let mut all: Vec<_> = (0..127).map(|_| pool.alloc().unwrap()).collect();
    assert!(pool.alloc().is_err());
    let half = all.split_off(64);
    std::thread::spawn(move || drop(half)).join().unwrap();
    drop(all);
    assert_eq!(pool.available(), 127);
}
