//! Routes are listed with their sources, in slices with changes in between.

use super::*;
use crate::routes::candidates::Origin;
use crate::routes::listing::{RouteCounts, RouteFilter};
use fib::{Prefix, Prefix4};
use std::collections::BTreeSet;

/// All slices, with a call of `between` after each.
fn list(vrf: &mut Vrf, filter: &RouteFilter, mut between: impl FnMut(&mut Vrf, usize)) -> Vec<IpPrefix> {
    let (mut listed, mut after) = (Vec::new(), None);
    for number in 0.. {
        let slice = vrf.list(filter, after);
        listed.extend(slice.routes.iter().map(|route| route.prefix));
        after = slice.ended_at;
        if after.is_none() {
            break;
        }
        between(vrf, number);
    }
    listed
}

fn all(vrf: &mut Vrf, filter: &RouteFilter) -> Vec<IpPrefix> {
    list(vrf, filter, |_, _| ())
}

#[test]
fn a_route_has_the_source_whose_route_is_in_service() {
    let mut rig = SourcesRig::with_feeds_before_files(1);
    let (fpm, kernel) = (SourceId::of_feed(FPM.0), SourceId::of_feed(KERNEL.0));
    let of = |rig: &SourcesRig| {
        let filter = RouteFilter { prefix: Some(prefix()), ..RouteFilter::default() };
        let found = rig.vrf.list(&filter, None).routes;
        assert!(found.len() <= 1);
        let of = |origin: Origin| (origin.source, origin.is_stale);
        found
            .first()
            .map(|route| (route.id.get(), route.hop.as_ref().map(ToString::to_string), route.origin.map(of)))
    };
    let via = |last: u8| Some(format!("via 192.0.2.{last} dev 0"));
    assert_eq!(of(&rig), None);
    rig.says(KERNEL, vec![announce(7, 10)]);
    assert!(matches!(of(&rig), Some((_, hop, Some((source, false)))) if hop == via(7) && source == kernel));
    rig.file(id(77));
    assert_eq!(of(&rig), Some((77, None, Some((SourceId::FILES, false)))));
    rig.says(FPM, vec![announce(8, 10)]);
    assert!(matches!(of(&rig), Some((_, hop, Some((source, false)))) if hop == via(8) && source == fpm));
    rig.says(FPM, vec![FeedEvent::Stale]);
    assert!(matches!(of(&rig), Some((_, _, Some((source, true)))) if source == fpm));
    let listed = |rig: &mut SourcesRig, source, is_stale| {
        all(&mut rig.vrf, &RouteFilter { source, is_stale, ..RouteFilter::default() })
    };
    assert_eq!(listed(&mut rig, None, true), [prefix()]);
    assert_eq!(listed(&mut rig, Some(fpm), false), [prefix()]);
    assert_eq!(listed(&mut rig, Some(kernel), true), []);
    assert_eq!(listed(&mut rig, Some(SourceId::FILES), false).len(), rig.vrf.rib().len() - 1);
    rig.says(FPM, vec![announce(8, 10)]);
    assert_eq!(listed(&mut rig, None, true), []);
    rig.ctl(5);
    assert_eq!(of(&rig), Some((5, None, Some((SourceId::CTL, false)))));
}

#[test]
fn a_prefix_alone_or_all_that_it_covers() {
    let mut rig = SourcesRig::new();
    let mut of = |text: &str, is_longer| {
        let filter = RouteFilter { prefix: Some(text.parse().unwrap()), is_longer, ..RouteFilter::default() };
        let found = all(&mut rig.vrf, &filter);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of("10.85.0.0/16", false), ["10.85.0.0/16"]);
    assert!(of("10.85.0.0/18", false).is_empty());
    let within = of("10.85.170.0/24", true);
    assert_eq!((within[0].as_str(), within[1].as_str()), ("10.85.170.0/24", "10.85.170.0/25"));
    assert!(within.len() > 5 && within.iter().all(|text| text.starts_with("10.85.170.")));
    // A prefix without a route; the other family; a whole family.
    assert!(!of("10.85.170.128/26", true).is_empty());
    let (v4, v6) = (of("0.0.0.0/0", true), of("::/0", true));
    assert_eq!(v4.len() + v6.len(), rig.vrf.rib().len());
    assert!(v4.iter().all(|text| !text.contains(':')) && v6.iter().all(|text| text.contains(':')));
}

#[test]
fn counts_come_in_slices_that_changes_come_between() {
    let mut vrf = vrf_over(SharedPorts::default());
    let before: u64 = vrf.rib.len() as u64;
    let drops = vrf.egress.hops.intern(NextHop::Unreachable).unwrap();
    for at in 0..20_000 {
        vrf.rib.v6.set(
            Prefix::truncating(u128::from(at + 1_u64) << 80, 64),
            if at < 9 { drops } else { NextHopId::new(9).unwrap() },
        );
    }
    let (mut counts, mut slices) = (RouteCounts::default(), 1);
    while !vrf.count_routes(&mut counts) {
        slices += 1;
        // A route that was counted is withdrawn.
        vrf.rib.v6.set(Prefix::truncating(1_u128 << 80, 64), NextHopId::NONE);
    }
    assert!(slices > 2, "{slices}");
    assert_eq!(counts.v4.iter().chain(&counts.v6).sum::<u64>(), before + 20_000);
    assert!(counts.v6[64] >= 20_000 && counts.discards == [0, 9, 0]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 8, ..Default::default() })]

    #[test]
    fn routes_that_stay_are_listed_once_whatever_comes_and_goes_between_slices(
        seed: u64,
        changes in proptest::collection::vec(proptest::prelude::any::<(bool, u32, u8)>(), 300),
    ) {
        const ROUTES: u32 = 30_000;
        let mut vrf = vrf_over(SharedPorts::default());
        let mut state = fib::random::SplitMix64(seed);
        let mut random = || Prefix4::truncating((state.u64() >> 32) as u32, 8 + (state.u64() % 25) as u8);
        let number = NextHopId::new(9).unwrap();
        let mut stay: BTreeSet<_> = (0..ROUTES).map(|_| random()).collect();
        for prefix in &stay {
            vrf.rib.v4.set(*prefix, number);
        }
        for at in 0..ROUTES {
            vrf.rib.v6.set(Prefix::truncating(u128::from(at) << 90, 48), number);
        }
        let mut changes = changes.into_iter();
        let listed = list(&mut vrf, &RouteFilter::default(), |vrf, _| {
            for (comes, address, len) in changes.by_ref().take(30) {
                let prefix = Prefix4::truncating(address, len % 33);
                // The last prefix of the slice may go, too.
                let gone = stay.range(prefix..).next().copied().filter(|_| !comes);
                vrf.rib.v4.set(gone.unwrap_or(prefix), if comes { number } else { NextHopId::NONE });
                stay.retain(|prefix| Some(*prefix) != gone);
            }
        });
        proptest::prop_assert!(listed.is_sorted_by(|a, b| a < b));
        let listed: BTreeSet<_> = listed.into_iter().collect();
        proptest::prop_assert!(stay.iter().all(|prefix| listed.contains(&IpPrefix::V4(*prefix))));
        let v6 = listed.iter().filter(|prefix| matches!(prefix, IpPrefix::V6(_))).count();
        proptest::prop_assert_eq!(v6, vrf.rib.v6.len());
    }
}
