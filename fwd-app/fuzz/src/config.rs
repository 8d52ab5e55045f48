//! Configuration files: any text is refused with a message, or comes to options that are written as a file of the same meaning.

use fwd_app::testing::config_shown;

/// A file after the first byte, which says for which command it is.
pub fn config(data: &[u8]) {
    let Some((&command, text)) = data.split_first() else { return };
    let (is_replay, text) = (command % 2 == 1, String::from_utf8_lossy(text));
    match config_shown(is_replay, &text) {
        Ok(shown) => assert_eq!(config_shown(is_replay, &shown).as_ref(), Ok(&shown), "{text}"),
        Err(message) => assert!(!message.is_empty()),
    }
}
