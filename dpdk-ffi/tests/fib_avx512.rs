//! The AVX-512 lookups of `rte_fib` and `rte_fib6` return the same as the scalar ones, if CPU and EAL allow them.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use dpdk_ffi::fib::{DpdkTable, EntryBytes, LookupKind, RteFib, RteFib6, Selectable, TableConfig};
use dpdk_ffi::{DpdkError, Eal, SocketId};

fn agree<L: Selectable>(
    eal: &Eal,
    entry: EntryBytes,
    key_of: impl Fn(u32) -> L::Key,
) -> Result<(), DpdkError> {
    let config = TableConfig { routes_max: 4096, groups: 4096, entry, socket: SocketId::ANY };
    let mut table = DpdkTable::<L>::new(eal, "agree", &config)?;
    for at in 0..2000_u32 {
        // Lengths 12..=32 scattered over the address space, nested now and then.
        let len = u8::try_from(12 + at % 21).unwrap();
        table.add(key_of(at.wrapping_mul(0x9e37_79b9) & (u32::MAX << (32 - len))), len, 1 + at)?;
    }
    let keys: Vec<_> = (0..10_007_u32).map(|at| key_of(at.wrapping_mul(0x85eb_ca6b))).collect();
    let mut answers = [vec![L::Answer::default(); keys.len()], vec![L::Answer::default(); keys.len()]];
    for (kind, answers) in [LookupKind::Scalar, LookupKind::Avx512].into_iter().zip(&mut answers) {
        table.select(kind)?;
        // All keys at once, then in chunks that are no multiple of a vector.
        table.lookup(&keys, answers)?;
        for (keys, part) in keys.chunks(37).zip(answers.chunks_mut(37)) {
            table.lookup(keys, part)?;
        }
    }
    let next_hops = |answers: &[L::Answer]| -> Vec<u32> {
        answers.iter().map(|answer| DpdkTable::<L>::next_hop(*answer)).collect()
    };
    assert_eq!(next_hops(&answers[0]), next_hops(&answers[1]), "{} {entry:?}", L::NAME);
    assert!(next_hops(&answers[0]).iter().filter(|id| **id != 0).count() > 100, "{} found nothing", L::NAME);
    Ok(())
}

#[test]
fn vector_and_scalar_agree() {
    let Some(eal) = dpdk_ffi::testing::eal_with(&["--no-telemetry", "--force-max-simd-bitwidth=512"]) else {
        return;
    };
    let key6 = |key: u32| (u128::from(key) << 96 | u128::from(key)).to_be_bytes();
    for entry in [EntryBytes::Two, EntryBytes::Four] {
        let done = agree::<RteFib>(eal, entry, |key| key).and_then(|()| agree::<RteFib6>(eal, entry, key6));
        match done {
            Ok(()) => {}
            Err(why @ DpdkError::SimdWidth { .. }) => return dpdk_ffi::testing::skip("avx512f", why),
            Err(why) => panic!("{why}"),
        }
    }
}
