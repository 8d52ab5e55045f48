//! The control socket: any line of words is refused or printed back, and any client bytes get whole replies that do not depend on the cuts.

use fwd_app::testing::{ctl_replies, ctl_words};

/// The first byte is the size of the pieces, the rest the client's bytes. Each line is tried as words too.
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
