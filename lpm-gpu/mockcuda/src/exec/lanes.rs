//! Arithmetic over the 32 lanes of a warp. Full warps use plain loops over rows, which the compiler vectorizes; few lanes
//! are computed one by one; otherwise the whole row is computed, and only the running lanes store the result.

use crate::ptx::code::{Ins, LANES, Op, PtxKernel};

pub(super) type Row32 = [u32; LANES];
pub(super) type Row64 = [u64; LANES];

/// Up to this number, lanes are faster one by one.
const FEW: u32 = 6;

#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(super) narrow: Vec<Row32>,
    pub(super) wide: Vec<Row64>,
    pub(super) predicates: Vec<u32>,
}

impl Files {
    pub(super) fn new(kernel: &PtxKernel) -> Self {
        let [narrow, wide, predicates] = kernel.rows.map(usize::from);
        let mut files = Self {
            narrow: vec![[0; LANES]; narrow],
            wide: vec![[0; LANES]; wide],
            predicates: vec![0; predicates],
        };
        for &(row, value) in &kernel.narrow_constants {
            files.narrow[usize::from(row)] = [value; LANES];
        }
        for &(row, value) in &kernel.wide_constants {
            files.wide[usize::from(row)] = [value; LANES];
        }
        files
    }
}

pub(super) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

/// d = e for the lanes of the mask: `$out` is the file of d; each source is a name bound to its lane's value.
macro_rules! each {
    ($m:expr, $out:expr, $d:expr; $($x:ident = $row:expr),+; $e:expr) => {{
        let mask: u32 = $m;
        let mut out = $out[$d];
        $(let $x = &$row;)+
        if mask.count_ones() <= FEW {
            let mut rest = mask;
            while rest != 0 {
                let lane = rest.trailing_zeros() as usize & (LANES - 1);
                rest &= rest - 1;
                $(let $x = $x[lane];)+
                out[lane] = $e;
            }
        } else if mask == u32::MAX {
            for lane in 0..LANES {
                $(let $x = $x[lane];)+
                out[lane] = $e;
            }
        } else {
            for lane in 0..LANES {
                $(let $x = $x[lane];)+
                let value = $e;
                out[lane] = if mask >> lane & 1 != 0 { value } else { out[lane] };
            }
        }
        $out[$d] = out;
    }};
}

macro_rules! test {
    ($m:expr, $files:expr, $d:expr; $a:expr, $b:expr; |$x:ident, $y:ident| $e:expr) => {{
        let (a, b) = (&$a, &$b);
        let mut bits = 0_u32;
        for lane in 0..LANES {
            let ($x, $y) = (a[lane], b[lane]);
            bits |= u32::from($e) << lane;
        }
        let d = &mut $files.predicates[$d];
        *d = *d & !$m | bits & $m;
    }};
}

/// Runs an arithmetic instruction in the lanes of a mask; false for other instructions.
pub(super) type Arithmetic = fn(&mut Files, &Ins, u32) -> bool;

/// [`Arithmetic`] compiled for this CPU: variable shifts, for example, are vector instructions only since AVX2.
pub(super) fn arithmetic() -> Arithmetic {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
        {
            return |files, ins, m| {
                // SAFETY: the CPU has these features, as checked before this function was returned.
                unsafe { arithmetic_avx512(files, ins, m) }
            };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return |files, ins, m| {
                // SAFETY: the CPU has these features, as checked before this function was returned.
                unsafe { arithmetic_avx2(files, ins, m) }
            };
        }
    }
    arithmetic_any
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn arithmetic_avx2(files: &mut Files, ins: &Ins, m: u32) -> bool {
    arithmetic_any(files, ins, m)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,bmi2")]
fn arithmetic_avx512(files: &mut Files, ins: &Ins, m: u32) -> bool {
    arithmetic_any(files, ins, m)
}

#[inline(always)]
fn arithmetic_any(files: &mut Files, ins: &Ins, m: u32) -> bool {
    let [a, b, c, d] = [ins.a, ins.b, ins.c, ins.d].map(usize::from);
    macro_rules! un32 { (|$x:ident| $e:expr) => { each!(m, files.narrow, d; $x = files.narrow[a]; $e) }; }
    macro_rules! bin32 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.narrow, d; $x = files.narrow[a], $y = files.narrow[b]; $e) }; }
    macro_rules! bin64 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.wide, d; $x = files.wide[a], $y = files.wide[b]; $e) }; }
    macro_rules! tri32 {
        (|$x:ident, $y:ident, $z:ident| $e:expr) => {
            each!(m, files.narrow, d; $x = files.narrow[a], $y = files.narrow[b], $z = files.narrow[c]; $e)
        };
    }
    macro_rules! test32 { (|$x:ident, $y:ident| $e:expr) => { test!(m, files, d; files.narrow[a], files.narrow[b]; |$x, $y| $e) }; }
    macro_rules! shift64 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.wide, d; $x = files.wide[a], $y = files.narrow[b]; $e) }; }
    macro_rules! logic {
        ($e:expr) => {{
            let e: u32 = $e;
            let d = &mut files.predicates[d];
            *d = *d & !m | e & m;
        }};
    }
    match ins.op {
        Op::Mov32 => un32!(|x| x),
        Op::Mov64 => each!(m, files.wide, d; x = files.wide[a]; x),
        Op::Add32 => bin32!(|x, y| x.wrapping_add(y)),
        Op::Add64 => bin64!(|x, y| x.wrapping_add(y)),
        Op::Sub32 => bin32!(|x, y| x.wrapping_sub(y)),
        Op::Mul32 => bin32!(|x, y| x.wrapping_mul(y)),
        Op::Mad32 => tri32!(|x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        Op::MulWide => {
            each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b]; u64::from(x) * u64::from(y))
        }
        Op::MinU32 => bin32!(|x, y| x.min(y)),
        Op::And32 => bin32!(|x, y| x & y),
        Op::And64 => bin64!(|x, y| x & y),
        Op::AndP => logic!(files.predicates[a] & files.predicates[b]),
        Op::Or32 => bin32!(|x, y| x | y),
        Op::Or64 => bin64!(|x, y| x | y),
        Op::OrP => logic!(files.predicates[a] | files.predicates[b]),
        Op::Xor32 => bin32!(|x, y| x ^ y),
        Op::Shl32 => bin32!(|x, y| if y > 31 { 0 } else { x << (y & 31) }),
        Op::Shl64 => shift64!(|x, y| if y > 63 { 0 } else { x << (y & 63) }),
        Op::ShrU32 => bin32!(|x, y| if y > 31 { 0 } else { x >> (y & 31) }),
        Op::ShrU64 => shift64!(|x, y| if y > 63 { 0 } else { x >> (y & 63) }),
        Op::ShfLeftWrap => {
            tri32!(|low, high, by| ((u64::from(high) << 32 | u64::from(low)) << (by & 31) >> 32) as u32)
        }
        Op::BfeU32 => tri32!(|x, from, length| bfe(x, from, length, false)),
        Op::BfeS32 => tri32!(|x, from, length| bfe(x, from, length, true)),
        Op::Eq32 => test32!(|x, y| x == y),
        Op::Ne32 => test32!(|x, y| x != y),
        Op::Ne64 => test!(m, files, d; files.wide[a], files.wide[b]; |x, y| x != y),
        Op::LtU32 => test32!(|x, y| x < y),
        Op::LeU32 => test32!(|x, y| x <= y),
        Op::GtU32 => test32!(|x, y| x > y),
        Op::GeU32 => test32!(|x, y| x >= y),
        Op::Selp32 => {
            let chosen = files.predicates[c];
            let masks: Row32 = std::array::from_fn(|lane| (chosen >> lane & 1).wrapping_neg());
            each!(m, files.narrow, d; x = files.narrow[a], y = files.narrow[b], k = masks; x & k | y & !k);
        }
        Op::Extend64 => each!(m, files.wide, d; x = files.narrow[a]; u64::from(x)),
        Op::Low32 => each!(m, files.narrow, d; x = files.wide[a]; x as u32),
        Op::Low16 => un32!(|x| x & 0xffff),
        _ => return false,
    }
    true
}

