//! Arithmetic over the 32 lanes of a warp: everything that needs no memory and no other lane.
//!
//! A full warp goes through plain loops over rows, which the compiler turns into vector instructions; a few lanes are done
//! one by one; in between the whole row is computed and the lanes that run keep the result.

use crate::ptx::code::{Float, Ins, LANES, Op};

pub(super) type Row32 = [u32; LANES];
pub(super) type Row64 = [u64; LANES];

/// Up to so many lanes are quicker one by one.
const FEW: u32 = 6;

/// The registers of a warp.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(super) narrow: Vec<Row32>,
    pub(super) wide: Vec<Row64>,
    /// One bit a lane.
    pub(super) predicates: Vec<u32>,
}

impl Files {
    /// What the first lane of a mask has in a row.
    pub(super) fn of_first(&self, row: u16, mask: u32) -> u32 {
        self.narrow[usize::from(row)][mask.trailing_zeros() as usize & (LANES - 1)]
    }

    /// Gives the lanes of `run` one value.
    pub(super) fn narrow_to_all(&mut self, row: usize, run: u32, value: u32) {
        for lane in lanes_of(run) {
            self.narrow[row][lane] = value;
        }
    }

    /// Gives the lanes of `run` one value.
    pub(super) fn wide_to_all(&mut self, row: usize, run: u32, value: u64) {
        for lane in lanes_of(run) {
            self.wide[row][lane] = value;
        }
    }
}

/// The lanes of a mask, lowest first.
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

/// d = e for the lanes of the mask: `$out` is the file of d, each source is a name bound to its lane's value.
macro_rules! each {
    ($m:expr, $out:expr, $d:expr; $($x:ident = $row:expr),+; $e:expr) => {{
        let mask: u32 = $m;
        let mut out = $out[usize::from($d)];
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
        $out[usize::from($d)] = out;
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
        let d = &mut $files.predicates[usize::from($d)];
        *d = *d & !$m | bits & $m;
    }};
}

fn signed(x: u32) -> i32 {
    x.cast_signed()
}

fn signed64(x: u64) -> i64 {
    x.cast_signed()
}

fn clamp_shift(by: u32, bits: u32) -> u32 {
    by.min(bits)
}

/// Runs an arithmetic instruction in the lanes of a mask. `false`: it is none.
pub(super) type Arithmetic = fn(&mut Files, &Ins, u32) -> bool;

