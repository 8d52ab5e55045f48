//! Configuration files: any text is refused with a message, or parsed to options that print as a file of the same meaning.

use fwd_app::testing::config_shown;

/// The first byte selects the command; the rest is the file.
pub fn config(data: &[u8]) {
    let Some((&command, text)) = data.split_first() else { return };
    let (is_replay, text) = (command % 2 == 1, String::from_utf8_lossy(text));
    match config_shown(is_replay, &text) {
        Ok(shown) => assert_eq!(config_shown(is_replay, &shown).as_ref(), Ok(&shown), "{text}"),
        Err(message) => assert!(!message.is_empty()),
    }
}
