//! The supported instructions: all that the committed kernels contain. All accesses are coherent here, so cache hints, scopes and memory
//! orders have no effect.

use super::code::Op::{self, *};
use super::code::{Access, Space};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandKind {
    /// 16 bits, in a narrow row.
    Half,
    Narrow,
    Wide,
    Predicate,
}

const H: OperandKind = OperandKind::Half;
const N: OperandKind = OperandKind::Narrow;
const W: OperandKind = OperandKind::Wide;
const P: OperandKind = OperandKind::Predicate;

/// Arithmetic: opcode, operation, destination, sources.
pub(super) const ARITHMETIC: &[(&str, Op, OperandKind, &[OperandKind])] = &[
    ("mov.u32", Mov32, N, &[N]),
    ("mov.u64", Mov64, W, &[W]),
    // A global address equals its generic address here.
    ("cvta.global.u64", Mov64, W, &[W]),
    ("cvta.to.global.u64", Mov64, W, &[W]),
    ("cvt.u16.u32", Low16, H, &[N]),
    ("cvt.u32.u64", Low32, N, &[W]),
    ("cvt.u64.u32", Extend64, W, &[N]),
    ("add.s32", Add32, N, &[N, N]),
    ("add.s64", Add64, W, &[W, W]),
    ("sub.s32", Sub32, N, &[N, N]),
    ("mul.lo.s32", Mul32, N, &[N, N]),
    ("mul.wide.u32", MulWide, W, &[N, N]),
    ("mad.lo.s32", Mad32, N, &[N, N, N]),
    ("min.u32", MinU32, N, &[N, N]),
    ("and.b16", And32, H, &[H, H]),
    ("and.b32", And32, N, &[N, N]),
    ("and.b64", And64, W, &[W, W]),
    ("and.pred", AndP, P, &[P, P]),
    ("or.b32", Or32, N, &[N, N]),
    ("or.b64", Or64, W, &[W, W]),
    ("or.pred", OrP, P, &[P, P]),
    ("xor.b32", Xor32, N, &[N, N]),
    ("shl.b32", Shl32, N, &[N, N]),
    ("shl.b64", Shl64, W, &[W, N]),
    ("shr.u32", ShrU32, N, &[N, N]),
    ("shr.u64", ShrU64, W, &[W, N]),
    ("shf.l.wrap.b32", ShfLeftWrap, N, &[N, N, N]),
    ("bfe.u32", BfeU32, N, &[N, N, N]),
    ("bfe.s32", BfeS32, N, &[N, N, N]),
    ("setp.eq.s16", Eq32, P, &[H, H]),
    ("setp.ne.s16", Ne32, P, &[H, H]),
    ("setp.eq.s32", Eq32, P, &[N, N]),
    ("setp.ne.s32", Ne32, P, &[N, N]),
    ("setp.ne.u32", Ne32, P, &[N, N]),
    ("setp.lt.u32", LtU32, P, &[N, N]),
    ("setp.le.u32", LeU32, P, &[N, N]),
    ("setp.gt.u32", GtU32, P, &[N, N]),
    ("setp.ge.u32", GeU32, P, &[N, N]),
    ("setp.ne.s64", Ne64, P, &[W, W]),
    ("selp.b32", Selp32, N, &[N, N, P]),
];

const fn global(bytes: u8, count: u8) -> Access {
    Access { space: Space::Global, bytes, count }
}

const fn shared(bytes: u8, count: u8) -> Access {
    Access { space: Space::Shared, bytes, count }
}

pub(super) const MEMORY: &[(&str, Op)] = &[
    ("ld.param.u32", Param32),
    ("ld.param.u64", Param64),
    ("ld.global.u32", Load(global(4, 1))),
    ("ld.global.v2.u32", Load(global(4, 2))),
    ("ld.global.v2.u64", Load(global(8, 2))),
    ("ld.global.nc.u32", Load(global(4, 1))),
    ("ld.global.nc.v2.u32", Load(global(4, 2))),
    ("ld.global.nc.v4.u32", Load(global(4, 4))),
    ("ld.global.cs.u32", Load(global(4, 1))),
    ("ld.global.cs.u64", Load(global(8, 1))),
    ("ld.global.cs.v4.u32", Load(global(4, 4))),
    ("ld.relaxed.gpu.global.u32", Load(global(4, 1))),
    ("ld.relaxed.gpu.global.v2.u32", Load(global(4, 2))),
    ("ld.relaxed.gpu.global.v4.u32", Load(global(4, 4))),
    ("ld.relaxed.sys.global.u64", Load(global(8, 1))),
    ("ld.shared.u64", Load(shared(8, 1))),
    ("ld.shared.v2.u32", Load(shared(4, 2))),
    ("st.global.u32", Store(global(4, 1))),
    ("st.global.cs.u32", Store(global(4, 1))),
    ("st.global.cs.v2.u32", Store(global(4, 2))),
    ("st.global.cs.v4.u32", Store(global(4, 4))),
    ("st.relaxed.gpu.global.u32", Store(global(4, 1))),
    ("st.relaxed.sys.global.u32", Store(global(4, 1))),
    ("st.shared.u64", Store(shared(8, 1))),
    ("st.shared.v2.u32", Store(shared(4, 2))),
];

/// Barriers and jumps; the compiler knows their operands.
pub(super) const CONTROL: &[(&str, Op)] = &[
    ("bra", Bra),
    ("bra.uni", Bra),
    ("bar.sync", Barrier),
    ("membar.gl", Fence),
    ("membar.sys", Fence),
    ("nanosleep.u32", Nanosleep),
    ("ret", Exit),
];

#[cfg(test)]
mod tests {
    use super::{ARITHMETIC, CONTROL, MEMORY};
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_instruction_stands_in_a_committed_kernel() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let ptx = files.filter(|path| path.extension().is_some_and(|extension| extension == "ptx"));
        let texts: Vec<String> = ptx.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let used: BTreeSet<&str> = texts
            .iter()
            .flat_map(|text| text.split_whitespace())
            .map(|word| word.trim_end_matches(';'))
            .collect();
        let known = ARITHMETIC.iter().map(|row| row.0).chain(MEMORY.iter().chain(CONTROL).map(|row| row.0));
        let unused: Vec<&str> = known.filter(|opcode| !used.contains(opcode)).collect();
        assert!(unused.is_empty(), "no committed kernel has {unused:?}");
    }
}
