//! The bytecode of a kernel: instructions over numbered rows of registers.
//!
//! A row holds one register of the 32 lanes of a warp. There are three files of rows: 32-bit (also for 8-bit, 16-bit and
//! single precision, zero-extended), 64-bit, and predicates (one bit a lane). Immediate operands and special registers are rows
//! as well, filled when a warp starts, so that no instruction has to ask what its operands are.

use super::parse::Param;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// What an instruction does. Names: `Add32` adds 32-bit rows; `U`/`S` say how the bits are meant where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Mov32,
    Mov64,
    MovP,
    Add32,
    Sub32,
    Mul32,
    MulHiU32,
    MulHiS32,
    Mad32,
    MulWideU32,
    MulWideS32,
    MadWideU32,
    MadWideS32,
    Add64,
    Sub64,
    Mul64,
    MulHiU64,
    MulHiS64,
    Mad64,
    DivU32,
    DivS32,
    RemU32,
    RemS32,
    DivU64,
    DivS64,
    RemU64,
    RemS64,
    And32,
    Or32,
    Xor32,
    Not32,
    And64,
    Or64,
    Xor64,
    Not64,
    AndP,
    OrP,
    XorP,
    NotP,
    Shl32,
    ShrU32,
    ShrS32,
    Shl64,
    ShrU64,
    ShrS64,
    Neg32,
    Neg64,
    Abs32,
    Abs64,
    MinU32,
    MinS32,
    MaxU32,
    MaxS32,
    MinU64,
    MinS64,
    MaxU64,
    MaxS64,
    Popc32,
    Popc64,
    Clz32,
    Clz64,
    Brev32,
    Brev64,
    BfindU32,
    BfindS32,
    BfindU64,
    BfindS64,
    BfeU32,
    BfeS32,
    BfeU64,
    BfeS64,
    /// d = insert a into b; c is the row of the position, `imm` that of the length.
    Bfi32,
    Bfi64,
    /// d = a permuted with b by selector c.
    Prmt,
    /// d = table `imm` of a, b, c.
    Lop3,
    ShfLeftWrap,
    ShfLeftClamp,
    ShfRightWrap,
    ShfRightClamp,
    EqS32,
    NeS32,
    LtS32,
    LeS32,
    GtS32,
    GeS32,
    LtU32,
    LeU32,
    GtU32,
    GeU32,
    Eq64,
    Ne64,
    LtS64,
    LeS64,
    GtS64,
    GeS64,
    LtU64,
    LeU64,
    GtU64,
    GeU64,
    /// d = predicate c ? a : b.
    Selp32,
    Selp64,
    /// 32-bit row to 64 bits.
    ExtU64,
    ExtS64,
    /// Low half of a 64-bit row.
    Low32,
    /// High half of a 64-bit row.
    High32,
    /// d = b:a.
    Pack64,
    /// The low `imm` bits (8 or 16), zero- or sign-extended to 32.
    TruncU,
    TruncS,
    /// The low `imm` bits of a 64-bit row, zero- or sign-extended in 64.
    Trunc64U,
    Trunc64S,
    /// Integer conversion with saturation; `imm` packs both types.
    CvtSat,
    /// Floating point; `imm` says which operation of [`Float`].
    Float,
    /// Parameter at byte `imm` of the parameter block, `c` bytes wide (sign-extended if its bit 8 is set).
    Param32,
    Param64,
    /// Load, space global or generic: `imm` is the offset, `b` the list of registers where there are several.
    LoadG32,
    LoadG64,
    LoadG4x32,
    /// Any other load: `c` is a [`Shape`], `b` the list of its registers.
    Load,
    LoadS32,
    StoreG32,
    StoreG64,
    StoreG4x32,
    StoreS32,
    /// Any other store: as `Load`.
    Store,
    /// Atomic: `imm` is the offset, `c` packs an [`Atomic`] and a [`Shape`]; `b` is the list [operand, second operand].
    Atom,
    Fence,
    /// Barrier number in row `a`.
    Barrier,
    /// All lanes of mask row `a` come together.
    WarpSync,
    /// d = shuffled a; b is the row of the lane operand, `c` a list [clamp row, mask row, predicate or none], `imm` the mode.
    Shfl,
    /// d = vote over predicate a; b the mask row; `imm` the mode (0 all, 1 any, 2 uni, 3 ballot).
    Vote,
    ActiveMask,
    /// Jump to `imm`.
    Bra,
    /// Jump to the entry of list of targets `imm` that row `a` says.
    BraTable,
    Exit,
    Trap,
    Nanosleep,
    Clock32,
    Clock64,
}

/// Memory that a load or store means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Global memory, constants among it; or generic: shared memory's window is looked at too.
    Global,
    /// Shared memory of the block.
    Shared,
}

