//! Merging sorted routes with sorted changes.

use super::code;
use super::trie::TrieEntry;
use fib::NextHopId;

fn order(entry: &TrieEntry) -> (u64, u8) {
    (entry.key, entry.len)
}

/// Adds `paths`, which have no code, to `entries`; both are sorted by key, then length. A path equal to an entry is dropped.
pub(super) fn entries(entries: Vec<TrieEntry>, paths: impl IntoIterator<Item = TrieEntry>) -> Vec<TrieEntry> {
    let mut paths = paths.into_iter().peekable();
    if paths.peek().is_none() {
        return entries;
    }
    let mut out = Vec::with_capacity(entries.len() + paths.size_hint().0);
    for entry in entries {
        while let Some(path) = paths.next_if(|path| order(path) <= order(&entry)) {
            if order(&path) < order(&entry) {
                out.push(path);
            }
        }
        out.push(entry);
    }
    out.extend(paths);
    out
}

/// Jump code of an entry whose `inf` is a next hop that has no leaf code yet.
const TO_SET: u32 = 1;

pub(super) fn next_hop_to_set(code: u32) -> Option<NextHopId> {
    (code::jump(code) == TO_SET).then(|| NextHopId::from_answer(code::inf(code)))
}

#[derive(Debug, Default)]
pub(super) struct Merged {
    /// All routes; new ones and those with a new next hop have a [`next_hop_to_set`].
    pub(super) entries: Vec<TrieEntry>,
    pub(super) set: usize,
    /// Routes that are withdrawn or get a new next hop, with their codes.
    pub(super) gone: Vec<TrieEntry>,
    pub(super) made: u64,
}

/// Merges `before` with `changes`, whose codes are next hops (0 withdraws). The last change of a prefix counts.
pub(super) fn changes(
    before: &[TrieEntry],
    changes: impl Iterator<Item = TrieEntry>,
    next_hop: impl Fn(u32) -> NextHopId,
) -> Merged {
    let mut merged = Merged::default();
    let (mut before, mut changes) = (before.iter().copied().peekable(), changes.peekable());
    while let Some(change) = changes.next() {
        if changes.peek().is_some_and(|next| order(next) == order(&change)) {
            continue;
        }
        while let Some(entry) = before.next_if(|entry| order(entry) < order(&change)) {
            merged.entries.push(entry);
        }
        let old = before.next_if(|entry| order(entry) == order(&change));
        let old_hop = old.map_or(NextHopId::NONE, |entry| next_hop(entry.code));
        let new_hop = NextHopId::from_answer(change.code);
        if old_hop == new_hop {
            merged.entries.extend(old);
            continue;
        }
        merged.made += 1;
        merged.gone.extend(old);
        if !new_hop.is_none() {
            merged.set += 1;
            merged.entries.push(TrieEntry { code: code::child(new_hop.get(), TO_SET), ..change });
        }
    }
    merged.entries.extend(before);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: u64, len: u8, code: u32) -> TrieEntry {
        TrieEntry { key, len, code }
    }

    #[test]
    fn ways_that_are_routes_are_left_out() {
        let merged =
            entries(vec![entry(1, 8, 5), entry(3, 8, 6)], [entry(0, 8, 0), entry(1, 8, 0), entry(4, 8, 0)]);
        assert_eq!(merged, [entry(0, 8, 0), entry(1, 8, 5), entry(3, 8, 6), entry(4, 8, 0)]);
    }

    #[test]
    fn changes_are_merged() {
        let before = [entry(1, 8, 5 << 8), entry(2, 8, 6 << 8), entry(3, 8, 7 << 8), entry(5, 8, 8 << 8)];
        // new, the same, another next hop (twice), withdrawn, withdrawn but absent
        let listed =
            [entry(0, 8, 9), entry(1, 8, 5), entry(2, 8, 1), entry(2, 8, 2), entry(3, 8, 0), entry(4, 8, 0)];
        let merged = changes(&before, listed.into_iter(), |code| NextHopId::from_answer(code::inf(code)));
        let to_set = |next_hop| code::child(next_hop, TO_SET);
        assert_eq!(
            merged.entries,
            [entry(0, 8, to_set(9)), entry(1, 8, 5 << 8), entry(2, 8, to_set(2)), entry(5, 8, 8 << 8)]
        );
        assert_eq!(merged.set, 2);
        assert_eq!(next_hop_to_set(to_set(9)), Some(NextHopId::from_answer(9)));
        assert_eq!(next_hop_to_set(9 << 8), None);
        assert_eq!(merged.gone, [entry(2, 8, 6 << 8), entry(3, 8, 7 << 8)]);
        assert_eq!(merged.made, 3);
    }
}
