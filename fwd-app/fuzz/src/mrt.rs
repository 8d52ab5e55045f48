//! MRT tables and update streams: errors and truncations agree with our own framing, and updates written as text are read back unchanged.

use crate::feeds;
use crate::scratch::with_file;
use fib::feed::{self, Action, FeedError, FeedErrorKind, Format, Hop, RouteWords, Truncated, Update};
use fib::{NextHopTable, Rib};
use std::fmt::Write as _;

/// Timestamp, type, subtype, length (RFC 6396 section 2).
const HEADER_BYTES: usize = 12;
/// Type of table records before TABLE_DUMP_V2 (RFC 6396 section 4.2).
const TABLE_DUMP: u16 = 12;
const COMPRESSED: [&[u8]; 3] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ"];

/// Offsets of the complete records, and the first incomplete one. `None` for a compressed file, and for one with a TABLE_DUMP record: some
/// writers give lengths that are four bytes short, which the MRT library corrects.
fn framed(data: &[u8]) -> Option<(Vec<u64>, Option<Truncated>)> {
    if COMPRESSED.iter().any(|magic| data.starts_with(magic)) {
        return None;
    }
    let (mut starts, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let cut = Truncated { record: starts.len() as u64 + 1, offset_bytes: at as u64 };
        let Some(header) = data.get(at..at + HEADER_BYTES) else { return Some((starts, Some(cut))) };
        let (kind, length) = (u16::from_be_bytes([header[4], header[5]]), header[8..].first_chunk().unwrap());
        if kind == TABLE_DUMP {
            return None;
        }
        let end = at + HEADER_BYTES + u32::from_be_bytes(*length) as usize;
        if end > data.len() {
            return Some((starts, Some(cut)));
        }
        starts.push(at as u64);
        at = end;
    }
    Some((starts, None))
}

/// An error must be at a record of our framing, or at the truncated one.
fn lies_at_a_record(error: &FeedError, data: &[u8]) {
    feeds::names_a_place(error, data);
    if let FeedErrorKind::Record { record, offset_bytes, .. } = &error.kind {
        let Some((starts, cut)) = framed(data) else { return };
        let place = usize::try_from(*record - 1).unwrap();
        let start = starts
            .get(place)
            .copied()
            .or(cut.filter(|cut| cut.record == *record).map(|cut| cut.offset_bytes));
        assert_eq!(start, Some(*offset_bytes), "{error}");
    }
}

/// A table: TABLE_DUMP_V2 and TABLE_DUMP.
pub fn table(data: &[u8]) {
    feeds::holds_or_refuses(data, Some(Format::Mrt));
    match feeds::load(data, Some(Format::Mrt)) {
        Ok((table, loaded)) => {
            if let Some((starts, cut)) = framed(data) {
                assert_eq!(loaded.truncated, cut);
                assert!(loaded.skipped_records <= starts.len() as u64);
            }
            assert!(loaded.neighbours == 0 && table.routes().len() as u64 <= loaded.routes());
            feeds::round_trips(&table);
        }
        Err(error) => lies_at_a_record(&error, data),
    }
}

/// A stream of updates: BGP4MP, or text when the input is text.
pub fn updates(data: &[u8]) {
    let mut found: Vec<Update> = Vec::new();
    with_file(data, |path| {
        let mut stream = match feed::updates(path, None) {
            Ok(stream) => stream,
            Err(error) => return feeds::names_a_place(&error, data),
        };
        let (format, mut position) = (stream.format(), 0);
        while let Some(next) = stream.next() {
            assert!(stream.position() >= position);
            position = stream.position();
            match next {
                Ok(update) => {
                    assert!(position > 0);
                    found.push(update);
                }
                Err(error) => {
                    assert!(stream.next().is_none(), "after an error there are no more");
                    return if format == Format::Mrt {
                        lies_at_a_record(&error, data);
                    } else {
                        feeds::names_a_place(&error, data);
                    };
                }
            }
        }
        let is_plain = !data.starts_with(&[0x1f, 0x8b]) && !data.starts_with(b"BZh");
        if let (true, Format::Mrt, Some((_, cut))) = (is_plain, format, framed(data)) {
            assert_eq!(stream.truncated(), cut);
        }
    });
    let mut text = String::new();
    for update in &found {
        assert!(update.time_s.is_finite() && update.time_s >= 0.0);
        write(update, &mut text);
    }
    with_file(text.as_bytes(), |path| {
        let mut again = feed::updates(path, Some(Format::Text)).unwrap();
        for update in &found {
            let read = again.next().unwrap().unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!((read.prefix, &read.action), (update.prefix, &update.action), "{text}");
        }
        assert!(again.next().is_none());
    });
    apply(&found);
}

fn write(update: &Update, text: &mut String) {
    let prefix = update.prefix;
    let line = match &update.action {
        Action::Withdraw => writeln!(text, "w {prefix}"),
        Action::Announce(Hop::Id(id)) => writeln!(text, "a {prefix} {id}"),
        Action::Announce(Hop::Hop(hop)) => writeln!(text, "a {}", RouteWords { prefix, hop }),
    };
    line.unwrap();
}

fn apply(updates: &[Update]) {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    for update in updates {
        let (routes, known) = (rib.len(), hops.len());
        match update.apply(&mut rib, &mut hops) {
            Ok(before) => {
                let gone = update.action == Action::Withdraw;
                assert_eq!(
                    rib.len() + usize::from(gone && !before.is_none()),
                    routes + usize::from(!gone && before.is_none())
                );
            }
            Err(_) => assert_eq!((rib.len(), hops.len()), (routes, known)),
        }
    }
}
