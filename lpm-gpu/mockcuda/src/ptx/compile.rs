//! Statements of one entry to bytecode: names to rows, labels to positions, opcodes to operations. Integer arithmetic is in
//! `integer`, loads, stores and atomics in `memory`; here is the rest: moves, jumps, barriers, exchanges between lanes.

use super::PtxError;
use super::code::{Ins, Kernel, LANES, Op, Special, UNGUARDED};
use super::parse::{Entry, Instruction, Operand, Statement, Variable};
use std::collections::HashMap;

/// Where generic addresses of shared memory start; its own addresses start at 0.
pub(crate) const SHARED_WINDOW: u64 = 0x0700_0000_0000;

/// A file of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    /// Up to 32 bits.
    Narrow,
    /// 64 bits.
    Wide,
    /// Predicates.
    Predicate,
}

/// A declared register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    pub(super) file: File,
    pub(super) row: u16,
    /// Bits of its declaration.
    pub(super) bits: u32,
}

/// A type at the end of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) bits: u32,
    pub(super) signed: bool,
    pub(super) float: bool,
}

/// Reads `u32`, `s64`, `b16`, `f32`.
pub(super) fn kind_of(name: &str) -> Option<Kind> {
    let letter = name.chars().next()?;
    let bits: u32 = name.get(1..)?.parse().ok()?;
    if !matches!(letter, 'u' | 's' | 'b' | 'f') || !matches!(bits, 8 | 16 | 32 | 64) {
        return None;
    }
    Some(Kind { bits, signed: letter == 's', float: letter == 'f' })
}

/// Compiles `entry`; `variables` are the addresses of the module's own.
///
/// # Errors
/// What is not modelled, with its line.
pub(crate) fn compile(
    entry: &Entry,
    variables: &HashMap<String, u64>,
    shared: &[Variable],
) -> Result<Kernel, PtxError> {
    let mut compiler = Compiler::new(entry, variables, shared);
    for statement in &entry.body {
        compiler.statement(statement)?;
    }
    compiler.finish()
}

/// The state of a compilation.
pub(super) struct Compiler<'a> {
    entry: &'a Entry,
    declared: HashMap<&'a str, (File, u32, u32)>,
    registers: HashMap<String, Register>,
    pub(super) addresses: HashMap<String, u64>,
    labels: HashMap<&'a str, u32>,
    jumps: Vec<(usize, String, u32)>,
    table_names: Vec<(String, u32)>,
    table_targets: HashMap<&'a str, &'a [String]>,
    constants32: HashMap<u32, u16>,
    constants64: HashMap<u64, u16>,
    specials: Vec<(u16, Special)>,
    pub(super) lists: Vec<[u16; 4]>,
    rows: [u16; 3],
    code: Vec<Ins>,
    lines: Vec<u32>,
    line: u32,
    guard: u16,
    shared_bytes: usize,
}

impl<'a> Compiler<'a> {
    fn new(entry: &'a Entry, variables: &HashMap<String, u64>, shared: &[Variable]) -> Self {
        let mut addresses = variables.clone();
        let mut shared_bytes = 0_usize;
        // Variables of known size first: the one of unknown size is the launch's, and starts where they end.
        for variable in entry.shared.iter().chain(shared.iter().filter(|v| v.bytes > 0)) {
            shared_bytes = shared_bytes.next_multiple_of(variable.align);
            addresses.insert(variable.name.clone(), shared_bytes as u64);
            shared_bytes += variable.bytes;
        }
        shared_bytes = shared_bytes.next_multiple_of(16);
        for variable in shared.iter().filter(|v| v.bytes == 0) {
            addresses.insert(variable.name.clone(), shared_bytes as u64);
        }
        let mut declared = HashMap::new();
        for (name, kind, count) in &entry.registers {
            let (file, bits) = match (kind.as_str(), kind_of(kind)) {
                ("pred", _) => (File::Predicate, 1),
                (_, Some(k)) if k.bits == 64 => (File::Wide, 64),
                (_, Some(k)) => (File::Narrow, k.bits),
                (_, None) => continue,
            };
            declared.insert(name.as_str(), (file, bits, *count));
        }
        Self {
            entry,
            declared,
            registers: HashMap::new(),
            addresses,
            labels: HashMap::new(),
            jumps: Vec::new(),
            table_names: Vec::new(),
            table_targets: HashMap::new(),
            constants32: HashMap::new(),
            constants64: HashMap::new(),
            specials: Vec::new(),
            lists: Vec::new(),
            rows: [0; 3],
            code: Vec::new(),
            lines: Vec::new(),
            line: 0,
            guard: UNGUARDED,
            shared_bytes,
        }
    }

