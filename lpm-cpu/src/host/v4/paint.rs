//! Paints codes: turns ordered routes into the code of each address, record by record.
//!
//! Routes are ordered by address, then length, so a route overwrites those that cover it. Routes that cover whole records are kept on a
//! stack, so records without more specific routes are painted as spans.

use super::table::{RECORD_CODES, RECORD_LEN, record_of};
use fib::{Change, Prefix4};
use std::iter::Peekable;
use std::ops::Range;

/// The code of a /24 with longer routes, before it is cut to the table's width.
pub(super) const ESCAPE: u32 = u32::MAX;

/// Receives the painted codes. Each part of a region comes once, in order of address.
pub(super) trait Canvas {
    /// Records whose /24s all have `code`.
    fn span(&mut self, records: Range<u32>, code: u32);
    /// The codes of /24s from `at24` on, all in one record: an aligned power of two of them.
    fn part(&mut self, at24: u32, codes: &[u32]);
    /// The codes of the addresses of a /24, before the part with its [`ESCAPE`].
    fn block(&mut self, at24: u32, codes: &[u32; 256]);
}

/// The regions to paint after `changes`, which are sorted: disjoint, in order, and at most one in a record.
pub(super) fn regions(changes: &[Change<u32>]) -> impl Iterator<Item = Prefix4> {
    let whole = |prefix: Prefix4| Prefix4::truncating(prefix.address(), prefix.len().min(24));
    let mut rest = changes.iter().map(move |change| whole(change.prefix)).peekable();
    std::iter::from_fn(move || {
        let mut region = rest.next()?;
        while let Some(next) = rest.peek() {
            // A prefix shorter than a record's would come first, or begin at another record.
            if record_of(next.address()) == record_of(region.address()) && region.len() >= RECORD_LEN {
                let differing = next.address() ^ region.address();
                let shared = u8::try_from(differing.leading_zeros()).unwrap_or(0);
                region = Prefix4::truncating(region.address(), region.len().min(next.len()).min(shared));
            } else if !region.covers(*next) {
                break;
            }
            rest.next();
        }
        Some(region)
    })
}

/// Paints `region`, of whole /24s, from `routes` within it; gaps get the code `background`.
pub(super) fn paint(
    region: Prefix4,
    background: u32,
    routes: &mut Peekable<impl Iterator<Item = (Prefix4, u32)>>,
    canvas: &mut impl Canvas,
) {
    if region.len() >= RECORD_LEN {
        return paint_part(region, background, routes, canvas);
    }
    // A stack of routes shorter than a record that cover the current one: their last record, and code.
    let (mut above, mut depth) = ([(u32::MAX, background); RECORD_LEN as usize + 1], 0);
    let (mut record, last) = (record_of(region.address()), record_of(region.last_address()));
    while record <= last {
        while above[depth].0 < record {
            depth -= 1;
        }
        let covers =
            |route: &(Prefix4, u32)| route.0.len() < RECORD_LEN && record_of(route.0.address()) == record;
        while let Some((prefix, code)) = routes.next_if(covers) {
            depth += 1;
            above[depth] = (record_of(prefix.last_address()), code);
        }
        let (end, code) = above[depth];
        let next = routes.peek().map_or(u32::MAX, |(prefix, _)| record_of(prefix.address()));
        if next > record {
            let end = next.min(end.saturating_add(1)).min(last + 1);
            canvas.span(record..end, code);
            record = end;
        } else {
            paint_part(record_prefix(record), code, routes, canvas);
            record += 1;
        }
    }
}

fn record_prefix(record: u32) -> Prefix4 {
    Prefix4::truncating(record << (32 - RECORD_LEN), RECORD_LEN)
}

fn paint_part(
    region: Prefix4,
    background: u32,
    routes: &mut Peekable<impl Iterator<Item = (Prefix4, u32)>>,
    canvas: &mut impl Canvas,
) {
    let mut codes = [background; RECORD_CODES as usize];
    let codes = &mut codes[..1 << (24 - region.len())];
    let first = region.address() >> 8;
    while let Some((prefix, code)) = routes.next_if(|(prefix, _)| region.covers(*prefix)) {
        let at = ((prefix.address() >> 8) - first) as usize;
        if prefix.len() <= 24 {
            codes[at..at + (1 << (24 - prefix.len()))].fill(code);
        } else {
            paint_block(prefix, code, codes[at], routes, canvas);
            codes[at] = ESCAPE;
        }
    }
    canvas.part(first, codes);
}

