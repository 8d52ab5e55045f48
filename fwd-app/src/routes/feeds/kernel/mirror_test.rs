//! The mirror under every interleaving of a dump with notifications, for the IPv4 routes of one key.

use super::*;
use fib::Prefix4;
use std::net::IpAddr;

/// A route, by the last byte of its gateway.
type Number = u8;

#[derive(Clone, Copy, Debug)]
enum ListChange {
    Append(Number),
    Prepend(Number),
    Replace(Number),
    Delete(Number),
}

impl ListChange {
    /// Applies it by the kernel's rules. Returns its notification: the flags, or `None` for a deletion, and the route. `None` if the
    /// kernel refuses it.
    fn apply(self, list: &mut Vec<Number>) -> Option<(Option<u16>, Number)> {
        let (Self::Append(route) | Self::Prepend(route) | Self::Replace(route) | Self::Delete(route)) = self;
        let at = list.iter().position(|known| *known == route);
        let is_alone = list.is_empty();
        let flags = match (self, at) {
            (Self::Delete(_), Some(at)) => {
                list.remove(at);
                return Some((None, route));
            }
            (Self::Append(_), None) => {
                list.push(route);
                if is_alone { 0x600 } else { 0xc00 }
            }
            (Self::Prepend(_), None) => {
                list.insert(0, route);
                if is_alone { 0x600 } else { 0x400 }
            }
            (Self::Replace(_), None) if !is_alone => {
                list[0] = route;
                0x100
            }
            _ => return None,
        };
        Some((Some(flags), route))
    }

    fn all() -> impl Iterator<Item = Self> {
        (1..=3).flat_map(|route| {
            [Self::Append(route), Self::Prepend(route), Self::Replace(route), Self::Delete(route)]
        })
    }
}

fn key() -> RouteKey {
    RouteKey { vrf: 0, prefix: IpPrefix::V4(Prefix4::truncating(0x0a00_0000, 8)), metric: 0 }
}

fn told(route: Number) -> Told {
    let gateway = Some(IpAddr::from([192, 0, 2, route]));
    Told::Is(Arc::new(Route::Paths(Box::new([Path { gateway, ifindex: 2, weight: 1 }]))))
}

/// Changes, with their notifications and the lists of the kernel before and after them.
struct Course {
    lists: Vec<Vec<Number>>,
    notifications: Vec<(Option<u16>, Number)>,
    changes: Vec<ListChange>,
}

/// When the dump is made, when it arrives, and when its pass ends, in changes.
#[derive(Clone, Copy, Debug)]
struct DumpTimes {
    made: usize,
    arrives: usize,
    ends: usize,
}

struct MirrorRig(Mirror);

impl MirrorRig {
    fn knowing(list: &[Number]) -> Self {
        let mut rig = Self(Mirror::new(1));
        for (at, route) in list.iter().enumerate() {
            rig.hear(&[(Some(if at == 0 { 0x600 } else { 0xc00 }), *route)]);
        }
        rig
    }

    /// Receives notifications. Returns whether each deletion was of a known route.
    fn hear(&mut self, notifications: &[(Option<u16>, Number)]) -> bool {
        notifications.iter().fold(true, |is_known, (flags, route)| match flags {
            Some(flags) => {
                self.0.announced(key(), told(*route), 0, *flags);
                is_known
            }
            None => self.0.gone(key(), Some(told(*route)), 0) && is_known,
        })
    }

    fn dump(&mut self, list: &[Number]) {
        list.iter().for_each(|route| self.0.dumped(key(), told(*route), 0));
        self.0.end_run();
    }

    fn list(&self) -> Vec<Entry> {
        let IpPrefix::V4(prefix) = key().prefix else { unreachable!() };
        let key = key().with_prefix(prefix);
        let behind = self.0.v4.behind.get(&key).into_iter().flatten();
        self.0.v4.first.get(&key).into_iter().chain(behind).cloned().collect()
    }