/// [`Arithmetic`] compiled for this processor: shifts by different amounts, for one, are a vector instruction only since AVX2.
pub(super) fn arithmetic() -> Arithmetic {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
        {
            return |files, ins, m| {
                // SAFETY: the processor has these features, which was asked before this function was handed out.
                unsafe { arithmetic_avx512(files, ins, m) }
            };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            return |files, ins, m| {
                // SAFETY: as above.
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
#[expect(clippy::too_many_lines, reason = "one arm an operation: splitting the table would hide it")]
fn arithmetic_any(files: &mut Files, ins: &Ins, m: u32) -> bool {
    let (a, b, c) = (usize::from(ins.a), usize::from(ins.b), usize::from(ins.c));
    let d = ins.d;
    let imm = ins.imm;
    macro_rules! un32 { (|$x:ident| $e:expr) => { each!(m, files.narrow, d; $x = files.narrow[a]; $e) }; }
    macro_rules! un64 { (|$x:ident| $e:expr) => { each!(m, files.wide, d; $x = files.wide[a]; $e) }; }
    macro_rules! bin32 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.narrow, d; $x = files.narrow[a], $y = files.narrow[b]; $e) }; }
    macro_rules! bin64 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.wide, d; $x = files.wide[a], $y = files.wide[b]; $e) }; }
    macro_rules! tri32 {
        (|$x:ident, $y:ident, $z:ident| $e:expr) => {
            each!(m, files.narrow, d; $x = files.narrow[a], $y = files.narrow[b], $z = files.narrow[c]; $e)
        };
    }
    macro_rules! test32 { (|$x:ident, $y:ident| $e:expr) => { test!(m, files, d; files.narrow[a], files.narrow[b]; |$x, $y| $e) }; }
    macro_rules! test64 { (|$x:ident, $y:ident| $e:expr) => { test!(m, files, d; files.wide[a], files.wide[b]; |$x, $y| $e) }; }
    macro_rules! shift64 { (|$x:ident, $y:ident| $e:expr) => { each!(m, files.wide, d; $x = files.wide[a], $y = files.narrow[b]; $e) }; }
    macro_rules! logic { ($e:expr) => {{ let e: u32 = $e; let d = &mut files.predicates[usize::from(d)]; *d = *d & !m | e & m; }}; }
    match ins.op {
        Op::Mov32 => un32!(|x| x),
        Op::Mov64 => un64!(|x| x),
        Op::MovP => logic!(files.predicates[a]),
        Op::Add32 => bin32!(|x, y| x.wrapping_add(y)),
        Op::Sub32 => bin32!(|x, y| x.wrapping_sub(y)),
        Op::Mul32 => bin32!(|x, y| x.wrapping_mul(y)),
        Op::MulHiU32 => bin32!(|x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32),
        Op::MulHiS32 => bin32!(|x, y| ((i64::from(signed(x)) * i64::from(signed(y))) >> 32) as u32),
        Op::Mad32 => tri32!(|x, y, z| x.wrapping_mul(y).wrapping_add(z)),
        Op::MulWideU32 => {
            each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b]; u64::from(x) * u64::from(y))
        }
        Op::MulWideS32 => {
            each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b]; (i64::from(signed(x)) * i64::from(signed(y))).cast_unsigned());
        }
        Op::MadWideU32 => {
            each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b], z = files.wide[c];
                (u64::from(x) * u64::from(y)).wrapping_add(z));
        }
        Op::MadWideS32 => {
            each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b], z = files.wide[c];
                (i64::from(signed(x)) * i64::from(signed(y))).cast_unsigned().wrapping_add(z));
        }
        Op::Add64 => bin64!(|x, y| x.wrapping_add(y)),
        Op::Sub64 => bin64!(|x, y| x.wrapping_sub(y)),
        Op::Mul64 => bin64!(|x, y| x.wrapping_mul(y)),
        Op::MulHiU64 => bin64!(|x, y| ((u128::from(x) * u128::from(y)) >> 64) as u64),
        Op::MulHiS64 => bin64!(|x, y| ((i128::from(signed64(x)) * i128::from(signed64(y))) >> 64) as u64),
        Op::Mad64 => {
            each!(m, files.wide, d; x = files.wide[a], y = files.wide[b], z = files.wide[c]; x.wrapping_mul(y).wrapping_add(z));
        }
        // Division by zero has no defined result on the device; all ones is what it gives in practice.
        Op::DivU32 => bin32!(|x, y| x.checked_div(y).unwrap_or(u32::MAX)),
        Op::DivS32 => {
            bin32!(|x, y| if y == 0 { u32::MAX } else { signed(x).wrapping_div(signed(y)).cast_unsigned() })
        }
        Op::RemU32 => bin32!(|x, y| x.checked_rem(y).unwrap_or(x)),
        Op::RemS32 => {
            bin32!(|x, y| if y == 0 { x } else { signed(x).wrapping_rem(signed(y)).cast_unsigned() })
        }
        Op::DivU64 => bin64!(|x, y| x.checked_div(y).unwrap_or(u64::MAX)),
        Op::DivS64 => bin64!(|x, y| if y == 0 {
            u64::MAX
        } else {
            signed64(x).wrapping_div(signed64(y)).cast_unsigned()
        }),
        Op::RemU64 => bin64!(|x, y| x.checked_rem(y).unwrap_or(x)),
        Op::RemS64 => {
            bin64!(|x, y| if y == 0 { x } else { signed64(x).wrapping_rem(signed64(y)).cast_unsigned() })
        }
        Op::And32 => bin32!(|x, y| x & y),
        Op::Or32 => bin32!(|x, y| x | y),
        Op::Xor32 => bin32!(|x, y| x ^ y),
        Op::Not32 => un32!(|x| !x),
        Op::And64 => bin64!(|x, y| x & y),
        Op::Or64 => bin64!(|x, y| x | y),
        Op::Xor64 => bin64!(|x, y| x ^ y),
        Op::Not64 => un64!(|x| !x),
        Op::AndP => logic!(files.predicates[a] & files.predicates[b]),
        Op::OrP => logic!(files.predicates[a] | files.predicates[b]),
        Op::XorP => logic!(files.predicates[a] ^ files.predicates[b]),
        Op::NotP => logic!(!files.predicates[a]),
        Op::Shl32 => bin32!(|x, y| if y > 31 { 0 } else { x << (y & 31) }),
        Op::ShrU32 => bin32!(|x, y| if y > 31 { 0 } else { x >> (y & 31) }),
        Op::ShrS32 => bin32!(|x, y| (signed(x) >> y.min(31)).cast_unsigned()),
        Op::Shl64 => shift64!(|x, y| if y > 63 { 0 } else { x << (y & 63) }),
        Op::ShrU64 => shift64!(|x, y| if y > 63 { 0 } else { x >> (y & 63) }),
        Op::ShrS64 => shift64!(|x, y| (signed64(x) >> y.min(63)).cast_unsigned()),
        Op::Neg32 => un32!(|x| x.wrapping_neg()),
        Op::Neg64 => un64!(|x| x.wrapping_neg()),
        Op::Abs32 => un32!(|x| signed(x).wrapping_abs().cast_unsigned()),
        Op::Abs64 => un64!(|x| signed64(x).wrapping_abs().cast_unsigned()),
        Op::MinU32 => bin32!(|x, y| x.min(y)),
        Op::MinS32 => bin32!(|x, y| signed(x).min(signed(y)).cast_unsigned()),
        Op::MaxU32 => bin32!(|x, y| x.max(y)),
        Op::MaxS32 => bin32!(|x, y| signed(x).max(signed(y)).cast_unsigned()),
        Op::MinU64 => bin64!(|x, y| x.min(y)),
        Op::MinS64 => bin64!(|x, y| signed64(x).min(signed64(y)).cast_unsigned()),
        Op::MaxU64 => bin64!(|x, y| x.max(y)),
        Op::MaxS64 => bin64!(|x, y| signed64(x).max(signed64(y)).cast_unsigned()),
        Op::Popc32 => un32!(|x| x.count_ones()),
        Op::Popc64 => each!(m, files.narrow, d; x = files.wide[a]; x.count_ones()),
        Op::Clz32 => un32!(|x| x.leading_zeros()),
        Op::Clz64 => each!(m, files.narrow, d; x = files.wide[a]; x.leading_zeros()),
        Op::Brev32 => un32!(|x| x.reverse_bits()),
        Op::Brev64 => un64!(|x| x.reverse_bits()),
        Op::BfindU32 => un32!(|x| 31_u32.wrapping_sub(x.leading_zeros())),
        Op::BfindS32 => {
            un32!(|x| 31_u32.wrapping_sub((x ^ (signed(x) >> 31).cast_unsigned()).leading_zeros()))
        }
        Op::BfindU64 => each!(m, files.narrow, d; x = files.wide[a]; 63_u32.wrapping_sub(x.leading_zeros())),
        Op::BfindS64 => {
            each!(m, files.narrow, d; x = files.wide[a];
                63_u32.wrapping_sub((x ^ (signed64(x) >> 63).cast_unsigned()).leading_zeros()));
        }
        Op::BfeU32 => tri32!(|x, from, length| bfe(x.into(), from, length, 32, false) as u32),
        Op::BfeS32 => tri32!(|x, from, length| bfe(x.into(), from, length, 32, true) as u32),
        Op::BfeU64 => {
            each!(m, files.wide, d; x = files.wide[a], from = files.narrow[b], length = files.narrow[c]; bfe(x, from, length, 64, false));
        }
        Op::BfeS64 => {
            each!(m, files.wide, d; x = files.wide[a], from = files.narrow[b], length = files.narrow[c]; bfe(x, from, length, 64, true));
        }
        Op::Bfi32 => return bfi_rows(files, ins, m, false),
        Op::Bfi64 => return bfi_rows(files, ins, m, true),
        Op::Prmt => tri32!(|x, y, selector| prmt(x, y, selector)),
        Op::Lop3 => tri32!(|x, y, z| lop3(x, y, z, imm as u32)),
        Op::ShfLeftWrap => tri32!(|low, high, by| (pair(low, high) << (by & 31) >> 32) as u32),
        Op::ShfLeftClamp => tri32!(|low, high, by| (pair(low, high) << clamp_shift(by, 32) >> 32) as u32),
        Op::ShfRightWrap => tri32!(|low, high, by| (pair(low, high) >> (by & 31)) as u32),
        Op::ShfRightClamp => tri32!(|low, high, by| (pair(low, high) >> clamp_shift(by, 32)) as u32),
        Op::EqS32 => test32!(|x, y| x == y),
        Op::NeS32 => test32!(|x, y| x != y),
        Op::LtS32 => test32!(|x, y| signed(x) < signed(y)),
        Op::LeS32 => test32!(|x, y| signed(x) <= signed(y)),
        Op::GtS32 => test32!(|x, y| signed(x) > signed(y)),
        Op::GeS32 => test32!(|x, y| signed(x) >= signed(y)),
        Op::LtU32 => test32!(|x, y| x < y),
        Op::LeU32 => test32!(|x, y| x <= y),
        Op::GtU32 => test32!(|x, y| x > y),
        Op::GeU32 => test32!(|x, y| x >= y),
        Op::Eq64 => test64!(|x, y| x == y),
        Op::Ne64 => test64!(|x, y| x != y),
        Op::LtS64 => test64!(|x, y| signed64(x) < signed64(y)),
        Op::LeS64 => test64!(|x, y| signed64(x) <= signed64(y)),
        Op::GtS64 => test64!(|x, y| signed64(x) > signed64(y)),
        Op::GeS64 => test64!(|x, y| signed64(x) >= signed64(y)),
        Op::LtU64 => test64!(|x, y| x < y),
        Op::LeU64 => test64!(|x, y| x <= y),
        Op::GtU64 => test64!(|x, y| x > y),
        Op::GeU64 => test64!(|x, y| x >= y),
        Op::Selp32 => {
            let chosen = files.predicates[c];
            let masks: Row32 = std::array::from_fn(|lane| (chosen >> lane & 1).wrapping_neg());
            each!(m, files.narrow, d; x = files.narrow[a], y = files.narrow[b], k = masks; x & k | y & !k);
        }
        Op::Selp64 => {
            let chosen = files.predicates[c];
            let masks: Row64 = std::array::from_fn(|lane| u64::from(chosen >> lane & 1).wrapping_neg());
            each!(m, files.wide, d; x = files.wide[a], y = files.wide[b], k = masks; x & k | y & !k);
        }
        Op::ExtU64 => each!(m, files.wide, d; x = files.narrow[a]; u64::from(x)),
        Op::ExtS64 => each!(m, files.wide, d; x = files.narrow[a]; i64::from(signed(x)).cast_unsigned()),
        Op::Low32 => each!(m, files.narrow, d; x = files.wide[a]; x as u32),
        Op::High32 => each!(m, files.narrow, d; x = files.wide[a]; (x >> 32) as u32),
        Op::Pack64 => each!(m, files.wide, d; x = files.narrow[a], y = files.narrow[b]; pair(x, y)),
        Op::TruncU => un32!(|x| x & ((1 << imm) - 1)),
        Op::TruncS => un32!(|x| (signed(x << (32 - imm)) >> (32 - imm)).cast_unsigned()),
        Op::Trunc64U => un64!(|x| x & ((1 << imm) - 1)),
        Op::Trunc64S => un64!(|x| (signed64(x << (64 - imm)) >> (64 - imm)).cast_unsigned()),
        Op::CvtSat => un64!(|x| saturate(x, imm)),
        Op::Float => return float(files, ins, m),
        _ => return false,
    }
    true
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bit field extract, as the PTX manual has it: what lies above the value is its sign or zeros.
fn bfe(x: u64, from: u32, length: u32, bits: u32, sign: bool) -> u64 {
    let (from, length) = (from & 0xff, length & 0xff);
    let top = bits - 1;
    let last = (from + length).saturating_sub(1).min(top);
    let fill = sign && length > 0 && x >> last & 1 != 0;
    (0..bits).fold(0, |out, i| {
        let bit = if i < length && from + i <= top { x >> (from + i) & 1 != 0 } else { fill };
        out | u64::from(bit) << i
    })
}

