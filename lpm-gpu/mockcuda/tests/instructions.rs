//! Every instruction against Rust: a row of numbers goes through a kernel of a few lines and comes back.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{Driver, entry};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Loads `%r1`, `%r2`, `%r3` (or `%rd11..13` where 64 bits are meant) of this thread's row of three, and leaves its number in
/// `%r0`; the result goes out of `%r10` or `%rd20`.
const LOAD32: &str = "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 12;\n\
    add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r1, [%rd3]; ld.global.u32 %r2, [%rd3+4]; ld.global.u32 %r3, [%rd3+8];\n";
const STORE32: &str = "mad.wide.u32 %rd4, %r0, 4, %rd1; st.global.u32 [%rd4], %r10;\n";
const LOAD64: &str = "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 24;\n\
    add.s64 %rd3, %rd0, %rd2; ld.global.u64 %rd11, [%rd3]; ld.global.u64 %rd12, [%rd3+8]; ld.global.u64 %rd13, [%rd3+16];\n\
    cvt.u32.u64 %r1, %rd11; cvt.u32.u64 %r2, %rd12; cvt.u32.u64 %r3, %rd13;\n";
const STORE64: &str = "mad.wide.u32 %rd4, %r0, 8, %rd1; st.global.u64 [%rd4], %rd20;\n";

type One32 = fn(u32) -> u32;
type Test32 = fn(u32, u32) -> bool;
type Three32 = fn(u32, u32, u32) -> u32;
type Three64 = fn(u64, u64, u64) -> u64;

fn s(x: u32) -> i32 {
    x.cast_signed()
}

fn s64(x: u64) -> i64 {
    x.cast_signed()
}

/// Bits that are worth a try beside random ones.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => any::<u32>(),
        2 => 0_u32..70,
        1 => Just(u32::MAX),
        1 => Just(0x8000_0000),
        1 => Just(0x7fff_ffff),
        1 => any::<u32>().prop_map(|x| x & 0xffff),
    ]
}

fn long() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => any::<u64>(),
        2 => 0_u64..70,
        1 => Just(u64::MAX),
        1 => Just(1 << 63),
        1 => word().prop_map(u64::from),
    ]
}

fn check32(driver: &Driver, name: &str, body: &str, expected: Three32) {
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    // 45 threads: a full warp and a partial one.
    let rows = prop::collection::vec([word(), word(), word()], 45);
    runner
        .run(&rows, |rows| {
            let out: Vec<u32> = driver.run(&format!("{LOAD32}{body}\n{STORE32}"), 45, &rows, 45);
            for (row, out) in rows.iter().zip(out) {
                prop_assert_eq!(out, expected(row[0], row[1], row[2]), "{} of {:x?}", name, row);
            }
            Ok(())
        })
        .unwrap();
}

