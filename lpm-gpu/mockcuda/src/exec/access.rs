//! Loads, stores and atomics of a warp, each checked, and what else is not arithmetic.

use super::lanes::lanes_of;
use super::warp::{Surroundings, Warp};
use crate::control::control;
use crate::memory::{self, Bad, Memory};
use crate::ptx::code::{Atomic, Ins, Kernel, Op, Shape, Space};
use crate::ptx::compile::SHARED_WINDOW;
use std::sync::atomic::{Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

/// Code, lane and description of an access that failed.
type Failed = (u32, usize, String);

impl Warp {
    /// Memory, parameters, clocks.
    pub(super) fn other(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        if at.delays && matches!(ins.op, Op::LoadG32 | Op::LoadG64 | Op::LoadG4x32) {
            at.owner.before_load();
        }
        let d = usize::from(ins.d);
        match ins.op {
            Op::LoadG32 => self.load_words(ins, at, run)?,
            Op::LoadG64 => self.load_longs(ins, at, run)?,
            Op::LoadS32 => self.load_shared_words(ins, at, run)?,
            Op::StoreS32 => self.store_shared_words(ins, at, run)?,
            Op::StoreG32 => self.store_words(ins, at, run)?,
            Op::Load | Op::LoadG4x32 => self.load(ins, at, run)?,
            Op::Store | Op::StoreG64 | Op::StoreG4x32 => self.store(ins, at, run)?,
            Op::Atom => self.atom(ins, at, run)?,
            Op::Param32 => self.files.narrow_to_all(d, run, param(at.params, ins) as u32),
            Op::Param64 => self.files.wide_to_all(d, run, param(at.params, ins)),
            Op::ActiveMask => self.files.narrow_to_all(d, run, run),
            Op::Fence => fence(Ordering::SeqCst),
            Op::Clock32 => self.files.narrow_to_all(d, run, nanoseconds() as u32),
            Op::Clock64 => self.files.wide_to_all(d, run, nanoseconds()),
            Op::Trap if run != 0 => return Err((719, run.trailing_zeros() as usize, "trap".to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn load_words(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        at.counters.loads += u64::from(run.count_ones());
        let bases = &self.files.wide[usize::from(ins.a)];
        let out = &mut self.files.narrow[usize::from(ins.d)];
        for lane in lanes_of(run) {
            let address = bases[lane].wrapping_add_signed(ins.imm);
            out[lane] =
                global_load(at, address, 4).map_err(|bad| bad_access(bad, lane, address, at.memory))? as u32;
        }
        Ok(())
    }

    fn load_longs(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        at.counters.loads += 2 * u64::from(run.count_ones());
        for lane in lanes_of(run) {
            let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            let value =
                global_load(at, address, 8).map_err(|bad| bad_access(bad, lane, address, at.memory))?;
            self.files.wide[usize::from(ins.d)][lane] = value;
        }
        Ok(())
    }

    fn load_shared_words(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        let bases = &self.files.wide[usize::from(ins.a)];
        let out = &mut self.files.narrow[usize::from(ins.d)];
        for lane in lanes_of(run) {
            let address = bases[lane].wrapping_add_signed(ins.imm);
            match at.shared.get((address >> 2) as usize).filter(|_| address & 3 == 0) {
                Some(word) => out[lane] = *word,
                None => return Err(bad_shared(address, 4, lane, at.shared.len())),
            }
        }
        Ok(())
    }

    fn store_shared_words(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        for lane in lanes_of(run) {
            let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            let words = at.shared.len();
            match at.shared.get_mut((address >> 2) as usize).filter(|_| address & 3 == 0) {
                Some(word) => *word = self.files.narrow[usize::from(ins.d)][lane],
                None => return Err(bad_shared(address, 4, lane, words)),
            }
        }
        Ok(())
    }

    fn store_words(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        at.counters.stores += u64::from(run.count_ones());
        for lane in lanes_of(run) {
            let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            let value = self.files.narrow[usize::from(ins.d)][lane];
            global_store(at, address, 4, value.into())
                .map_err(|bad| bad_access(bad, lane, address, at.memory))?;
        }
        Ok(())
    }

    fn load(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        let shape = Shape::unpack(ins.c);
        let rows = list_of(ins, at.kernel, ins.d, shape.count);
        let bytes = u64::from(shape.bytes);
        if shape.space == Space::Global {
            at.counters.loads += u64::from(run.count_ones()) * u64::from(shape.count) * bytes.div_ceil(4);
        }
        for lane in lanes_of(run) {
            let first = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            aligned(first, bytes * u64::from(shape.count))
                .map_err(|bad| bad_access(bad, lane, first, at.memory))?;
            for (i, row) in (0..).zip(rows.iter().take(shape.count.into())) {
                let address = first + i * bytes;
                let raw = if shape.space == Space::Shared {
                    shared_load(at.shared, address, shape.bytes)
                        .ok_or_else(|| bad_shared(address, bytes, lane, at.shared.len()))?
                } else {
                    global_load(at, address, shape.bytes)
                        .map_err(|bad| bad_access(bad, lane, address, at.memory))?
                };
                let value = if shape.signed && shape.bytes < 8 { sign_extend(raw, shape.bytes) } else { raw };
                if shape.wide {
                    self.files.wide[usize::from(*row)][lane] = value;
                } else {
                    self.files.narrow[usize::from(*row)][lane] = value as u32;
                }
            }
        }
        if shape.fenced {
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    fn store(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        let shape = Shape::unpack(ins.c);
        let rows = list_of(ins, at.kernel, ins.d, shape.count);
        let bytes = u64::from(shape.bytes);
        if shape.fenced {
            fence(Ordering::SeqCst);
        }
        if shape.space == Space::Global {
            at.counters.stores += u64::from(run.count_ones()) * u64::from(shape.count) * bytes.div_ceil(4);
        }
        for lane in lanes_of(run) {
            let first = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            aligned(first, bytes * u64::from(shape.count))
                .map_err(|bad| bad_access(bad, lane, first, at.memory))?;
            for (i, row) in (0..).zip(rows.iter().take(shape.count.into())) {
                let address = first + i * bytes;
                let row = usize::from(*row);
                let value =
                    if shape.wide { self.files.wide[row][lane] } else { self.files.narrow[row][lane].into() };
                if shape.space == Space::Shared {
                    let words = at.shared.len();
                    shared_store(at.shared, address, shape.bytes, value)
                        .ok_or_else(|| bad_shared(address, bytes, lane, words))?;
                } else {
                    global_store(at, address, shape.bytes, value)
                        .map_err(|bad| bad_access(bad, lane, address, at.memory))?;
                }
            }
        }
        Ok(())
    }

    fn atom(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), Failed> {
        let shape = Shape::unpack(ins.c & 0x0fff);
        let atomic = Atomic::ALL.get(usize::from(ins.c >> 12)).copied().unwrap_or(Atomic::Add);
        let Some(&[operand_row, second_row, _, _]) = at.kernel.lists.get(usize::from(ins.b)) else {
            return Ok(());
        };
        at.counters.loads += u64::from(run.count_ones());
        at.counters.stores += u64::from(run.count_ones());
        for lane in lanes_of(run) {
            let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            let fetch = |row: u16| {
                if shape.wide {
                    self.files.wide[usize::from(row)][lane]
                } else {
                    self.files.narrow[usize::from(row)][lane].into()
                }
            };
            let (operand, second) = (fetch(operand_row), fetch(second_row));
            let change = |old: u64| combine(atomic, old, operand, second, shape.bytes);
            let window = address.wrapping_sub(SHARED_WINDOW);
            let in_window = window < at.shared.len() as u64 * 4;
            let old = if shape.space == Space::Shared || in_window {
                let address = if shape.space == Space::Shared { address } else { window };
                let words = at.shared.len();
                let old = shared_load(at.shared, address, shape.bytes);
                let old = old.ok_or_else(|| bad_shared(address, shape.bytes.into(), lane, words))?;
                shared_store(at.shared, address, shape.bytes, change(old));
                old
            } else {
                let place = place_of(at, address, shape.bytes, true)
                    .map_err(|bad| bad_access(bad, lane, address, at.memory))?;
                fence(Ordering::SeqCst);
                memory::update(place, shape.bytes, change)
            };
            if shape.wide {
                self.files.wide[usize::from(ins.d)][lane] = old;
            } else {
                self.files.narrow[usize::from(ins.d)][lane] = old as u32;
            }
        }
        Ok(())
    }
}

/// Time of the day: the clock's rate is not modelled.
fn nanoseconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

fn combine(atomic: Atomic, old: u64, operand: u64, second: u64, bytes: u8) -> u64 {
    let signed = |x: u64| sign_extend(x, bytes).cast_signed();
    match atomic {
        Atomic::Add => old.wrapping_add(operand),
        Atomic::Exch => operand,
        Atomic::Cas if old == operand => second,
        Atomic::Cas => old,
        Atomic::And => old & operand,
        Atomic::Or => old | operand,
        Atomic::Xor => old ^ operand,
        Atomic::MinU => old.min(operand),
        Atomic::MaxU => old.max(operand),
        Atomic::MinS => {
            if signed(operand) < signed(old) {
                operand
            } else {
                old
            }
        }
        Atomic::MaxS => {
            if signed(operand) > signed(old) {
                operand
            } else {
                old
            }
        }
        Atomic::Inc => {
            if old >= operand {
                0
            } else {
                old + 1
            }
        }
        Atomic::Dec => {
            if old == 0 || old > operand {
                operand
            } else {
                old - 1
            }
        }
    }
}

fn sign_extend(value: u64, bytes: u8) -> u64 {
    let shift = 64 - 8 * u32::from(bytes);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

fn list_of(ins: &Ins, kernel: &Kernel, single: u16, count: u8) -> [u16; 4] {
    if count == 1 {
        [single, 0, 0, 0]
    } else {
        kernel.lists.get(usize::from(ins.b)).copied().unwrap_or_default()
    }
}

fn param(params: &[u8], ins: &Ins) -> u64 {
    let bytes = usize::from(ins.c & 0xff);
    let mut value = [0_u8; 8];
    for (to, from) in value.iter_mut().zip(params.iter().skip(ins.imm as usize).take(bytes)) {
        *to = *from;
    }
    let value = u64::from_le_bytes(value);
    if ins.c >> 8 & 1 != 0 && bytes < 8 { sign_extend(value, bytes as u8) } else { value }
}

fn aligned(address: u64, bytes: u64) -> Result<(), Bad> {
    if address & (bytes - 1) == 0 { Ok(()) } else { Err(Bad::Alignment) }
}

/// Host address of an access to global memory, checked.
#[inline(always)]
fn place_of(at: &Surroundings<'_>, address: u64, bytes: u8, write: bool) -> Result<usize, Bad> {
    aligned(address, bytes.into())?;
    let place = at.memory.locate(address, bytes.into()).ok_or(Bad::Address)?;
    if at.memory.has_marks() && at.memory.check_marks(address, bytes.into(), write) {
        let what = if write { "writes" } else { "reads" };
        control()
            .say(&format!("kernel `{}` {what} {address:#x}, which is marked against that", at.kernel.name));
    }
    Ok(place)
}

#[inline(always)]
fn global_load(at: &mut Surroundings<'_>, address: u64, bytes: u8) -> Result<u64, Bad> {
    match place_of(at, address, bytes, false) {
        Ok(place) => Ok(memory::load(place, bytes)),
        Err(bad) => windowed(at, address).and_then(|offset| shared_load(at.shared, offset, bytes)).ok_or(bad),
    }
}

#[inline(always)]
fn global_store(at: &mut Surroundings<'_>, address: u64, bytes: u8, value: u64) -> Result<(), Bad> {
    match place_of(at, address, bytes, true) {
        Ok(place) => {
            memory::store(place, bytes, value);
            Ok(())
        }
        Err(bad) => {
            windowed(at, address).and_then(|offset| shared_store(at.shared, offset, bytes, value)).ok_or(bad)
        }
    }
}

/// A generic address inside the window of shared memory, as an offset into it.
#[cold]
fn windowed(at: &Surroundings<'_>, address: u64) -> Option<u64> {
    let offset = address.wrapping_sub(SHARED_WINDOW);
    (offset < at.shared.len() as u64 * 4).then_some(offset)
}

fn shared_load(shared: &[u32], address: u64, bytes: u8) -> Option<u64> {
    if address & (u64::from(bytes) - 1) != 0 {
        return None;
    }
    let at = usize::try_from(address / 4).ok()?;
    let low = u64::from(*shared.get(at)?);
    match bytes {
        8 => Some(u64::from(*shared.get(at + 1)?) << 32 | low),
        4 => Some(low),
        _ => Some(low >> (8 * (address & 3)) & ((1 << (8 * bytes)) - 1)),
    }
}

fn shared_store(shared: &mut [u32], address: u64, bytes: u8, value: u64) -> Option<()> {
    if address & (u64::from(bytes) - 1) != 0 {
        return None;
    }
    let at = usize::try_from(address / 4).ok()?;
    match bytes {
        8 => {
            *shared.get_mut(at + 1)? = (value >> 32) as u32;
            *shared.get_mut(at)? = value as u32;
        }
        4 => *shared.get_mut(at)? = value as u32,
        _ => {
            let shift = 8 * (address & 3);
            let mask = ((1_u32 << (8 * bytes)) - 1) << shift;
            let word = shared.get_mut(at)?;
            *word = *word & !mask | (value as u32) << shift & mask;
        }
    }
    Some(())
}

#[cold]
fn bad_access(bad: Bad, lane: usize, address: u64, memory: &Memory) -> Failed {
    match bad {
        Bad::Alignment => (716, lane, format!("misaligned address {address:#x}")),
        Bad::Address => {
            let near = memory.nearest(address);
            (700, lane, format!("illegal address {address:#x} ({near})"))
        }
    }
}

#[cold]
fn bad_shared(address: u64, bytes: u64, lane: usize, words: usize) -> Failed {
    if !address.is_multiple_of(bytes) {
        return (716, lane, format!("misaligned shared address {address:#x}"));
    }
    (700, lane, format!("shared address {address:#x} is outside the block's {} bytes", words * 4))
}
