//! 32 threads that run together: which of them, and where in the code.
//!
//! Lanes that stand at the same instruction form a group. One group runs at a time: the one furthest back, so that lanes which
//! left a loop early wait behind it for the others and go on together. A group that only spins lets the others go first now
//! and then, so a lane may wait for another of its warp, as on devices since sm_70.

use super::lanes::{Arithmetic, Files, arithmetic, lanes_of};
use super::grid::Owner;
use crate::memory::{self, Bad, Memory};
use crate::ptx::code::{Atomic, Ins, Kernel, LANES, Op, Shape, Space, Special, UNGUARDED};
use crate::ptx::compile::SHARED_WINDOW;
use std::sync::atomic::{Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why a group does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Waits until lanes of its warp reach its instruction.
    Parked,
    /// Waits at a barrier of the block, by number.
    Barrier(u32),
}

#[derive(Clone, Copy, Debug)]
struct Group {
    pc: u32,
    mask: u32,
    state: State,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All lanes have left.
    Done,
    /// All lanes that are left wait at a barrier.
    Barrier,
    /// It spins, sleeps, or has run for long.
    Yield,
}

/// What goes wrong inside a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The driver's code.
    pub(crate) code: u32,
    /// What, where, which thread.
    pub(crate) what: String,
}

/// What the kernels of a launch did to memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// 32-bit words loaded from global memory, a wider element as several.
    pub(crate) loads: u64,
    /// Words stored.
    pub(crate) stores: u64,
    /// Instructions run, of whole warps.
    pub(crate) instructions: u64,
}

/// What a warp runs in.
pub(crate) struct Surroundings<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'static Memory,
    /// The block's shared memory, as words.
    pub(crate) shared: &'a mut [u32],
    pub(crate) counters: &'a mut Counters,
    pub(crate) owner: &'a mut dyn Owner,
    /// The owner wants to delay loads.
    pub(crate) delays: bool,
}

/// Numbers that the special registers show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) block_index: [u32; 3],
    pub(crate) smid: u32,
    pub(crate) shared_dynamic: u32,
}

/// A warp of a block.
#[derive(Debug)]
pub(crate) struct Warp {
    files: Files,
    arithmetic: Arithmetic,
    groups: Vec<Group>,
    /// Lanes that have not left.
    live: u32,
    first_thread: u32,
    /// The next choice takes another group than the last one.
    unfair: bool,
    turns: u32,
}

/// Jumps a warp may take before it lets others run; a volatile load counts as many, since it probably polls.
const JUMPS_A_TURN: u32 = 1 << 16;
const JUMPS_A_POLL: u32 = 256;
/// Jumps after which a diverged warp lets another group run.
const JUMPS_A_GROUP: u32 = 1 << 10;

impl Warp {
    /// A warp whose first thread is `first_thread` of the block, ready for [`Self::restart`].
    pub(crate) fn new(kernel: &Kernel, first_thread: u32, place: &Place) -> Self {
        let (narrow, wide, predicates) = kernel.rows;
        let mut files =
            Files { narrow: vec![[0; LANES]; narrow], wide: vec![[0; LANES]; wide], predicates: vec![0; predicates] };
        for &(row, value) in &kernel.constants32 {
            files.narrow[usize::from(row)] = [value; LANES];
        }
        for &(row, value) in &kernel.constants64 {
            files.wide[usize::from(row)] = [value; LANES];
        }
        let mut warp = Self {
            files,
            arithmetic: arithmetic(),
            groups: Vec::with_capacity(LANES),
            live: 0,
            first_thread,
            unfair: false,
            turns: 0,
        };
        warp.fill_specials(kernel, place, false);
        warp
    }