fn check64(driver: &Driver, name: &str, body: &str, expected: Three64) {
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    let rows = prop::collection::vec([long(), long(), long()], 37);
    runner
        .run(&rows, |rows| {
            let out: Vec<u64> = driver.run(&format!("{LOAD64}{body}\n{STORE64}"), 37, &rows, 37);
            for (row, out) in rows.iter().zip(out) {
                prop_assert_eq!(out, expected(row[0], row[1], row[2]), "{} of {:x?}", name, row);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn arithmetic_of_32_bits() {
    let driver = Driver::open();
    let cases: [(&str, Three32); 30] = [
        ("add.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_add(b)),
        ("sub.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_sub(b)),
        ("mul.lo.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u32 %r10, %r1, %r2;", |a, b, _| u32::try_from((u64::from(a) * u64::from(b)) >> 32).unwrap()),
        ("mul.hi.s32 %r10, %r1, %r2;", |a, b, _| {
            u32::try_from(((i64::from(s(a)) * i64::from(s(b))) >> 32) & 0xffff_ffff).unwrap()
        }),
        ("mad.lo.s32 %r10, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.hi.u32 %r10, %r1, %r2, %r3;", |a, b, c| {
            u32::try_from((u64::from(a) * u64::from(b)) >> 32).unwrap().wrapping_add(c)
        }),
        ("or.b32 %r2, %r2, 1; div.u32 %r10, %r1, %r2;", |a, b, _| a / (b | 1)),
        ("or.b32 %r2, %r2, 2; div.s32 %r10, %r1, %r2;", |a, b, _| {
            s(a).wrapping_div(s(b | 2)).cast_unsigned()
        }),
        ("or.b32 %r2, %r2, 1; rem.u32 %r10, %r1, %r2;", |a, b, _| a % (b | 1)),
        ("or.b32 %r2, %r2, 2; rem.s32 %r10, %r1, %r2;", |a, b, _| {
            s(a).wrapping_rem(s(b | 2)).cast_unsigned()
        }),
        ("and.b32 %r10, %r1, %r2;", |a, b, _| a & b),
        ("or.b32 %r10, %r1, %r2;", |a, b, _| a | b),
        ("xor.b32 %r10, %r1, %r2;", |a, b, _| a ^ b),
        ("not.b32 %r10, %r1;", |a, _, _| !a),
        ("shl.b32 %r10, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
        ("shr.u32 %r10, %r1, %r2;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
        ("shr.s32 %r10, %r1, %r2;", |a, b, _| (s(a) >> b.min(31)).cast_unsigned()),
        ("neg.s32 %r10, %r1;", |a, _, _| a.wrapping_neg()),
        ("abs.s32 %r10, %r1;", |a, _, _| s(a).wrapping_abs().cast_unsigned()),
        ("min.u32 %r10, %r1, %r2;", |a, b, _| a.min(b)),
        ("max.u32 %r10, %r1, %r2;", |a, b, _| a.max(b)),
        ("min.s32 %r10, %r1, %r2;", |a, b, _| s(a).min(s(b)).cast_unsigned()),
        ("max.s32 %r10, %r1, %r2;", |a, b, _| s(a).max(s(b)).cast_unsigned()),
        ("popc.b32 %r10, %r1;", |a, _, _| a.count_ones()),
        ("clz.b32 %r10, %r1;", |a, _, _| a.leading_zeros()),
        ("brev.b32 %r10, %r1;", |a, _, _| a.reverse_bits()),
        ("bfind.u32 %r10, %r1;", |a, _, _| 31_u32.wrapping_sub(a.leading_zeros())),
        ("bfind.s32 %r10, %r1;", |a, _, _| {
            31_u32.wrapping_sub((if s(a) < 0 { !a } else { a }).leading_zeros())
        }),
        ("mul24.lo.u32 %r10, %r1, 3;", |a, _, _| a.wrapping_mul(3)),
    ];
    for (body, expected) in cases {
        check32(&driver, body, body, expected);
    }
}

#[test]
fn fields_and_permutations() {
    let driver = Driver::open();
    let cases: [(&str, Three32); 12] = [
        ("and.b32 %r2, %r2, 31; and.b32 %r3, %r3, 31; bfe.u32 %r10, %r1, %r2, %r3;", |a, b, c| {
            (u64::from(a) >> (b & 31) & ((1 << (c & 31)) - 1)).try_into().unwrap()
        }),
        ("bfe.u32 %r10, %r1, 8, 16;", |a, _, _| a >> 8 & 0xffff),
        ("bfe.s32 %r10, %r1, 0, 8;", |a, _, _| (s(a << 24) >> 24).cast_unsigned()),
        ("bfe.s32 %r10, %r1, 28, 8;", |a, _, _| (s(a) >> 28).cast_unsigned()),
        ("bfi.b32 %r10, %r1, %r2, 8, 4;", |a, b, _| b & !0xf00 | (a & 15) << 8),
        ("bfi.b32 %r10, %r1, %r2, 28, 8;", |a, b, _| b & 0x0fff_ffff | a << 28),
        ("prmt.b32 %r10, %r1, %r2, 0x5410;", |a, b, _| a & 0xffff | b << 16),
        ("prmt.b32 %r10, %r1, %r2, 0x0123;", |a, _, _| a.swap_bytes()),
        ("prmt.b32 %r10, %r1, %r2, 0x8888;", |a, _, _| if a & 0x80 == 0 { 0 } else { u32::MAX }),
        ("lop3.b32 %r10, %r1, %r2, %r3, 0xe8;", |a, b, c| a & b | b & c | a & c),
        ("shf.l.wrap.b32 %r10, %r1, %r2, %r3;", |a, b, c| {
            u32::try_from((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32).unwrap()
        }),
        ("shf.r.clamp.b32 %r10, %r1, %r2, %r3;", |a, b, c| {
            u32::try_from((u64::from(b) << 32 | u64::from(a)) >> c.min(32) & 0xffff_ffff).unwrap()
        }),
    ];
    for (body, expected) in cases {
        check32(&driver, body, body, expected);
    }
}

#[test]
fn arithmetic_of_64_bits() {
    let driver = Driver::open();
    let cases: [(&str, Three64); 27] = [
        ("add.s64 %rd20, %rd11, %rd12;", |a, b, _| a.wrapping_add(b)),
        ("sub.s64 %rd20, %rd11, %rd12;", |a, b, _| a.wrapping_sub(b)),
        ("mul.lo.s64 %rd20, %rd11, %rd12;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u64 %rd20, %rd11, %rd12;", |a, b, _| {
            u64::try_from((u128::from(a) * u128::from(b)) >> 64).unwrap()
        }),
        ("mad.lo.s64 %rd20, %rd11, %rd12, %rd13;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mul.wide.u32 %rd20, %r1, %r2;", |a, b, _| (a & 0xffff_ffff) * (b & 0xffff_ffff)),
        ("mul.wide.s32 %rd20, %r1, %r2;", |a, b, _| {
            (s64(a << 32) >> 32).wrapping_mul(s64(b << 32) >> 32).cast_unsigned()
        }),
        ("mad.wide.u32 %rd20, %r1, %r2, %rd13;", |a, b, c| {
            ((a & 0xffff_ffff) * (b & 0xffff_ffff)).wrapping_add(c)
        }),
        ("or.b64 %rd12, %rd12, 1; div.u64 %rd20, %rd11, %rd12;", |a, b, _| a / (b | 1)),
        ("or.b64 %rd12, %rd12, 2; div.s64 %rd20, %rd11, %rd12;", |a, b, _| {
            s64(a).wrapping_div(s64(b | 2)).cast_unsigned()
        }),
        ("or.b64 %rd12, %rd12, 1; rem.u64 %rd20, %rd11, %rd12;", |a, b, _| a % (b | 1)),
        ("and.b64 %rd20, %rd11, %rd12;", |a, b, _| a & b),
        ("xor.b64 %rd20, %rd11, -1;", |a, _, _| !a),
        ("not.b64 %rd20, %rd11;", |a, _, _| !a),
        ("shl.b64 %rd20, %rd11, %r2;", |a, b, _| {
            a.checked_shl(u32::try_from(b & 0xffff_ffff).unwrap()).unwrap_or(0)
        }),
        ("shr.u64 %rd20, %rd11, %r2;", |a, b, _| {
            a.checked_shr(u32::try_from(b & 0xffff_ffff).unwrap()).unwrap_or(0)
        }),
        ("shr.s64 %rd20, %rd11, %r2;", |a, b, _| (s64(a) >> (b & 0xffff_ffff).min(63)).cast_unsigned()),
        ("min.s64 %rd20, %rd11, %rd12;", |a, b, _| s64(a).min(s64(b)).cast_unsigned()),
        ("max.u64 %rd20, %rd11, %rd12;", |a, b, _| a.max(b)),
        ("popc.b64 %r10, %rd11; cvt.u64.u32 %rd20, %r10;", |a, _, _| a.count_ones().into()),
        ("clz.b64 %r10, %rd11; cvt.u64.u32 %rd20, %r10;", |a, _, _| a.leading_zeros().into()),
        ("brev.b64 %rd20, %rd11;", |a, _, _| a.reverse_bits()),
        ("bfe.u64 %rd20, %rd11, 20, 30;", |a, _, _| a >> 20 & ((1 << 30) - 1)),
        ("bfi.b64 %rd20, %rd11, %rd12, 32, 16;", |a, b, _| b & !(0xffff << 32) | (a & 0xffff) << 32),
        ("mov.b64 {%r10, %r11}, %rd11; mov.b64 %rd20, {%r11, %r10};", |a, _, _| a.rotate_left(32)),
        ("neg.s64 %rd20, %rd11;", |a, _, _| a.wrapping_neg()),
        ("abs.s64 %rd20, %rd11;", |a, _, _| s64(a).wrapping_abs().cast_unsigned()),
    ];
    for (body, expected) in cases {
        check64(&driver, body, body, expected);
    }
}

#[test]
fn comparisons_select() {
    let driver = Driver::open();
    let cases: [(&str, Test32); 12] = [
        ("eq.s32", |a, b| a == b),
        ("ne.u32", |a, b| a != b),
        ("lt.s32", |a, b| s(a) < s(b)),
        ("le.s32", |a, b| s(a) <= s(b)),
        ("gt.s32", |a, b| s(a) > s(b)),
        ("ge.s32", |a, b| s(a) >= s(b)),
        ("lt.u32", |a, b| a < b),
        ("le.u32", |a, b| a <= b),
        ("gt.u32", |a, b| a > b),
        ("ge.u32", |a, b| a >= b),
        ("lo.u32", |a, b| a < b),
        ("hs.u32", |a, b| a >= b),
    ];
    for (compare, expected) in cases {
        let body = format!("{LOAD32} setp.{compare} %p1, %r1, %r2; selp.b32 %r10, 7, %r3, %p1; {STORE32}");
        let rows: Vec<[u32; 3]> = [0, 1, 5, 0x7fff_ffff, 0x8000_0000, u32::MAX]
            .into_iter()
            .flat_map(|a| [0, 1, 0x8000_0000, u32::MAX].map(|b| [a, b, 3]))
            .collect();
        let count = u32::try_from(rows.len()).unwrap();
        let out: Vec<u32> = driver.run(&body, count, &rows, rows.len());
        for (row, out) in rows.iter().zip(out) {
            assert_eq!(out, if expected(row[0], row[1]) { 7 } else { 3 }, "{compare} of {row:x?}");
        }
    }
    let wide =
        format!("{LOAD64} setp.lt.s64 %p1, %rd11, %rd12; selp.b64 %rd20, %rd11, %rd12, %p1; {STORE64}");
    let rows = [[1_u64, u64::MAX, 0], [u64::MAX, 1, 0], [1 << 63, 0, 0], [5, 5, 0]];
    assert_eq!(driver.run::<_, u64>(&wide, 4, &rows, 4), [u64::MAX, u64::MAX, 1 << 63, 5]);
}

#[test]
fn predicates_join_and_guard() {
    let driver = Driver::open();
    let body = "setp.gt.u32 %p1, %r1, 10; setp.gt.u32 %p2, %r2, 10; setp.lt.and.u32 %p3|%p4, %r1, %r2, !%p1;\n\
        and.pred %p5, %p1, %p2; or.pred %p6, %p1, %p2; xor.pred %p7, %p1, %p2; not.pred %p8, %p5;\n\
        mov.u32 %r10, 0; @%p5 or.b32 %r10, %r10, 1; @%p6 or.b32 %r10, %r10, 2; @%p7 or.b32 %r10, %r10, 4;\n\
        @!%p8 or.b32 %r10, %r10, 8; @%p3 or.b32 %r10, %r10, 16; @%p4 or.b32 %r10, %r10, 32;";
    let rows: Vec<[u32; 3]> = (0..36).map(|i| [i / 6 * 4, i % 6 * 4, 0]).collect();
    let out: Vec<u32> = driver.run(&format!("{LOAD32}{body}{STORE32}"), 36, &rows, 36);
    for (row, out) in rows.iter().zip(out) {
        let (p1, p2) = (row[0] > 10, row[1] > 10);
        let bits = [p1 && p2, p1 || p2, p1 != p2, p1 && p2, row[0] < row[1] && !p1, row[0] >= row[1] && !p1];
        let expected = bits.iter().enumerate().fold(0, |all, (i, bit)| all | u32::from(*bit) << i);
        assert_eq!(out, expected, "{row:?}");
    }
}

#[test]
fn sixteen_bits_and_conversions() {
    let driver = Driver::open();
    let cases: [(&str, Three32); 18] = [
        ("cvt.u16.u32 %rs1, %r1; add.s16 %rs2, %rs1, 1; cvt.u32.u16 %r10, %rs2;", |a, _, _| {
            a.wrapping_add(1) & 0xffff
        }),
        ("cvt.u16.u32 %rs1, %r1; shr.s16 %rs2, %rs1, 2; cvt.s32.s16 %r10, %rs2;", |a, _, _| {
            (s(a << 16) >> 18).cast_unsigned()
        }),
        ("cvt.u16.u32 %rs1, %r1; cvt.u16.u32 %rs2, %r2; mul.wide.u16 %r10, %rs1, %rs2;", |a, b, _| {
            (a & 0xffff) * (b & 0xffff)
        }),
        ("cvt.u16.u32 %rs1, %r1; cvt.u16.u32 %rs2, %r2; mul.wide.s16 %r10, %rs1, %rs2;", |a, b, _| {
            ((s(a << 16) >> 16) * (s(b << 16) >> 16)).cast_unsigned()
        }),
        (
            "cvt.u16.u32 %rs1, %r1; cvt.u16.u32 %rs2, %r2; setp.lt.s16 %p1, %rs1, %rs2; selp.u32 %r10, 1, 0, %p1;",
            |a, b, _| (s(a << 16) < s(b << 16)).into(),
        ),
        (
            "cvt.u16.u32 %rs1, %r1; and.b16 %rs2, %rs1, 255; setp.eq.s16 %p1, %rs2, -1; selp.b32 %r10, 1, 0, %p1;",
            |_, _, _| 0,
        ),
        ("cvt.u16.u32 %rs1, %r1; not.b16 %rs2, %rs1; cvt.u32.u16 %r10, %rs2;", |a, _, _| !a & 0xffff),
        ("mov.b32 {%rs1, %rs2}, %r1; mov.b32 %r10, {%rs2, %rs1};", |a, _, _| a.rotate_left(16)),
        ("cvt.u32.u8 %r10, %r1;", |a, _, _| a & 0xff),
        ("cvt.s32.s8 %r10, %r1;", |a, _, _| (s(a << 24) >> 24).cast_unsigned()),
        (
            "cvt.u64.u32 %rd20, %r1; cvt.s64.s32 %rd21, %r1; sub.s64 %rd20, %rd21, %rd20; shr.u64 %rd20, %rd20, 32; cvt.u32.u64 %r10, %rd20;",
            |a, _, _| {
                if s(a) < 0 { u32::MAX } else { 0 }
            },
        ),
        ("cvt.sat.u16.u32 %rs1, %r1; cvt.u32.u16 %r10, %rs1;", |a, _, _| a.min(0xffff)),
        ("cvt.sat.s8.s32 %r10, %r1;", |a, _, _| s(a).clamp(-128, 127).cast_unsigned()),
        ("cvt.u16.u64 %rs1, %rd3; cvt.u32.u16 %r10, 7;", |_, _, _| 7),
        ("cvt.rn.f32.u32 %f1, %r1; cvt.rzi.u32.f32 %r10, %f1;", |a, _, _| {
            let exact = f64::from(a);
            // The nearest single, ties to even, is what `as` gives.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the conversion under test"
            )]
            let single = f64::from(exact as f32).min(f64::from(u32::MAX)) as u32;
            single
        }),
        (
            "and.b32 %r1, %r1, 0xffff; cvt.rn.f32.u32 %f1, %r1; mul.f32 %f2, %f1, 0f40000000; cvt.rzi.u32.f32 %r10, %f2;",
            |a, _, _| (a & 0xffff) * 2,
        ),
        (
            "cvt.rn.f64.u32 %fd1, %r1; add.f64 %fd2, %fd1, 0d3ff0000000000000; cvt.rzi.u64.f64 %rd20, %fd2; cvt.u32.u64 %r10, %rd20;",
            |a, _, _| a.wrapping_add(1),
        ),
        ("mov.pred %p2, %p1; mov.u32 %r10, %ntid.x; @%p2 mov.u32 %r10, 0;", |_, _, _| 45),
    ];
    for (body, expected) in cases {
        check32(&driver, body, body, expected);
    }
}

#[test]
fn loads_and_stores_of_every_size() {
    let driver = Driver::open();
    let head = "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; cvt.u64.u32 %rd9, %r0;\n\
        mad.lo.s64 %rd2, %rd9, 16, %rd0; mad.lo.s64 %rd3, %rd9, 16, %rd1;\n";
    let bytes: Vec<u8> = (0..64_u32).map(|i| u8::try_from(i * 37 % 251).unwrap()).collect();
    let same: [&str; 10] = [
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2]; st.global.cs.v4.u32 [%rd3], {%r1, %r2, %r3, %r4};",
        "ld.global.nc.v2.u32 {%r1, %r2}, [%rd2]; ld.relaxed.gpu.global.u32 %r3, [%rd2+8]; ld.volatile.global.u32 %r4, [%rd2+12];\n\
         st.relaxed.gpu.global.u32 [%rd3], %r1; st.volatile.global.u32 [%rd3+4], %r2; st.release.sys.global.u32 [%rd3+8], %r3; st.u32 [%rd3+12], %r4;",
        "ld.global.v2.u64 {%rd4, %rd5}, [%rd2]; st.global.v2.u64 [%rd3], {%rd4, %rd5};",
        "ld.global.u64 %rd4, [%rd2]; ld.acquire.gpu.global.u64 %rd5, [%rd2+8]; st.global.u64 [%rd3], %rd4; st.global.u64 [%rd3+8], %rd5;",
        "ld.global.v4.u16 {%rs1, %rs2, %rs3, %rs4}, [%rd2]; st.global.v4.u16 [%rd3], {%rs1, %rs2, %rs3, %rs4}; ld.global.u64 %rd5, [%rd2+8]; st.global.u64 [%rd3+8], %rd5;",
        "ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs4}, [%rd2]; st.global.v4.u8 [%rd3], {%rs1, %rs2, %rs3, %rs4}; ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd3+4], %r2;\n\
         ld.global.u64 %rd5, [%rd2+8]; st.global.u64 [%rd3+8], %rd5;",
        ".shared .align 16 .b8 s[64]; mov.u64 %rd6, s; mad.lo.s64 %rd6, %rd9, 16, %rd6; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2];\n\
         st.shared.v2.u32 [%rd6], {%r1, %r2}; st.shared.u32 [%rd6+8], %r3; st.shared.u32 [%rd6+12], %r4;\n\
         ld.shared.u64 %rd4, [%rd6]; ld.shared.v2.u32 {%r5, %r6}, [%rd6+8]; st.global.u64 [%rd3], %rd4; st.global.v2.u32 [%rd3+8], {%r5, %r6};",
        ".shared .align 16 .b8 s[64]; mov.u64 %rd6, s; cvta.shared.u64 %rd6, %rd6; mad.lo.s64 %rd6, %rd9, 16, %rd6; ld.v2.u64 {%rd4, %rd5}, [%rd2];\n\
         st.u64 [%rd6], %rd4; st.u64 [%rd6+8], %rd5; ld.u64 %rd4, [%rd6]; ld.u64 %rd5, [%rd6+8]; st.v2.u64 [%rd3], {%rd4, %rd5};",
        ".shared .align 16 .b8 s[64]; mov.u32 %r9, s; mad.lo.s32 %r9, %r0, 16, %r9; ld.global.u8 %r1, [%rd2]; st.shared.u8 [%r9], %r1; ld.shared.u8 %rs1, [%r9];\n\
         st.global.u8 [%rd3], %rs1; ld.global.u8 %rs2, [%rd2+1]; st.global.u8 [%rd3+1], %rs2; ld.global.u16 %rs3, [%rd2+2]; st.shared.u16 [%r9+6], %rs3;\n\
         ld.shared.u16 %rs4, [%r9+6]; st.global.u16 [%rd3+2], %rs4; ld.global.u32 %r2, [%rd2+4]; st.global.u32 [%rd3+4], %r2; ld.global.u64 %rd5, [%rd2+8]; st.global.u64 [%rd3+8], %rd5;",
        "ld.global.L1::no_allocate.L2::128B.u32 %r1, [%rd2]; ld.global.ca.u32 %r2, [%rd2+4]; ld.global.lu.u32 %r3, [%rd2+8]; ldu.global.u32 %r4, [%rd2+12];\n\
         st.global.wb.u32 [%rd3], %r1; st.global.cg.u32 [%rd3+4], %r2; st.global.wt.u32 [%rd3+8], %r3; st.weak.global.u32 [%rd3+12], %r4;",
    ];
    for body in same {
        let out: Vec<u8> = driver.run(&format!("{head}{body}"), 4, &bytes, 64);
        assert_eq!(out, bytes, "{body}");
    }
    let signed = "ld.global.s8 %r1, [%rd2]; ld.global.s16 %r2, [%rd2+2]; ld.global.s32 %rd4, [%rd2+4]; ld.global.s8 %rs1, [%rd2];\n\
        st.global.u32 [%rd3], %r1; st.global.u16 [%rd3+4], %r2; st.global.u16 [%rd3+6], %rs1; st.global.u64 [%rd3+8], %rd4;";
    let out: Vec<u64> =
        driver.run(&format!("{head}{signed}"), 1, &[0x80_u8, 0, 0xfe, 0xff, 0xfd, 0xff, 0xff, 0xff], 2);
    assert_eq!(out, [0xff80_fffe_ffff_ff80, 0xffff_ffff_ffff_fffd]);
}

#[test]
fn atomics_change_and_answer() {
    let driver = Driver::open();
    let cases: [(&str, u32, One32); 9] = [
        ("add.u32", 5, |old| old + 5),
        ("exch.b32", 9, |_| 9),
        ("and.b32", 12, |old| old & 12),
        ("or.b32", 3, |old| old | 3),
        ("xor.b32", 3, |old| old ^ 3),
        ("min.s32", u32::MAX, |_| u32::MAX),
        ("max.u32", 70, |old| old.max(70)),
        ("inc.u32", 90, |old| if old >= 90 { 0 } else { old + 1 }),
        ("dec.u32", 90, |old| if old == 0 || old > 90 { 90 } else { old - 1 }),
    ];
    let input = [0_u32, 77, 90, 91];
    for (operation, operand, expected) in cases {
        for space in ["global", "shared"] {
            let body = format!(
                "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd2, %r0, 4, %rd0; mad.wide.u32 %rd3, %r0, 8, %rd1;\n\
                 .shared .align 4 .b8 s[16]; mov.u64 %rd4, s; mad.wide.u32 %rd4, %r0, 4, %rd4; ld.global.u32 %r1, [%rd2]; st.shared.u32 [%rd4], %r1; {}\n\
                 atom.{space}.{operation} %r2, [%rd5], {operand}; red.{space}.or.b32 [%rd5], 0; ld.{space}.u32 %r3, [%rd5]; st.global.v2.u32 [%rd3], {{%r2, %r3}};",
                if space == "global" { "mov.u64 %rd5, %rd2;" } else { "mov.u64 %rd5, %rd4;" },
            );
            let out: Vec<[u32; 2]> = driver.run(&body, 4, &input, 4);
            for (old, out) in input.iter().zip(out) {
                assert_eq!(out, [*old, expected(*old)], "{operation} of {old}");
            }
        }
    }
    let all = "ld.param.u64 %rd0, [k_b]; ld.param.u64 %rd1, [k_a]; ld.global.u64 %rd2, [%rd1]; mov.u32 %r0, %tid.x; setp.eq.s32 %p1, %r0, 0;\n\
        @%p1 st.global.u64 [%rd0], 0; bar.sync 0; atom.global.add.u64 %rd3, [%rd0], %rd2; atom.relaxed.gpu.global.cas.b64 %rd4, [%rd0], 1, 2;";
    let out: Vec<u64> = driver.run(all, 256, &[1_u64 << 40], 1);
    assert_eq!(out, [256 << 40]);
}

#[test]
fn lanes_exchange() {
    let driver = Driver::open();
    let head = "ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid; mad.wide.u32 %rd2, %r0, 4, %rd1; mul.lo.s32 %r2, %r1, 10;\n";
    let cases: [(&str, One32); 7] = [
        ("shfl.sync.bfly.b32 %r10|%p1, %r2, 1, 31, -1;", |lane| (lane ^ 1) * 10),
        ("shfl.sync.up.b32 %r10, %r2, 3, 0, -1;", |lane| if lane < 3 { lane * 10 } else { (lane - 3) * 10 }),
        ("shfl.sync.down.b32 %r10|%p1, %r2, 2, 31, -1; @!%p1 mov.u32 %r10, 1;", |lane| {
            if lane > 29 { 1 } else { (lane + 2) * 10 }
        }),
        ("shfl.sync.idx.b32 %r10, %r2, 7, 31, -1;", |_| 70),
        ("setp.gt.u32 %p1, %r1, 20; vote.sync.ballot.b32 %r10, %p1, -1;", |_| 0xffe0_0000),
        (
            "setp.gt.u32 %p1, %r1, 20; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; selp.b32 %r10, 1, 0, %p2; @%p3 add.s32 %r10, %r10, 2;",
            |_| 1,
        ),
        // Half the warp goes another way; both come together again at the ballot.
        (
            "and.b32 %r3, %r1, 1; setp.eq.s32 %p1, %r3, 0; @%p1 bra $A; mov.u32 %r10, 5; bra.uni $B; $A: mov.u32 %r10, 6; $B: bar.warp.sync -1; activemask.b32 %r4; add.s32 %r10, %r10, %r4;",
            |lane| {
                if lane % 2 == 0 { 5 } else { 4 }
            },
        ),
    ];
    for (body, expected) in cases {
        let out: Vec<u32> =
            driver.run(&format!("{head}{body} st.global.u32 [%rd2], %r10;"), 32, &[0_u32], 32);
        for (lane, out) in (0..).zip(out) {
            assert_eq!(out, expected(lane), "{body} in lane {lane}");
        }
    }
}

#[test]
fn jumps_and_loops_by_lane() {
    let driver = Driver::open();
    // Collatz: every lane takes its own number of turns.
    let body = "mov.u32 %r10, 0; and.b32 %r1, %r1, 1023; add.s32 %r1, %r1, 1;\n\
        $LOOP: setp.le.u32 %p1, %r1, 1; @%p1 bra $END; add.s32 %r10, %r10, 1; and.b32 %r4, %r1, 1; setp.eq.s32 %p2, %r4, 0; @%p2 bra $EVEN;\n\
        mad.lo.s32 %r1, %r1, 3, 1; bra.uni $LOOP; $EVEN: shr.u32 %r1, %r1, 1; bra.uni $LOOP; $END:";
    check32(&driver, "collatz", body, |a, _, _| {
        let (mut n, mut turns) = ((a & 1023) + 1, 0);
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { n * 3 + 1 };
            turns += 1;
        }
        turns
    });
    let table = "and.b32 %r1, %r1, 3; $T: .branchtargets $A, $B, $C, $A; brx.idx %r1, $T;\n\
        $A: mov.u32 %r10, 1; bra.uni $E; $B: mov.u32 %r10, 2; bra.uni $E; $C: mov.u32 %r10, 3; $E:";
    check32(&driver, "brx", table, |a, _, _| [1, 2, 3, 1][a as usize % 4]);
    // A lane waits for a word that another lane of its warp writes behind it in the code.
    let spin = "ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; setp.eq.s32 %p1, %r0, 1; @%p1 bra $W;\n\
        $S: ld.volatile.global.u32 %r1, [%rd1]; setp.ne.s32 %p2, %r1, 42; @%p2 bra $S; bra.uni $E;\n\
        $W: st.volatile.global.u32 [%rd1], 42; $E:";
    assert_eq!(driver.run::<u32, u32>(spin, 2, &[0], 1), [42]);
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let driver = Driver::open();
    for body in [
        "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [tex, {%r1}];",
        "call.uni foo;",
        "sin.approx.f32 %f1, %f2;",
        "mov.u32 %r10, %pm0;",
        "add.s32 %r10, %undeclared, 1;",
        "add.s32 %r10, %rd1, 1;",
        "bra $nowhere;",
        "ld.local.u32 %r1, [%rd1];",
        "add.s32 %r99, %r1, 1;",
    ] {
        assert_eq!(driver.load(&entry(body)).unwrap_err(), 218, "{body}");
    }
    assert_eq!(driver.load("no ptx").unwrap_err(), 218);
    assert_eq!(driver.load(".version 6.3\n.target sm_120\n").unwrap_err(), 209);
    mockcuda::control::mockcuda_set_driver_version(9_000);
    assert_eq!(driver.load(&entry("")).unwrap_err(), 222);
}
