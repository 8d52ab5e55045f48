//! Loads, stores and atomics to bytecode.

use super::PtxError;
use super::code::{Atomic, Op, Shape, Space};
use super::compile::{Compiler, File, Kind, kind_of};
use super::parse::Operand;

/// What the modifiers of a memory instruction say.
struct Access {
    kind: Kind,
    count: u8,
    space: Space,
    param: bool,
    fenced: bool,
}

/// Reads the modifiers; `None` for one that is not known. Cache hints and scopes mean nothing here: all accesses are coherent.
fn access(parts: &[&str]) -> Option<Access> {
    let (kind, modifiers) = parts.split_last()?;
    let mut access =
        Access { kind: kind_of(kind)?, count: 1, space: Space::Global, param: false, fenced: false };
    for modifier in modifiers {
        match *modifier {
            "global" | "const" => {}
            "shared" | "shared::cta" => access.space = Space::Shared,
            "param" => access.param = true,
            "v2" => access.count = 2,
            "v4" => access.count = 4,
            "acquire" | "release" | "acq_rel" | "volatile" | "mmio" => access.fenced = true,
            "relaxed" | "weak" | "cta" | "cluster" | "gpu" | "sys" | "nc" | "ca" | "cg" | "cs" | "lu"
            | "cv" | "wb" | "wt" | "unified" => {}
            hint if hint.starts_with("L1::") || hint.starts_with("L2::") => {}
            _ => return None,
        }
    }
    Some(access)
}

