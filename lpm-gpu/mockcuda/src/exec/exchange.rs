//! What lanes of a warp do together: votes, shuffles, and waiting for each other before either.

use super::lanes::lanes_of;
use super::warp::Warp;
use crate::ptx::code::{Ins, Kernel, Op};

impl Warp {
    /// Whether all live lanes that the instruction's mask names are in the group.
    pub(super) fn all_here(&self, ins: &Ins, kernel: &Kernel, mask: u32, run: u32) -> bool {
        let row = match ins.op {
            Op::WarpSync => ins.a,
            Op::Vote => ins.b,
            _ => kernel.lists.get(usize::from(ins.c)).map_or(0, |list| list[1]),
        };
        let members = self.files.of_first(row, run);
        run == 0 || members & self.live & !mask == 0
    }

    /// Does a vote or shuffle of the lanes of `run`.
    pub(super) fn exchange(&mut self, ins: &Ins, kernel: &Kernel, run: u32) {
        match ins.op {
            Op::Vote => {
                let bits = self.files.predicates[usize::from(ins.a)];
                let members = self.files.of_first(ins.b, run) & run;
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
                let Some(&[clamp_row, _, valid_row, _]) = kernel.lists.get(usize::from(ins.c)) else {
                    return;
                };
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
