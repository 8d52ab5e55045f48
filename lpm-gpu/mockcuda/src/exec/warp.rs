//! A warp: 32 threads that run together, their groups and program counters.
//!
//! Lanes at the same instruction form a group. One group runs at a time, the one furthest back, so that lanes which
//! left a loop early wait behind it for the others and continue together. A group that spins sometimes lets the others
//! run first, so that a lane may wait for another of its warp, as on devices since sm_70.

use super::grid::{Launch, Owner};
use super::lanes::{Arithmetic, Files, arithmetic};
use crate::memory::Memory;
use crate::ptx::code::{LANES, Op, PtxKernel, Special, UNGUARDED};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct LaneGroup {
    pc: u32,
    mask: u32,
    /// The group waits at the block's barrier.
    waits: bool,
}

/// Why a warp stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All lanes have exited.
    Done,
    /// All remaining lanes wait at the barrier.
    Barrier,
    /// It sleeps, or has run for a long time.
    Yield,
}

/// A fault inside a kernel.
#[derive(Clone, Debug)]
pub(crate) struct KernelFault {
    /// The driver's code.
    pub(crate) code: u32,
    /// The fault, its place and its thread.
    pub(crate) what: String,
}

/// Sizes of memory transactions that are counted: the least and the most of a device.
pub(crate) const TRANSACTION_BYTES: [u64; 2] = [32, 128];

/// Memory accesses and instructions of a launch's kernels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// 32-bit words loaded from global memory; a wider element counts as several.
    pub(crate) loads: u64,
    /// Memory transactions of loads from the watched memory, by their size: those of [`TRANSACTION_BYTES`].
    pub(crate) transactions: [u64; 2],
    /// Words stored.
    pub(crate) stores: u64,
    /// Warp instructions executed.
    pub(crate) instructions: u64,
}

/// The environment of a running warp.
pub(crate) struct Surroundings<'a> {
    pub(crate) kernel: &'a PtxKernel,
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'static Memory,
    /// The block's shared memory, as words.
    pub(crate) shared: &'a mut [u32],
    pub(crate) counters: &'a mut Counters,
    pub(crate) owner: &'a mut dyn Owner,
    /// Whether the owner delays loads.
    pub(crate) delays: bool,
    /// Memory from which the transactions of loads are counted.
    pub(crate) watched: Option<Range<u64>>,
}

/// A warp of a block.
#[derive(Debug)]
pub(crate) struct Warp {
    pub(super) files: Files,
    arithmetic: Arithmetic,
    groups: Vec<LaneGroup>,
    /// Lanes that have not exited.
    live: u32,
    first_thread: u32,
    /// The next choice takes a group other than the last one.
    unfair: bool,
    turns: u32,
}

/// Jumps that a warp may take before it lets others run. Warps that wait for another one in a loop take them all, turn after turn.
const JUMPS_A_TURN: u32 = 1 << 12;
/// Jumps after which a diverged warp lets another group run.
const JUMPS_A_GROUP: u32 = 1 << 10;

impl Warp {
    /// A warp whose first thread is `first_thread` of the block, ready for [`Self::restart`].
    pub(crate) fn new(launch: &Launch, first_thread: u32) -> Self {
        Self {
            files: Files::new(&launch.kernel),
            arithmetic: arithmetic(),
            groups: Vec::with_capacity(LANES),
            live: 0,
            first_thread,
            unfair: false,
            turns: 0,
        }
    }

    /// Puts all lanes at the start of the kernel, for a block of the grid.
    pub(crate) fn restart(&mut self, launch: &Launch, block: [u32; 2]) {
        for &(row, special) in &launch.kernel.specials {
            self.files.narrow[usize::from(row)] = match special {
                Special::Thread => std::array::from_fn(|lane| self.first_thread + lane as u32),
                Special::Threads => [launch.threads; LANES],
                Special::Block => [block[0]; LANES],
                Special::BlockRow => [block[1]; LANES],
                Special::Blocks => [launch.grid[0]; LANES],
            };
        }
        let lanes = launch.threads.saturating_sub(self.first_thread).min(32);
        self.live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
        self.groups.clear();
        self.put(0, self.live);
    }

    /// Lanes that have not exited the kernel.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Releases all groups that wait at the barrier.
    pub(crate) fn release(&mut self) {
        for group in &mut self.groups {
            group.waits = false;
        }
    }