    pub(super) fn error<T>(&self, what: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError::new(self.line, what))
    }

    pub(super) fn new_row(&mut self, file: File) -> Result<u16, PtxError> {
        let next = &mut self.rows[file as usize];
        // Guards hold a predicate's row in 15 bits.
        if *next >= 0x7fff {
            return self.error("too many registers");
        }
        *next += 1;
        Ok(*next - 1)
    }

    /// The register `name`, which must be declared.
    pub(super) fn register(&mut self, name: &str) -> Result<Register, PtxError> {
        if let Some(&register) = self.registers.get(name) {
            return Ok(register);
        }
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name.get(prefix.len()..).unwrap_or_default();
        let whole = self.declared.get(name).filter(|d| d.2 == 0);
        let counted = self.declared.get(prefix).filter(|d| number.parse().is_ok_and(|n: u32| n < d.2));
        let Some(&(file, bits, _)) = whole.or(counted) else {
            return self.error(format!("`{name}` is not declared"));
        };
        let register = Register { file, row: self.new_row(file)?, bits };
        self.registers.insert(name.to_owned(), register);
        Ok(register)
    }

    /// The declared width of the register that `operand` names.
    pub(super) fn bits_of(&mut self, operand: &Operand) -> Result<u32, PtxError> {
        match operand {
            Operand::Name(name, _) if self.is_declared(name) => Ok(self.register(name)?.bits),
            _ => Ok(64),
        }
    }

    fn is_declared(&self, name: &str) -> bool {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.registers.contains_key(name)
            || self.declared.contains_key(name)
            || self.declared.contains_key(prefix)
    }

    pub(super) fn constant32(&mut self, value: u32) -> Result<u16, PtxError> {
        if let Some(&row) = self.constants32.get(&value) {
            return Ok(row);
        }
        let row = self.new_row(File::Narrow)?;
        self.constants32.insert(value, row);
        Ok(row)
    }

    pub(super) fn constant64(&mut self, value: u64) -> Result<u16, PtxError> {
        if let Some(&row) = self.constants64.get(&value) {
            return Ok(row);
        }
        let row = self.new_row(File::Wide)?;
        self.constants64.insert(value, row);
        Ok(row)
    }

    fn special(&mut self, special: Special) -> Result<u16, PtxError> {
        if let Some(&(row, _)) = self.specials.iter().find(|s| s.1 == special) {
            return Ok(row);
        }
        let row = self.new_row(File::Narrow)?;
        self.specials.push((row, special));
        Ok(row)
    }

    /// The 32-bit row that holds `operand`, `bits` wide if it is a number.
    pub(super) fn narrow(&mut self, operand: &Operand, bits: u32) -> Result<u16, PtxError> {
        match operand {
            Operand::Int(value) => {
                let mask = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
                self.constant32(*value as u32 & mask)
            }
            Operand::F32(value) => self.constant32(*value),
            Operand::Name(name, offset) => {
                if let Some(special) = special_of(name) {
                    return self.special(special);
                }
                if let Some(&address) = self.addresses.get(name) {
                    return self.constant32(address.wrapping_add_signed(*offset) as u32);
                }
                let register = self.register(name)?;
                if register.file == File::Narrow {
                    Ok(register.row)
                } else {
                    self.error(format!("`{name}` should have at most 32 bits"))
                }
            }
            other => self.error(format!("operand {other:?} does not fit here")),
        }
    }

    /// The 64-bit row that holds `operand`.
    pub(super) fn wide(&mut self, operand: &Operand) -> Result<u16, PtxError> {
        match operand {
            Operand::Int(value) | Operand::F64(value) => self.constant64(*value),
            Operand::Name(name, offset) => {
                if let Some(&address) = self.addresses.get(name) {
                    return self.constant64(address.wrapping_add_signed(*offset));
                }
                let register = self.register(name)?;
                if register.file == File::Wide {
                    Ok(register.row)
                } else {
                    self.error(format!("`{name}` should have 64 bits"))
                }
            }
            other => self.error(format!("operand {other:?} does not fit here")),
        }
    }

    /// The predicate row that holds `operand`.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<u16, PtxError> {
        match operand {
            Operand::Name(name, _) => {
                let register = self.register(name)?;
                if register.file == File::Predicate {
                    Ok(register.row)
                } else {
                    self.error(format!("`{name}` is no predicate"))
                }
            }
            Operand::Not(name) => {
                let row = self.predicate(&Operand::Name(name.clone(), 0))?;
                let turned = self.new_row(File::Predicate)?;
                self.emit(Op::NotP, turned, row, 0, 0, 0);
                Ok(turned)
            }
            other => self.error(format!("operand {other:?} is no predicate")),
        }
    }

    pub(super) fn emit(&mut self, op: Op, d: u16, a: u16, b: u16, c: u16, imm: i64) {
        self.code.push(Ins { op, guard: self.guard, d, a, b, c, imm });
        self.lines.push(self.line);
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<(), PtxError> {
        match statement {
            Statement::Label(name) => {
                let at = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
                self.labels.insert(name, at);
                Ok(())
            }
            Statement::Targets(name, targets) => {
                self.table_targets.insert(name, targets);
                Ok(())
            }
            Statement::Instruction(instruction) => {
                self.line = instruction.line;
                self.guard = match &instruction.guard {
                    None => UNGUARDED,
                    Some((name, negated)) => {
                        self.predicate(&Operand::Name(name.clone(), 0))? << 1 | u16::from(*negated)
                    }
                };
                self.instruction(instruction)
            }
        }
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<(), PtxError> {
        let parts: Vec<&str> = instruction.opcode.split('.').collect();
        let operands = instruction.operands.as_slice();
        let name = parts.first().copied().unwrap_or_default();
        let known = match name {
            "mov" => self.mov(&parts, operands)?,
            "bra" => self.jump(operands)?,
            "brx" => self.jump_table(operands)?,
            "ret" | "exit" => self.plain(Op::Exit),
            "trap" => self.plain(Op::Trap),
            "brkpt" | "prefetch" | "prefetchu" | "discard" | "applypriority" | "griddepcontrol"
            | "pmevent" => true,
            "membar" | "fence" => self.plain(Op::Fence),
            "nanosleep" => self.plain(Op::Nanosleep),
            "bar" | "barrier" => self.barrier(&parts, operands)?,
            "shfl" => self.shuffle(&parts, operands)?,
            "vote" => self.vote(&parts, operands)?,
            "activemask" => match operands {
                [d] => {
                    let d = self.narrow(d, 32)?;
                    self.emit(Op::ActiveMask, d, 0, 0, 0, 0);
                    true
                }
                _ => false,
            },
            "ld" | "ldu" | "st" | "atom" | "red" => self.memory(&parts, operands)?,
            _ => self.arithmetic(&parts, operands)?,
        };
        if known {
            Ok(())
        } else {
            self.error(format!("instruction `{}` is not known to mockcuda", instruction.opcode))
        }
    }

    fn plain(&mut self, op: Op) -> bool {
        self.emit(op, 0, 0, 0, 0, 0);
        true
    }

    fn mov(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let (Some(&kind), [d, s]) = (parts.last(), operands) else { return Ok(false) };
        if kind == "pred" {
            let (d, s) = (self.predicate(d)?, self.predicate(s)?);
            self.emit(Op::MovP, d, s, 0, 0, 0);
            return Ok(true);
        }
        if let (Operand::Name(_, _), Operand::Name(name, _)) = (d, s) {
            let clock = match name.as_str() {
                "%clock" | "%clock_hi" | "%globaltimer_lo" => Some(Op::Clock32),
                "%clock64" | "%globaltimer" => Some(Op::Clock64),
                _ => None,
            };
            if let Some(op) = clock {
                let d = if op == Op::Clock64 { self.wide(d)? } else { self.narrow(d, 32)? };
                self.emit(op, d, 0, 0, 0, 0);
                return Ok(true);
            }
        }
        match (d, s, kind_of(kind).map(|k| k.bits)) {
            (_, Operand::Vector(halves), Some(bits)) => self.pack(d, halves, bits),
            (Operand::Vector(halves), _, Some(bits)) => self.unpack(halves, s, bits),
            (_, _, Some(64)) => {
                let (d, s) = (self.wide(d)?, self.wide(s)?);
                self.emit(Op::Mov64, d, s, 0, 0, 0);
                Ok(true)
            }
            (_, _, Some(bits)) => {
                let (d, s) = (self.narrow(d, bits)?, self.narrow(s, bits)?);
                self.emit(Op::Mov32, d, s, 0, 0, 0);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// `mov.b64 %rd, {%r1, %r2}` and `mov.b32 %r, {%rs1, %rs2}`.
    fn pack(&mut self, d: &Operand, halves: &[Operand], bits: u32) -> Result<bool, PtxError> {
        let [low, high] = halves else { return Ok(false) };
        let (low, high) = (self.narrow(low, bits / 2)?, self.narrow(high, bits / 2)?);
        if bits == 64 {
            let d = self.wide(d)?;
            self.emit(Op::Pack64, d, low, high, 0, 0);
        } else {
            let (d, temp, sixteen) = (self.narrow(d, 32)?, self.new_row(File::Narrow)?, self.constant32(16)?);
            self.emit(Op::Shl32, temp, high, sixteen, 0, 0);
            self.emit(Op::Or32, d, temp, low, 0, 0);
        }
        Ok(bits >= 32)
    }

    /// `mov.b64 {%r1, %r2}, %rd` and `mov.b32 {%rs1, %rs2}, %r`. A `_` half is not wanted.
    fn unpack(&mut self, halves: &[Operand], s: &Operand, bits: u32) -> Result<bool, PtxError> {
        let [low, high] = halves else { return Ok(false) };
        let unwanted = Operand::Name("_".to_owned(), 0);
        if bits == 64 {
            let s = self.wide(s)?;
            for (half, op) in [(low, Op::Low32), (high, Op::High32)].into_iter().filter(|h| *h.0 != unwanted)
            {
                let d = self.narrow(half, 32)?;
                self.emit(op, d, s, 0, 0, 0);
            }
        } else {
            let (s, sixteen) = (self.narrow(s, 32)?, self.constant32(16)?);
            // The high half first into a row of its own: `s` may be one of the halves.
            let temp = self.new_row(File::Narrow)?;
            self.emit(Op::ShrU32, temp, s, sixteen, 0, 0);
            if *low != unwanted {
                let d = self.narrow(low, 16)?;
                self.emit(Op::TruncU, d, s, 0, 0, 16);
            }
            if *high != unwanted {
                let d = self.narrow(high, 16)?;
                self.emit(Op::Mov32, d, temp, 0, 0, 0);
            }
        }
        Ok(bits >= 32)
    }

    fn jump(&mut self, operands: &[Operand]) -> Result<bool, PtxError> {
        let [Operand::Name(label, 0)] = operands else { return Ok(false) };
        self.jumps.push((self.code.len(), label.clone(), self.line));
        self.emit(Op::Bra, 0, 0, 0, 0, 0);
        Ok(true)
    }

    fn jump_table(&mut self, operands: &[Operand]) -> Result<bool, PtxError> {
        let [index, Operand::Name(table, 0)] = operands else { return Ok(false) };
        let index = self.narrow(index, 32)?;
        self.emit(Op::BraTable, 0, index, 0, 0, self.table_names.len() as i64);
        self.table_names.push((table.clone(), self.line));
        Ok(true)
    }

    fn barrier(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        if parts.contains(&"warp") {
            let [mask] = operands else { return Ok(false) };
            let mask = self.narrow(mask, 32)?;
            self.emit(Op::WarpSync, 0, mask, 0, 0, 0);
            return Ok(true);
        }
        let [number] = operands else { return Ok(false) };
        if !parts.contains(&"sync") || self.guard != UNGUARDED {
            return Ok(false);
        }
        let number = self.narrow(number, 32)?;
        self.emit(Op::Barrier, 0, number, 0, 0, 0);
        Ok(true)
    }

    /// `shfl.sync.MODE.b32 d|p, a, b, c, mask`
    fn shuffle(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let (&["shfl", "sync", mode, "b32"], [d, a, b, c, mask]) = (parts, operands) else {
            return Ok(false);
        };
        let mode = match mode {
            "up" => 0,
            "down" => 1,
            "bfly" => 2,
            "idx" => 3,
            _ => return Ok(false),
        };
        let (d, valid) = match d {
            Operand::Pair(d, p) => (self.register(d)?.row, self.predicate(&Operand::Name(p.clone(), 0))?),
            other => (self.narrow(other, 32)?, u16::MAX),
        };
        let (a, b) = (self.narrow(a, 32)?, self.narrow(b, 32)?);
        let list = [self.narrow(c, 32)?, self.narrow(mask, 32)?, valid, 0];
        let list = self.list(list);
        self.emit(Op::Shfl, d, a, b, list, mode);
        Ok(true)
    }

    /// `vote.sync.MODE.{pred|b32} d, p, mask`
    fn vote(&mut self, parts: &[&str], operands: &[Operand]) -> Result<bool, PtxError> {
        let (&["vote", "sync", mode, _], [d, p, mask]) = (parts, operands) else { return Ok(false) };
        let mode = match mode {
            "all" => 0,
            "any" => 1,
            "uni" => 2,
            "ballot" => 3,
            _ => return Ok(false),
        };
        let d = if mode == 3 { self.narrow(d, 32)? } else { self.predicate(d)? };
        let (p, mask) = (self.predicate(p)?, self.narrow(mask, 32)?);
        self.emit(Op::Vote, d, p, mask, 0, mode);
        Ok(true)
    }

    pub(super) fn list(&mut self, rows: [u16; 4]) -> u16 {
        self.lists.push(rows);
        u16::try_from(self.lists.len() - 1).unwrap_or(u16::MAX)
    }

    /// The offset of parameter `name`.
    pub(super) fn param_offset(&self, name: &str) -> Option<usize> {
        self.entry.params.iter().find(|p| p.name == name).map(|p| p.offset)
    }

    fn label(&self, name: &str, line: u32) -> Result<u32, PtxError> {
        self.labels
            .get(name)
            .copied()
            .ok_or_else(|| PtxError::new(line, format!("label `{name}` is missing")))
    }

    fn finish(mut self) -> Result<Kernel, PtxError> {
        self.guard = UNGUARDED;
        self.emit(Op::Exit, 0, 0, 0, 0, 0);
        if self.lists.len() > usize::from(u16::MAX) {
            return self.error("too many vector operands");
        }
        for (at, label, line) in std::mem::take(&mut self.jumps) {
            let target = self.label(&label, line)?;
            if let Some(ins) = self.code.get_mut(at) {
                ins.imm = i64::from(target);
            }
        }
        let mut tables = Vec::new();
        for (name, line) in &self.table_names {
            let Some(targets) = self.table_targets.get(name.as_str()) else {
                return Err(PtxError::new(*line, format!("targets `{name}` are missing")));
            };
            tables.push(targets.iter().map(|t| self.label(t, *line)).collect::<Result<Vec<_>, _>>()?);
        }
        let registers = self.registers.values().map(|r| if r.file == File::Wide { 2 } else { 1 }).sum();
        Ok(Kernel {
            name: self.entry.name.clone(),
            params: self.entry.params.clone(),
            code: self.code,
            lines: self.lines,
            rows: (self.rows[0].into(), self.rows[1].into(), self.rows[2].into()),
            constants32: self.constants32.into_iter().map(|(value, row)| (row, value)).collect(),
            constants64: self.constants64.into_iter().map(|(value, row)| (row, value)).collect(),
            specials: self.specials,
            lists: self.lists,
            tables,
            shared_bytes: self.shared_bytes,
            param_bytes: self.entry.params.last().map_or(0, |p| p.offset + p.bytes),
            threads_max: self.entry.threads_max,
            registers,
        })
    }
}

fn special_of(name: &str) -> Option<Special> {
    let (base, axis) = match name.split_once('.') {
        Some((base, "x")) => (base, 0),
        Some((base, "y")) => (base, 1),
        Some((base, "z")) => (base, 2),
        Some(_) => return None,
        None => (name, LANES),
    };
    Some(match (base, axis < 3) {
        ("%tid", true) => Special::Tid(axis),
        ("%ntid", true) => Special::Ntid(axis),
        ("%ctaid", true) => Special::Ctaid(axis),
        ("%nctaid", true) => Special::Nctaid(axis),
        ("%laneid", false) => Special::LaneId,
        ("%warpid", false) => Special::WarpId,
        ("%nwarpid", false) => Special::NumWarps,
        ("%smid", false) => Special::SmId,
        ("%lanemask_eq", false) => Special::LaneMaskEq,
        ("%lanemask_lt", false) => Special::LaneMaskLt,
        ("%lanemask_le", false) => Special::LaneMaskLe,
        ("%lanemask_gt", false) => Special::LaneMaskGt,
        ("%lanemask_ge", false) => Special::LaneMaskGe,
        ("%dynamic_smem_size", false) => Special::DynamicSharedBytes,
        _ => return None,
    })
}

impl Compiler<'_> {
    /// Lets the last instruction write row `d` where it wrote `row`.
    pub(super) fn retarget(&mut self, row: u16, d: u16) {
        if let Some(last) = self.code.last_mut().filter(|last| last.d == row) {
            last.d = d;
        }
    }
}
