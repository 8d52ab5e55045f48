//! Compiles an entry's statements to bytecode: names to rows, labels to positions, opcodes to operations.

use super::PtxError;
use super::code::{Ins, Op, PtxKernel, Special, UNGUARDED};
use super::opcodes::{ARITHMETIC, CONTROL, MEMORY, OperandKind};
use super::parse::{Instruction, Operand, PtxEntry, Statement, Variable};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Narrow,
    Wide,
    Predicate,
}

/// Compiles `entry` of a module with the shared variables `shared`; an error has the line of the unsupported statement.
pub(crate) fn compile(entry: &PtxEntry, shared: &[Variable]) -> Result<PtxKernel, PtxError> {
    let mut compiler = Compiler::new(entry, shared);
    for statement in &entry.body {
        compiler.statement(statement)?;
    }
    compiler.finish()
}

struct Compiler<'a> {
    entry: &'a PtxEntry,
    /// Type and number of a name's registers (0: the name itself is the register).
    declared: HashMap<&'a str, (OperandKind, u32)>,
    registers: HashMap<&'a str, (OperandKind, u16)>,
    variables: HashMap<&'a str, u64>,
    labels: HashMap<&'a str, i64>,
    /// Jumps to resolve: instruction, label, line.
    jumps: Vec<(usize, &'a str, u32)>,
    narrow_constants: HashMap<u32, u16>,
    wide_constants: HashMap<u64, u16>,
    specials: Vec<(u16, Special)>,
    rows: [u16; 3],
    code: Vec<Ins>,
    lines: Vec<u32>,
    line: u32,
    guard: u16,
    shared_bytes: usize,
}

const BLANK: Ins = Ins { op: Op::Exit, guard: UNGUARDED, d: 0, a: 0, b: 0, c: 0, e: 0, imm: 0 };

const fn file_of(kind: OperandKind) -> File {
    match kind {
        OperandKind::Half | OperandKind::Narrow => File::Narrow,
        OperandKind::Wide => File::Wide,
        OperandKind::Predicate => File::Predicate,
    }
}

