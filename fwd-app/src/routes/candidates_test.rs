//! The candidates against a plain list of each source's routes.

use super::*;
use crate::routes::feeds::live::say;
use crate::routes::feeds::{FeedId, ObjectId, Path};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

fn prefix(number: u32) -> IpPrefix {
    if number.is_multiple_of(2) {
        IpPrefix::V4(Prefix::truncating(number << 8, 24))
    } else {
        IpPrefix::V6(Prefix::truncating(u128::from(number) << 96, 32))
    }
}

const OBJECTS: u32 = 1_000_000;

/// Route 0 drops, 1 is for this host, higher ones have a path; from [`OBJECTS`] on they name an object.
fn route(number: u32) -> Arc<Route> {
    Arc::new(match number {
        0 => Route::Blackhole,
        1 => Route::Local,
        OBJECTS.. => Route::Object(object(number - OBJECTS)),
        _ => Route::Paths(Box::new([Path { gateway: None, ifindex: number, weight: 1 }])),
    })
}

fn object(number: u32) -> ObjectId {
    ObjectId { feed: FeedId(0), epoch: 0, number }
}

fn id(number: u32) -> NextHopId {
    NextHopId::new(number).unwrap()
}

const UNREACHABLE: u32 = 1000;

/// The next hop of a feed's route: paths over interfaces up to `without_port` lead to no port.
fn find(route: &Route, without_port: u32) -> NextHopId {
    match route {
        Route::Blackhole => id(10),
        Route::Paths(paths) if paths[0].ifindex > without_port => id(10 + paths[0].ifindex),
        _ => NextHopId::NONE,
    }
}

/// The current next hop of each private id.
#[derive(Default)]
struct Hops(RefCell<BTreeMap<NextHopId, NextHopId>>);

impl Hops {
    /// Resolves like [`find`]; an object gets or keeps a private id.
    fn find(&self, wanted: &Wanted<'_>, without_port: u32) -> NextHopId {
        let found = find(wanted.route, without_port);
        let Some(before) = wanted.object.filter(|_| !found.is_none()) else { return found };
        let mut hops = self.0.borrow_mut();
        let own = if before.is_none() { id(10_000 + u32::try_from(hops.len()).unwrap()) } else { before };
        hops.insert(own, found);
        own
    }

    fn meaning(&self, id: NextHopId) -> NextHopId {
        self.0.borrow().get(&id).copied().unwrap_or(id)
    }
}

struct Model {
    said: BTreeMap<IpPrefix, BTreeMap<Rank, (u32, bool)>>,
    objects: [u32; 2],
    without_port: u32,
    without_v6: bool,
    order: Vec<SourceId>,
}

impl Model {
    fn winner(&self, prefix: IpPrefix) -> NextHopId {
        let all = self.said.get(&prefix);
        let by_source = |of| all.into_iter().flatten().filter(move |((source, _), _)| *source == of);
        let is_left_out = self.without_v6 && prefix.family() == Family::V6;
        let counts = |source: SourceId| !is_left_out || matches!(source, SourceId::CTL | SourceId::FILES);
        let mut foreign = NextHopId::NONE;
        let all = self.order.iter().flat_map(|of| by_source(*of));
        for ((source, _), (number, _)) in all.filter(|((source, _), _)| counts(*source)) {
            let is_object = source.is_feed() && *number >= OBJECTS;
            let number = if is_object { self.objects[(number - OBJECTS) as usize] } else { *number };
            let found =
                if source.is_feed() { find(&route(number), self.without_port) } else { id(100 + number) };
            if !found.is_none() {
                return found;
            }
            if number > 1 {
                foreign = id(UNREACHABLE);
            }
        }
        foreign
    }
}

#[derive(Clone, Debug)]
enum CandidateStep {
    Say { source: usize, at: u32, metric: u32, route: Option<u32> },
    Stale(usize),
    Sweep(usize),
    Ports(u32),
    Object(u32, u32),
    WithoutV6(bool),
    Order(Vec<usize>),
    Commit(bool),
}