fn bfi_rows(files: &mut Files, ins: &Ins, m: u32, wide: bool) -> bool {
    let (a, b, c, length) = (usize::from(ins.a), usize::from(ins.b), usize::from(ins.c), ins.imm as usize);
    let d = usize::from(ins.d);
    for lane in lanes_of(m) {
        let (at, length) = (files.narrow[c][lane], files.narrow[length][lane]);
        if wide {
            files.wide[d][lane] = bfi(files.wide[a][lane], files.wide[b][lane], at, length, 64);
        } else {
            files.narrow[d][lane] =
                bfi(files.narrow[a][lane].into(), files.narrow[b][lane].into(), at, length, 32) as u32;
        }
    }
    true
}

/// Bit field insert: the low `length` bits of `x` into `y` from bit `at`.
fn bfi(x: u64, y: u64, at: u32, length: u32, bits: u32) -> u64 {
    let (at, length) = (at & 0xff, length & 0xff);
    (0..bits)
        .filter(|i| *i >= at && *i - at < length)
        .fold(y, |out, i| out & !(1 << i) | (x >> (i - at) & 1) << i)
}

/// Byte permutation, default mode: selector nibbles of 3 bits, the fourth replicates the sign.
fn prmt(x: u32, y: u32, selector: u32) -> u32 {
    let bytes = pair(x, y).to_le_bytes();
    let byte = |i: u32| {
        let nibble = selector >> (4 * i) & 15;
        let value = bytes[nibble as usize & 7];
        if nibble & 8 == 0 { value } else { (value.cast_signed() >> 7).cast_unsigned() }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

fn lop3(x: u32, y: u32, z: u32, table: u32) -> u32 {
    let term = |i: u32| {
        let pick = |v: u32, bit: u32| if i >> bit & 1 != 0 { v } else { !v };
        if table >> i & 1 != 0 { pick(x, 2) & pick(y, 1) & pick(z, 0) } else { 0 }
    };
    (0..8).fold(0, |out, i| out | term(i))
}

/// `x`, extended to 64 bits by its own sign, pressed into the target of `packed` (bits, signed, source signed).
fn saturate(x: u64, packed: i64) -> u64 {
    let (bits, signed, source_signed) = (packed & 0xff, packed >> 8 & 1 != 0, packed >> 9 & 1 != 0);
    let value = if source_signed { i128::from(x.cast_signed()) } else { i128::from(x) };
    let (low, high) = if signed {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    value.clamp(low, high) as u64
}

fn float(files: &mut Files, ins: &Ins, m: u32) -> bool {
    for lane in lanes_of(m) {
        float_lane(files, ins, lane);
    }
    true
}

fn float_lane(files: &mut Files, ins: &Ins, lane: usize) {
    let (a, b, c, d) = (usize::from(ins.a), usize::from(ins.b), usize::from(ins.c), usize::from(ins.d));
    let single = |row: usize| f32::from_bits(files.narrow[row][lane]);
    let double = |row: usize| f64::from_bits(files.wide[row][lane]);
    let test = |f: fn(&f32, &f32) -> bool| f(&single(a), &single(b));
    let outcome = match ins.imm {
        i if i == Float::Lt32 as i64 => Some(test(f32::lt)),
        i if i == Float::Le32 as i64 => Some(test(f32::le)),
        i if i == Float::Gt32 as i64 => Some(test(f32::gt)),
        i if i == Float::Ge32 as i64 => Some(test(f32::ge)),
        i if i == Float::Eq32 as i64 => Some(test(f32::eq)),
        i if i == Float::Ne32 as i64 => Some(test(f32::ne)),
        _ => None,
    };
    if let Some(outcome) = outcome {
        let p = &mut files.predicates[d];
        *p = *p & !(1 << lane) | u32::from(outcome) << lane;
        return;
    }
    let narrow = match ins.imm {
        i if i == Float::Add32 as i64 => Some((single(a) + single(b)).to_bits()),
        i if i == Float::Sub32 as i64 => Some((single(a) - single(b)).to_bits()),
        i if i == Float::Mul32 as i64 => Some((single(a) * single(b)).to_bits()),
        i if i == Float::Div32 as i64 => Some((single(a) / single(b)).to_bits()),
        i if i == Float::Fma32 as i64 => Some(single(a).mul_add(single(b), single(c)).to_bits()),
        i if i == Float::U32To32 as i64 => Some((files.narrow[a][lane] as f32).to_bits()),
        i if i == Float::To32FromU32Zero as i64 => Some(to_zero(files.narrow[a][lane]).to_bits()),
        i if i == Float::S32To32 as i64 => Some((signed(files.narrow[a][lane]) as f32).to_bits()),
        i if i == Float::U64To32 as i64 => Some((files.wide[a][lane] as f32).to_bits()),
        i if i == Float::To32Narrow as i64 => Some((double(a) as f32).to_bits()),
        i if i == Float::F32ToU32 as i64 => Some(single(a) as u32),
        i if i == Float::F32ToS32 as i64 => Some((single(a) as i32).cast_unsigned()),
        i if i == Float::F64ToU32 as i64 => Some(double(a) as u32),
        _ => None,
    };
    if let Some(value) = narrow {
        files.narrow[d][lane] = value;
        return;
    }
    files.wide[d][lane] = match ins.imm {
        i if i == Float::Add64 as i64 => (double(a) + double(b)).to_bits(),
        i if i == Float::Sub64 as i64 => (double(a) - double(b)).to_bits(),
        i if i == Float::Mul64 as i64 => (double(a) * double(b)).to_bits(),
        i if i == Float::Div64 as i64 => (double(a) / double(b)).to_bits(),
        i if i == Float::Fma64 as i64 => double(a).mul_add(double(b), double(c)).to_bits(),
        i if i == Float::U32To64 as i64 => f64::from(files.narrow[a][lane]).to_bits(),
        i if i == Float::S32To64 as i64 => f64::from(signed(files.narrow[a][lane])).to_bits(),
        i if i == Float::U64To64 as i64 => (files.wide[a][lane] as f64).to_bits(),
        i if i == Float::To64Widen as i64 => f64::from(single(a)).to_bits(),
        i if i == Float::F32ToU64 as i64 => single(a) as u64,
        _ => double(a) as u64,
    };
}

/// The nearest single that is not above `x`.
fn to_zero(x: u32) -> f32 {
    let near = x as f32;
    if f64::from(near) > f64::from(x) { f32::from_bits(near.to_bits() - 1) } else { near }
}

#[cfg(test)]
mod tests {
    use super::{Arithmetic, Files, arithmetic, arithmetic_any};
    use crate::ptx::code::{Ins, LANES, Op, UNGUARDED};

    /// Rows 0 and 1 are the operands, row 2 the result, which holds 7 before.
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
            Op::ShrU32,
            Op::MulHiS32,
            Op::Selp32,
            Op::Prmt,
            Op::Add64,
            Op::LtS32,
            Op::Eq64,
        ];
        let builds: [Arithmetic; 2] = [arithmetic_any, arithmetic()];
        for op in ops {
            let ins = Ins { op, guard: UNGUARDED, d: 2, a: 0, b: 1, c: 0, imm: 0 };
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
