//! Tokens to statements: module variables, entries with parameters and variables, labels, instructions with operands.
//! Nothing is known here of what an instruction means.

use super::PtxError;
use super::scan::{Placed, Token, scan};

/// Bytes of parameters a kernel may have (PTX manual: 4,352 until PTX 8.1).
const PARAM_BYTES_MAX: usize = 4_352;

/// No variable of a kernel comes near this; more is a misread text.
const SIZE_MAX: usize = 1 << 28;

/// A module's text, understood.
#[derive(Debug)]
pub(crate) struct Module {
    /// `.version`, major and minor.
    pub(crate) version: (u32, u32),
    /// `.target sm_NN`.
    pub(crate) target: u32,
    /// Variables outside entries.
    pub(crate) variables: Vec<Variable>,
    /// Entries (kernels).
    pub(crate) entries: Vec<Entry>,
}

/// A `.shared`, `.global` or `.const` variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// `shared`, `global` or `const`.
    pub(crate) space: String,
    /// Its name.
    pub(crate) name: String,
    /// Alignment, bytes.
    pub(crate) align: usize,
    /// Size, bytes; 0 of an extern array: what the launch asks for.
    pub(crate) bytes: usize,
    /// First value, shorter than `bytes` where zeros follow.
    pub(crate) init: Vec<u8>,
}

/// A kernel parameter and where it lies in the parameter block.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    /// Its name.
    pub(crate) name: String,
    /// Offset, bytes.
    pub(crate) offset: usize,
    /// Size, bytes.
    pub(crate) bytes: usize,
}

/// A kernel.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// Its parameters.
    pub(crate) params: Vec<Param>,
    /// Shared variables of its own.
    pub(crate) shared: Vec<Variable>,
    /// Registers: prefix (or whole name), type, how many (0: the name itself).
    pub(crate) registers: Vec<(String, String, u32)>,
    /// `.maxntid`, threads.
    pub(crate) threads_max: Option<u32>,
    /// Labels and instructions.
    pub(crate) body: Vec<Statement>,
}

/// A line of a body.
#[derive(Debug)]
pub(crate) enum Statement {
    /// A place to jump to.
    Label(String),
    /// `name: .branchtargets a, b;`
    Targets(String, Vec<String>),
    /// An instruction.
    Instruction(Instruction),
}

/// An instruction as written.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Its line.
    pub(crate) line: u32,
    /// `@p` or `@!p`: the register, and whether it is negated.
    pub(crate) guard: Option<(String, bool)>,
    /// Opcode with its modifiers.
    pub(crate) opcode: String,
    /// Operands.
    pub(crate) operands: Vec<Operand>,
}

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// Register, variable, label or parameter; and a byte offset.
    Name(String, i64),
    /// `!p`.
    Not(String),
    /// `p|q`.
    Pair(String, String),
    /// An integer's 64 bits.
    Int(u64),
    /// A single's bits.
    F32(u32),
    /// A double's bits.
    F64(u64),
    /// `[base + offset]`; no base: an absolute address.
    Address(Option<String>, i64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
}

/// Bytes of a value of PTX type `name` (without its dot).
pub(crate) fn bytes_of_type(name: &str) -> Option<usize> {
    match name {
        "b8" | "u8" | "s8" => Some(1),
        "b16" | "u16" | "s16" | "f16" => Some(2),
        "b32" | "u32" | "s32" | "f32" => Some(4),
        "b64" | "u64" | "s64" | "f64" => Some(8),
        _ => None,
    }
}

