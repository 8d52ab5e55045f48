//! The limit of notifications that a pass keeps.

use super::*;
use fib::Prefix4;
use std::net::IpAddr;

fn told(route: u8) -> Told {
    let gateway = Some(IpAddr::from([192, 0, 2, route]));
    Told::Is(Arc::new(Route::Paths(Box::new([Path { gateway, ifindex: 2, weight: 1 }]))))
}

#[test]
fn a_pass_with_too_many_notifications_is_ignored_and_bounded() {
    let mut mirror = Mirror::new(1 << 20);
    mirror.edits_max = 100;
    let key = |number: u32| (0, IpPrefix::V4(Prefix4::truncating(number << 8, 24)), 0);
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