impl Compiler<'_> {
    /// `ld`, `st`, `atom`, `red`. `false`: not known.
    pub(super) fn memory(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let Some((name, modifiers)) = parts.split_first() else { return Ok(false) };
        match (*name, operands) {
            ("ld" | "ldu", [d, address, ..]) => match access(modifiers) {
                Some(access) if access.param => self.load_param(d, address, &access),
                Some(access) => self.load(d, address, &access),
                None => Ok(false),
            },
            ("st", [address, s, ..]) => match access(modifiers) {
                Some(access) if !access.param => self.store(address, s, &access),
                _ => Ok(false),
            },
            ("atom", [d, address, rest @ ..]) => self.atom(modifiers, Some(d), address, rest),
            ("red", [address, rest @ ..]) => self.atom(modifiers, None, address, rest),
            _ => Ok(false),
        }
    }

    /// Row and offset of an address.
    fn address(&mut self, address: &Operand) -> Result<(u16, i64), PtxError> {
        let Operand::Address(base, offset) = address else { return self.error("an address expected") };
        let Some(base) = base else { return Ok((self.constant64(0)?, *offset)) };
        if let Some(&at) = self.addresses.get(base) {
            return Ok((self.constant64(0)?, offset.wrapping_add_unsigned(at)));
        }
        let register = self.register(base)?;
        match register.file {
            File::Wide => Ok((register.row, *offset)),
            File::Narrow => {
                let temp = self.new_row(File::Wide)?;
                self.emit(Op::ExtU64, temp, register.row, 0, 0, 0);
                Ok((temp, *offset))
            }
            File::Predicate => self.error(format!("`{base}` is no address")),
        }
    }

    /// Rows of one register or a vector of them, and whether they are of the 64-bit file.
    fn rows(&mut self, operand: &Operand, kind: Kind) -> Result<(Vec<u16>, bool), PtxError> {
        let single = [operand.clone()];
        let parts = if let Operand::Vector(parts) = operand { parts.as_slice() } else { &single };
        let mut rows = Vec::new();
        let mut wide = kind.bits == 64;
        for part in parts {
            // `_` in a vector: loaded, and dropped.
            if *part == Operand::Name("_".to_owned(), 0) {
                rows.push(self.new_row(if kind.bits == 64 { File::Wide } else { File::Narrow })?);
                continue;
            }
            let is_number = !matches!(part, Operand::Name(..));
            wide = if is_number { kind.bits == 64 } else { self.bits_of(part)? == 64 };
            rows.push(if wide { self.wide(part)? } else { self.narrow(part, kind.bits)? });
        }
        Ok((rows, wide))
    }

    fn load_param(&mut self, d: &Operand, address: &Operand, access: &Access) -> Result<bool, PtxError> {
        let Operand::Address(Some(name), offset) = address else { return Ok(false) };
        let Some(at) = self.param_offset(name) else {
            return self.error(format!("parameter `{name}` is missing"));
        };
        let (rows, wide) = self.rows(d, access.kind)?;
        let bytes = access.kind.bits / 8;
        for (i, row) in (0_i64..).zip(rows) {
            let at = offset.wrapping_add_unsigned(at as u64) + i * i64::from(bytes);
            let shape = bytes as u16 | u16::from(access.kind.signed) << 8;
            self.emit(if wide { Op::Param64 } else { Op::Param32 }, row, 0, 0, shape, at);
        }
        Ok(true)
    }

    fn shape(access: &Access, wide: bool) -> Shape {
        Shape {
            bytes: (access.kind.bits / 8) as u8,
            count: access.count,
            signed: access.kind.signed,
            wide,
            space: access.space,
            fenced: access.fenced,
        }
    }

    fn load(&mut self, d: &Operand, address: &Operand, access: &Access) -> Result<bool, PtxError> {
        let (rows, wide) = self.rows(d, access.kind)?;
        if rows.len() != usize::from(access.count) {
            return Ok(false);
        }
        let (base, offset) = self.address(address)?;
        let shape = Self::shape(access, wide);
        let list = if rows.len() > 1 { self.list(four(&rows)) } else { 0 };
        let d_row = rows.first().copied().unwrap_or(0);
        let op = match shape {
            Shape { fenced: true, .. } => Op::Load,
            Shape { bytes: 4, count: 1, wide: false, space: Space::Global, .. } => Op::LoadG32,
            Shape { bytes: 4, count: 1, wide: false, space: Space::Shared, .. } => Op::LoadS32,
            Shape { bytes: 8, count: 1, wide: true, space: Space::Global, .. } => Op::LoadG64,
            Shape { bytes: 4, count: 4, wide: false, space: Space::Global, .. } => Op::LoadG4x32,
            _ => Op::Load,
        };
        self.emit(op, d_row, base, list, shape.pack(), offset);
        // A sign goes as far as the register does.
        if shape.bytes < 4 && shape.signed && !wide && self.bits_of(d)? == 16 {
            for row in rows {
                self.emit(Op::TruncU, row, row, 0, 0, 16);
            }
        }
        Ok(true)
    }

    fn store(&mut self, address: &Operand, s: &Operand, access: &Access) -> Result<bool, PtxError> {
        let (rows, wide) = self.rows(s, access.kind)?;
        if rows.len() != usize::from(access.count) {
            return Ok(false);
        }
        let (base, offset) = self.address(address)?;
        let shape = Self::shape(access, wide);
        let list = if rows.len() > 1 { self.list(four(&rows)) } else { 0 };
        let row = rows.first().copied().unwrap_or(0);
        let op = match shape {
            Shape { fenced: true, .. } => Op::Store,
            Shape { bytes: 4, count: 1, wide: false, space: Space::Global, .. } => Op::StoreG32,
            Shape { bytes: 4, count: 1, wide: false, space: Space::Shared, .. } => Op::StoreS32,
            Shape { bytes: 8, count: 1, wide: true, space: Space::Global, .. } => Op::StoreG64,
            Shape { bytes: 4, count: 4, wide: false, space: Space::Global, .. } => Op::StoreG4x32,
            _ => Op::Store,
        };
        self.emit(op, row, base, list, shape.pack(), offset);
        Ok(true)
    }

    fn atom(
        &mut self,
        modifiers: &[&str],
        d: Option<&Operand>,
        address: &Operand,
        rest: &[Operand],
    ) -> Result<bool, PtxError> {
        let names = ["add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec"];
        let operation = modifiers.iter().find(|m| names.contains(m)).copied();
        let others: Vec<&str> = modifiers.iter().filter(|m| Some(**m) != operation).copied().collect();
        let (Some(operation), Some(access)) = (operation, access(&others)) else { return Ok(false) };
        let Kind { bits, signed, float } = access.kind;
        if float || bits < 32 || access.count > 1 || (bits == 64 && matches!(operation, "inc" | "dec")) {
            return Ok(false);
        }
        let atomic = match (operation, signed) {
            ("add", _) => Atomic::Add,
            ("exch", _) => Atomic::Exch,
            ("cas", _) => Atomic::Cas,
            ("and", _) => Atomic::And,
            ("or", _) => Atomic::Or,
            ("xor", _) => Atomic::Xor,
            ("min", false) => Atomic::MinU,
            ("min", true) => Atomic::MinS,
            ("max", false) => Atomic::MaxU,
            ("max", true) => Atomic::MaxS,
            ("inc", _) => Atomic::Inc,
            _ => Atomic::Dec,
        };
        let wide = bits == 64;
        let file = if wide { File::Wide } else { File::Narrow };
        let mut row = |o: &Operand| if wide { self.wide(o) } else { self.narrow(o, 32) };
        let (operand, second) = match (atomic, rest) {
            (Atomic::Cas, [compare, value]) => (row(compare)?, row(value)?),
            (Atomic::Cas, _) => return Ok(false),
            (_, [value, ..]) => (row(value)?, 0),
            _ => return Ok(false),
        };
        let d = match d {
            Some(Operand::Name(name, 0)) if name == "_" => self.new_row(file)?,
            Some(d) => row(d)?,
            None => self.new_row(file)?,
        };
        let (base, offset) = self.address(address)?;
        let list = self.list([operand, second, 0, 0]);
        let shape = Self::shape(&access, wide).pack() | (atomic as u16) << 12;
        self.emit(Op::Atom, d, base, list, shape, offset);
        Ok(true)
    }
}

fn four(rows: &[u16]) -> [u16; 4] {
    std::array::from_fn(|i| rows.get(i).copied().unwrap_or(0))
}