    /// Puts all lanes at the start of the kernel, for the block of `place`.
    pub(crate) fn restart(&mut self, kernel: &Kernel, place: &Place) {
        self.fill_specials(kernel, place, true);
        let threads: u32 = place.block.iter().product();
        let lanes = threads.saturating_sub(self.first_thread).min(32);
        self.live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
        self.groups.clear();
        if self.live != 0 {
            self.groups.push(Group { pc: 0, mask: self.live, state: State::Ready });
        }
    }

    fn fill_specials(&mut self, kernel: &Kernel, place: &Place, of_block_only: bool) {
        for &(row, special) in &kernel.specials {
            let of_block = matches!(special, Special::Ctaid(_) | Special::SmId);
            if of_block_only && !of_block {
                continue;
            }
            let first = self.first_thread;
            let threads: u32 = place.block.iter().product();
            self.files.narrow[usize::from(row)] = std::array::from_fn(|lane| {
                let lane = lane as u32;
                let thread = first + lane;
                match special {
                    Special::Tid(0) => thread % place.block[0],
                    Special::Tid(1) => thread / place.block[0] % place.block[1],
                    Special::Tid(_) => thread / place.block[0] / place.block[1],
                    Special::Ntid(axis) => place.block[axis],
                    Special::Ctaid(axis) => place.block_index[axis],
                    Special::Nctaid(axis) => place.grid[axis],
                    Special::LaneId => lane,
                    Special::WarpId => first / 32,
                    Special::NumWarps => threads.div_ceil(32),
                    Special::SmId => place.smid,
                    Special::LaneMaskEq => 1 << lane,
                    Special::LaneMaskLt => (1 << lane) - 1,
                    Special::LaneMaskLe => u32::MAX >> (31 - lane),
                    Special::LaneMaskGt => !(u32::MAX >> (31 - lane)),
                    Special::LaneMaskGe => !((1 << lane) - 1),
                    Special::DynamicSharedBytes => place.shared_dynamic,
                }
            });
        }
    }

    /// Lanes that have not left the kernel.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// The number of the barrier where lanes wait: of the first group; `Err` if groups wait at different ones.
    pub(crate) fn barrier(&self) -> Result<Option<u32>, u32> {
        let mut found = None;
        for group in &self.groups {
            if let State::Barrier(number) = group.state {
                if found.is_some_and(|f| f != number) {
                    return Err(number);
                }
                found = Some(number);
            }
        }
        Ok(found)
    }

    /// Lets all that wait at a barrier go on.
    pub(crate) fn release(&mut self) {
        for group in &mut self.groups {
            if matches!(group.state, State::Barrier(_)) {
                group.state = State::Ready;
            }
        }
    }

    /// Takes the group that runs next, joined by those at the same instruction, and says where the next one stands ahead of it.
    fn pick(&mut self) -> Option<(u32, u32, u32)> {
        let ready = self.groups.iter().filter(|g| g.state == State::Ready);
        let pc = if std::mem::take(&mut self.unfair) { ready.map(|g| g.pc).next() } else { ready.map(|g| g.pc).min() }?;
        let (mut mask, mut next) = (0, u32::MAX);
        self.groups.retain(|group| {
            let joins = group.pc == pc && !matches!(group.state, State::Barrier(_));
            if joins {
                mask |= group.mask;
            } else if group.pc > pc && !matches!(group.state, State::Barrier(_)) {
                next = next.min(group.pc);
            }
            !joins
        });
        Some((pc, mask, next))
    }

    fn put(&mut self, pc: u32, mask: u32, state: State) {
        if mask != 0 {
            self.groups.push(Group { pc, mask, state });
        }
    }

    /// Runs until all lanes wait, left, or others should have a turn.
    pub(crate) fn run(&mut self, at: &mut Surroundings<'_>) -> Result<Pause, Fault> {
        let mut budget = JUMPS_A_TURN;
        let mut instructions = 0_u64;
        let outcome = self.run_groups(at, &mut budget, &mut instructions);
        at.counters.instructions += instructions;
        outcome
    }

