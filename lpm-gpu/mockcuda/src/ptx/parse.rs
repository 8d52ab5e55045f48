//! Parses tokens into variables, entries, labels and instructions with operands; it does not know the instructions.

use super::PtxError;
use super::scan::{Placed, Token, scan};

/// A larger size is a parse error: no kernel has such a variable.
const SIZE_MAX: usize = 1 << 28;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) version: (u32, u32),
    pub(crate) target: u32,
    /// Shared variables outside entries; each entry has its own copy.
    pub(crate) shared: Vec<Variable>,
    pub(crate) entries: Vec<PtxEntry>,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) align: usize,
    pub(crate) bytes: usize,
}

/// A kernel parameter and its offset in the parameter block, bytes.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct PtxEntry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) shared: Vec<Variable>,
    /// Prefix or whole name, type, number (0: the name itself is the register).
    pub(crate) registers: Vec<(String, String, u32)>,
    pub(crate) threads_max: Option<u32>,
    pub(crate) body: Vec<Statement>,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Label(String),
    Instruction(Instruction),
}

#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) line: u32,
    /// `@p`: the predicate register.
    pub(crate) guard: Option<String>,
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Operand>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Name(String),
    Int(u64),
    /// `[base + offset]`.
    Address(String, i64),
    /// `{a, b}`, of names.
    Vector(Vec<String>),
}

pub(crate) fn parse(text: &str) -> Result<Module, PtxError> {
    let mut parser = Parser { tokens: scan(text)?, at: 0 };
    parser.module()
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
}

