//! Arithmetic, logic, comparison and conversion to bytecode. 16-bit operations are 32-bit ones between an extension and a cut.

use super::PtxError;
use super::code::{Float, Op};
use super::compile::{Compiler, File, Kind, SHARED_WINDOW, kind_of};
use super::parse::Operand;

impl Compiler<'_> {
    /// All that has registers on both sides. `false`: not known.
    pub(super) fn arithmetic(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let name = parts.first().copied().unwrap_or_default();
        let Some(&last) = parts.last() else { return Ok(false) };
        if last == "pred" {
            return self.predicate_logic(name, operands);
        }
        let Some(kind) = kind_of(last) else { return Ok(false) };
        match name {
            "setp" => self.setp(parts, operands, kind),
            "selp" => self.selp(operands, kind),
            "cvt" => self.cvt(parts, operands, kind),
            "cvta" => self.cvta(parts, operands),
            "mul" | "mad" | "mul24" | "mad24" if !kind.float => self.multiply(parts, operands, kind),
            _ if kind.float => self.float(name, operands, kind),
            "shl" | "shr" => self.shift(name, operands, kind),
            "bfe" | "bfi" | "prmt" | "lop3" | "shf" => self.fields(parts, operands, kind),
            "popc" | "clz" | "brev" | "bfind" | "not" | "neg" | "abs" | "cnot" => {
                self.unary(name, operands, kind)
            }
            _ => self.binary(name, operands, kind),
        }
    }

    fn predicate_logic(&mut self, name: &str, operands: &[Operand]) -> Result<bool, PtxError> {
        let (op, a, b, d) = match (name, operands) {
            ("not", [d, a]) => (Op::NotP, a, a, d),
            ("and", [d, a, b]) => (Op::AndP, a, b, d),
            ("or", [d, a, b]) => (Op::OrP, a, b, d),
            ("xor", [d, a, b]) => (Op::XorP, a, b, d),
            _ => return Ok(false),
        };
        let (a, b, d) = (self.predicate(a)?, self.predicate(b)?, self.predicate(d)?);
        self.emit(op, d, a, b, 0, 0);
        Ok(true)
    }

    /// The row of a 16- or 32-bit operand; of a signed 16-bit one, a row with its sign extended.
    fn extended(&mut self, operand: &Operand, kind: Kind) -> Result<u16, PtxError> {
        let row = self.narrow(operand, kind.bits)?;
        if kind.bits == 32 || !kind.signed {
            return Ok(row);
        }
        let temp = self.new_row(File::Narrow)?;
        self.emit(Op::TruncS, temp, row, 0, 0, kind.bits.into());
        Ok(temp)
    }

    /// After an operation on 32 bits: what a smaller type keeps of it.
    fn cut(&mut self, d: u16, kind: Kind) {
        if kind.bits < 32 {
            self.emit(Op::TruncU, d, d, 0, 0, kind.bits.into());
        }
    }

    fn binary(&mut self, name: &str, operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let [d, a, b] = operands else { return Ok(false) };
        let Some((narrow, wide)) = binary_ops(name, kind.signed) else { return Ok(false) };
        if kind.bits == 64 {
            let (d, a, b) = (self.wide(d)?, self.wide(a)?, self.wide(b)?);
            self.emit(wide, d, a, b, 0, 0);
        } else {
            let (d, a, b) = (self.narrow(d, kind.bits)?, self.extended(a, kind)?, self.extended(b, kind)?);
            self.emit(narrow, d, a, b, 0, 0);
            self.cut(d, kind);
        }
        Ok(true)
    }

    fn unary(&mut self, name: &str, operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let [d, a] = operands else { return Ok(false) };
        let (narrow, wide) = match (name, kind.signed) {
            ("popc", _) => (Op::Popc32, Op::Popc64),
            ("clz", _) => (Op::Clz32, Op::Clz64),
            ("brev", _) => (Op::Brev32, Op::Brev64),
            ("bfind", false) => (Op::BfindU32, Op::BfindU64),
            ("bfind", true) => (Op::BfindS32, Op::BfindS64),
            ("not", _) => (Op::Not32, Op::Not64),
            ("neg", _) => (Op::Neg32, Op::Neg64),
            ("abs", _) => (Op::Abs32, Op::Abs64),
            _ => return Ok(false),
        };
        if kind.bits == 64 {
            let a = self.wide(a)?;
            // Counts of 64 bits are 32-bit numbers.
            let d =
                if matches!(name, "popc" | "clz" | "bfind") { self.narrow(d, 32)? } else { self.wide(d)? };
            self.emit(wide, d, a, 0, 0, 0);
        } else {
            if kind.bits < 32 && matches!(name, "popc" | "clz" | "brev" | "bfind") {
                return Ok(false);
            }
            let (d, a) = (self.narrow(d, kind.bits)?, self.extended(a, kind)?);
            self.emit(narrow, d, a, 0, 0, 0);
            self.cut(d, kind);
        }
        Ok(true)
    }

    fn shift(&mut self, name: &str, operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let [d, a, by] = operands else { return Ok(false) };
        let by = self.narrow(by, 32)?;
        let (narrow, wide) = match (name, kind.signed) {
            ("shl", _) => (Op::Shl32, Op::Shl64),
            (_, false) => (Op::ShrU32, Op::ShrU64),
            (_, true) => (Op::ShrS32, Op::ShrS64),
        };
        if kind.bits == 64 {
            let (d, a) = (self.wide(d)?, self.wide(a)?);
            self.emit(wide, d, a, by, 0, 0);
        } else {
            let (d, a) = (self.narrow(d, kind.bits)?, self.extended(a, kind)?);
            self.emit(narrow, d, a, by, 0, 0);
            self.cut(d, kind);
        }
        Ok(true)
    }

    /// `mul` and `mad` with `.lo`, `.hi`, `.wide`; the 24-bit forms, whose operands clang has shown to fit, as the 32-bit ones.
    fn multiply(&mut self, parts: &[&str], operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let (&["mul" | "mad" | "mul24" | "mad24", part, _], [d, a, b, rest @ ..]) = (parts, operands) else {
            return Ok(false);
        };
        let add = rest.first();
        if parts.first().is_some_and(|p| p.ends_with("24")) && part != "lo" {
            return Ok(false);
        }
        match (part, kind.bits) {
            ("lo", 64) => {
                let (d, a, b) = (self.wide(d)?, self.wide(a)?, self.wide(b)?);
                let c = add.map_or(Ok(0), |c| self.wide(c))?;
                self.emit(if add.is_some() { Op::Mad64 } else { Op::Mul64 }, d, a, b, c, 0);
            }
            ("hi", 64) => {
                let (d, a, b) = (self.wide(d)?, self.wide(a)?, self.wide(b)?);
                self.emit(if kind.signed { Op::MulHiS64 } else { Op::MulHiU64 }, d, a, b, 0, 0);
                if let Some(c) = add {
                    let c = self.wide(c)?;
                    self.emit(Op::Add64, d, d, c, 0, 0);
                }
            }
            ("lo", bits) => {
                let (d, a, b) = (self.narrow(d, bits)?, self.narrow(a, bits)?, self.narrow(b, bits)?);
                let c = add.map_or(Ok(0), |c| self.narrow(c, bits))?;
                self.emit(if add.is_some() { Op::Mad32 } else { Op::Mul32 }, d, a, b, c, 0);
                self.cut(d, kind);
            }
            ("hi", 32) => {
                let (d, a, b) = (self.narrow(d, 32)?, self.narrow(a, 32)?, self.narrow(b, 32)?);
                let temp = self.new_row(File::Narrow)?;
                let product = if add.is_some() { temp } else { d };
                self.emit(if kind.signed { Op::MulHiS32 } else { Op::MulHiU32 }, product, a, b, 0, 0);
                if let Some(c) = add {
                    let c = self.narrow(c, 32)?;
                    self.emit(Op::Add32, d, temp, c, 0, 0);
                }
            }
            ("wide", 32) => {
                let (d, a, b) = (self.wide(d)?, self.narrow(a, 32)?, self.narrow(b, 32)?);
                let c = add.map_or(Ok(0), |c| self.wide(c))?;
                let op = match (add.is_some(), kind.signed) {
                    (false, false) => Op::MulWideU32,
                    (false, true) => Op::MulWideS32,
                    (true, false) => Op::MadWideU32,
                    (true, true) => Op::MadWideS32,
                };
                self.emit(op, d, a, b, c, 0);
            }
            ("wide", 16) => {
                let (d, a, b) = (self.narrow(d, 32)?, self.extended(a, kind)?, self.extended(b, kind)?);
                let c = add.map_or(Ok(0), |c| self.narrow(c, 32))?;
                self.emit(if add.is_some() { Op::Mad32 } else { Op::Mul32 }, d, a, b, c, 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fields(&mut self, parts: &[&str], operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        match (parts, operands) {
            (&["bfe", _], [d, a, from, length]) => {
                let (from, length) = (self.narrow(from, 32)?, self.narrow(length, 32)?);
                let op = match (kind.bits, kind.signed) {
                    (32, false) => Op::BfeU32,
                    (32, true) => Op::BfeS32,
                    (64, false) => Op::BfeU64,
                    (64, true) => Op::BfeS64,
                    _ => return Ok(false),
                };
                let (d, a) = if kind.bits == 64 {
                    (self.wide(d)?, self.wide(a)?)
                } else {
                    (self.narrow(d, 32)?, self.narrow(a, 32)?)
                };
                self.emit(op, d, a, from, length, 0);
            }
            (&["bfi", _], [d, a, b, at, length]) => {
                let (at, length) = (self.narrow(at, 32)?, self.narrow(length, 32)?);
                if kind.bits == 64 {
                    let (d, a, b) = (self.wide(d)?, self.wide(a)?, self.wide(b)?);
                    self.emit(Op::Bfi64, d, a, b, at, length.into());
                } else {
                    let (d, a, b) = (self.narrow(d, 32)?, self.narrow(a, 32)?, self.narrow(b, 32)?);
                    self.emit(Op::Bfi32, d, a, b, at, length.into());
                }
            }
            (&["prmt", "b32"], [d, a, b, selector]) => {
                let (d, a, b) = (self.narrow(d, 32)?, self.narrow(a, 32)?, self.narrow(b, 32)?);
                let selector = self.narrow(selector, 32)?;
                self.emit(Op::Prmt, d, a, b, selector, 0);
            }
            (&["lop3", "b32"], [d, a, b, c, Operand::Int(table)]) => {
                let (d, a, b, c) =
                    (self.narrow(d, 32)?, self.narrow(a, 32)?, self.narrow(b, 32)?, self.narrow(c, 32)?);
                self.emit(Op::Lop3, d, a, b, c, (*table & 0xff).cast_signed());
            }
            (&["shf", direction, mode, "b32"], [d, a, b, by]) => {
                let op = match (direction, mode) {
                    ("l", "wrap") => Op::ShfLeftWrap,
                    ("l", "clamp") => Op::ShfLeftClamp,
                    ("r", "wrap") => Op::ShfRightWrap,
                    ("r", "clamp") => Op::ShfRightClamp,
                    _ => return Ok(false),
                };
                let (d, a, b, by) =
                    (self.narrow(d, 32)?, self.narrow(a, 32)?, self.narrow(b, 32)?, self.narrow(by, 32)?);
                self.emit(op, d, a, b, by, 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `setp.CMP{.BOOL}.TYPE p{|q}, a, b{, c}`
    fn setp(&mut self, parts: &[&str], operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let (join, [d, a, b, rest @ ..]) = (if parts.len() == 4 { parts.get(2) } else { None }, operands)
        else {
            return Ok(false);
        };
        let compare = parts.get(1).copied().unwrap_or_default();
        let (first, second) = match d {
            Operand::Pair(p, q) => (p.clone(), Some(q.clone())),
            Operand::Name(p, _) => (p.clone(), None),
            _ => return Ok(false),
        };
        let result = self.new_row(File::Predicate)?;
        if !self.compare(result, compare, a, b, kind)? {
            return Ok(false);
        }
        let mut outcomes = vec![(result, Operand::Name(first, 0))];
        if let Some(second) = second {
            let turned = self.new_row(File::Predicate)?;
            self.emit(Op::NotP, turned, result, 0, 0, 0);
            outcomes.push((turned, Operand::Name(second, 0)));
        }
        let op = match (join, rest) {
            (None, []) => None,
            (Some(&"and"), [_]) => Some(Op::AndP),
            (Some(&"or"), [_]) => Some(Op::OrP),
            (Some(&"xor"), [_]) => Some(Op::XorP),
            _ => return Ok(false),
        };
        let joined = rest.first().map_or(Ok(0), |c| self.predicate(c))?;
        for &(row, _) in &outcomes {
            if let Some(op) = op {
                self.emit(op, row, row, joined, 0, 0);
            }
        }
        if let (None, [(row, d)]) = (op, outcomes.as_slice()) {
            // The plain form, which is nearly all: straight into its register.
            let d = self.predicate(d)?;
            self.retarget(*row, d);
            return Ok(true);
        }
        for (row, d) in outcomes {
            let d = self.predicate(&d)?;
            self.emit(Op::MovP, d, row, 0, 0, 0);
        }
        Ok(true)
    }

    fn compare(
        &mut self,
        d: u16,
        compare: &str,
        a: &Operand,
        b: &Operand,
        kind: Kind,
    ) -> Result<bool, PtxError> {
        if kind.float {
            let float = match compare {
                "lt" => Float::Lt32,
                "le" => Float::Le32,
                "gt" => Float::Gt32,
                "ge" => Float::Ge32,
                "eq" => Float::Eq32,
                "ne" | "neu" => Float::Ne32,
                _ => return Ok(false),
            };
            if kind.bits != 32 {
                return Ok(false);
            }
            let (a, b) = (self.narrow(a, 32)?, self.narrow(b, 32)?);
            self.emit(Op::Float, d, a, b, 0, float as i64);
            return Ok(true);
        }
        let (narrow, wide) = match (compare, kind.signed) {
            ("eq", _) => (Op::EqS32, Op::Eq64),
            ("ne", _) => (Op::NeS32, Op::Ne64),
            ("lt", true) => (Op::LtS32, Op::LtS64),
            ("le", true) => (Op::LeS32, Op::LeS64),
            ("gt", true) => (Op::GtS32, Op::GtS64),
            ("ge", true) => (Op::GeS32, Op::GeS64),
            ("lt" | "lo", _) => (Op::LtU32, Op::LtU64),
            ("le" | "ls", _) => (Op::LeU32, Op::LeU64),
            ("gt" | "hi", _) => (Op::GtU32, Op::GtU64),
            ("ge" | "hs", _) => (Op::GeU32, Op::GeU64),
            _ => return Ok(false),
        };
        if kind.bits == 64 {
            let (a, b) = (self.wide(a)?, self.wide(b)?);
            self.emit(wide, d, a, b, 0, 0);
        } else {
            let (a, b) = (self.extended(a, kind)?, self.extended(b, kind)?);
            self.emit(narrow, d, a, b, 0, 0);
        }
        Ok(true)
    }

    fn selp(&mut self, operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let [d, a, b, p] = operands else { return Ok(false) };
        let p = self.predicate(p)?;
        if kind.bits == 64 {
            let (d, a, b) = (self.wide(d)?, self.wide(a)?, self.wide(b)?);
            self.emit(Op::Selp64, d, a, b, p, 0);
        } else {
            let (d, a, b) =
                (self.narrow(d, kind.bits)?, self.narrow(a, kind.bits)?, self.narrow(b, kind.bits)?);
            self.emit(Op::Selp32, d, a, b, p, 0);
        }
        Ok(true)
    }

    /// `cvta{.to}.SPACE.u64`: only shared memory has addresses of its own.
    fn cvta(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let [d, a] = operands else { return Ok(false) };
        let (d, a) = (self.wide(d)?, self.wide(a)?);
        let shared = parts.iter().any(|p| p.starts_with("shared"));
        if !shared && !parts.iter().any(|p| matches!(*p, "global" | "const")) {
            return Ok(false);
        }
        if !shared {
            self.emit(Op::Mov64, d, a, 0, 0, 0);
            return Ok(true);
        }
        let window = self.constant64(SHARED_WINDOW)?;
        self.emit(if parts.contains(&"to") { Op::Sub64 } else { Op::Add64 }, d, a, window, 0, 0);
        Ok(true)
    }

    fn cvt(&mut self, parts: &[&str], operands: &[Operand], source: Kind) -> Result<bool, PtxError> {
        let [d, s] = operands else { return Ok(false) };
        let Some(target) = parts.len().checked_sub(2).and_then(|i| parts.get(i)).and_then(|p| kind_of(p))
        else {
            return Ok(false);
        };
        if target.float || source.float {
            return self.cvt_float(parts, d, s, target, source);
        }
        let (target_bits, source_bits) = (self.bits_of(d)?, self.bits_of(s)?);
        // The value, extended as its type says to the whole of a 32-bit or 64-bit row.
        let wide_source = source_bits == 64 && (source.bits == 64 || !matches!(s, Operand::Int(_)));
        let (mut row, mut in_wide) =
            if wide_source { (self.wide(s)?, true) } else { (self.narrow(s, source.bits)?, false) };
        let row_bits = if in_wide { 64 } else { 32 };
        if source.bits < row_bits {
            let temp = self.new_row(if in_wide { File::Wide } else { File::Narrow })?;
            let op = match (in_wide, source.signed) {
                (false, false) => Op::TruncU,
                (false, true) => Op::TruncS,
                (true, false) => Op::Trunc64U,
                (true, true) => Op::Trunc64S,
            };
            self.emit(op, temp, row, 0, 0, source.bits.into());
            row = temp;
        }
        let saturate = parts.contains(&"sat");
        if !in_wide && (target.bits == 64 || target_bits == 64 || saturate) {
            let temp = self.new_row(File::Wide)?;
            self.emit(if source.signed { Op::ExtS64 } else { Op::ExtU64 }, temp, row, 0, 0, 0);
            (row, in_wide) = (temp, true);
        }
        if saturate {
            let temp = self.new_row(File::Wide)?;
            let packed = target.bits | u32::from(target.signed) << 8 | u32::from(source.signed) << 9;
            self.emit(Op::CvtSat, temp, row, 0, 0, packed.into());
            row = temp;
        }
        if target_bits == 64 {
            let d = self.wide(d)?;
            if target.bits == 64 {
                self.emit(Op::Mov64, d, row, 0, 0, 0);
            } else {
                self.emit(
                    if target.signed { Op::Trunc64S } else { Op::Trunc64U },
                    d,
                    row,
                    0,
                    0,
                    target.bits.into(),
                );
            }
            return Ok(true);
        }
        let d = self.narrow(d, 32)?;
        self.emit(if in_wide { Op::Low32 } else { Op::Mov32 }, d, row, 0, 0, 0);
        if target.bits < 32 {
            self.emit(if target.signed { Op::TruncS } else { Op::TruncU }, d, d, 0, 0, target.bits.into());
            if target.signed && target_bits == 16 {
                self.emit(Op::TruncU, d, d, 0, 0, 16);
            }
        }
        Ok(true)
    }

    fn cvt_float(
        &mut self,
        parts: &[&str],
        d: &Operand,
        s: &Operand,
        target: Kind,
        source: Kind,
    ) -> Result<bool, PtxError> {
        let to_zero = parts.iter().any(|p| p.starts_with("rz"));
        let float = match (target.float, target.bits, target.signed, source.float, source.bits, source.signed)
        {
            (true, 32, _, false, 32, false) if to_zero => Float::To32FromU32Zero,
            (true, 32, _, false, 32, false) => Float::U32To32,
            (true, 32, _, false, 32, true) => Float::S32To32,
            (true, 32, _, false, 64, false) => Float::U64To32,
            (true, 64, _, false, 32, false) => Float::U32To64,
            (true, 64, _, false, 32, true) => Float::S32To64,
            (true, 64, _, false, 64, false) => Float::U64To64,
            (true, 64, _, true, 32, _) => Float::To64Widen,
            (true, 32, _, true, 64, _) => Float::To32Narrow,
            (false, 32, false, true, 32, _) if to_zero => Float::F32ToU32,
            (false, 32, true, true, 32, _) if to_zero => Float::F32ToS32,
            (false, 64, false, true, 32, _) if to_zero => Float::F32ToU64,
            (false, 32, false, true, 64, _) if to_zero => Float::F64ToU32,
            (false, 64, false, true, 64, _) if to_zero => Float::F64ToU64,
            _ => return Ok(false),
        };
        let d = if target.bits == 64 { self.wide(d)? } else { self.narrow(d, 32)? };
        let s = if source.bits == 64 { self.wide(s)? } else { self.narrow(s, 32)? };
        self.emit(Op::Float, d, s, 0, 0, float as i64);
        Ok(true)
    }

    fn float(&mut self, name: &str, operands: &[Operand], kind: Kind) -> Result<bool, PtxError> {
        let (float, [d, a, b, rest @ ..]) = (
            match (name, kind.bits) {
                ("add", 32) => Float::Add32,
                ("sub", 32) => Float::Sub32,
                ("mul", 32) => Float::Mul32,
                ("div", 32) => Float::Div32,
                ("fma", 32) => Float::Fma32,
                ("add", 64) => Float::Add64,
                ("sub", 64) => Float::Sub64,
                ("mul", 64) => Float::Mul64,
                ("div", 64) => Float::Div64,
                ("fma", 64) => Float::Fma64,
                _ => return Ok(false),
            },
            operands,
        ) else {
            return Ok(false);
        };
        let mut row = |o: &Operand| if kind.bits == 64 { self.wide(o) } else { self.narrow(o, 32) };
        let (d, a, b) = (row(d)?, row(a)?, row(b)?);
        let c = rest.first().map_or(Ok(0), row)?;
        self.emit(Op::Float, d, a, b, c, float as i64);
        Ok(true)
    }
}

fn binary_ops(name: &str, signed: bool) -> Option<(Op, Op)> {
    Some(match (name, signed) {
        ("add", _) => (Op::Add32, Op::Add64),
        ("sub", _) => (Op::Sub32, Op::Sub64),
        ("and", _) => (Op::And32, Op::And64),
        ("or", _) => (Op::Or32, Op::Or64),
        ("xor", _) => (Op::Xor32, Op::Xor64),
        ("div", false) => (Op::DivU32, Op::DivU64),
        ("div", true) => (Op::DivS32, Op::DivS64),
        ("rem", false) => (Op::RemU32, Op::RemU64),
        ("rem", true) => (Op::RemS32, Op::RemS64),
        ("min", false) => (Op::MinU32, Op::MinU64),
        ("min", true) => (Op::MinS32, Op::MinS64),
        ("max", false) => (Op::MaxU32, Op::MaxU64),
        ("max", true) => (Op::MaxS32, Op::MaxS64),
        _ => return None,
    })
}
