//! A warp's memory accesses: parameters, loads and stores, each checked.

use super::lanes::{Files, lanes_of};
use super::warp::{Surroundings, TRANSACTION_BYTES, Warp};
use crate::control::control;
use crate::memory::{self, MockMemory, Window};
use crate::ptx::code::{Access, Ins, LANES, Op, Space};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

type Failed = (u32, usize, String);
type Result<T = ()> = std::result::Result<T, Failed>;

enum Located {
    Host(usize),
    Shared(usize),
}

impl Warp {
    pub(super) fn memory(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result {
        let d = usize::from(ins.d);
        match ins.op {
            Op::Param32 => {
                let value = param::<4>(at.params, ins);
                lanes_of(run).for_each(|lane| self.files.narrow[d][lane] = u32::from_le_bytes(value));
            }
            Op::Param64 => {
                let value = param::<8>(at.params, ins);
                lanes_of(run).for_each(|lane| self.files.wide[d][lane] = u64::from_le_bytes(value));
            }
            Op::Load(access) => {
                if access.space == Space::Global {
                    if at.delays {
                        at.owner.before_load();
                    }
                    at.counters.loads += words(access, run);
                    if let Some(watched) = &at.watched {
                        let pieces = transactions(&self.files, ins, run, watched);
                        at.counters.transactions[0] += pieces[0];
                        at.counters.transactions[1] += pieces[1];
                    }
                }
                match access {
                    // The most common access has a loop specialised for it.
                    Access { space: Space::Global, bytes: 4, count: 1 } => {
                        load(&mut self.files, ins, at, run, access)?
                    }
                    other => load(&mut self.files, ins, at, run, other)?,
                }
            }
            Op::Store(access) => {
                if access.space == Space::Global {
                    at.counters.stores += words(access, run);
                }
                store(&self.files, ins, at, run, access)?;
            }
            Op::Fence => fence(Ordering::SeqCst),
            _ => {}
        }
        Ok(())
    }
}

#[inline(always)]
fn address_of(files: &Files, ins: &Ins, lane: usize) -> u64 {
    files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm)
}

#[inline(always)]
fn element(files: &Files, row: usize, lane: usize, access: Access) -> u64 {
    if access.bytes == 8 { files.wide[row][lane] } else { files.narrow[row][lane].into() }
}

fn words(access: Access, run: u32) -> u64 {
    u64::from(run.count_ones()) * u64::from(access.count) * u64::from(access.bytes / 4)
}

/// Transactions of each size for one load by the lanes `run` within `watched`; elements are aligned, so none crosses a block.
#[cold]
fn transactions(files: &Files, ins: &Ins, run: u32, watched: &Range<u64>) -> [u64; 2] {
    let address = |lane| address_of(files, ins, lane);
    TRANSACTION_BYTES.map(|bytes| {
        let inside = lanes_of(run).map(address).filter(|address| watched.contains(address));
        inside.map(|address| address / bytes).collect::<BTreeSet<_>>().len() as u64
    })
}

/// The slot that contains all of a warp's accesses, aligned and live, the usual case; `None` if lanes must be checked one by one.
#[inline(always)]
fn window_of(
    files: &Files,
    ins: &Ins,
    memory: &MockMemory,
    run: u32,
    access: Access,
) -> Option<(Window, [u64; LANES])> {
    if access.space == Space::Shared || run == 0 {
        return None;
    }
    let mut addresses = files.wide[usize::from(ins.a)];
    for address in &mut addresses {
        *address = address.wrapping_add_signed(ins.imm);
    }
    let window = memory.window(addresses[run.trailing_zeros() as usize]);
    let bytes = u64::from(access.bytes) * u64::from(access.count);
    let mut inside = 0;
    for (lane, address) in addresses.iter().enumerate() {
        inside |= u32::from(window.holds(*address, bytes)) << lane;
    }
    let is_marked = |lane: usize| memory.is_marked(addresses[lane], bytes);
    if run & !inside != 0 || memory.has_marks() && lanes_of(run).any(is_marked) {
        return None;
    }
    Some((window, addresses))
}

#[inline(always)]
fn load(files: &mut Files, ins: &Ins, at: &Surroundings<'_>, run: u32, access: Access) -> Result {
    let Some((window, addresses)) = window_of(files, ins, at.memory, run, access) else {
        return load_each(files, ins, at, run, access);
    };
    for (i, row) in ins.elements().into_iter().enumerate().take(access.count.into()) {
        let value = |lane: usize| {
            memory::load(window.host(addresses[lane]) + i * usize::from(access.bytes), access.bytes)
        };
        if access.bytes == 8 {
            let row = &mut files.wide[row];
            lanes_of(run).for_each(|lane| row[lane] = value(lane));
        } else {
            let row = &mut files.narrow[row];
            lanes_of(run).for_each(|lane| row[lane] = value(lane) as u32);
        }
    }
    Ok(())
}