/// The parts of a load or store that its opcode did not say: packed into 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes of an element: 1, 2, 4, 8.
    pub(crate) bytes: u8,
    /// Elements: 1, 2, 4.
    pub(crate) count: u8,
    /// Sign-extend what is loaded.
    pub(crate) signed: bool,
    /// Registers are of the 64-bit file.
    pub(crate) wide: bool,
    /// The space.
    pub(crate) space: Space,
    /// Order: acquire (loads), release (stores).
    pub(crate) fenced: bool,
}

impl Shape {
    /// As 16 bits.
    pub(crate) fn pack(self) -> u16 {
        u16::from(self.bytes)
            | u16::from(self.count) << 4
            | u16::from(self.signed) << 8
            | u16::from(self.wide) << 9
            | u16::from(self.space == Space::Shared) << 10
            | u16::from(self.fenced) << 11
    }

    /// From [`Self::pack`].
    pub(crate) fn unpack(bits: u16) -> Self {
        let nibble = |shift: u16| u8::try_from(bits >> shift & 15).unwrap_or(0);
        Self {
            bytes: nibble(0),
            count: nibble(4),
            signed: bits >> 8 & 1 != 0,
            wide: bits >> 9 & 1 != 0,
            space: if bits >> 10 & 1 != 0 { Space::Shared } else { Space::Global },
            fenced: bits >> 11 & 1 != 0,
        }
    }
}

/// What an atomic does with the old value and its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Atomic {
    Add,
    Exch,
    Cas,
    And,
    Or,
    Xor,
    MinU,
    MinS,
    MaxU,
    MaxS,
    Inc,
    Dec,
}

impl Atomic {
    /// All, at the index of their number.
    pub(crate) const ALL: [Self; 12] = [
        Self::Add,
        Self::Exch,
        Self::Cas,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::MinU,
        Self::MinS,
        Self::MaxU,
        Self::MaxS,
        Self::Inc,
        Self::Dec,
    ];
}

/// The few floating-point operations that are modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Float {
    Add32,
    Sub32,
    Mul32,
    Div32,
    Fma32,
    Add64,
    Sub64,
    Mul64,
    Div64,
    Fma64,
    U32To32,
    S32To32,
    U64To32,
    U32To64,
    S32To64,
    U64To64,
    To32FromU32Zero,
    To64Widen,
    To32Narrow,
    F32ToU32,
    F32ToS32,
    F32ToU64,
    F64ToU32,
    F64ToU64,
    Lt32,
    Le32,
    Gt32,
    Ge32,
    Eq32,
    Ne32,
}

/// No guard: the instruction runs in all lanes.
pub(crate) const UNGUARDED: u16 = u16::MAX;

/// An instruction. Which fields mean what depends on `op`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ins {
    pub(crate) op: Op,
    /// `row << 1 | negated`, or [`UNGUARDED`].
    pub(crate) guard: u16,
    pub(crate) d: u16,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    pub(crate) imm: i64,
}

/// Special registers that get a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NumWarps,
    SmId,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSharedBytes,
}

/// A kernel ready to run.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Its name.
    pub(crate) name: String,
    /// Its parameters.
    pub(crate) params: Vec<Param>,
    /// Instructions; the last is an exit.
    pub(crate) code: Vec<Ins>,
    /// Line of the PTX for each.
    pub(crate) lines: Vec<u32>,
    /// Rows of the 32-bit, 64-bit and predicate files.
    pub(crate) rows: (usize, usize, usize),
    /// Constants and their rows.
    pub(crate) constants32: Vec<(u16, u32)>,
    /// Constants and their rows.
    pub(crate) constants64: Vec<(u16, u64)>,
    /// Special registers and their 32-bit rows.
    pub(crate) specials: Vec<(u16, Special)>,
    /// Registers of vectors, shuffles, atomics.
    pub(crate) lists: Vec<[u16; 4]>,
    /// Targets of `brx.idx`.
    pub(crate) tables: Vec<Vec<u32>>,
    /// Bytes of shared memory, the launch's own not counted.
    pub(crate) shared_bytes: usize,
    /// Bytes of the parameter block.
    pub(crate) param_bytes: usize,
    /// `.maxntid`.
    pub(crate) threads_max: Option<u32>,
    /// Registers a thread would take, for `cuFuncGetAttribute`: 32-bit ones, declared.
    pub(crate) registers: u32,
}

#[cfg(test)]
mod tests {
    use super::{Atomic, Shape, Space};

    #[test]
    fn shapes_survive_packing() {
        let shape =
            Shape { bytes: 8, count: 2, signed: true, wide: true, space: Space::Shared, fenced: true };
        assert_eq!(Shape::unpack(shape.pack()), shape);
        let shape =
            Shape { bytes: 1, count: 1, signed: false, wide: false, space: Space::Global, fenced: false };
        assert_eq!(Shape::unpack(shape.pack()), shape);
        assert!(Atomic::ALL.iter().enumerate().all(|(i, a)| *a as usize == i));
    }
}
