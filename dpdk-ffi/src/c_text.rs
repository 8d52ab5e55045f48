//! Strings to and from C.

use std::ffi::{CStr, CString, c_char};

use crate::error::DpdkError;

/// A string for C; `what` describes it in the error.
pub(crate) fn c_string(what: &'static str, value: &str) -> Result<CString, DpdkError> {
    CString::new(value).map_err(|_| DpdkError::NulByte { what, value: value.into() })
}

/// A copy of a C string; empty for NULL.
///
/// # Safety
/// `text` must be NULL or a NUL-terminated string that lives through the call.
pub(crate) unsafe fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so it is a string by the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(crate) fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> =
        array.iter().take_while(|&&byte| byte != 0).map(|&byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_byte_is_refused_before_it_reaches_c() {
        assert!(matches!(c_string("name", "a\0b"), Err(DpdkError::NulByte { what: "name", .. })));
    }

    #[test]
    fn a_c_array_ends_at_its_nul_or_its_end() {
        let name = [b'r', b'x', 0, b'!'].map(u8::cast_signed);
        assert_eq!(text_of(&name), "rx");
        assert_eq!(text_of(&name[..2]), "rx");
    }
}