#[cold]
fn load_each(files: &mut Files, ins: &Ins, at: &Surroundings<'_>, run: u32, access: Access) -> Result {
    for lane in lanes_of(run) {
        let place = place_of(at, address_of(files, ins, lane), lane, access, false)?;
        for (i, row) in ins.elements().into_iter().enumerate().take(access.count.into()) {
            let value = match (&place, access.bytes) {
                (Located::Host(first), bytes) => memory::load(first + i * usize::from(bytes), bytes),
                (Located::Shared(first), 8) => {
                    u64::from(at.shared[first + 2 * i + 1]) << 32 | u64::from(at.shared[first + 2 * i])
                }
                (Located::Shared(first), _) => at.shared[first + i].into(),
            };
            if access.bytes == 8 {
                files.wide[row][lane] = value;
            } else {
                files.narrow[row][lane] = value as u32;
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn store(files: &Files, ins: &Ins, at: &mut Surroundings<'_>, run: u32, access: Access) -> Result {
    let window = window_of(files, ins, at.memory, run, access).filter(|(window, _)| !window.read_only);
    let Some((window, addresses)) = window else {
        return store_each(files, ins, at, run, access);
    };
    for (i, row) in ins.elements().into_iter().enumerate().take(access.count.into()) {
        for lane in lanes_of(run) {
            let value = element(files, row, lane, access);
            let to = window.host(addresses[lane]) + i * usize::from(access.bytes);
            memory::store(to, access.bytes, value);
        }
    }
    Ok(())
}

#[cold]
fn store_each(files: &Files, ins: &Ins, at: &mut Surroundings<'_>, run: u32, access: Access) -> Result {
    for lane in lanes_of(run) {
        let place = place_of(at, address_of(files, ins, lane), lane, access, true)?;
        for (i, row) in ins.elements().into_iter().enumerate().take(access.count.into()) {
            let value = element(files, row, lane, access);
            match (&place, access.bytes) {
                (Located::Host(first), bytes) => memory::store(first + i * usize::from(bytes), bytes, value),
                (Located::Shared(first), 8) => {
                    at.shared[first + 2 * i] = value as u32;
                    at.shared[first + 2 * i + 1] = (value >> 32) as u32;
                }
                (Located::Shared(first), _) => at.shared[first + i] = value as u32,
            }
        }
    }
    Ok(())
}

fn param<const BYTES: usize>(params: &[u8], ins: &Ins) -> [u8; BYTES] {
    let from = ins.imm as usize;
    // The compiler placed the parameter within the parameter block, and a launch fills the whole block.
    params.get(from..from + BYTES).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; BYTES])
}

#[inline(always)]
fn place_of(
    at: &Surroundings<'_>,
    address: u64,
    lane: usize,
    access: Access,
    write: bool,
) -> Result<Located> {
    let bad = |code| bad_access(code, lane, address, access, at);
    let bytes = u64::from(access.bytes) * u64::from(access.count);
    if address & (bytes - 1) != 0 {
        return Err(bad(MISALIGNED));
    }
    if access.space == Space::Shared {
        let end = address.checked_add(bytes).filter(|&end| end <= 4 * at.shared.len() as u64);
        return end.map(|_| Located::Shared((address / 4) as usize)).ok_or_else(|| bad(ILLEGAL));
    }
    if write && at.memory.window(address).read_only {
        return Err(bad(ILLEGAL));
    }
    let place = at.memory.locate(address, bytes).ok_or_else(|| bad(ILLEGAL))?;
    if at.memory.has_marks()
        && at.memory.is_marked(address, bytes)
        && at.memory.check_marks(address, bytes, write)
    {
        control().say(&format!("kernel `{}` reads {address:#x}, which is freed", at.kernel.name));
    }
    Ok(Located::Host(place))
}

const ILLEGAL: u32 = crate::error::ILLEGAL_ADDRESS;
const MISALIGNED: u32 = crate::error::MISALIGNED_ADDRESS;

#[cold]
fn bad_access(code: u32, lane: usize, address: u64, access: Access, at: &Surroundings<'_>) -> Failed {
    let what = match (code, access.space) {
        (MISALIGNED, space) => format!("misaligned address {address:#x} ({space:?})"),
        (_, Space::Global) => format!("illegal address {address:#x} ({})", at.memory.nearest(address)),
        (_, Space::Shared) => {
            format!("shared address {address:#x} is outside the block's {} bytes", 4 * at.shared.len())
        }
    };
    (code, lane, what)
}