fn steps() -> impl Strategy<Value = Vec<CandidateStep>> {
    let step = prop_oneof![
        12 => (0..6_usize, 0..8_u32, 0..3_u32, prop::option::weighted(0.6, prop_oneof![0..5_u32, OBJECTS..OBJECTS + 2]))
            .prop_map(|(source, at, metric, route)| CandidateStep::Say { source, at, metric, route }),
        1 => (3..6_usize).prop_map(CandidateStep::Stale),
        1 => (3..6_usize).prop_map(CandidateStep::Sweep),
        1 => (0..5_u32).prop_map(CandidateStep::Ports),
        2 => (0..2_u32, 0..5_u32).prop_map(|(object, route)| CandidateStep::Object(object, route)),
        1 => any::<bool>().prop_map(CandidateStep::WithoutV6),
        2 => Just((2..6).collect::<Vec<_>>()).prop_shuffle().prop_map(CandidateStep::Order),
        3 => prop::bool::weighted(0.7).prop_map(CandidateStep::Commit),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    /// After each commit, a RIB fed with the winners matches the routes of the sources. A refused commit undoes only the changes of files
    /// and ctl.
    #[test]
    fn the_winner_of_each_prefix_is_what_the_rib_gets(steps in steps(), epoch in prop::sample::select(vec![0, u16::MAX - 2])) {
        let sources = [
            SourceId::OWN, SourceId::CTL, SourceId::FILES,
            SourceId::of_feed(0), SourceId::of_feed(1), SourceId::of_feed(2),
        ];
        let mut candidates = Candidates::default();
        candidates.sources.iter_mut().for_each(|source| source.epoch = epoch);
        candidates.unreachable = id(UNREACHABLE);
        let hops = Hops::default();
        let (said, order) = (BTreeMap::new(), sources.to_vec());
        let mut model = Model { said, objects: [0, 3], without_port: 2, without_v6: false, order };
        for (number, meant) in (0..).zip(model.objects) {
            assert!(!candidates.routes.set_object(object(number), Some(&route(meant)), |_| panic!("no route names it")));
        }
        let mut rib: BTreeMap<IpPrefix, NextHopId> = BTreeMap::new();
        let (mut lone, mut user_before, mut has_changed_files) = (Vec::new(), BTreeMap::new(), false);
        for step in steps {
            match step {
                CandidateStep::Say { source, at, metric, route: number } => {
                    let (source, prefix) = (sources[source], prefix(at));
                    let metric = if source.is_feed() { metric } else { 0 };
                    if source != SourceId::FILES && std::mem::take(&mut has_changed_files) {
                        // Changes of files alone are committed before another source changes a route.
                        candidates.settle();
                        lone.drain(..).for_each(|prefix| candidates.forget(prefix));
                        user_before.clear();
                    }
                    let is_user = matches!(source, SourceId::CTL | SourceId::FILES);
                    let of_model = model.said.entry(prefix).or_default();
                    if is_user {
                        user_before.entry((prefix, source)).or_insert(of_model.get(&(source, 0)).copied());
                    }
                    match number {
                        Some(number) => of_model.insert((source, metric), (number, false)),
                        None => of_model.remove(&(source, metric)),
                    };
                    if source == SourceId::FILES && !candidates.has(prefix) {
                        match number {
                            Some(number) => rib.insert(prefix, id(100 + number)),
                            None => rib.remove(&prefix),
                        };
                        has_changed_files = true;
                        continue;
                    }
                    let without_port = model.without_port;
                    let route = number.map(|number| {
                        if source.is_feed() {
                            candidates.route(&route(number), |wanted| hops.find(&wanted, without_port))
                        } else {
                            candidates.of_hop(id(100 + number)).unwrap()
                        }
                    });
                    let file = rib.get(&prefix).copied().unwrap_or_default();
                    let said = Said { source, prefix, metric, route };
                    let before = candidates.winner(prefix).map_or(file, |winner| winner.id);
                    let is_new = candidates.set(&said, || file) || is_user;
                    let winner = candidates.winner(prefix);
                    prop_assert!(is_new || winner.map_or(file, |winner| winner.id) == before);
                    if let Some(Winner { id, .. }) = winner {
                        if id.is_none() { rib.remove(&prefix) } else { rib.insert(prefix, id) };
                        lone.push(prefix);
                    }
                }
                CandidateStep::Stale(source) => {
                    candidates.begin_epoch(sources[source]);
                    for (_, is_stale) in model.said.values_mut().flatten().filter(|((of, _), _)| *of == sources[source]).map(|(_, said)| said) {
                        *is_stale = true;
                    }
                }
                CandidateStep::Sweep(source) => {
                    candidates.sweep(sources[source]);
                    for prefix in walk(&mut candidates) {
                        let swept = candidates.winner(prefix).unwrap();
                        candidates.drop_swept(prefix);
                        prop_assert_eq!(candidates.winner(prefix).unwrap(), swept, "they count no longer");
                        if swept.id.is_none() { rib.remove(&prefix) } else { rib.insert(prefix, swept.id) };
                        lone.push(prefix);
                    }
                    for said in model.said.values_mut() {
                        said.retain(|(of, _), (_, is_stale)| *of != sources[source] || !*is_stale);
                    }
                }
                CandidateStep::Ports(without_port) => {
                    model.without_port = without_port;
                    candidates.routes.resolve_anew(|wanted| hops.find(&wanted, without_port));
                    for prefix in walk(&mut candidates) {
                        let Winner { id, .. } = candidates.winner(prefix).unwrap();
                        if id.is_none() { rib.remove(&prefix) } else { rib.insert(prefix, id) };
                    }
                }
                CandidateStep::Object(number, meant) => {
                    let before = std::mem::replace(&mut model.objects[number as usize], meant);
                    candidates.routes.set_object(object(number), Some(&route(meant)), |wanted| hops.find(&wanted, model.without_port));
                    let moved = walk(&mut candidates);
                    let has_port = |number| !find(&route(number), model.without_port).is_none();
                    prop_assert!(!has_port(before) || !has_port(meant) || moved.is_empty(), "no route has another id");
                    for prefix in moved {
                        let Winner { id, .. } = candidates.winner(prefix).unwrap();
                        if id.is_none() { rib.remove(&prefix) } else { rib.insert(prefix, id) };
                    }
                }
                CandidateStep::WithoutV6(without) => {
                    model.without_v6 = without;
                    candidates.set_without_table(if without { vec![Family::V6] } else { Vec::new() });
                    for prefix in walk(&mut candidates) {
                        let Winner { id, .. } = candidates.winner(prefix).unwrap();
                        if id.is_none() { rib.remove(&prefix) } else { rib.insert(prefix, id) };
                    }
                }
                CandidateStep::Order(places) => {
                    let order: Vec<_> = places.into_iter().map(|place| sources[place]).collect();
                    // An unlisted source comes last, here the feed without routes.
                    let contested = candidates.set_order(&order[..3]);
                    let found = walk(&mut candidates);
                    prop_assert_eq!(found.len(), contested);
                    let rest = sources.iter().filter(|of| !order[..3].contains(of) && sources[..2].iter().all(|fixed| fixed != *of));
                    model.order = sources[..2].iter().chain(&order[..3]).chain(rest).copied().collect();
                    for at in found {
                        let Winner { id, .. } = candidates.winner(at).unwrap();
                        if id.is_none() { rib.remove(&at) } else { rib.insert(at, id) };
                    }
                }
                CandidateStep::Commit(is_taken) => {
                    if is_taken {
                        candidates.settle();
                        lone.drain(..).for_each(|prefix| candidates.forget(prefix));
                    } else {
                        candidates.roll_back();
                        for ((prefix, source), before) in &user_before {
                            let of_model = model.said.entry(*prefix).or_default();
                            match before {
                                Some(before) => of_model.insert((*source, 0), *before),
                                None => of_model.remove(&(*source, 0)),
                            };
                        }
                        // The RIB is rolled back, and a later commit sets the winners.
                        for at in (0..8).map(prefix) {
                            let wanted = candidates.winner(at).map_or(model.winner(at), |winner| winner.id);
                            if wanted.is_none() { rib.remove(&at) } else { rib.insert(at, wanted) };
                            candidates.forget(at);
                        }
                        lone.clear();
                    }
                    user_before.clear();
                    has_changed_files = false;
                }
            }
            for at in (0..8).map(prefix) {
                prop_assert_eq!(hops.meaning(rib.get(&at).copied().unwrap_or_default()), model.winner(at));
                if let (Some(id), Some(winner)) = (rib.get(&at), candidates.winner(at)) && winner.id == *id {
                    let of = candidates.origin(at, *id).unwrap();
                    let is_stale = model.said[&at][&(of.source, of.metric)].1;
                    prop_assert_eq!((of.source, of.metric, of.is_stale), (winner.source, winner.metric, is_stale));
                }
            }
            for source in sources.iter().filter(|source| source.is_feed()) {
                let of = model.said.values().flatten().filter(|((of, _), _)| of == source);
                let stale = of.clone().filter(|(_, (_, is_stale))| *is_stale).count() as u64;
                let wanted = SourceRoutes { routes: of.count() as u64, stale, over_limit: 0 };
                prop_assert_eq!(candidates.count(*source), wanted);
            }
        }
        candidates.settle();
        lone.drain(..).for_each(|prefix| candidates.forget(prefix));
        let has_others = |said: &BTreeMap<Rank, _>| said.keys().any(|(source, _)| *source != SourceId::FILES);
        let entries = candidates.v4.first.len() + candidates.v6.first.len();
        prop_assert_eq!(entries, model.said.values().filter(|said| has_others(said)).count(), "the RIB alone has the others");
    }
}

const FEED: SourceId = SourceId::of_feed(0);

fn say_route(candidates: &mut Candidates, source: SourceId, at: u32, number: u32) -> NextHopId {
    let (prefix, route) = (prefix(at), candidates.route(&route(number), |wanted| find(wanted.route, 1)));
    candidates.set(&Said { source, prefix, metric: 0, route: Some(route) }, || NextHopId::NONE);
    candidates.winner(prefix).map_or(NextHopId::NONE, |winner| winner.id)
}

/// The prefixes of a walk, found one by one.
fn walk(candidates: &mut Candidates) -> Vec<IpPrefix> {
    let mut found = candidates.walk(1);
    while candidates.walk.is_pending() {
        found.extend(candidates.walk(1));
    }
    found
}

/// Sweeps a source and drops its stale routes; returns the number of prefixes.
fn sweep(candidates: &mut Candidates, source: SourceId) -> usize {
    candidates.sweep(source);
    let prefixes = walk(candidates);
    prefixes.iter().for_each(|prefix| candidates.drop_swept(*prefix));
    prefixes.len()
}

#[test]
fn a_full_feed_keeps_what_it_has() {
    let mut candidates = Candidates { routes_max: 1, ..Candidates::default() };
    assert_eq!(say_route(&mut candidates, FEED, 0, 2), id(12));
    assert_eq!(say_route(&mut candidates, FEED, 2, 2), NextHopId::NONE);
    assert_eq!(say_route(&mut candidates, FEED, 0, 3), id(13));
    assert_eq!(candidates.count(FEED), SourceRoutes { routes: 1, stale: 0, over_limit: 1 });
    assert_eq!(say_route(&mut candidates, SourceId::OWN, 2, 2), id(12), "there is no limit for others");
}

#[test]
fn stale_routes_leave_others_their_room() {
    for is_swept in [false, true] {
        let mut candidates = Candidates { routes_max: 3, ..Candidates::default() };
        for at in 0..3 {
            say_route(&mut candidates, FEED, at, 2);
        }
        candidates.begin_epoch(FEED);
        if is_swept {
            candidates.sweep(FEED);
        }
        for at in 10..13 {
            assert_eq!(say_route(&mut candidates, FEED, at, 2), id(12), "{at}");
        }
        assert_eq!(candidates.count(FEED), SourceRoutes { routes: 6, stale: 3, over_limit: 0 });
        // At the limit, for known and unknown prefixes.
        for at in [0, 20] {
            say_route(&mut candidates, FEED, at, 3);
        }
        assert_eq!(candidates.count(FEED), SourceRoutes { routes: 6, stale: 3, over_limit: 2 });
        sweep(&mut candidates, FEED);
        assert_eq!(candidates.count(FEED), SourceRoutes { routes: 3, stale: 0, over_limit: 2 });
        // A source that reconnects again and again.
        for at in 30..60 {
            candidates.begin_epoch(FEED);
            say_route(&mut candidates, FEED, at, 2);
            assert!(candidates.count(FEED).routes <= 6);
        }
        candidates.begin_epoch(FEED);
        assert_eq!(say_route(&mut candidates, FEED, 10, 3), id(13), "a known one needs no room");
    }
}

#[test]
fn an_event_during_a_walk_counts_for_all_prefixes() {
    let mut candidates = Candidates::default();
    for at in 0..10 {
        say_route(&mut candidates, FEED, at, 2);
        say_route(&mut candidates, SourceId::of_feed(1), at, 3);
    }
    let moves = |candidates: &mut Candidates, without_port| {
        candidates.routes.resolve_anew(|wanted| find(wanted.route, without_port));
    };
    let ids = |candidates: &Candidates| -> Vec<_> {
        (0..10).map(|at| candidates.winner(prefix(at)).unwrap().id).collect()
    };
    moves(&mut candidates, 2);
    let first: Vec<_> = (0..4).flat_map(|_| candidates.walk(1)).collect();
    assert_eq!((first.len(), ids(&candidates)), (4, vec![id(13); 10]));
    // With endless events, a walk still finds each prefix once.
    let mut found = BTreeMap::new();
    for turn in 0..100 {
        moves(&mut candidates, 1 + turn % 2);
        candidates.walk(1).into_iter().for_each(|prefix| *found.entry(prefix).or_insert(0) += 1);
    }
    assert!((0..10).all(|at| (7..=11).contains(&found[&prefix(at)])), "{found:?}");
    moves(&mut candidates, 1);
    let mut rest = walk(&mut candidates);
    rest.sort_unstable();
    rest.dedup();
    assert_eq!(rest.len(), 10);
    assert_eq!(ids(&candidates), vec![id(12); 10]);
}

#[test]
fn what_was_swept_and_is_announced_again_stays() {
    let mut candidates = Candidates::default();
    for at in 0..10 {
        say_route(&mut candidates, FEED, at, 2);
    }
    candidates.begin_epoch(FEED);
    candidates.sweep(FEED);
    let swept = walk(&mut candidates);
    assert_eq!(swept.len(), 10);
    assert!(swept.iter().all(|prefix| candidates.winner(*prefix) == Some(Winner::NONE)));
    assert_eq!(say_route(&mut candidates, FEED, 0, 2), id(12));
    let set = |candidates: &mut Candidates, at| {
        let route = Some(candidates.route(&route(2), |_| id(12)));
        candidates.set(&Said { source: FEED, prefix: prefix(at), metric: 0, route }, || NextHopId::NONE)
    };
    assert!(
        set(&mut candidates, 1) && !set(&mut candidates, 1),
        "the route is another one once it was swept"
    );
    swept.iter().for_each(|prefix| candidates.drop_swept(*prefix));
    assert_eq!(candidates.count(FEED), SourceRoutes { routes: 2, ..SourceRoutes::default() });
    candidates.sweep(FEED);
    assert!(!candidates.walk.is_pending());
}

#[test]
fn epochs_begin_again_after_the_last_one_and_routes_of_the_first_are_stale() {
    let mut candidates = Candidates::default();
    say_route(&mut candidates, FEED, 0, 2);
    candidates.begin_epoch(FEED);
    say_route(&mut candidates, FEED, 1, 2);
    for _ in 0..u16::MAX {
        candidates.begin_epoch(FEED);
        say_route(&mut candidates, FEED, 2, 2);
    }
    assert_eq!(sweep(&mut candidates, FEED), 2);
}

#[test]
fn a_family_that_gains_or_loses_its_table_is_found_in_slices() {
    const ROUTES: u128 = 2 * WALK_MAX as u128;
    let mut candidates = Candidates::default();
    say_route(&mut candidates, FEED, 0, 2);
    for at in 0..ROUTES {
        let prefix = IpPrefix::V6(Prefix::truncating(at << 64, 64));
        let route = Some(candidates.route(&route(2), |wanted| find(wanted.route, 1)));
        candidates.set(&Said { source: FEED, prefix, metric: 0, route }, || NextHopId::NONE);
    }
    for lacking in [vec![Family::V6], Vec::new()] {
        let lost = lacking.clone();
        assert_eq!(candidates.set_without_table(lacking), lost);
        assert!(candidates.marked.is_empty(), "no turn takes them all");
        let found = candidates.walk(usize::MAX);
        assert!((WALK_MAX - 1..=WALK_MAX).contains(&found.len()), "{}", found.len());
        let rest = std::iter::from_fn(|| Some(candidates.walk(usize::MAX)).filter(|found| !found.is_empty()));
        let rest: usize = rest.map(|found| found.len()).sum();
        assert_eq!((found.len() + rest) as u128, ROUTES, "the other family stays as it is");
        assert!(!candidates.walk.is_pending());
    }
}

#[test]
fn the_route_of_files_and_that_of_the_winner_are_found() {
    let mut candidates = Candidates::default();
    say_route(&mut candidates, FEED, 0, 2);
    say_route(&mut candidates, SourceId::FILES, 0, 3);
    assert_eq!(
        (candidates.file_route(prefix(0)), candidates.file_route(prefix(1))),
        (id(13), NextHopId::NONE)
    );
    let winner = candidates.winner(prefix(0)).unwrap();
    let number = if winner.source == FEED { 2 } else { 3 };
    assert_eq!(candidates.route_of(prefix(0), &winner), Some(&*route(number)));
    candidates.set_without_table(vec![Family::V6]);
    assert!(candidates.lacks_table(Family::V6) && !candidates.lacks_table(Family::V4));
}

#[test]
fn routes_that_nobody_has_are_let_go() {
    let mut candidates = Candidates::default();
    say_route(&mut candidates, FEED, 1, 2);
    for number in 0..100_000 {
        say_route(&mut candidates, FEED, 0, number);
    }
    let routes = &candidates.routes;
    assert!(
        routes.known.len() <= UNUSED_MIN + 1 && routes.by_route.len() <= UNUSED_MIN,
        "{}",
        routes.known.len()
    );
    assert_eq!(candidates.winner(prefix(1)).unwrap().id, id(12), "that of somebody stays");
}

/// Prints changes per second and the memory of a full table. Run it alone, with `--release`.
#[test]
#[ignore = "a measurement"]
fn figures_of_a_full_table() {
    const ROUTES: u32 = 1_000_000;
    assert_eq!((size_of::<Candidate>(), size_of::<(Prefix<u32>, Candidate)>()), (12, 20));
    let routes: Vec<_> = (2..500).map(route).collect();
    let prefixes: Vec<_> = (0..ROUTES).map(|i| i.wrapping_mul(2_654_435_769)).collect();
    let mut candidates = Candidates::default();
    let memory = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    let second = SourceId::of_feed(1);
    let announce = |candidates: &mut Candidates, source, shift: usize| {
        let mut changes = 0;
        for (i, at) in prefixes.iter().enumerate() {
            let route = &routes[(i + shift) % routes.len()];
            let route = Some(candidates.route(route, |wanted| find(wanted.route, 1)));
            let prefix = IpPrefix::V4(Prefix::truncating(*at, 24));
            let said = Said { source, prefix, metric: 0, route };
            changes += u32::from(candidates.set(&said, || NextHopId::NONE));
        }
        changes
    };
    let mut step = |what: &str, work: &mut dyn FnMut(&mut Candidates) -> u32| {
        let (start, before) = (Instant::now(), memory());
        let changes = work(&mut candidates);
        let seconds = start.elapsed().as_secs_f64();
        let rate = f64::from(ROUTES) / seconds / 1e6;
        say(format_args!(
            "{what}: {seconds:.3} s, {rate:.1} M routes/s, {changes} changes, {} MiB more",
            memory().saturating_sub(before)
        ));
    };
    step("announce", &mut |candidates| announce(candidates, FEED, 0));
    step("announce again", &mut |candidates| announce(candidates, FEED, 0));
    step("change", &mut |candidates| announce(candidates, FEED, 3));
    step("mark stale", &mut |candidates| {
        candidates.begin_epoch(FEED);
        0
    });
    step("announce by a second feed", &mut |candidates| announce(candidates, second, 7));
    step("next hops anew", &mut |candidates| {
        candidates.routes.resolve_anew(|wanted| find(wanted.route, 2));
        walk(candidates).len().try_into().unwrap()
    });
    step("sweep the first feed", &mut |candidates| sweep(candidates, FEED).try_into().unwrap());
}