impl<'a> Compiler<'a> {
    fn new(entry: &'a PtxEntry, shared: &'a [Variable]) -> Self {
        let mut variables = HashMap::new();
        let mut shared_bytes = 0_usize;
        for variable in entry.shared.iter().chain(shared) {
            shared_bytes = shared_bytes.next_multiple_of(variable.align);
            variables.insert(variable.name.as_str(), shared_bytes as u64);
            shared_bytes += variable.bytes;
        }
        let declared = entry.registers.iter().filter_map(|(name, kind, count)| {
            let kind = match kind.as_str() {
                ".pred" => OperandKind::Predicate,
                ".b16" => OperandKind::Half,
                ".b32" => OperandKind::Narrow,
                ".b64" => OperandKind::Wide,
                _ => return None,
            };
            Some((name.as_str(), (kind, *count)))
        });
        Self {
            entry,
            declared: declared.collect(),
            registers: HashMap::new(),
            variables,
            labels: HashMap::new(),
            jumps: Vec::new(),
            narrow_constants: HashMap::new(),
            wide_constants: HashMap::new(),
            specials: Vec::new(),
            rows: [0; 3],
            code: Vec::new(),
            lines: Vec::new(),
            line: 0,
            guard: UNGUARDED,
            shared_bytes,
        }
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError::new(self.line, what))
    }

    fn new_row(&mut self, file: File) -> Result<u16, PtxError> {
        let next = &mut self.rows[file as usize];
        *next += 1;
        // `UNGUARDED` is not a row.
        if *next == u16::MAX { self.error("too many registers") } else { Ok(self.rows[file as usize] - 1) }
    }

    fn register(&mut self, name: &'a str, wanted: OperandKind) -> Result<u16, PtxError> {
        let known = match self.registers.get(name) {
            Some(&known) => known,
            None => {
                let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let number = name.get(prefix.len()..).unwrap_or_default().parse::<u32>();
                let whole = self.declared.get(name).filter(|d| d.1 == 0);
                let counted = self.declared.get(prefix).filter(|d| number.is_ok_and(|n| n < d.1));
                let Some(&(kind, _)) = whole.or(counted) else {
                    return self.error(format!("`{name}` is not declared, or not known to mockcuda"));
                };
                let made = (kind, self.new_row(file_of(kind))?);
                self.registers.insert(name, made);
                made
            }
        };
        if known.0 == wanted {
            Ok(known.1)
        } else {
            self.error(format!("`{name}` is of kind {:?}, and {wanted:?} is needed", known.0))
        }
    }

    fn constant(&mut self, kind: OperandKind, value: u64) -> Result<u16, PtxError> {
        let known = match kind {
            OperandKind::Half => self.narrow_constants.get(&(value as u32 & 0xffff)),
            OperandKind::Narrow => self.narrow_constants.get(&(value as u32)),
            OperandKind::Wide => self.wide_constants.get(&value),
            OperandKind::Predicate => return self.error("a number is no predicate"),
        };
        if let Some(&row) = known {
            return Ok(row);
        }
        let row = self.new_row(file_of(kind))?;
        match kind {
            OperandKind::Half => self.narrow_constants.insert(value as u32 & 0xffff, row),
            OperandKind::Narrow => self.narrow_constants.insert(value as u32, row),
            _ => self.wide_constants.insert(value, row),
        };
        Ok(row)
    }

    fn source(&mut self, operand: &'a Operand, kind: OperandKind) -> Result<u16, PtxError> {
        let name = match operand {
            Operand::Int(value) => return self.constant(kind, *value),
            Operand::Name(name) => name.as_str(),
            other => return self.error(format!("operand {other:?} does not fit here")),
        };
        match (kind, special_of(name), self.variables.get(name)) {
            (OperandKind::Narrow, Some(special), _) => {
                if let Some(&(row, _)) = self.specials.iter().find(|s| s.1 == special) {
                    return Ok(row);
                }
                let row = self.new_row(File::Narrow)?;
                self.specials.push((row, special));
                Ok(row)
            }
            (OperandKind::Wide, _, Some(&address)) => self.constant(kind, address),
            _ => self.register(name, kind),
        }
    }

    fn emit(&mut self, ins: Ins) {
        self.code.push(Ins { guard: self.guard, ..ins });
        self.lines.push(self.line);
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<(), PtxError> {
        match statement {
            Statement::Label(name) => {
                self.labels.insert(name, self.code.len() as i64);
                Ok(())
            }
            Statement::Instruction(instruction) => {
                self.line = instruction.line;
                self.guard = match &instruction.guard {
                    None => UNGUARDED,
                    Some(name) => self.register(name, OperandKind::Predicate)?,
                };
                self.instruction(instruction)
            }
        }
    }

    fn instruction(&mut self, instruction: &'a Instruction) -> Result<(), PtxError> {
        let opcode = instruction.opcode.as_str();
        let operands = instruction.operands.as_slice();
        if let Some(&(_, op, kind, sources)) = ARITHMETIC.iter().find(|row| row.0 == opcode) {
            return self.arithmetic(op, kind, sources, operands);
        }
        if let Some(&(_, op)) = MEMORY.iter().find(|row| row.0 == opcode) {
            return self.memory(op, operands);
        }
        match CONTROL.iter().find(|row| row.0 == opcode) {
            Some(&(_, op)) => self.control(op, operands),
            None => self.error(format!("instruction `{opcode}` is not known to mockcuda")),
        }
    }

    fn wrong_operands<T>(&self) -> Result<T, PtxError> {
        self.error("the operands are not known to mockcuda")
    }

    fn arithmetic(
        &mut self,
        op: Op,
        kind: OperandKind,
        sources: &[OperandKind],
        operands: &'a [Operand],
    ) -> Result<(), PtxError> {
        let [Operand::Name(d), operands @ ..] = operands else { return self.wrong_operands() };
        if operands.len() != sources.len() {
            return self.wrong_operands();
        }
        let mut rows = [0; 3];
        for ((row, operand), kind) in rows.iter_mut().zip(operands).zip(sources) {
            *row = self.source(operand, *kind)?;
        }
        let [a, b, c] = rows;
        let d = self.register(d, kind)?;
        self.emit(Ins { op, d, a, b, c, ..BLANK });
        Ok(())
    }

    fn control(&mut self, op: Op, operands: &'a [Operand]) -> Result<(), PtxError> {
        let mut ins = Ins { op, ..BLANK };
        match (op, operands) {
            (Op::Bra, [Operand::Name(label)]) => self.jumps.push((self.code.len(), label, self.line)),
            // The only barrier is for all threads of a block.
            (Op::Barrier, [Operand::Int(0)]) if self.guard == UNGUARDED => {}
            (Op::Nanosleep, [time]) => ins.a = self.source(time, OperandKind::Narrow)?,
            (Op::Fence | Op::Exit, []) => {}
            _ => return self.wrong_operands(),
        }
        self.emit(ins);
        Ok(())
    }

    fn memory(&mut self, op: Op, operands: &'a [Operand]) -> Result<(), PtxError> {
        let (bytes, count, value, address) = match (op, operands) {
            (Op::Param32, [value, address]) => (4, 1, value, address),
            (Op::Param64, [value, address]) => (8, 1, value, address),
            (Op::Load(access), [value, address]) | (Op::Store(access), [address, value]) => {
                (access.bytes, usize::from(access.count), value, address)
            }
            _ => return self.wrong_operands(),
        };
        let kind = if bytes == 8 { OperandKind::Wide } else { OperandKind::Narrow };
        let mut rows = [0; 4];
        match (op, value) {
            (Op::Store(_), value @ (Operand::Name(_) | Operand::Int(_))) if count == 1 => {
                rows[0] = self.source(value, kind)?;
            }
            (_, Operand::Name(name)) if count == 1 => rows[0] = self.register(name, kind)?,
            (_, Operand::Vector(names)) if names.len() == count && count > 1 => {
                for (row, name) in rows.iter_mut().zip(names) {
                    *row = self.register(name, kind)?;
                }
            }
            _ => return self.wrong_operands(),
        }
        let [d, b, c, e] = rows;
        let Operand::Address(base, offset) = address else { return self.wrong_operands() };
        let (a, imm) = match (op, self.variables.get(base.as_str())) {
            (Op::Param32 | Op::Param64, _) => (0, self.param(base, bytes, *offset)?),
            (_, Some(&variable)) => (self.constant(OperandKind::Wide, variable)?, *offset),
            (_, None) => (self.register(base, OperandKind::Wide)?, *offset),
        };
        self.emit(Ins { op, d, a, b, c, e, imm, ..BLANK });
        Ok(())
    }

    fn param(&self, name: &str, bytes: u8, offset: i64) -> Result<i64, PtxError> {
        match self.entry.params.iter().find(|p| p.name == name && p.bytes == bytes.into()) {
            Some(param) if offset == 0 => Ok(param.offset as i64),
            _ => self.error(format!("`{name}` is no parameter of {bytes} bytes")),
        }
    }

    fn finish(mut self) -> Result<PtxKernel, PtxError> {
        self.guard = UNGUARDED;
        self.emit(Ins { op: Op::Exit, ..BLANK });
        for (at, label, line) in std::mem::take(&mut self.jumps) {
            let Some(&target) = self.labels.get(label) else {
                return Err(PtxError::new(line, format!("label `{label}` is missing")));
            };
            self.code[at].imm = target;
        }
        let registers = self.registers.values().map(|r| if r.0 == OperandKind::Wide { 2 } else { 1 }).sum();
        Ok(PtxKernel {
            name: self.entry.name.clone(),
            params: self.entry.params.clone(),
            code: self.code,
            lines: self.lines,
            rows: self.rows,
            narrow_constants: self.narrow_constants.into_iter().map(|(value, row)| (row, value)).collect(),
            wide_constants: self.wide_constants.into_iter().map(|(value, row)| (row, value)).collect(),
            specials: self.specials,
            shared_bytes: self.shared_bytes,
            param_bytes: self.entry.params.last().map_or(0, |p| p.offset + p.bytes),
            registers,
            threads_max: self.entry.threads_max,
        })
    }
}

fn special_of(name: &str) -> Option<Special> {
    match name {
        "%tid.x" => Some(Special::Thread),
        "%ntid.x" => Some(Special::Threads),
        "%ctaid.x" => Some(Special::Block),
        "%ctaid.y" => Some(Special::BlockRow),
        "%nctaid.x" => Some(Special::Blocks),
        _ => None,
    }
}
