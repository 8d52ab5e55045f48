//! The table of several feeds against a plain list of announcements.

use super::*;
use crate::control::feeds::Path;
use crate::control::feeds::live::say;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Instant;

fn route(number: u32) -> Arc<Route> {
    Arc::new(match number {
        0 => Route::Blackhole,
        _ => Route::Paths(Box::new([Path { gateway: None, ifindex: number, weight: 1 }])),
    })
}

fn prefix(number: u32) -> IpPrefix {
    if number.is_multiple_of(2) {
        IpPrefix::V4(Prefix::truncating(number << 8, 24))
    } else {
        IpPrefix::V6(Prefix::truncating(u128::from(number) << 96, 32))
    }
}

/// What a prefix's announcement says in the model: the route, and whether it is stale.
type Model = BTreeMap<IpPrefix, BTreeMap<Rank, (Arc<Route>, bool)>>;

fn best(model: &Model) -> BTreeMap<IpPrefix, Arc<Route>> {
    let best =
        |of: &BTreeMap<Rank, (Arc<Route>, bool)>| of.values().next().map(|(route, _)| Arc::clone(route));
    model.iter().filter_map(|(prefix, of)| Some((*prefix, best(of)?))).collect()
}

fn apply_to_model(model: &mut Model, feed: FeedId, event: &FeedEvent) {
    match event {
        FeedEvent::Announce { prefix, metric, route, .. } => {
            model.entry(*prefix).or_default().insert((feed, *metric), (Arc::clone(route), false));
        }
        FeedEvent::Withdraw { prefix, metric, .. } => {
            model.entry(*prefix).or_default().remove(&(feed, *metric));
        }
        FeedEvent::Stale => {
            for ((of, _), (_, is_stale)) in model.values_mut().flatten() {
                *is_stale |= *of == feed;
            }
        }
        FeedEvent::Sweep => {
            for of in model.values_mut() {
                of.retain(|(of, _), (_, is_stale)| *of != feed || !*is_stale);
            }
        }
        _ => {}
    }
}

fn events() -> impl Strategy<Value = Vec<(u8, FeedEvent)>> {
    let event = prop_oneof![
        8 => (0..12_u32, 0..3_u32, 0..4_u32).prop_map(|(at, metric, to)| FeedEvent::Announce {
            vrf: 0,
            prefix: prefix(at),
            metric,
            route: route(to),
        }),
        4 => (0..12_u32, 0..3_u32).prop_map(|(at, metric)| FeedEvent::Withdraw { vrf: 0, prefix: prefix(at), metric }),
        1 => Just(FeedEvent::Stale),
        1 => Just(FeedEvent::Sweep),
    ];
    prop::collection::vec((0..3_u8, event), 1..120)
}

proptest! {
    #[test]
    fn the_best_announcement_of_each_prefix_is_what_the_rib_gets(events in events(), epoch in prop::sample::select(vec![0, u16::MAX - 2])) {
        let mut table = Preference::new(3, u64::MAX);
        for feed in &mut table.feeds {
            feed.epoch = epoch;
        }
        let (mut model, mut rib) = (Model::new(), BTreeMap::new());
        for (feed, event) in events {
            let feed = FeedId(feed);
            apply_to_model(&mut model, feed, &event);
            let mut changes = Vec::new();
            table.apply(&ChangeSet { feed, events: vec![event] }, &mut changes);
            for RibChange { prefix, route, .. } in changes {
                let before = match route {
                    Some(route) => rib.insert(prefix, Arc::clone(&route)).filter(|before| *before == route),
                    None => { prop_assert!(rib.remove(&prefix).is_some(), "it was not there"); None }
                };
                prop_assert!(before.is_none(), "nothing has changed");
            }
            prop_assert_eq!(&rib, &best(&model));
            for feed in (0..3).map(FeedId) {
                let of = model.values().flatten().filter(|((of, _), _)| *of == feed);
                let stale = of.clone().filter(|(_, (_, is_stale))| *is_stale).count() as u64;
                let wanted = FeedRoutes { routes: of.count() as u64, stale, over_limit: 0 };
                prop_assert_eq!(table.routes(feed), wanted);
            }
            for at in (0..12).map(prefix) {
                prop_assert_eq!(table.best(at).map(|(_, route)| route), rib.get(&at));
            }
            let several = |of: &BTreeMap<Rank, (Arc<Route>, bool)>| of.len() > 1;
            let others = table.v4.others.len() + table.v6.others.len();
            prop_assert_eq!(others, model.values().filter(|of| several(of)).count());
        }
    }
}

