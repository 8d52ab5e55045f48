//! The bytecode of a kernel: instructions over numbered rows of registers. A row holds one register of the 32 lanes of a
//! warp. Rows are narrow (32 bits, or zero-extended 16), wide (64 bits), or predicates (one bit a lane). Constants and
//! special registers are rows, too, so operands need no check of their kind.

use super::parse::Param;

pub(crate) const LANES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) bytes: u8,
    /// Contiguous elements: 1, 2 or 4.
    pub(crate) count: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
}

/// An operation. `32` and `64` are widths of rows; `U` and `S` give the signedness where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Mov32,
    Mov64,
    Add32,
    Add64,
    Sub32,
    Mul32,
    Mad32,
    MulWide,
    MinU32,
    And32,
    And64,
    AndP,
    Or32,
    Or64,
    OrP,
    Xor32,
    Shl32,
    Shl64,
    ShrU32,
    ShrU64,
    /// High half of b:a shifted left by c modulo 32.
    ShfLeftWrap,
    /// c bits of a from bit b, zero- or sign-extended.
    BfeU32,
    BfeS32,
    Eq32,
    Ne32,
    Ne64,
    LtU32,
    LeU32,
    GtU32,
    GeU32,
    /// d = predicate c ? a : b.
    Selp32,
    Extend64,
    Low32,
    Low16,
    /// The parameter at byte `imm` of the parameter block.
    Param32,
    Param64,
    /// From address a + `imm` to the rows of [`Ins::elements`].
    Load(Access),
    /// From the rows of [`Ins::elements`] to address a + `imm`.
    Store(Access),
    Fence,
    Barrier,
    Bra,
    Exit,
    Nanosleep,
}

/// Guard of an instruction that runs in all lanes.
pub(crate) const UNGUARDED: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ins {
    pub(crate) op: Op,
    pub(crate) guard: u16,
    pub(crate) d: u16,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    /// Row of the fourth element of a load or store.
    pub(crate) e: u16,
    pub(crate) imm: i64,
}

impl Ins {
    /// Rows of a load's or store's elements; only the first [`Access::count`] are used.
    #[inline(always)]
    pub(crate) fn elements(&self) -> [usize; 4] {
        [self.d, self.b, self.c, self.e].map(usize::from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// `%tid.x`
    Thread,
    /// `%ntid.x`
    Threads,
    /// `%ctaid.x`
    Block,
    /// `%ctaid.y`
    BlockRow,
    /// `%nctaid.x`
    Blocks,
}

#[derive(Debug)]
pub(crate) struct PtxKernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) code: Vec<Ins>,
    pub(crate) lines: Vec<u32>,
    /// Number of narrow, wide and predicate rows.
    pub(crate) rows: [u16; 3],
    pub(crate) narrow_constants: Vec<(u16, u32)>,
    pub(crate) wide_constants: Vec<(u16, u64)>,
    pub(crate) specials: Vec<(u16, Special)>,
    pub(crate) shared_bytes: usize,
    pub(crate) param_bytes: usize,
    /// 32-bit registers that the PTX declares and uses.
    pub(crate) registers: u32,
    pub(crate) threads_max: Option<u32>,
}
