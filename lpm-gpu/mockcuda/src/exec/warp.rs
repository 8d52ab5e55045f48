//! 32 threads that run together: which of them, and where in the code.
//!
//! Lanes that stand at the same instruction form a group. One group runs at a time: the one furthest back, so that lanes which
//! left a loop early wait behind it for the others and go on together. A group that only spins lets the others go first now
//! and then, so a lane may wait for another of its warp, as on devices since sm_70.

use super::grid::Owner;
use super::lanes::{Arithmetic, Files, arithmetic, lanes_of};
use crate::memory::Memory;
use crate::ptx::code::{Ins, Kernel, LANES, Op, Shape, Special, UNGUARDED};

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
    pub(super) files: Files,
    arithmetic: Arithmetic,
    groups: Vec<Group>,
    /// Lanes that have not left.
    pub(super) live: u32,
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
        let mut files = Files {
            narrow: vec![[0; LANES]; narrow],
            wide: vec![[0; LANES]; wide],
            predicates: vec![0; predicates],
        };
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
        let pc = if std::mem::take(&mut self.unfair) {
            ready.map(|g| g.pc).next()
        } else {
            ready.map(|g| g.pc).min()
        }?;
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

    fn run_groups(
        &mut self,
        at: &mut Surroundings<'_>,
        budget: &mut u32,
        instructions: &mut u64,
    ) -> Result<Pause, Fault> {
        let kernel = at.kernel;
        'groups: loop {
            let Some((mut pc, mut mask, mut next)) = self.pick() else { return self.nothing_runs(at) };
            loop {
                if pc >= next {
                    self.put(pc, mask, State::Ready);
                    continue 'groups;
                }
                // The last instruction is an exit: a program counter never runs past the end.
                let Some(ins) = kernel.code.get(pc as usize) else {
                    return Err(self.fault(at, pc, mask, 718, "no code here"));
                };
                *instructions += 1;
                let run = if ins.guard == UNGUARDED { mask } else { mask & self.guard(ins.guard) };
                if (self.arithmetic)(&mut self.files, ins, run) {
                    pc += 1;
                    continue;
                }
                match ins.op {
                    Op::Bra if run == 0 => {}
                    Op::Bra => {
                        self.put(pc + 1, mask & !run, State::Ready);
                        (pc, mask, next) = (ins.imm as u32, run, u32::MAX);
                        if self.jumped(pc, mask, budget) {
                            return Ok(Pause::Yield);
                        }
                        if !self.groups.is_empty() {
                            continue 'groups;
                        }
                        continue;
                    }
                    Op::Exit => {
                        self.live &= !run;
                        self.put(pc + 1, mask & !run, State::Ready);
                        continue 'groups;
                    }
                    Op::Barrier => {
                        let number = self.files.of_first(ins.a, mask);
                        self.put(pc + 1, mask, State::Barrier(number));
                        continue 'groups;
                    }
                    Op::BraTable => {
                        self.put(pc + 1, mask & !run, State::Ready);
                        self.jump_by_table(ins, at, pc, run)?;
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

    /// After a jump to `pc`: of several groups the one that runs is chosen anew. `true`: others should have a turn.
    fn jumped(&mut self, pc: u32, mask: u32, budget: &mut u32) -> bool {
        *budget = budget.saturating_sub(1);
        let diverged = !self.groups.is_empty();
        if diverged {
            self.turns = self.turns.wrapping_add(1);
            self.unfair = self.turns.is_multiple_of(JUMPS_A_GROUP);
        }
        if diverged || *budget == 0 {
            self.put(pc, mask, State::Ready);
        }
        *budget == 0
    }

    fn jump_by_table(&mut self, ins: &Ins, at: &Surroundings<'_>, pc: u32, run: u32) -> Result<(), Fault> {
        let table = at.kernel.tables.get(ins.imm as usize).map_or(&[][..], Vec::as_slice);
        for lane in lanes_of(run) {
            let index = self.files.narrow[usize::from(ins.a)][lane] as usize;
            let Some(&target) = table.get(index) else {
                return Err(self.fault(at, pc, 1 << lane, 718, "jump index out of range"));
            };
            self.put(target, 1 << lane, State::Ready);
        }
        Ok(())
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
            what: format!(
                "kernel `{}`, PTX line {line} ({op:?}), thread {thread} of its block: {what}",
                at.kernel.name
            ),
        }
    }
}
