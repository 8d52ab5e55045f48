//! DPDK's lookup tables against the definition of longest-prefix match, and the errors of our wrapper.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use dpdk_ffi::fib::{
    DpdkTable, EntryBytes, Library, LookupKind, RteFib, RteFib6, RteLpm, RteLpm6, TableConfig,
};
use dpdk_ffi::{DpdkError, SocketId};

const CONFIG: TableConfig =
    TableConfig { routes_max: 1000, groups: 256, entry: EntryBytes::Two, socket: SocketId::ANY };

/// Address (aligned to the most significant bit), length, next hop: nested, at the edges, and without a default route.
const ROUTES: [(u128, u8, u32); 8] = [
    (0x0a00 << 112, 8, 1),
    (0x0a01 << 112, 16, 2),
    (0x0a01_0280 << 96, 25, 3),
    (0x0a01_02ff << 96, 32, 4),
    (0xffff_ffff << 96, 32, 5),
    (0x2001_0db8 << 96, 29, 6),
    (0x2001_0db8 << 96, 32, 7),
    (0xc000 << 112, 2, 8),
];

fn longest(routes: &[(u128, u8, u32)], key: u128) -> u32 {
    let holds = |(address, len): (u128, u8)| len == 0 || (key ^ address) >> (128 - u32::from(len)) == 0;
    let best = routes.iter().filter(|route| holds((route.0, route.1))).max_by_key(|route| route.1);
    best.map_or(0, |route| route.2)
}

fn boundary_keys() -> Vec<u128> {
    let mut keys = vec![0, u128::MAX];
    for (first, len, _) in ROUTES {
        let last = first | u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        // One step of an IPv4 address. In IPv6 the step is in the first 32 bits, where all routes differ.
        keys.extend([first, last, first.wrapping_sub(1 << 96), last.wrapping_add(1 << 96)]);
    }
    keys
}

fn conforms<L: Library>(mut table: DpdkTable<L>, key_of: impl Fn(u128) -> L::Key)
where
    L::Key: Send + Sync,
    L::Answer: Send,
{
    let wide = boundary_keys();
    let keys: Vec<_> = wide.iter().map(|key| key_of(*key)).collect();
    let compare = |table: &DpdkTable<L>, routes: &[(u128, u8, u32)]| {
        let mut answers = vec![L::Answer::default(); keys.len()];
        table.lookup(&keys, &mut answers).unwrap();
        for (key, answer) in wide.iter().zip(answers) {
            assert_eq!(DpdkTable::<L>::next_hop(answer), longest(routes, *key), "{} {key:032x}", L::NAME);
        }
    };
    compare(&table, &[]);
    let mut reader = table.reader();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut answers = vec![L::Answer::default(); keys.len()];
            let mut rounds = 0_u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || rounds == 0 {
                reader.lookup(&keys, &mut answers).unwrap();
                let unknown =
                    answers.iter().map(|answer| DpdkTable::<L>::next_hop(*answer)).find(|id| *id > 18);
                assert_eq!(unknown, None, "a next hop that was never added");
                rounds += 1;
            }
        });
        let mut routes = Vec::new();
        for route in ROUTES {
            table.add(key_of(route.0), route.1, route.2).unwrap();
            routes.push(route);
            compare(&table, &routes);
        }
        let (address, len, _) = ROUTES[2];
        table.add(key_of(address), len, 18).unwrap();
        routes[2].2 = 18;
        compare(&table, &routes);
        for route in ROUTES {
            assert!(table.delete(key_of(route.0), route.1).unwrap(), "{} {route:?}", L::NAME);
            routes.remove(0);
            compare(&table, &routes);
        }
        assert!(!table.delete(key_of(ROUTES[0].0), ROUTES[0].1).unwrap(), "{} deleted twice", L::NAME);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        beside.join().unwrap();
    });
}

fn key4(key: u128) -> u32 {
    u32::try_from(key >> 96).unwrap()
}

/// One test, because the tables together need more memory than the test EAL has.
#[test]
fn tables_conform_and_refuse() {
    let Some(eal) = dpdk_ffi::testing::eal() else { return };
    conforms(DpdkTable::<RteFib>::new(eal, "fib4", &CONFIG).unwrap(), key4);
    conforms(DpdkTable::<RteFib6>::new(eal, "fib6", &CONFIG).unwrap(), u128::to_be_bytes);
    conforms(DpdkTable::<RteLpm>::new(eal, "lpm4", &CONFIG).unwrap(), key4);
    conforms(DpdkTable::<RteLpm6>::new(eal, "lpm6", &CONFIG).unwrap(), u128::to_be_bytes);

    let mut fib = DpdkTable::<RteFib>::new(eal, "fib4", &CONFIG).unwrap();
    let twice = DpdkTable::<RteFib>::new(eal, "fib4", &CONFIG).unwrap_err();
    assert!(matches!(&twice, DpdkError::NamedCall { errno: 17, .. }), "{twice}");
    for (address, len, next_hop) in [(0, 33, 1), (0, 8, 0), (0, 8, 1 << 15)] {
        let why = fib.add(address, len, next_hop).unwrap_err();
        assert!(matches!(why, DpdkError::TooMuch { .. }), "{why}");
    }
    assert_eq!(fib.next_hop_max(), (1 << 15) - 1);
    let why = fib.lookup(&[0; 3], &mut [0; 2]).unwrap_err();
    assert!(matches!(why, DpdkError::TooMuch { wanted: 3, limit: 2, .. }), "{why}");

    let reader = fib.reader();
    let why = fib.select(LookupKind::Scalar).unwrap_err();
    assert!(matches!(why, DpdkError::TableInUse { readers: 1, .. }), "{why}");
    drop(reader);
    fib.select(LookupKind::Scalar).unwrap();
    // This EAL allows DPDK's default of at most 256 bits.
    let why = fib.select(LookupKind::Avx512).unwrap_err();
    assert!(why.to_string().contains("--force-max-simd-bitwidth=512"), "{why}");

    let too_many = TableConfig { groups: 1 << 15, ..CONFIG };
    assert!(matches!(DpdkTable::<RteFib>::new(eal, "many", &too_many), Err(DpdkError::TooMuch { .. })));
    let long = "a name of a table that is too long".repeat(2);
    assert!(matches!(DpdkTable::<RteFib>::new(eal, &long, &CONFIG), Err(DpdkError::TooMuch { .. })));
    drop(fib);
    let mut lpm = DpdkTable::<RteLpm>::new(eal, "lpm4", &CONFIG).unwrap();
    assert!(matches!(lpm.add(0, 0, 1), Err(DpdkError::TooMuch { what: "default routes", .. })));
}
