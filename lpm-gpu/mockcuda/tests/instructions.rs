//! Every instruction against Rust: a row of numbers passes through a short kernel.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{HEAD, LaunchArg, MockSession, entry};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Loads this thread's row of three numbers into `%r1` to `%r3` (or `%rd11` to `%rd13`) and the thread number into `%r0`; the result is
/// stored from `%r10` or `%rd20`.
const LOAD32: &str = "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 12;\n\
    add.s64 %rd3, %rd0, %rd2; ld.global.u32 %r1, [%rd3]; ld.global.u32 %r2, [%rd3+4]; ld.global.u32 %r3, [%rd3+8];\n";
const STORE32: &str = "mul.wide.u32 %rd4, %r0, 4; add.s64 %rd4, %rd4, %rd1; st.global.u32 [%rd4], %r10;\n";
const LOAD64: &str = "ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 24;\n\
    add.s64 %rd3, %rd0, %rd2; ld.global.cs.u64 %rd11, [%rd3]; ld.global.cs.u64 %rd12, [%rd3+8]; ld.global.cs.u64 %rd13, [%rd3+16];\n\
    cvt.u32.u64 %r1, %rd11; cvt.u32.u64 %r2, %rd12; cvt.u32.u64 %r3, %rd13;\n";
const STORE64: &str = "mul.wide.u32 %rd4, %r0, 8; add.s64 %rd4, %rd4, %rd1; shr.u64 %rd5, %rd20, 32; cvt.u32.u64 %r10, %rd20;\n\
    cvt.u32.u64 %r11, %rd5; st.global.cs.v2.u32 [%rd4], {%r10, %r11};\n";
const CHOOSE: &str = "selp.b32 %r10, 7, %r3, %p1;";

type Test32 = fn(u32, u32) -> bool;
type Three32 = fn(u32, u32, u32) -> u32;
type Three64 = fn(u64, u64, u64) -> u64;

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

/// Runs `body` over 45 rows of three: a full warp and a partial one.
fn check<T: Copy + Default + PartialEq + std::fmt::LowerHex + std::fmt::Debug>(
    body: &str,
    number: impl Fn() -> BoxedStrategy<T>,
    expected: impl Fn(T, T, T) -> T,
) {
    let driver = MockSession::open();
    let mut runner = TestRunner::new(Config { cases: 4, failure_persistence: None, ..Config::default() });
    let rows = prop::collection::vec([number(), number(), number()], 45);
    runner
        .run(&rows, |rows| {
            let out: Vec<T> = driver.run(body, 45, &rows, 45);
            for (row, out) in rows.iter().zip(out) {
                prop_assert_eq!(out, expected(row[0], row[1], row[2]), "{} of {:x?}", body, row);
            }
            Ok(())
        })
        .unwrap();
}

fn check32(body: &str, expected: Three32) {
    check(&format!("{LOAD32}{body}\n{STORE32}"), || word().boxed(), expected);
}

