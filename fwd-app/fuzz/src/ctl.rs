//! The control socket: any line of words is refused or printed back, and any bytes of a client get whole replies that do not depend
//! on how the bytes were cut.

use fwd_app::testing::{ctl_replies, ctl_words};

/// A client's bytes after the first one, which cuts them into pieces; each of their lines is tried as words too.
pub fn ctl(data: &[u8]) {
    let Some((&piece, bytes)) = data.split_first() else { return };
    for line in String::from_utf8_lossy(bytes).lines() {
        if let Some(words) = ctl_words(line) {
            assert_eq!(ctl_words(&words).as_ref(), Some(&words), "{line}");
        }
    }
    let (replies, errors) = ctl_replies(bytes, usize::from(piece) + 1);
    assert_eq!(ctl_replies(bytes, usize::MAX), (replies.clone(), errors));
    let text = String::from_utf8(replies).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    for reply in text.lines() {
        assert!(reply.starts_with("{\"ok\":") && reply.ends_with('}'), "{reply}");
    }
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(text.lines().count() <= lines && errors <= lines as u64, "{errors} errors in {lines} lines");
}