    fn run_groups(&mut self, at: &mut Surroundings<'_>, budget: &mut u32, instructions: &mut u64) -> Result<Pause, Fault> {
        let kernel = at.kernel;
        'groups: loop {
            let Some((mut pc, mut mask, mut next)) = self.pick() else { return self.nothing_runs(at) };
            loop {
                if pc >= next {
                    self.put(pc, mask, State::Ready);
                    continue 'groups;
                }
                // The last instruction is an exit: a program counter never runs past the end.
                let Some(ins) = kernel.code.get(pc as usize) else { return Err(self.fault(at, pc, mask, 718, "no code here")) };
                *instructions += 1;
                let run = if ins.guard == UNGUARDED { mask } else { mask & self.guard(ins.guard) };
                if (self.arithmetic)(&mut self.files, ins, run) {
                    pc += 1;
                    continue;
                }
                match ins.op {
                    Op::Bra => {
                        let target = ins.imm as u32;
                        if run == 0 {
                            pc += 1;
                            continue;
                        }
                        if run != mask {
                            self.put(pc + 1, mask & !run, State::Ready);
                        }
                        (pc, mask) = (target, run);
                        if !self.groups.is_empty() {
                            self.turns += 1;
                            self.unfair = self.turns.is_multiple_of(JUMPS_A_GROUP);
                            self.put(pc, mask, State::Ready);
                            *budget = budget.saturating_sub(1);
                            if *budget == 0 {
                                return Ok(Pause::Yield);
                            }
                            continue 'groups;
                        }
                        *budget = budget.saturating_sub(1);
                        if *budget == 0 {
                            self.put(pc, mask, State::Ready);
                            return Ok(Pause::Yield);
                        }
                        next = u32::MAX;
                        continue;
                    }
                    Op::Exit => {
                        self.live &= !run;
                        self.put(pc + 1, mask & !run, State::Ready);
                        continue 'groups;
                    }
                    Op::Barrier => {
                        let number = self.files.narrow[usize::from(ins.a)][mask.trailing_zeros() as usize & 31];
                        self.put(pc + 1, mask, State::Barrier(number));
                        continue 'groups;
                    }
                    Op::BraTable => {
                        self.put(pc + 1, mask & !run, State::Ready);
                        let Some(table) = kernel.tables.get(ins.imm as usize) else { return Err(self.fault(at, pc, run, 718, "no table")) };
                        for lane in lanes_of(run) {
                            let index = self.files.narrow[usize::from(ins.a)][lane] as usize;
                            let Some(&target) = table.get(index) else {
                                return Err(self.fault(at, pc, 1 << lane, 718, "jump index out of range"));
                            };
                            self.put(target, 1 << lane, State::Ready);
                        }
                        *budget = budget.saturating_sub(1);
                        continue 'groups;
                    }
                    Op::WarpSync | Op::Shfl | Op::Vote => {
                        if !self.all_here(ins, kernel, mask, run) {
                            self.put(pc, mask, State::Parked);
                            continue 'groups;
                        }
                        self.exchange(ins, kernel, run);
                    }
                    Op::Nanosleep => {
                        self.put(pc + 1, mask, State::Ready);
                        self.unfair = true;
                        return Ok(Pause::Yield);
                    }
                    _ => {
                        if let Err((code, lane, what)) = self.other(ins, at, run) {
                            return Err(self.fault(at, pc, 1 << lane, code, &what));
                        }
                        if matches!(ins.op, Op::Load) && Shape::unpack(ins.c).fenced {
                            *budget = budget.saturating_sub(JUMPS_A_POLL).max(1);
                        }
                    }
                }
                pc += 1;
            }
        }
    }

    fn nothing_runs(&self, at: &Surroundings<'_>) -> Result<Pause, Fault> {
        if self.live == 0 {
            return Ok(Pause::Done);
        }
        match self.groups.iter().find(|g| g.state == State::Parked) {
            None => Ok(Pause::Barrier),
            Some(group) => Err(self.fault(at, group.pc, group.mask, 719, "lanes of its mask never come")),
        }
    }

    fn guard(&self, guard: u16) -> u32 {
        let bits = self.files.predicates[usize::from(guard >> 1)];
        if guard & 1 != 0 { !bits } else { bits }
    }

    fn fault(&self, at: &Surroundings<'_>, pc: u32, lanes: u32, code: u32, what: &str) -> Fault {
        let line = at.kernel.lines.get(pc as usize).copied().unwrap_or(0);
        let op = at.kernel.code.get(pc as usize).map(|ins| ins.op);
        let thread = self.first_thread + lanes.trailing_zeros();
        Fault {
            code,
            what: format!("kernel `{}`, PTX line {line} ({op:?}), thread {thread} of its block: {what}", at.kernel.name),
        }
    }

    /// Whether all live lanes that the instruction's mask names are in the group.
    fn all_here(&self, ins: &Ins, kernel: &Kernel, mask: u32, run: u32) -> bool {
        let row = match ins.op {
            Op::WarpSync => ins.a,
            Op::Vote => ins.b,
            _ => kernel.lists.get(usize::from(ins.c)).map_or(0, |list| list[1]),
        };
        let members = self.files.narrow[usize::from(row)][run.trailing_zeros() as usize & 31];
        run == 0 || members & self.live & !mask == 0
    }

    fn exchange(&mut self, ins: &Ins, kernel: &Kernel, run: u32) {
        match ins.op {
            Op::Vote => {
                let bits = self.files.predicates[usize::from(ins.a)];
                let members = self.files.narrow[usize::from(ins.b)][run.trailing_zeros() as usize & 31] & run;
                let outcome = match ins.imm {
                    0 => bits & members == members,
                    1 => bits & members != 0,
                    2 => bits & members == members || bits & members == 0,
                    _ => {
                        for lane in lanes_of(run) {
                            self.files.narrow[usize::from(ins.d)][lane] = bits & members;
                        }
                        return;
                    }
                };
                let d = &mut self.files.predicates[usize::from(ins.d)];
                *d = *d & !run | if outcome { run } else { 0 };
            }
            Op::Shfl => {
                let Some(&[clamp_row, _, valid_row, _]) = kernel.lists.get(usize::from(ins.c)) else { return };
                let source = self.files.narrow[usize::from(ins.a)];
                let by = self.files.narrow[usize::from(ins.b)];
                let clamps = self.files.narrow[usize::from(clamp_row)];
                for lane in lanes_of(run) {
                    let (from, valid) = shuffle_source(lane as u32, by[lane] & 31, clamps[lane], ins.imm);
                    self.files.narrow[usize::from(ins.d)][lane] = source[from as usize & 31];
                    if valid_row != u16::MAX {
                        let p = &mut self.files.predicates[usize::from(valid_row)];
                        *p = *p & !(1 << lane) | u32::from(valid) << lane;
                    }
                }
            }
            _ => {}
        }
    }

    /// Memory, parameters, clocks.
    fn other(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), (u32, usize, String)> {
        let d = usize::from(ins.d);
        if at.delays && matches!(ins.op, Op::LoadG32 | Op::LoadG64 | Op::LoadG4x32) {
            at.owner.before_load();
        }
        match ins.op {
            Op::LoadG32 => {
                at.counters.loads += u64::from(run.count_ones());
                let bases = &self.files.wide[usize::from(ins.a)];
                let out = &mut self.files.narrow[d];
                for lane in lanes_of(run) {
                    let address = bases[lane].wrapping_add_signed(ins.imm);
                    out[lane] = global_load(at, address, 4).map_err(|bad| bad_access(bad, lane, address, at.memory))? as u32;
                }
            }
            Op::LoadG64 => {
                at.counters.loads += 2 * u64::from(run.count_ones());
                for lane in lanes_of(run) {
                    let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
                    self.files.wide[d][lane] = global_load(at, address, 8).map_err(|bad| bad_access(bad, lane, address, at.memory))?;
                }
            }
            Op::LoadS32 => {
                let bases = &self.files.wide[usize::from(ins.a)];
                let out = &mut self.files.narrow[d];
                for lane in lanes_of(run) {
                    let address = bases[lane].wrapping_add_signed(ins.imm);
                    match at.shared.get((address >> 2) as usize).filter(|_| address & 3 == 0) {
                        Some(word) => out[lane] = *word,
                        None => return Err(bad_shared(address, 4, lane, at.shared.len())),
                    }
                }
            }
            Op::StoreS32 => {
                for lane in lanes_of(run) {
                    let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
                    let words = at.shared.len();
                    match at.shared.get_mut((address >> 2) as usize).filter(|_| address & 3 == 0) {
                        Some(word) => *word = self.files.narrow[d][lane],
                        None => return Err(bad_shared(address, 4, lane, words)),
                    }
                }
            }
            Op::StoreG32 => {
                at.counters.stores += u64::from(run.count_ones());
                for lane in lanes_of(run) {
                    let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
                    let value = self.files.narrow[d][lane];
                    global_store(at, address, 4, value.into()).map_err(|bad| bad_access(bad, lane, address, at.memory))?;
                }
            }
            Op::Load | Op::LoadG4x32 => self.load(ins, at, run)?,
            Op::Store | Op::StoreG64 | Op::StoreG4x32 => self.store(ins, at, run)?,
            Op::Atom => self.atom(ins, at, run)?,
            Op::Param32 => {
                let value = param(at.params, ins) as u32;
                for lane in lanes_of(run) {
                    self.files.narrow[d][lane] = value;
                }
            }
            Op::Param64 => {
                let value = param(at.params, ins);
                for lane in lanes_of(run) {
                    self.files.wide[d][lane] = value;
                }
            }
            Op::ActiveMask => {
                for lane in lanes_of(run) {
                    self.files.narrow[d][lane] = run;
                }
            }
            Op::Fence => fence(Ordering::SeqCst),
            Op::Clock32 | Op::Clock64 => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
                for lane in lanes_of(run) {
                    if ins.op == Op::Clock64 {
                        self.files.wide[d][lane] = now;
                    } else {
                        self.files.narrow[d][lane] = now as u32;
                    }
                }
            }
            Op::Trap if run != 0 => return Err((719, run.trailing_zeros() as usize, "trap".to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn load(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), (u32, usize, String)> {
        let shape = Shape::unpack(ins.c);
        let rows = list_of(ins, at.kernel, ins.d, shape.count);
        let bytes = u64::from(shape.bytes);
        if shape.space == Space::Global {
            at.counters.loads += u64::from(run.count_ones()) * u64::from(shape.count) * bytes.div_ceil(4);
        }
        for lane in lanes_of(run) {
            let first = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            aligned(first, bytes * u64::from(shape.count)).map_err(|bad| bad_access(bad, lane, first, at.memory))?;
            for (i, row) in (0..).zip(rows.iter().take(shape.count.into())) {
                let address = first + i * bytes;
                let raw = if shape.space == Space::Shared {
                    shared_load(at.shared, address, shape.bytes).ok_or_else(|| bad_shared(address, bytes, lane, at.shared.len()))?
                } else {
                    global_load(at, address, shape.bytes).map_err(|bad| bad_access(bad, lane, address, at.memory))?
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

    fn store(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), (u32, usize, String)> {
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
            aligned(first, bytes * u64::from(shape.count)).map_err(|bad| bad_access(bad, lane, first, at.memory))?;
            for (i, row) in (0..).zip(rows.iter().take(shape.count.into())) {
                let address = first + i * bytes;
                let row = usize::from(*row);
                let value = if shape.wide { self.files.wide[row][lane] } else { self.files.narrow[row][lane].into() };
                if shape.space == Space::Shared {
                    let words = at.shared.len();
                    shared_store(at.shared, address, shape.bytes, value).ok_or_else(|| bad_shared(address, bytes, lane, words))?;
                } else {
                    global_store(at, address, shape.bytes, value).map_err(|bad| bad_access(bad, lane, address, at.memory))?;
                }
            }
        }
        Ok(())
    }

    fn atom(&mut self, ins: &Ins, at: &mut Surroundings<'_>, run: u32) -> Result<(), (u32, usize, String)> {
        let shape = Shape::unpack(ins.c & 0x0fff);
        let atomic = Atomic::ALL.get(usize::from(ins.c >> 12)).copied().unwrap_or(Atomic::Add);
        let Some(&[operand_row, second_row, _, _]) = at.kernel.lists.get(usize::from(ins.b)) else { return Ok(()) };
        at.counters.loads += u64::from(run.count_ones());
        at.counters.stores += u64::from(run.count_ones());
        for lane in lanes_of(run) {
            let address = self.files.wide[usize::from(ins.a)][lane].wrapping_add_signed(ins.imm);
            let fetch = |row: u16| {
                if shape.wide { self.files.wide[usize::from(row)][lane] } else { self.files.narrow[usize::from(row)][lane].into() }
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
                let place = place_of(at, address, shape.bytes, true).map_err(|bad| bad_access(bad, lane, address, at.memory))?;
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

/// The lane that `lane` reads from, and whether it is inside the segment (PTX manual, `shfl.sync`).
fn shuffle_source(lane: u32, by: u32, clamp: u32, mode: i64) -> (u32, bool) {
    let (segment, end) = (clamp >> 8 & 31, clamp & 31);
    let last = lane & segment | end & !segment;
    let first = lane & segment;
    let (from, valid) = match mode {
        0 => (lane.wrapping_sub(by), lane.wrapping_sub(by).cast_signed() >= last.cast_signed()),
        1 => (lane + by, lane + by <= last),
        2 => (lane ^ by, lane ^ by <= last),
        _ => (first | by & !segment, first | by & !segment <= last),
    };
    if valid { (from, true) } else { (lane, false) }
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
        Atomic::MinS => if signed(operand) < signed(old) { operand } else { old },
        Atomic::MaxS => if signed(operand) > signed(old) { operand } else { old },
        Atomic::Inc => if old >= operand { 0 } else { old + 1 },
        Atomic::Dec => if old == 0 || old > operand { operand } else { old - 1 },
    }
}

fn sign_extend(value: u64, bytes: u8) -> u64 {
    let shift = 64 - 8 * u32::from(bytes);
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

fn list_of(ins: &Ins, kernel: &Kernel, single: u16, count: u8) -> [u16; 4] {
    if count == 1 { [single, 0, 0, 0] } else { kernel.lists.get(usize::from(ins.b)).copied().unwrap_or_default() }
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
    if at.memory.has_marks() {
        at.memory.check_marks(address, bytes.into(), write);
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
        Err(bad) => windowed(at, address).and_then(|offset| shared_store(at.shared, offset, bytes, value)).ok_or(bad),
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
fn bad_access(bad: Bad, lane: usize, address: u64, memory: &Memory) -> (u32, usize, String) {
    match bad {
        Bad::Alignment => (716, lane, format!("misaligned address {address:#x}")),
        Bad::Address => {
            let near = memory.nearest(address);
            (700, lane, format!("illegal address {address:#x} ({near})"))
        }
    }
}

#[cold]
fn bad_shared(address: u64, bytes: u64, lane: usize, words: usize) -> (u32, usize, String) {
    if address % bytes != 0 {
        return (716, lane, format!("misaligned shared address {address:#x}"));
    }
    (700, lane, format!("shared address {address:#x} is outside the block's {} bytes", words * 4))
}