#[test]
fn arithmetic_of_32_bits() {
    let cases: [(&str, Three32); 16] = [
        ("mov.u32 %r10, %r1;", |a, _, _| a),
        ("mov.u32 %r10, %ntid.x;", |_, _, _| 45),
        ("add.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_add(b)),
        ("sub.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_sub(b)),
        ("mul.lo.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_mul(b)),
        ("mad.lo.s32 %r10, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("min.u32 %r10, %r1, %r2;", |a, b, _| a.min(b)),
        ("and.b32 %r10, %r1, %r2;", |a, b, _| a & b),
        ("or.b32 %r10, %r1, %r2;", |a, b, _| a | b),
        ("xor.b32 %r10, %r1, -1;", |a, _, _| !a),
        ("shl.b32 %r10, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0)),
        ("shr.u32 %r10, %r1, %r2;", |a, b, _| a.checked_shr(b).unwrap_or(0)),
        ("shf.l.wrap.b32 %r10, %r1, %r2, %r3;", |a, b, c| {
            u32::try_from((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32).unwrap()
        }),
        ("bfe.u32 %r10, %r1, %r2, %r3;", |a, b, c| field(a, b, c, false)),
        ("bfe.s32 %r10, %r1, %r2, %r3;", |a, b, c| field(a, b, c, true)),
        ("bfe.s32 %r10, %r1, 28, 8;", |a, _, _| (a.cast_signed() >> 28).cast_unsigned()),
    ];
    for (body, expected) in cases {
        check32(body, expected);
    }
}

/// Bit by bit, as the PTX manual defines `bfe`.
fn field(x: u32, from: u32, length: u32, sign: bool) -> u32 {
    let (from, length) = (from & 0xff, length & 0xff);
    let last = (from + length).saturating_sub(1).min(31);
    let fill = if sign && length > 0 { x >> last & 1 } else { 0 };
    let bit = |i: u32| if i < length && from + i <= 31 { x >> (from + i) & 1 } else { fill };
    (0..32).fold(0, |out, i| out | bit(i) << i)
}

#[test]
fn arithmetic_of_64_bits() {
    const LOW: u64 = 0xffff_ffff;
    let cases: [(&str, Three64); 11] = [
        ("mov.u64 %rd20, %rd11;", |a, _, _| a),
        ("cvta.to.global.u64 %rd20, %rd11;", |a, _, _| a),
        ("cvta.global.u64 %rd20, %rd11;", |a, _, _| a),
        ("cvt.u64.u32 %rd20, %r1;", |a, _, _| a & LOW),
        ("add.s64 %rd20, %rd11, -8;", |a, _, _| a.wrapping_sub(8)),
        ("mul.wide.u32 %rd20, %r1, %r2;", |a, b, _| (a & LOW) * (b & LOW)),
        ("and.b64 %rd20, %rd11, %rd12;", |a, b, _| a & b),
        ("or.b64 %rd20, %rd11, %rd12;", |a, b, _| a | b),
        ("shl.b64 %rd20, %rd11, %r2;", |a, b, _| a.checked_shl(u32::try_from(b & LOW).unwrap()).unwrap_or(0)),
        ("shr.u64 %rd20, %rd11, %r2;", |a, b, _| a.checked_shr(u32::try_from(b & LOW).unwrap()).unwrap_or(0)),
        ("setp.ne.s64 %p1, %rd11, %rd12; selp.b32 %r10, 1, 0, %p1; cvt.u64.u32 %rd20, %r10;", |a, b, _| {
            u64::from(a != b)
        }),
    ];
    for (body, expected) in cases {
        check(&format!("{LOAD64}{body}\n{STORE64}"), || long().boxed(), expected);
    }
}

#[test]
fn comparisons_select() {
    let cases: [(&str, Test32); 7] = [
        ("eq.s32", |a, b| a == b),
        ("ne.s32", |a, b| a != b),
        ("ne.u32", |a, b| a != b),
        ("lt.u32", |a, b| a < b),
        ("le.u32", |a, b| a <= b),
        ("gt.u32", |a, b| a > b),
        ("ge.u32", |a, b| a >= b),
    ];
    for (compare, expected) in cases {
        let body = format!("{LOAD32} setp.{compare} %p1, %r1, %r2; {CHOOSE} {STORE32}");
        let rows: Vec<[u32; 3]> = [0, 1, 5, 0x7fff_ffff, 0x8000_0000, u32::MAX]
            .into_iter()
            .flat_map(|a| [0, 1, 0x8000_0000, u32::MAX].map(|b| [a, b, 3]))
            .collect();
        let count = u32::try_from(rows.len()).unwrap();
        let out: Vec<u32> = MockSession::open().run(&body, count, &rows, rows.len());
        for (row, out) in rows.iter().zip(out) {
            assert_eq!(out, if expected(row[0], row[1]) { 7 } else { 3 }, "{compare} of {row:x?}");
        }
    }
}

#[test]
fn sixteen_bits_are_cut() {
    for (compare, equal) in [("eq", true), ("ne", false)] {
        let body = format!(
            "{LOAD32}cvt.u16.u32 %rs1, %r1; and.b16 %rs2, %rs1, -256; setp.{compare}.s16 %p1, %rs2, -256; {CHOOSE}{STORE32}"
        );
        let rows = [[0xff00_u32, 0, 3], [0x1_ff12, 0, 3], [0xfe00, 0, 3], [0xffff_00ff, 0, 3]];
        let out: Vec<u32> = MockSession::open().run(&body, 4, &rows, 4);
        let chosen = [true, true, false, false].map(|is| if is == equal { 7 } else { 3 });
        assert_eq!(out, chosen, "{compare}");
    }
}

#[test]
fn predicates_join_and_guard() {
    let driver = MockSession::open();
    let body = "setp.gt.u32 %p1, %r1, 10; setp.gt.u32 %p2, %r2, 10; and.pred %p5, %p1, %p2; or.pred %p6, %p1, %p2;\n\
        mov.u32 %r10, 0; @%p5 or.b32 %r10, %r10, 1; @%p6 or.b32 %r10, %r10, 2;\n\
        { .reg .pred p; setp.ne.u32 p, %r1, 0; @p or.b32 %r10, %r10, 4; }";
    let rows: Vec<[u32; 3]> = (0..36).map(|i| [i / 6 * 4, i % 6 * 4, 0]).collect();
    let out: Vec<u32> = driver.run(&format!("{LOAD32}{body}{STORE32}"), 36, &rows, 36);
    for (row, out) in rows.iter().zip(out) {
        let bits = [row[0] > 10 && row[1] > 10, row[0] > 10 || row[1] > 10, row[0] != 0];
        let expected = bits.iter().enumerate().fold(0, |all, (i, bit)| all | u32::from(*bit) << i);
        assert_eq!(out, expected, "{row:?}");
    }
}

#[test]
fn loads_and_stores_of_every_size() {
    let driver = MockSession::open();
    let head = ".shared .align 16 .b8 s[64]; mov.u64 %rd6, s; ld.param.u64 %rd0, [k_a]; ld.param.u64 %rd1, [k_b];\n\
        mov.u32 %r0, %tid.x; mul.wide.u32 %rd9, %r0, 16; add.s64 %rd2, %rd9, %rd0; add.s64 %rd3, %rd9, %rd1; add.s64 %rd6, %rd6, %rd9;\n";
    let bytes: Vec<u8> = (0..64_u32).map(|i| u8::try_from(i * 37 % 251).unwrap()).collect();
    let quad = |load: &str, store: &str| {
        format!(
            "ld.{load}.v4.u32 {{%r1, %r2, %r3, %r4}}, [%rd2]; st.{store}.v4.u32 [%rd3], {{%r1, %r2, %r3, %r4}};"
        )
    };
    let pairs = |load: &str| {
        format!(
            "ld.{load}.v2.u32 {{%r1, %r2}}, [%rd2]; ld.{load}.v2.u32 {{%r3, %r4}}, [%rd2+8];\n\
             st.global.cs.v2.u32 [%rd3], {{%r1, %r2}}; st.global.cs.v2.u32 [%rd3+8], {{%r3, %r4}};"
        )
    };
    let same: [String; 9] = [
        quad("global.nc", "global.cs"),
        quad("global.cs", "global.cs"),
        quad("relaxed.gpu.global", "global.cs"),
        pairs("global"),
        pairs("global.nc"),
        pairs("relaxed.gpu.global"),
        "ld.global.nc.u32 %r1, [%rd2]; ld.global.cs.u32 %r2, [%rd2+4]; ld.relaxed.gpu.global.u32 %r3, [%rd2+8]; ld.global.u32 %r4, [%rd2+12];\n\
         st.global.u32 [%rd3], %r1; st.global.cs.u32 [%rd3+4], %r2; st.relaxed.gpu.global.u32 [%rd3+8], %r3; membar.gl; st.relaxed.sys.global.u32 [%rd3+12], %r4;"
            .to_owned(),
        // Through shared memory, whole and in halves.
        "ld.global.v2.u64 {%rd4, %rd5}, [%rd2]; st.shared.u64 [%rd6], %rd4; st.shared.u64 [%rd6+8], %rd5;\n\
         ld.shared.v2.u32 {%r1, %r2}, [%rd6]; ld.shared.v2.u32 {%r3, %r4}, [%rd6+8]; st.global.cs.v4.u32 [%rd3], {%r1, %r2, %r3, %r4};"
            .to_owned(),
        "ld.global.cs.v4.u32 {%r1, %r2, %r3, %r4}, [%rd2]; st.shared.v2.u32 [%rd6], {%r1, %r2}; ld.shared.u64 %rd4, [%rd6];\n\
         cvt.u32.u64 %r5, %rd4; shr.u64 %rd4, %rd4, 32; cvt.u32.u64 %r6, %rd4; ld.relaxed.sys.global.u64 %rd5, [%rd2+8];\n\
         cvt.u32.u64 %r7, %rd5; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r8, %rd5; st.global.cs.v4.u32 [%rd3], {%r5, %r6, %r7, %r8};"
            .to_owned(),
    ];
    for body in same {
        let out: Vec<u8> = driver.run(&format!("{head}{body}"), 4, &bytes, 64);
        assert_eq!(out, bytes, "{body}");
    }
}

#[test]
fn jumps_and_loops_by_lane() {
    // Collatz: every lane runs its own number of iterations.
    let body = "mov.u32 %r10, 0; and.b32 %r1, %r1, 1023; add.s32 %r1, %r1, 1;\n\
        $LOOP: setp.le.u32 %p1, %r1, 1; @%p1 bra $END; add.s32 %r10, %r10, 1; and.b32 %r4, %r1, 1; setp.eq.s32 %p2, %r4, 0; @%p2 bra $EVEN;\n\
        mad.lo.s32 %r1, %r1, 3, 1; bra.uni $LOOP; $EVEN: shr.u32 %r1, %r1, 1; bra.uni $LOOP; $END:";
    check32(body, |a, _, _| {
        let (mut n, mut turns) = ((a & 1023) + 1, 0);
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { n * 3 + 1 };
            turns += 1;
        }
        turns
    });
    // A lane waits for a word that another lane of its warp writes at a later instruction.
    let spin = "ld.param.u64 %rd1, [k_b]; mov.u32 %r0, %tid.x; setp.eq.s32 %p1, %r0, 1; @%p1 bra $W;\n\
        $S: ld.relaxed.gpu.global.u32 %r1, [%rd1]; setp.ne.s32 %p2, %r1, 42; @%p2 bra $S; bra.uni $E;\n\
        $W: st.relaxed.gpu.global.u32 [%rd1], 42; $E:";
    assert_eq!(MockSession::open().run::<u32, u32>(spin, 2, &[0], 1), [42]);
}

#[test]
fn blocks_know_their_places() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 k_a)\n{{\n.reg .b64 %rd<4>;\n.reg .b32 %r<9>;\nld.param.u64 %rd1, [k_a];\n\
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n\
         mad.lo.s32 %r6, %r2, %r3, %r1; mad.lo.s32 %r7, %r6, %r4, %r5; mul.wide.u32 %rd2, %r7, 4; add.s64 %rd3, %rd1, %rd2;\n\
         st.global.u32 [%rd3], %r7; ret;\n}}\n"
    );
    let driver = MockSession::open();
    let (kernel, words) = (driver.kernel(&text), driver.device(&[0_u32; 30]));
    let stream = driver.stream();
    driver.launch_on(stream, kernel, (3, 2), 5, &[LaunchArg::U64(words)]).unwrap();
    driver.synchronize(stream).unwrap();
    assert_eq!(driver.download::<u32>(words, 30).unwrap(), (0..30).collect::<Vec<u32>>());
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let driver = MockSession::open();
    for body in [
        "tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%rd1];",
        "call.uni foo;",
        "atom.global.add.u32 %r1, [%rd1], 1;",
        "add.u32 %r1, %r1, 1;",
        "ld.volatile.global.u32 %r1, [%rd1];",
        "bar.sync 1;",
        "@%p1 bar.sync 0;",
        "mov.u32 %r10, %laneid;",
        "add.s32 %r10, %undeclared, 1;",
        "add.s32 %r10, %rd1, 1;",
        "add.s32 %r10, 1;",
        "add.s32 7, %r10, 1;",
        "ld.global.u32 %r1, %rd1;",
        "ld.global.v2.u32 {%r1, %r2, %r3}, [%rd1];",
        "ld.param.u32 %r1, [k_a];",
        "ld.param.u64 %rd1, [k_other];",
        "bra $nowhere;",
        "add.s32 %r99, %r1, 1;",
    ] {
        let error = mockcuda::testing::compile(&entry(body)).unwrap_err();
        assert_eq!(error.0, 10, "{body}: {}", error.1);
        assert_eq!(driver.load(&entry(body)).unwrap_err(), 218, "{body}");
    }
    assert_eq!(driver.load("no ptx").unwrap_err(), 218);
    assert_eq!(driver.load(".version 6.3\n.target sm_120\n").unwrap_err(), 209);
    assert_eq!(driver.load(".version 9.0\n.target sm_75\n").unwrap_err(), 222);
}
