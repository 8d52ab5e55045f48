//! A warp: 32 threads that run together, in groups of lanes with one program counter each. The group furthest back runs
//! first, so lanes that left a loop early wait for the others and continue together. A group that spins sometimes lets
//! others run first, so a lane may wait for another lane of its warp, as on devices since sm_70.

use super::grid::{Launch, Owner};
use super::lanes::{Arithmetic, Files, arithmetic};
use crate::memory::MockMemory;
use crate::ptx::code::{LANES, Op, PtxKernel, Special, UNGUARDED};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct LaneGroup {
    pc: u32,
    mask: u32,
    /// Waits at the block's barrier.
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Done,
    Barrier,
    /// It sleeps, or has run for long.
    Yield,
}

#[derive(Clone, Debug)]
pub(crate) struct KernelFault {
    pub(crate) code: u32,
    pub(crate) what: String,
}

/// Counted sizes of memory transactions: the least and the greatest of a device.
pub(crate) const TRANSACTION_BYTES: [u64; 2] = [32, 128];

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WarpCounters {
    /// 32-bit words loaded from global memory; wider elements count several times.
    pub(crate) loads: u64,
    pub(crate) transactions: [u64; 2],
    pub(crate) stores: u64,
    pub(crate) instructions: u64,
}

pub(crate) struct Surroundings<'a> {
    pub(crate) kernel: &'a PtxKernel,
    pub(crate) params: &'a [u8],
    pub(crate) memory: &'static MockMemory,
    pub(crate) shared: &'a mut [u32],
    pub(crate) counters: &'a mut WarpCounters,
    pub(crate) owner: &'a mut dyn Owner,
    pub(crate) delays: bool,
    pub(crate) watched: Option<Range<u64>>,
}

#[derive(Debug)]
pub(crate) struct Warp {
    pub(super) files: Files,
    arithmetic: Arithmetic,
    groups: Vec<LaneGroup>,
    live: u32,
    first_thread: u32,
    /// The next choice avoids the last group.
    unfair: bool,
    turns: u32,
}

/// Jumps of a warp before other warps run; polling warps use them all in each turn.
const JUMPS_A_TURN: u32 = 1 << 12;
/// Jumps before a diverged warp runs another group.
const JUMPS_A_GROUP: u32 = 1 << 10;

impl Warp {
    /// Starting at thread `first_thread` of the block; call [`Self::restart`] next.
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

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    pub(crate) fn release(&mut self) {
        for group in &mut self.groups {
            group.waits = false;
        }
    }

    /// Takes the next group, merged with all at its instruction: its counter, its mask, the counter of the next group ahead.
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

    fn put(&mut self, pc: u32, mask: u32) {
        if mask != 0 {
            self.groups.push(LaneGroup { pc, mask, waits: false });
        }
    }

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
                // The last instruction is an exit, so the program counter stays in range.
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

    /// After a jump to `pc`: a diverged warp chooses its group again. Returns whether other warps should run.
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
