//! MACs of neighbours on their way to the control thread. Each change makes new egress tables there, so a neighbour's MAC is
//! reported at most once a second, always the latest one. Each map has at most one entry per neighbour of the table.

use crate::neighbours::entries::{Key, Resolved};
use fib::MacAddr;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

const CHANGE_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Learned {
    /// MACs known to the control thread, with the time of each report.
    told: FxHashMap<Key, (MacAddr, Duration)>,
    /// Pending reports, with the due time of each.
    news: FxHashMap<Key, (Option<MacAddr>, Duration)>,
    /// The pending reports by due time.
    due: BTreeSet<(Duration, Key)>,
}

impl Learned {
    pub(super) fn set(&mut self, now: Duration, key: Key, mac: Option<MacAddr>) {
        if let Some((_, due)) = self.news.remove(&key) {
            self.due.remove(&(due, key));
        }
        let told = self.told.get(&key);
        if mac == told.map(|(mac, _)| *mac) {
            return;
        }
        let since_change = told.filter(|_| mac.is_some()).map(|(_, at)| at.saturating_add(CHANGE_PERIOD));
        let due = since_change.map_or(now, |due| due.max(now));
        self.news.insert(key, (mac, due));
        self.due.insert((due, key));
    }

    /// Reports the MACs due by `now`, until `report` returns false.
    pub(super) fn report_due(&mut self, now: Duration, mut report: impl FnMut(Resolved) -> bool) {
        while let Some((due, key)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            let mac = self.news.get(&key).and_then(|(mac, _)| *mac);
            if !report(Resolved { key, mac }) {
                return;
            }
            self.due.remove(&(due, key));
            self.news.remove(&key);
            match mac {
                Some(mac) => self.told.insert(key, (mac, now)),
                None => self.told.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::InterfaceId;

    fn key(last: u8) -> Key {
        Key::untagged(InterfaceId(0), [192, 0, 2, last].into())
    }

    fn taken(learned: &mut Learned, now: Duration) -> Vec<(Key, Option<u8>)> {
        let mut all = Vec::new();
        learned.report_due(now, |Resolved { key, mac }| {
            all.push((key, mac.map(|mac| mac.0[5])));
            true
        });
        all
    }

    const fn mac(last: u8) -> Option<MacAddr> {
        Some(MacAddr([2, 0, 0, 0, 0, last]))
    }

    #[test]
    fn a_neighbour_that_flips_is_told_of_once_a_second_and_rightly_at_last() {
        let (mut learned, mut count) = (Learned::default(), 0);
        let at = Duration::from_millis;
        learned.set(at(0), key(9), mac(1));
        assert_eq!(taken(&mut learned, at(0)), [(key(9), Some(1))], "at once");
        learned.set(at(5000), key(9), mac(2));
        assert_eq!(taken(&mut learned, at(5000)), [(key(9), Some(2))], "at once after a while");
        for ms in 5001..15_000 {
            learned.set(at(ms), key(9), mac((ms % 7) as u8 + 3));
            count += taken(&mut learned, at(ms)).len();
        }
        assert_eq!((count, learned.news.len()), (9, 1));
        learned.set(at(15_000), key(9), mac(77));
        assert_eq!(taken(&mut learned, at(15_000)), [(key(9), Some(77))]);
        // Back to the last reported MAC: nothing to report.
        learned.set(at(15_001), key(9), mac(1));
        learned.set(at(15_002), key(9), mac(77));
        assert!(taken(&mut learned, at(99_000)).is_empty() && learned.due.is_empty());
        learned.set(at(99_000), key(9), None);
        assert_eq!(taken(&mut learned, at(99_000)), [(key(9), None)], "a loss does not wait");
        assert!(learned.told.is_empty());
    }

    /// Regression: each change took memory until the control thread received it.
    #[test]
    fn what_nobody_takes_is_bounded_by_the_neighbours() {
        let (mut learned, now) = (Learned::default(), Duration::ZERO);
        for change in 0..100_000_u32 {
            learned.set(now, key((change % 5) as u8), mac((change % 251) as u8));
            learned.report_due(now, |_| false);
        }
        assert_eq!((learned.news.len(), learned.due.len(), learned.told.len()), (5, 5, 0));
        (0..5).for_each(|last| learned.set(now, key(last), None));
        assert!(learned.news.is_empty() && learned.due.is_empty(), "they were never told of");
    }
}