    /// Takes the group that runs next, merged with all groups at the same instruction; returns its program counter and
    /// mask, and the program counter of the next group ahead of it.
    fn pick(&mut self) -> Option<(u32, u32, u32)> {
        let mut ready = self.groups.iter().filter(|g| !g.waits).map(|g| g.pc);
        let pc = if std::mem::take(&mut self.unfair) { ready.next() } else { ready.min() }?;
        let (mut mask, mut next) = (0, u32::MAX);
        self.groups.retain(|group| {
            let joins = group.pc == pc && !group.waits;
            if joins {
                mask |= group.mask;
            } else if group.pc > pc && !group.waits {
                next = next.min(group.pc);
            }
            !joins
        });
        Some((pc, mask, next))
    }

    /// Stores lanes that will continue at `pc`.
    fn put(&mut self, pc: u32, mask: u32) {
        if mask != 0 {
            self.groups.push(LaneGroup { pc, mask, waits: false });
        }
    }

    /// Runs until all lanes wait or have exited, or until other warps should run.
    pub(crate) fn run(&mut self, at: &mut Surroundings<'_>) -> Result<Pause, KernelFault> {
        let mut instructions = 0_u64;
        let outcome = self.run_groups(at, &mut instructions);
        at.counters.instructions += instructions;
        outcome
    }

    fn run_groups(
        &mut self,
        at: &mut Surroundings<'_>,
        instructions: &mut u64,
    ) -> Result<Pause, KernelFault> {
        let kernel = at.kernel;
        let mut budget = JUMPS_A_TURN;
        'groups: loop {
            let Some((mut pc, mut mask, mut next)) = self.pick() else {
                return Ok(if self.live == 0 { Pause::Done } else { Pause::Barrier });
            };
            loop {
                if pc >= next {
                    self.put(pc, mask);
                    continue 'groups;
                }
                // The last instruction is an exit, so a program counter never runs past the end.
                let ins = &kernel.code[pc as usize];
                *instructions += 1;
                let run = if ins.guard == UNGUARDED {
                    mask
                } else {
                    mask & self.files.predicates[usize::from(ins.guard)]
                };
                if (self.arithmetic)(&mut self.files, ins, run) {
                    pc += 1;
                    continue;
                }
                match ins.op {
                    Op::Bra if run == 0 => {}
                    Op::Bra => {
                        self.put(pc + 1, mask & !run);
                        (pc, mask, next) = (ins.imm as u32, run, u32::MAX);
                        if self.jumped(pc, mask, &mut budget) {
                            return Ok(Pause::Yield);
                        }
                        if !self.groups.is_empty() {
                            continue 'groups;
                        }
                        continue;
                    }
                    Op::Exit => {
                        self.live &= !run;
                        self.put(pc + 1, mask & !run);
                        continue 'groups;
                    }
                    Op::Barrier => {
                        self.groups.push(LaneGroup { pc: pc + 1, mask, waits: true });
                        continue 'groups;
                    }
                    Op::Nanosleep => {
                        self.put(pc + 1, mask);
                        self.unfair = true;
                        return Ok(Pause::Yield);
                    }
                    _ => {
                        if let Err((code, lane, what)) = self.memory(ins, at, run) {
                            return Err(self.fault(kernel, pc, lane, code, &what));
                        }
                    }
                }
                pc += 1;
            }
        }
    }

    /// After a jump to `pc`: if the warp has diverged, the group to run is chosen anew. Returns `true` when other warps
    /// should run.
    fn jumped(&mut self, pc: u32, mask: u32, budget: &mut u32) -> bool {
        *budget = budget.saturating_sub(1);
        let diverged = !self.groups.is_empty();
        if diverged {
            self.turns = self.turns.wrapping_add(1);
            self.unfair = self.turns.is_multiple_of(JUMPS_A_GROUP);
        }
        if diverged || *budget == 0 {
            self.put(pc, mask);
        }
        *budget == 0
    }

    fn fault(&self, kernel: &PtxKernel, pc: u32, lane: usize, code: u32, what: &str) -> KernelFault {
        let (line, op) = (kernel.lines[pc as usize], kernel.code[pc as usize].op);
        let thread = self.first_thread as usize + lane;
        KernelFault {
            code,
            what: format!(
                "kernel `{}`, PTX line {line} ({op:?}), thread {thread} of its block: {what}",
                kernel.name
            ),
        }
    }
}
