//! Rate of defence of our addresses against other stations (RFC 5227 2.4).

use super::entries::Key;
use crate::ports::InterfaceId;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// RFC 5227 1.1, `DEFEND_INTERVAL`. A router keeps its address: 2.4 (c).
const INTERVAL: Duration = Duration::from_secs(10);
/// Conflicts per link and interval, since a station can claim an address in every pair of VLANs. Later claims get no answer.
const CONFLICTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Conflicts(FxHashMap<InterfaceId, LinkConflicts>);

#[derive(Debug, Default)]
struct LinkConflicts {
    defended: FxHashMap<Key, Duration>,
    /// No entry expires before this time.
    full_until: Duration,
}

impl Conflicts {
    /// Whether to defend the address now: at the first claim, then once per interval.
    pub(super) fn is_due(&mut self, now: Duration, key: Key) -> bool {
        self.0.entry(key.interface).or_default().is_due(now, key)
    }

    pub(super) fn retain(&mut self, is_ours: impl Fn(&Key) -> bool) {
        self.0.retain(|_, link| {
            link.defended.retain(|key, _| is_ours(key));
            !link.defended.is_empty()
        });
    }
}

impl LinkConflicts {
    fn is_due(&mut self, now: Duration, key: Key) -> bool {
        let ends = |last: Duration| last.saturating_add(INTERVAL);
        if self.defended.get(&key).is_some_and(|last| now < ends(*last)) {
            return false;
        }
        if self.defended.len() >= CONFLICTS_MAX && now >= self.full_until {
            self.defended.retain(|_, last| now < ends(*last));
            self.full_until = self.defended.values().copied().min().map_or(now, ends);
        }
        let has_room = self.defended.len() < CONFLICTS_MAX || self.defended.contains_key(&key);
        if has_room {
            self.defended.insert(key, now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn claim(vlan: u16) -> Key {
        Key { vlans: [vlan, 0], ..Key::untagged(InterfaceId(0), Ipv4Addr::new(192, 0, 2, 1).into()) }
    }

    #[test]
    fn claims_in_every_vlan_take_no_more_memory() {
        let mut conflicts = Conflicts::default();
        let mut answered = 0;
        for second in 0..60_u64 {
            let now = Duration::from_secs(second);
            let all = (0..u16::MAX).filter(|vlan| conflicts.is_due(now, claim(*vlan))).count();
            answered += all;
            assert!(conflicts.0[&InterfaceId(0)].defended.len() <= CONFLICTS_MAX);
        }
        assert_eq!(answered, 6 * CONFLICTS_MAX, "each interval has its own");
    }

    #[test]
    fn claims_on_one_link_leave_those_on_another_alone() {
        let mut conflicts = Conflicts::default();
        assert_eq!(
            (0..u16::MAX).filter(|vlan| conflicts.is_due(Duration::ZERO, claim(*vlan))).count(),
            CONFLICTS_MAX
        );
        assert!(!conflicts.is_due(Duration::ZERO, claim(u16::MAX)));
        let elsewhere = Key { interface: InterfaceId(1), ..claim(0) };
        assert!(conflicts.is_due(Duration::ZERO, elsewhere));
        conflicts.retain(|key| *key == elsewhere);
        assert_eq!(conflicts.0.len(), 1);
    }

    #[test]
    fn a_claim_has_room_again_when_the_oldest_is_an_interval_old() {
        let mut conflicts = Conflicts::default();
        let many = u16::try_from(CONFLICTS_MAX).unwrap();
        for vlan in 0..many {
            assert!(conflicts.is_due(Duration::from_millis(u64::from(vlan)), claim(vlan)));
        }
        let at = |millis| Duration::from_millis(millis);
        assert!(!conflicts.is_due(at(9_999), claim(many)));
        assert!(conflicts.is_due(at(10_000), claim(many)), "the first one is over");
        assert!(!conflicts.is_due(at(10_000), claim(many + 1)));
        assert!(conflicts.is_due(at(10_001), claim(1)), "one that is known again");
        assert!(!conflicts.is_due(at(10_002), claim(1)));
    }
}