    fn has(&self, list: &[Number]) -> bool {
        self.list().into_iter().map(|entry| entry.told).eq(list.iter().map(|route| told(*route)))
    }
}

impl Course {
    /// Follows this course with a pass at `times`. The mirror must end with the kernel's list, or ask for another pass, which it then
    /// confirms.
    fn check(&self, known: &[Number], times: DumpTimes) {
        let mut rig = MirrorRig::knowing(known);
        rig.0.begin();
        let DumpTimes { made, arrives, ends } = times;
        let mut is_sure = rig.hear(&self.notifications[..arrives]);
        rig.dump(&self.lists[made]);
        is_sure &= rig.hear(&self.notifications[arrives..ends]);
        is_sure &= !rig.0.is_doubtful();
        rig.0.sweep();
        is_sure &= rig.hear(&self.notifications[ends..]);
        let last = self.lists.last().unwrap();
        let about = || {
            format!("{:?} known {known:?}, {:?}, {times:?}: {:?}", self.lists[0], self.changes, rig.list())
        };
        assert!(!is_sure || rig.has(last), "{}", about());
        let was_right = known == self.lists[0] && made <= arrives && !self.has_return();
        assert!(is_sure || !was_right, "a needless pass: {}", about());
        rig.0.begin();
        rig.dump(last);
        rig.0.sweep();
        assert!(rig.has(last) && !rig.0.is_doubtful());
    }

    /// Whether a route comes back that was there before. A dump does not show the time from which it has a route.
    fn has_return(&self) -> bool {
        let announced = self.notifications.iter().enumerate().filter(|(_, (flags, _))| flags.is_some());
        announced.into_iter().any(|(at, (_, route))| self.lists[..at].iter().any(|list| list.contains(route)))
    }

    /// Checks this course and all that begin with it, with up to `left` more changes.
    fn check_all(&mut self, left: usize) {
        let count = self.notifications.len();
        for arrives in 0..=count {
            // The kernel sends a notification before the next change of the prefix.
            for made in 0..=count.min(arrives + 1) {
                for ends in arrives..=count {
                    let times = DumpTimes { made, arrives, ends };
                    self.check(&self.lists[0].clone(), times);
                    self.check(&[], times);
                }
            }
        }
        for change in ListChange::all().take(if left > 0 { usize::MAX } else { 0 }) {
            let mut list = self.lists[count].clone();
            let Some(notification) = change.apply(&mut list) else { continue };
            self.lists.push(list);
            self.notifications.push(notification);
            self.changes.push(change);
            self.check_all(left - 1);
            self.lists.pop();
            self.notifications.pop();
            self.changes.pop();
        }
    }
}

#[test]
fn no_route_is_lost_whenever_the_dump_is_made_and_arrives() {
    for start in [&[][..], &[1], &[1, 2], &[1, 2, 3]] {
        Course { lists: vec![start.to_vec()], notifications: Vec::new(), changes: Vec::new() }.check_all(3);
    }
}

#[test]
fn a_pass_with_too_many_notifications_is_ignored_and_bounded() {
    let mut mirror = Mirror::new(1 << 20);
    mirror.edits_max = 100;
    let key = |number: u32| key().with_prefix(IpPrefix::V4(Prefix4::truncating(number << 8, 24)));
    mirror.begin();
    (0..20).for_each(|number| mirror.announced(key(number), told(1), 0, 0x400));
    assert!(!mirror.is_overrun());
    (20..1000).for_each(|number| mirror.announced(key(number), told(1), 0, 0x400));
    assert!(mirror.is_overrun());
    let kept = mirror.edits.as_ref().map(|pass| (pass.by_key.len(), pass.count));
    assert_eq!(kept, Some((0, 100)));
    // The dump may be older.
    mirror.changes.clear();
    (0..1000).for_each(|number| mirror.dumped(key(number), told(2), 0));
    mirror.end_run();
    assert!(mirror.changes.is_empty());
    mirror.end();
    mirror.begin();
    assert!(!mirror.is_overrun());
}