/// Reads a module.
///
/// # Errors
/// What is not PTX, or not of the kind that is supported here, with its line.
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

    fn peek_second(&self) -> Option<&Token> {
        self.tokens.get(self.at + 1).map(|t| &t.0)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    fn is(&self, punct: char) -> bool {
        self.peek() == Some(&Token::Punct(punct))
    }

    fn accept(&mut self, punct: char) -> bool {
        let found = self.is(punct);
        if found {
            self.at += 1;
        }
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
        match self.take() {
            Some(Token::Int(value)) => Ok(if negative { value.wrapping_neg() } else { value }),
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

    fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|t| t.1 == line) {
            self.at += 1;
        }
    }

    fn module(&mut self) -> Result<Module, PtxError> {
        let mut module = Module { version: (0, 0), target: 0, variables: Vec::new(), entries: Vec::new() };
        while let Some(token) = self.peek().cloned() {
            let Token::Word(word) = token else {
                return self.error(format!("a directive expected, not {token:?}"));
            };
            match word.as_str() {
                ".version" => module.version = self.version()?,
                ".target" => module.target = self.target()?,
                ".address_size" => {
                    self.at += 1;
                    if self.int()? != 64 {
                        return self.error("addresses must have 64 bits");
                    }
                }
                ".file" | ".loc" | ".section" => self.skip_line(),
                ".visible" | ".weak" | ".extern" | ".common" => self.at += 1,
                ".entry" => module.entries.push(self.entry()?),
                ".func" => return self.error("functions are not modelled: inline them"),
                ".shared" | ".global" | ".const" => module.variables.extend(self.variables()?),
                other => return self.error(format!("directive `{other}` is not known")),
            }
        }
        if module.version == (0, 0) || module.target == 0 {
            self.error(".version or .target is missing")
        } else {
            Ok(module)
        }
    }

    /// `.version 6.3`: the scanner sees 6 and `.3`.
    fn version(&mut self) -> Result<(u32, u32), PtxError> {
        self.at += 1;
        let major = self.int()?;
        let minor = self.word()?;
        let minor = minor.trim_start_matches('.').parse::<u32>();
        match (u32::try_from(major), minor) {
            // No version has more digits.
            (Ok(major @ 0..100), Ok(minor @ 0..100)) => Ok((major, minor)),
            _ => self.error("a version expected"),
        }
    }

    fn target(&mut self) -> Result<u32, PtxError> {
        self.at += 1;
        let word = self.word()?;
        while self.accept(',') {
            self.word()?;
        }
        let digits: String =
            word.trim_start_matches("sm_").chars().take_while(char::is_ascii_digit).collect();
        digits.parse().or_else(|_| self.error(format!("target `{word}` is not known")))
    }

    fn entry(&mut self) -> Result<Entry, PtxError> {
        self.at += 1;
        let mut entry = Entry {
            name: self.word()?,
            params: Vec::new(),
            shared: Vec::new(),
            registers: Vec::new(),
            threads_max: None,
            body: Vec::new(),
        };
        if self.accept('(') {
            while !self.accept(')') {
                let param = self.param(entry.params.last())?;
                entry.params.push(param);
                self.accept(',');
            }
        }
        while !self.is('{') {
            self.entry_directive(&mut entry)?;
        }
        self.expect('{')?;
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

    fn entry_directive(&mut self, entry: &mut Entry) -> Result<(), PtxError> {
        let word = self.word()?;
        match word.as_str() {
            ".maxntid" | ".reqntid" => {
                let mut threads = self.int()?;
                while self.accept(',') {
                    threads = threads.saturating_mul(self.int()?);
                }
                entry.threads_max = u32::try_from(threads).ok();
                Ok(())
            }
            ".minnctapersm" | ".maxnreg" | ".maxnctapersm" => self.int().map(|_| ()),
            other => self.error(format!("directive `{other}` of an entry is not known")),
        }
    }

    fn param(&mut self, before: Option<&Param>) -> Result<Param, PtxError> {
        if self.word()? != ".param" {
            return self.error(".param expected");
        }
        let (mut align, mut bytes) = (0, 0);
        let name = loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => align = self.size()?,
                // Attributes of pointers, of no meaning here.
                ".ptr" | ".global" | ".shared" | ".const" => {}
                _ if word.starts_with('.') => {
                    bytes = bytes_of_type(word.trim_start_matches('.'))
                        .map_or_else(|| self.error(format!("type `{word}` is not known")), Ok)?;
                }
                _ => break word,
            }
        };
        let align = align.max(bytes).max(1);
        if self.accept('[') {
            bytes = bytes.saturating_mul(self.size()?).min(PARAM_BYTES_MAX + 1);
            self.expect(']')?;
        }
        let offset = before.map_or(0, |p| p.offset + p.bytes).next_multiple_of(align);
        if offset + bytes > PARAM_BYTES_MAX {
            return self.error(format!("parameters take more than {PARAM_BYTES_MAX} bytes"));
        }
        Ok(Param { name, offset, bytes })
    }

    /// `.shared .align 4 .b8 name[512];` and its like, several names allowed.
    fn variables(&mut self) -> Result<Vec<Variable>, PtxError> {
        let space = self.word()?.trim_start_matches('.').to_owned();
        let (mut align, mut unit, mut found) = (0, 0, Vec::new());
        loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => align = self.size()?,
                ".v2" | ".v4" => return self.error("vector variables are not modelled"),
                _ if word.starts_with('.') => {
                    unit = bytes_of_type(word.trim_start_matches('.'))
                        .map_or_else(|| self.error(format!("type `{word}` is not known")), Ok)?;
                }
                _ => {
                    let mut bytes = unit;
                    while self.accept('[') {
                        bytes = bytes.saturating_mul(if self.is(']') { 0 } else { self.size()? });
                        self.expect(']')?;
                    }
                    if bytes > SIZE_MAX {
                        return self.error(format!("{bytes} bytes are too large"));
                    }
                    let init = if self.accept('=') { self.init(unit)? } else { Vec::new() };
                    found.push(Variable {
                        space: space.clone(),
                        name: word,
                        align: align.max(unit).max(1),
                        bytes,
                        init,
                    });
                    if self.accept(';') {
                        return Ok(found);
                    }
                    self.expect(',')?;
                }
            }
        }
    }

    fn init(&mut self, unit: usize) -> Result<Vec<u8>, PtxError> {
        let mut bytes = Vec::new();
        if !self.accept('{') {
            bytes.extend(self.int()?.to_le_bytes().iter().take(unit));
            return Ok(bytes);
        }
        while !self.accept('}') {
            bytes.extend(self.int()?.to_le_bytes().iter().take(unit));
            self.accept(',');
        }
        Ok(bytes)
    }

    fn statement(&mut self, entry: &mut Entry) -> Result<(), PtxError> {
        let line = self.line();
        let guard = if self.accept('@') {
            let negated = self.accept('!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let word = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            None => return self.error("the text ends inside an entry"),
            Some(other) => return self.error(format!("an instruction expected, not {other:?}")),
        };
        if self.peek_second() == Some(&Token::Punct(':')) {
            self.at += 2;
            return self.label(entry, word);
        }
        match word.as_str() {
            ".reg" => self.registers(entry),
            ".shared" => {
                entry.shared.extend(self.variables()?);
                Ok(())
            }
            ".local" => self.error("local memory is not modelled: keep kernels free of stack"),
            ".loc" | ".file" => {
                self.skip_line();
                Ok(())
            }
            ".pragma" => {
                self.at += 2;
                self.expect(';')
            }
            _ if word.starts_with('.') => self.error(format!("directive `{word}` is not known")),
            _ => {
                self.at += 1;
                let operands = self.operands()?;
                entry.body.push(Statement::Instruction(Instruction { line, guard, opcode: word, operands }));
                Ok(())
            }
        }
    }

    fn label(&mut self, entry: &mut Entry, name: String) -> Result<(), PtxError> {
        if self.peek() != Some(&Token::Word(".branchtargets".to_owned())) {
            entry.body.push(Statement::Label(name));
            return Ok(());
        }
        self.at += 1;
        let mut targets = vec![self.word()?];
        while self.accept(',') {
            targets.push(self.word()?);
        }
        entry.body.push(Statement::Targets(name, targets));
        self.expect(';')
    }

    fn registers(&mut self, entry: &mut Entry) -> Result<(), PtxError> {
        self.at += 1;
        let kind = self.word()?.trim_start_matches('.').to_owned();
        loop {
            let name = self.word()?;
            let count = if self.accept('<') {
                let count = self.size()?;
                self.expect('>')?;
                u32::try_from(count).unwrap_or(u32::MAX)
            } else {
                0
            };
            entry.registers.push((name, kind.clone(), count));
            if self.accept(';') {
                return Ok(());
            }
            self.expect(',')?;
        }
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
            return self.address();
        }
        if self.accept('{') {
            let mut parts = Vec::new();
            while !self.accept('}') {
                if self.is('{') {
                    return self.error("a vector holds no vector");
                }
                parts.push(self.operand()?);
                self.accept(',');
            }
            return Ok(Operand::Vector(parts));
        }
        if self.accept('!') {
            return Ok(Operand::Not(self.word()?));
        }
        match self.peek() {
            Some(Token::F32(bits)) => {
                let bits = *bits;
                self.at += 1;
                Ok(Operand::F32(bits))
            }
            Some(Token::F64(bits)) => {
                let bits = *bits;
                self.at += 1;
                Ok(Operand::F64(bits))
            }
            Some(Token::Word(_)) => {
                let name = self.word()?;
                if self.accept('|') {
                    return Ok(Operand::Pair(name, self.word()?));
                }
                let offset = self.offset()?;
                Ok(Operand::Name(name, offset))
            }
            _ => Ok(Operand::Int(self.int()?)),
        }
    }

    fn address(&mut self) -> Result<Operand, PtxError> {
        let base = if matches!(self.peek(), Some(Token::Word(_))) { Some(self.word()?) } else { None };
        let offset = if base.is_some() { self.offset()? } else { self.int()?.cast_signed() };
        self.expect(']')?;
        Ok(Operand::Address(base, offset))
    }

    /// `+4`, `-4`, `+-4` or nothing.
    fn offset(&mut self) -> Result<i64, PtxError> {
        if self.accept('+') || self.is('-') { Ok(self.int()?.cast_signed()) } else { Ok(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Operand, Statement, parse};

    const HEAD: &str = ".version 6.3\n.target sm_75\n.address_size 64\n";

    #[test]
    fn an_entry_with_all_kinds_of_lines() {
        let text = format!(
            "{HEAD}.extern .shared .align 4 .b8 dyn[];\n.visible .entry k(\n.param .u32 k_0,\n.param .u64 k_1\n)\n.maxntid 128, 1, 1\n{{\n\
             .reg .b32 %r<9>;\n.shared .align 8 .b8 s[512];\n@!%p1 bra $L1;\n$L1:\nld.global.v2.u32 {{%r1, %r2}}, [%rd1+-4];\n\
             mov.u32 %r3, s+8;\nsetp.eq.s32 %p1|%p2, %r1, -1;\nret;\n}}\n"
        );
        let module = parse(&text).unwrap();
        assert_eq!((module.version, module.target), ((6, 3), 75));
        assert_eq!(module.variables[0].bytes, 0);
        let entry = &module.entries[0];
        assert_eq!((entry.params[1].offset, entry.params[1].bytes, entry.threads_max), (8, 8, Some(128)));
        assert_eq!((entry.shared[0].bytes, entry.shared[0].align), (512, 8));
        assert_eq!(entry.registers, vec![("%r".into(), "b32".into(), 9)]);
        let Statement::Instruction(bra) = &entry.body[0] else { panic!("no instruction") };
        assert_eq!(bra.guard, Some(("%p1".into(), true)));
        let Statement::Instruction(load) = &entry.body[2] else { panic!("no instruction") };
        assert_eq!(load.operands[1], Operand::Address(Some("%rd1".into()), -4));
        let Statement::Instruction(setp) = &entry.body[4] else { panic!("no instruction") };
        assert_eq!(setp.operands[0], Operand::Pair("%p1".into(), "%p2".into()));
        assert_eq!(setp.operands[2], Operand::Int(u64::MAX));
    }

    #[test]
    fn what_is_not_modelled_is_an_error_with_its_line() {
        for (text, what) in [
            (".func f() {}", "functions"),
            (".visible .entry k()\n{\n.local .align 4 .b8 x[4];\n}", "line 6: local memory"),
            (".visible .entry k()\n{\nret", "expected"),
        ] {
            let error = parse(&format!("{HEAD}{text}")).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(parse("").is_err());
    }
}