impl Parser {
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.1)
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError::new(self.line(), what))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.0)
    }

    fn is(&self, punct: char) -> bool {
        self.peek() == Some(&Token::Punct(punct))
    }

    fn accept(&mut self, punct: char) -> bool {
        let found = self.is(punct);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, punct: char) -> Result<(), PtxError> {
        if self.accept(punct) {
            Ok(())
        } else {
            self.error(format!("`{punct}` expected, not {:?}", self.peek()))
        }
    }

    fn word(&mut self) -> Result<String, PtxError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            other => self.error(format!("a name expected, not {other:?}")),
        }
    }

    fn int(&mut self) -> Result<u64, PtxError> {
        let negative = self.accept('-');
        match self.peek() {
            Some(&Token::Int(value)) => {
                self.at += 1;
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            other => self.error(format!("a number expected, not {other:?}")),
        }
    }

    fn size(&mut self) -> Result<usize, PtxError> {
        let value = self.int()?;
        match usize::try_from(value) {
            Ok(size) if size <= SIZE_MAX => Ok(size),
            _ => self.error(format!("{value} is too large")),
        }
    }

    fn module(&mut self) -> Result<Module, PtxError> {
        let mut module = Module { version: (0, 0), target: 0, shared: Vec::new(), entries: Vec::new() };
        while self.peek().is_some() {
            let line = self.line();
            match self.word()?.as_str() {
                ".version" => module.version = self.version()?,
                ".target" => module.target = self.target()?,
                ".address_size" => {
                    if self.int()? != 64 {
                        return self.error("addresses must have 64 bits");
                    }
                }
                ".visible" | ".weak" => {}
                ".entry" => module.entries.push(self.entry()?),
                ".shared" => module.shared.push(self.variable()?),
                other => return Err(PtxError::new(line, format!("`{other}` is not known to mockcuda"))),
            }
        }
        if module.version == (0, 0) || module.target == 0 {
            self.error(".version or .target is missing")
        } else {
            Ok(module)
        }
    }

    /// `6.3`, which the scanner splits into 6 and `.3`.
    fn version(&mut self) -> Result<(u32, u32), PtxError> {
        let major = self.int()?;
        let minor = self.word()?.trim_start_matches('.').parse();
        match (u32::try_from(major), minor) {
            (Ok(major @ 0..100), Ok(minor @ 0..100)) => Ok((major, minor)),
            _ => self.error("a version expected"),
        }
    }

    fn target(&mut self) -> Result<u32, PtxError> {
        let word = self.word()?;
        let number = word.strip_prefix("sm_").and_then(|number| number.parse().ok());
        number.map_or_else(|| self.error(format!("target `{word}` is not known to mockcuda")), Ok)
    }

    fn entry(&mut self) -> Result<PtxEntry, PtxError> {
        let mut entry = PtxEntry {
            name: self.word()?,
            params: Vec::new(),
            shared: Vec::new(),
            registers: Vec::new(),
            threads_max: None,
            body: Vec::new(),
        };
        self.expect('(')?;
        while !self.accept(')') {
            let param = self.param(entry.params.last())?;
            entry.params.push(param);
            self.accept(',');
        }
        while !self.accept('{') {
            self.performance(&mut entry)?;
        }
        let mut depth = 1_u32;
        while depth > 0 {
            if self.accept('{') {
                depth += 1;
            } else if self.accept('}') {
                depth -= 1;
            } else {
                self.statement(&mut entry)?;
            }
        }
        Ok(entry)
    }

    /// An entry's directives after its parameters: `.maxntid 1024, 1, 1`.
    fn performance(&mut self, entry: &mut PtxEntry) -> Result<(), PtxError> {
        let word = self.word()?;
        if word != ".maxntid" {
            return self.error(format!("`{word}` is not known to mockcuda"));
        }
        let mut threads = self.size()?;
        while self.accept(',') {
            threads = threads.saturating_mul(self.size()?);
        }
        entry.threads_max = Some(u32::try_from(threads).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Size of a parameter's or variable's type, bytes.
    fn unit(&mut self) -> Result<usize, PtxError> {
        match self.word()?.as_str() {
            ".b8" => Ok(1),
            ".u32" => Ok(4),
            ".u64" => Ok(8),
            other => self.error(format!("type `{other}` is not known to mockcuda")),
        }
    }

    fn param(&mut self, before: Option<&Param>) -> Result<Param, PtxError> {
        if self.word()? != ".param" {
            return self.error(".param expected");
        }
        let bytes = self.unit()?;
        let offset = before.map_or(0, |p| p.offset + p.bytes).next_multiple_of(bytes);
        Ok(Param { name: self.word()?, offset, bytes })
    }

    /// `.align 4 .b8 name[512];` or `.align 8 .u64 name;`
    fn variable(&mut self) -> Result<Variable, PtxError> {
        if self.word()? != ".align" {
            return self.error(".align expected");
        }
        let align = self.size()?.max(1);
        let unit = self.unit()?;
        let name = self.word()?;
        let mut count = 1;
        if self.accept('[') {
            count = self.size()?;
            self.expect(']')?;
        }
        self.expect(';')?;
        Ok(Variable { name, align, bytes: unit * count })
    }

    fn statement(&mut self, entry: &mut PtxEntry) -> Result<(), PtxError> {
        let line = self.line();
        let guard = if self.accept('@') { Some(self.word()?) } else { None };
        let word = self.word()?;
        if self.accept(':') {
            entry.body.push(Statement::Label(word));
            return Ok(());
        }
        match word.as_str() {
            ".reg" => self.register(entry),
            ".shared" => {
                entry.shared.push(self.variable()?);
                Ok(())
            }
            ".pragma" => {
                self.at += 1;
                self.expect(';')
            }
            _ if word.starts_with('.') => {
                Err(PtxError::new(line, format!("`{word}` is not known to mockcuda")))
            }
            _ => {
                let operands = self.operands()?;
                entry.body.push(Statement::Instruction(Instruction { line, guard, opcode: word, operands }));
                Ok(())
            }
        }
    }

    /// `.b32 %r<9>;` or `.pred p;`
    fn register(&mut self, entry: &mut PtxEntry) -> Result<(), PtxError> {
        let kind = self.word()?;
        let name = self.word()?;
        let mut count = 0;
        if self.accept('<') {
            count = u32::try_from(self.size()?).unwrap_or(u32::MAX);
            self.expect('>')?;
        }
        entry.registers.push((name, kind, count));
        self.expect(';')
    }

    fn operands(&mut self) -> Result<Vec<Operand>, PtxError> {
        let mut operands = Vec::new();
        while !self.accept(';') {
            operands.push(self.operand()?);
            if !self.is(';') {
                self.expect(',')?;
            }
        }
        Ok(operands)
    }

    fn operand(&mut self) -> Result<Operand, PtxError> {
        if self.accept('[') {
            let base = self.word()?;
            let offset = if self.accept('+') { self.int()?.cast_signed() } else { 0 };
            self.expect(']')?;
            return Ok(Operand::Address(base, offset));
        }
        if self.accept('{') {
            let mut names = vec![self.word()?];
            while self.accept(',') {
                names.push(self.word()?);
            }
            self.expect('}')?;
            return Ok(Operand::Vector(names));
        }
        match self.peek() {
            Some(Token::Word(_)) => Ok(Operand::Name(self.word()?)),
            _ => Ok(Operand::Int(self.int()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Operand, Statement, parse};

    const HEAD: &str = ".version 6.3\n.target sm_75\n.address_size 64\n";

    #[test]
    fn an_entry_with_all_kinds_of_lines() {
        let text = format!(
            "{HEAD}.weak .shared .align 8 .b8 outer[488];\n.visible .entry k(\n.param .u32 k_0,\n.param .u64 k_1\n)\n.maxntid 64, 2, 1\n{{\n\
             .reg .b32 %r<9>;\n.shared .align 8 .u64 s;\n.pragma \"nounroll\";\n@%p1 bra $L1;\n$L1:\n\
             ld.global.v2.u32 {{%r1, %r2}}, [%rd1+-4];\nsetp.eq.s32 %p1, %r1, -1;\n{{ .reg .pred p; @p ret; }}\n}}\n"
        );
        let module = parse(&text).unwrap();
        assert_eq!((module.version, module.target), ((6, 3), 75));
        assert_eq!((module.shared[0].bytes, module.shared[0].align), (488, 8));
        let entry = &module.entries[0];
        assert_eq!((entry.params[1].offset, entry.params[1].bytes), (8, 8));
        assert_eq!((entry.shared[0].bytes, entry.shared[0].align), (8, 8));
        let registers = [("%r".into(), ".b32".into(), 9), ("p".into(), ".pred".into(), 0)];
        assert_eq!(entry.registers, registers);
        assert_eq!(entry.threads_max, Some(128));
        let [
            Statement::Instruction(bra),
            Statement::Label(label),
            Statement::Instruction(load),
            Statement::Instruction(setp),
            _,
        ] = &entry.body[..]
        else {
            panic!("{:?}", entry.body)
        };
        assert_eq!((bra.guard.as_deref(), label.as_str()), (Some("%p1"), "$L1"));
        assert_eq!(load.operands[1], Operand::Address("%rd1".into(), -4));
        assert_eq!((setp.line, &setp.operands[2]), (17, &Operand::Int(u64::MAX)));
    }

    #[test]
    fn what_is_not_supported_is_an_error_with_its_line() {
        for (text, what) in [
            (".func f() {}", "line 4: `.func` is not known to mockcuda"),
            (".global .align 4 .b8 x[4];", "`.global` is not known"),
            (".visible .entry k()\n{\n.local .align 4 .b8 x[4];\n}", "line 6: `.local` is not known"),
            (".visible .entry k(.param .f32 k_0)", "type `.f32` is not known"),
            (".visible .entry k()\n{\n@!%p1 bra $L;\n}", "line 6: "),
            (".visible .entry k()\n{\nret", "expected"),
            (".visible .entry k()\n.minnctapersm 2\n{\nret;\n}", "`.minnctapersm` is not known"),
            (".target compute_75", "target `compute_75`"),
        ] {
            let error = parse(&format!("{HEAD}{text}")).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(parse("").is_err());
    }
}