#[test]
fn a_full_feed_keeps_what_it_has() {
    let mut table = Preference::new(1, 1);
    let announce = |at, to| FeedEvent::Announce { vrf: 0, prefix: prefix(at), metric: 0, route: route(to) };
    let mut out = Vec::new();
    let events = vec![announce(0, 1), announce(2, 1), announce(0, 2)];
    table.apply(&ChangeSet { feed: FeedId(0), events }, &mut out);
    assert_eq!(out.len(), 2);
    assert_eq!(table.routes(FeedId(0)), FeedRoutes { routes: 1, stale: 0, over_limit: 1 });
    let events = vec![announce(0, 1)];
    table.apply(&ChangeSet { feed: FeedId(9), events }, &mut out);
    assert_eq!(out.len(), 2, "there is no such feed");
}

#[test]
fn routes_that_nobody_has_are_let_go() {
    let mut table = Preference::new(1, u64::MAX);
    let mut out = Vec::new();
    for to in 0..100_000 {
        let event = FeedEvent::Announce { vrf: 0, prefix: prefix(0), metric: 0, route: route(to) };
        table.apply(&ChangeSet { feed: FeedId(0), events: vec![event] }, &mut out);
        out.clear();
    }
    assert!(table.routes.len() <= UNUSED_MIN + 1, "{}", table.routes.len());
}

/// Prints changes per second and the memory of a full table. Run it alone, with `--release`.
#[test]
#[ignore = "a measurement"]
fn figures_of_a_full_table() {
    const ROUTES: u32 = 1_000_000;
    assert_eq!((size_of::<Candidate>(), size_of::<(Prefix<u32>, Candidate)>()), (16, 24));
    let routes: Vec<_> = (1..500).map(route).collect();
    let prefixes: Vec<_> = (0..ROUTES).map(|i| i.wrapping_mul(2_654_435_769)).collect();
    let sets = |feed, shift: usize| {
        let announce = |(i, at): (usize, &u32)| FeedEvent::Announce {
            vrf: 0,
            prefix: IpPrefix::V4(Prefix::truncating(*at, 24)),
            metric: 0,
            route: Arc::clone(&routes[(i + shift) % routes.len()]),
        };
        let events: Vec<_> = prefixes.iter().enumerate().map(announce).collect();
        events.chunks(500).map(|events| ChangeSet { feed, events: events.to_vec() }).collect::<Vec<_>>()
    };
    let (first, second, changed) = (sets(FeedId(0), 0), sets(FeedId(1), 7), sets(FeedId(0), 3));
    let stale = [ChangeSet { feed: FeedId(0), events: vec![FeedEvent::Stale] }];
    let sweep = [ChangeSet { feed: FeedId(0), events: vec![FeedEvent::Sweep] }];
    let mut table = Preference::new(2, u64::MAX);
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let mut out = Vec::new();
    let steps: [(&str, &[ChangeSet]); 6] = [
        ("announce", &first),
        ("announce again", &first),
        ("change", &changed),
        ("mark stale", &stale),
        ("announce by a second feed", &second),
        ("sweep the first feed", &sweep),
    ];
    for (what, sets) in steps {
        let (start, before) = (Instant::now(), memory());
        let mut changes = 0;
        for set in sets {
            table.apply(set, &mut out);
            changes += out.len();
            out.clear();
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = f64::from(ROUTES) / seconds / 1e6;
        say(format_args!(
            "{what}: {seconds:.3} s, {rate:.1} M routes/s, {changes} changes, {} MiB more",
            memory().saturating_sub(before)
        ));
    }
}