/// Bit field extract, as in the PTX manual: sign or zeros fill the bits above the value.
#[inline(always)]
fn bfe(x: u32, from: u32, length: u32, sign: bool) -> u32 {
    let (from, length) = (from & 0xff, length & 0xff);
    // Moves the value's top bit to bit 31, then its lowest to bit 0.
    let above = 31 - (from + length).saturating_sub(1).min(31);
    let (up, down) = (x << above, (above + from).min(31));
    match (length, sign) {
        (0, _) => 0,
        (_, true) => (up.cast_signed() >> down).cast_unsigned(),
        (_, false) if from > 31 => 0,
        (_, false) => up >> down,
    }
}

#[cfg(test)]
mod tests {
    use super::{Arithmetic, Files, arithmetic, arithmetic_any};
    use crate::ptx::code::{Ins, LANES, Op, UNGUARDED};

    /// Rows 0 and 1 are operands; row 2, the result, starts as 7.
    fn files() -> Files {
        let lanes = |f: fn(u32) -> u32| std::array::from_fn(|lane| f(u32::try_from(lane).unwrap()));
        let narrow = vec![lanes(|l| l.wrapping_mul(0x0123_4567)), lanes(|l| l + 3), [7; LANES]];
        let wide = narrow.iter().map(|row| row.map(|x: u32| u64::from(x) << 20 | 1)).collect();
        Files { narrow, wide, predicates: vec![0x0f0f_3355, 0, 0x5555_5555] }
    }

    #[test]
    fn only_the_lanes_that_run_change_in_every_build() {
        let ops = [
            Op::Add32,
            Op::Shl32,
            Op::ShrU64,
            Op::MulWide,
            Op::Selp32,
            Op::BfeS32,
            Op::Add64,
            Op::LtU32,
            Op::Ne64,
        ];
        let builds: [Arithmetic; 2] = [arithmetic_any, arithmetic()];
        for op in ops {
            let ins = Ins { op, guard: UNGUARDED, d: 2, a: 0, b: 1, c: 0, e: 0, imm: 0 };
            let mut whole = files();
            assert!(arithmetic_any(&mut whole, &ins, u32::MAX));
            for (mask, build) in
                [0, 1, 0x8000_0101, 0x00ff_ff00, u32::MAX].into_iter().flat_map(|m| builds.map(|b| (m, b)))
            {
                let mut some = files();
                assert!(build(&mut some, &ins, mask));
                for lane in 0..LANES {
                    let expected = if mask >> lane & 1 != 0 { &whole } else { &files() };
                    assert_eq!(some.narrow[2][lane], expected.narrow[2][lane], "{op:?} {mask:x} {lane}");
                    assert_eq!(some.wide[2][lane], expected.wide[2][lane], "{op:?} {mask:x} {lane}");
                    assert_eq!(
                        some.predicates[2] >> lane & 1,
                        expected.predicates[2] >> lane & 1,
                        "{op:?} {mask:x} {lane}"
                    );
                }
            }
        }
    }
}
