//! PTX text to tokens: words (names, directives and opcodes with their dots), numbers, punctuation. Comments vanish.

use super::PtxError;

/// A piece of text that means something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name, register, directive or opcode, with its dots and `::`.
    Word(String),
    /// An integer as its 64 bits.
    Int(u64),
    /// `0f` and eight digits: the bits of a single.
    F32(u32),
    /// `0d` and sixteen digits: the bits of a double.
    F64(u64),
    /// A string, without its quotes.
    Text(String),
    /// Anything else.
    Punct(char),
}

/// A token and its line.
pub(crate) type Placed = (Token, u32);

/// Cuts `text` into tokens.
///
/// # Errors
/// A number that is none, or a character outside PTX.
pub(crate) fn scan(text: &str) -> Result<Vec<Placed>, PtxError> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0_usize, 1_u32);
    let mut tokens = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied().unwrap_or(0);
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' => at += 1,
            b'/' if next == b'/' => at = end_of(bytes, at, |b| b == b'\n'),
            b'/' if next == b'*' => {
                let end =
                    text.get(at + 2..).and_then(|rest| rest.find("*/")).map_or(bytes.len(), |n| at + 4 + n);
                line += newlines(bytes.get(at..end).unwrap_or_default());
                at = end;
            }
            b'"' => {
                let end = end_of(bytes, at + 1, |b| b == b'"');
                tokens.push((Token::Text(text.get(at + 1..end).unwrap_or_default().to_owned()), line));
                at = end + 1;
            }
            b'0'..=b'9' => {
                let end = end_of(bytes, at, |b| !b.is_ascii_alphanumeric());
                tokens.push((number(text.get(at..end).unwrap_or_default(), line)?, line));
                at = end;
            }
            _ if is_word(byte) => {
                let end = end_of_word(bytes, at);
                tokens.push((Token::Word(text.get(at..end).unwrap_or_default().to_owned()), line));
                at = end;
            }
            b'[' | b']' | b'{' | b'}' | b'(' | b')' | b',' | b';' | b':' | b'@' | b'!' | b'+' | b'-'
            | b'=' | b'|' | b'<' | b'>' => {
                tokens.push((Token::Punct(char::from(byte)), line));
                at += 1;
            }
            _ => return Err(PtxError::new(line, format!("byte {byte:#04x} is not PTX"))),
        }
    }
    Ok(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn end_of(bytes: &[u8], from: usize, stop: impl Fn(u8) -> bool) -> usize {
    bytes.iter().skip(from).position(|&b| stop(b)).map_or(bytes.len(), |n| from + n)
}

/// A word may hold `::`, as in `L1::no_allocate`, but not the colon after a label.
fn end_of_word(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        at = end_of(bytes, at, |b| !is_word(b));
        if bytes.get(at..at + 2) != Some(b"::".as_slice()) {
            return at;
        }
        at += 2;
    }
}

fn newlines(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.iter().filter(|&&b| b == b'\n').count()).unwrap_or(0)
}

fn number(word: &str, line: u32) -> Result<Token, PtxError> {
    let wrong = |_| PtxError::new(line, format!("`{word}` is not a number"));
    let body = word.strip_suffix('U').unwrap_or(word);
    let lower = body.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f") {
        return u32::from_str_radix(hex, 16).map(Token::F32).map_err(wrong);
    }
    if let Some(hex) = lower.strip_prefix("0d") {
        return u64::from_str_radix(hex, 16).map(Token::F64).map_err(wrong);
    }
    let value = if let Some(hex) = lower.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = lower.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if lower.len() > 1 && lower.starts_with('0') {
        u64::from_str_radix(&lower, 8)
    } else {
        lower.parse()
    };
    value.map(Token::Int).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::{Token, scan};

    #[test]
    fn words_numbers_and_comments() {
        let tokens = scan(
            "ld.global.L1::no_allocate.u32 %r1, [%rd2+0x10]; // c\n$L1: /* a\nb */ mov 0f40200000 017 7U",
        )
        .unwrap();
        let words: Vec<_> = tokens.iter().map(|(t, line)| (t.clone(), *line)).collect();
        assert_eq!(words[0], (Token::Word("ld.global.L1::no_allocate.u32".into()), 1));
        assert_eq!(words[6], (Token::Int(16), 1));
        assert_eq!(words[9], (Token::Word("$L1".into()), 2));
        assert_eq!(words[10], (Token::Punct(':'), 2));
        assert_eq!(words[11], (Token::Word("mov".into()), 3));
        assert_eq!(words[12].0, Token::F32(0x4020_0000));
        assert_eq!(words[13].0, Token::Int(15));
        assert_eq!(words[14].0, Token::Int(7));
    }

    #[test]
    fn what_is_no_ptx_is_named() {
        assert!(scan("mov `").unwrap_err().to_string().contains("line 1"));
        assert!(scan("\n12x").unwrap_err().to_string().contains("line 2: `12x`"));
    }
}
