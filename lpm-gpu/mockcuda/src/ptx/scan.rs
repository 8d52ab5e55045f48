//! Splits PTX text into tokens, and drops comments.

use super::PtxError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, register, directive or opcode, with its dots.
    Word(String),
    Int(u64),
    Text,
    Punct(char),
}

pub(crate) type Placed = (Token, u32);

pub(crate) fn scan(text: &str) -> Result<Vec<Placed>, PtxError> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0_usize, 1_u32);
    let mut tokens = Vec::new();
    while let Some(&byte) = bytes.get(at) {
        let from = at;
        at = match byte {
            b'/' if bytes.get(at + 1) == Some(&b'/') => end_of(bytes, at, |b| b == b'\n'),
            b'"' => end_of(bytes, at + 1, |b| b == b'"') + 1,
            b'0'..=b'9' => end_of(bytes, at, |b| !b.is_ascii_alphanumeric()),
            _ if is_word(byte) => end_of(bytes, at, |b| !is_word(b)),
            _ => at + 1,
        };
        let piece = text.get(from..at).unwrap_or_default();
        let token = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => None,
            b'/' if piece.len() > 1 => None,
            b'"' => Some(Token::Text),
            b'0'..=b'9' => match piece.parse() {
                Ok(value) => Some(Token::Int(value)),
                Err(_) => return Err(PtxError::new(line, format!("`{piece}` is not a decimal number"))),
            },
            _ if is_word(byte) => Some(Token::Word(piece.to_owned())),
            b'[' | b']' | b'{' | b'}' | b'(' | b')' | b',' | b';' | b':' | b'@' | b'+' | b'-' | b'<'
            | b'>' => Some(Token::Punct(char::from(byte))),
            _ => return Err(PtxError::new(line, format!("byte {byte:#04x} is not known"))),
        };
        tokens.extend(token.map(|token| (token, line)));
        line += u32::try_from(piece.matches('\n').count()).unwrap_or(0);
    }
    Ok(tokens)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

fn end_of(bytes: &[u8], from: usize, stop: impl Fn(u8) -> bool) -> usize {
    bytes.iter().skip(from).position(|&b| stop(b)).map_or(bytes.len(), |n| from + n)
}

#[cfg(test)]
mod tests {
    use super::{Token, scan};

    #[test]
    fn words_numbers_and_comments() {
        let tokens = scan("ld.global.u32 %r1, [%rd2+16]; // c\n$L1: .pragma \"nounroll\"; 7").unwrap();
        assert_eq!(tokens[0], (Token::Word("ld.global.u32".into()), 1));
        assert_eq!(tokens[6], (Token::Int(16), 1));
        assert_eq!(tokens[9], (Token::Word("$L1".into()), 2));
        assert_eq!(tokens[10], (Token::Punct(':'), 2));
        assert_eq!(tokens[12], (Token::Text, 2));
        assert_eq!(tokens[14], (Token::Int(7), 2));
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (text, what) in
            [("mov `", "line 1"), ("\n12x", "line 2: `12x`"), ("\n0x10", "line 2: `0x10`"), ("/*", "0x2f")]
        {
            let error = scan(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