fn paint_block(
    prefix: Prefix4,
    code: u32,
    background: u32,
    routes: &mut Peekable<impl Iterator<Item = (Prefix4, u32)>>,
    canvas: &mut impl Canvas,
) {
    let mut codes = [background; 256];
    let block = Prefix4::truncating(prefix.address(), 24);
    let mut next = Some((prefix, code));
    while let Some((prefix, code)) = next {
        let at = (prefix.address() & 0xff) as usize;
        codes[at..at + (1 << (32 - prefix.len()))].fill(code);
        next = routes.next_if(|(prefix, _)| block.covers(*prefix));
    }
    canvas.block(prefix.address() >> 8, &codes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::oracle::Oracle;
    use fib::{IpPrefix, NextHopId};
    use proptest::prelude::*;

    #[derive(Default)]
    struct SeenCodes {
        /// First address, last address and code.
        spans: Vec<(u32, u32, u32)>,
    }

    impl Canvas for SeenCodes {
        fn span(&mut self, records: Range<u32>, code: u32) {
            assert!(!records.is_empty());
            let [first, last] = [records.start, records.end - 1].map(record_prefix);
            self.spans.push((first.address(), last.last_address(), code));
        }

        fn part(&mut self, at24: u32, codes: &[u32]) {
            assert!(codes.len().is_power_of_two() && (at24 as usize).is_multiple_of(codes.len()));
            for (at24, code) in (at24..).zip(codes).filter(|(_, code)| **code != ESCAPE) {
                self.spans.push((at24 << 8, at24 << 8 | 255, *code));
            }
        }

        fn block(&mut self, at24: u32, codes: &[u32; 256]) {
            self.spans.extend((at24 << 8..).zip(codes).map(|(address, code)| (address, address, *code)));
        }
    }

    fn route(text: &str) -> Prefix4 {
        let Ok(IpPrefix::V4(prefix)) = text.parse() else { panic!("{text}") };
        prefix
    }

    #[test]
    fn regions_are_disjoint_and_one_a_record() {
        let regions = |texts: &[&str]| {
            let change =
                |text: &&str| Change { prefix: route(text), old: NextHopId::NONE, new: NextHopId::MAX };
            let mut changes: Vec<_> = texts.iter().map(change).collect();
            changes.sort_by_key(|change| change.prefix);
            regions(&changes).map(|region| region.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(regions(&["10.0.0.1/32"]), ["10.0.0.0/24"]);
        assert_eq!(
            regions(&["10.0.0.0/24", "10.0.3.0/24", "10.0.128.0/24"]),
            ["10.0.0.0/22", "10.0.128.0/24"]
        );
        assert_eq!(
            regions(&["10.0.0.0/8", "10.0.0.0/24", "10.9.0.0/16", "11.0.0.0/17"]),
            ["10.0.0.0/8", "11.0.0.0/17"]
        );
        assert_eq!(
            regions(&["10.0.64.0/20", "10.0.64.7/32", "10.0.127.0/30", "10.1.0.0/16"]),
            ["10.0.64.0/18", "10.1.0.0/16"]
        );
    }

    proptest! {
        #[test]
        fn what_is_painted_is_the_longest_match(
            routes in prop::collection::vec((0_u32..64, 0_u32..8, 0_u8..=32, 1_u32..9), 0..40),
            region in (0_u32..64, 0_u8..=24),
        ) {
            let address = |high: u32, low: u32| 0x0a00_0000 | high << 14 | low << 5;
            let region = Prefix4::truncating(address(region.0, 0), region.1);
            let mut oracle = Oracle::new();
            let mut sorted = std::collections::BTreeMap::new();
            for (high, low, len, code) in routes {
                let prefix = Prefix4::truncating(address(high, low), len);
                oracle.set(prefix, NextHopId::from_answer(code));
                sorted.insert(prefix, code);
            }
            let above = |prefix: &Prefix4| prefix.covers(region) && *prefix != region;
            let background = sorted.iter().rfind(|(prefix, _)| above(prefix)).map_or(0, |(_, code)| *code);
            let mut within = sorted.into_iter().filter(|(prefix, _)| region.covers(*prefix)).peekable();
            let mut seen = SeenCodes::default();
            paint(region, background, &mut within, &mut seen);
            prop_assert_eq!(within.next(), None);
            seen.spans.sort_unstable();
            let mut next = u64::from(region.address());
            for (first, last, code) in seen.spans {
                prop_assert_eq!(next, u64::from(first));
                next = u64::from(last) + 1;
                for key in [first, last, first + (last - first) / 2] {
                    prop_assert_eq!(oracle.lookup(key).get(), code, "{:#x}", key);
                }
            }
            prop_assert_eq!(next, u64::from(region.last_address()) + 1);
        }
    }
}
