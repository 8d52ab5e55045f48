//! Refused routes: the other routes enter service, and the refused ones are retried.

use super::*;
use crate::engines::{ENGINES, EngineSpec};
use crate::routes::engine_swap::LostFamilies;
use crate::topology::Handle;
use fib::faulty::{Call, Faults, FaultyEngine, How};

pub(super) fn numbered(number: u32) -> (IpPrefix, FeedEvent) {
    let prefix = IpPrefix::V4(fib::Prefix::truncating(0x2800_0000 + (number << 8), 24));
    let path = Path { gateway: Some(gateway(7)), ifindex: 10, weight: 1 };
    let route = Arc::new(Route::Paths(Box::new([path])));
    (prefix, FeedEvent::Announce { vrf: 0, prefix, metric: 0, route })
}

impl SourcesRig {
    pub(super) fn with_faults() -> (Self, Arc<Faults>) {
        let mut rig = Self::new();
        let faults = Arc::new(Faults::default());
        rig.vrf.replace_engine(Box::new(FaultyEngine::new(&faults)));
        (rig, faults)
    }

    /// Sends a feed's events and does all work up to the next wait. Returns the number of turns with work.
    fn says_all(&mut self, feed: FeedId, events: Vec<FeedEvent>) -> usize {
        self.sender.send(ChangeSet { feed, events }).unwrap();
        std::iter::repeat_with(|| self.learn()).take_while(|worked| *worked).count()
    }

    /// Makes the retry due. Returns the number of turns with work.
    pub(super) fn tries_again(&mut self) -> usize {
        while self.learn() {}
        self.vrf.refused.due = self.vrf.refused.due.map(|_| Instant::now());
        std::iter::repeat_with(|| self.learn()).take_while(|worked| *worked).count()
    }

    pub(super) fn in_service(&self, numbers: impl Iterator<Item = u32>) -> usize {
        let mut reader = self.vrf.engine().reader(1, 1).unwrap();
        let mut is_there = |number: &u32| {
            let mut answer = [NextHopId::NONE];
            reader.lookup(Keys::V4(&[0x2800_0001 + (number << 8)]), &mut answer).unwrap();
            self.vrf.hops().get(answer[0]).is_some_and(|hop| hop.gateway() == Some(gateway(7)))
        };
        numbers.filter(|number| is_there(number)).count()
    }
}

#[test]
fn a_reload_that_is_refused_forgets_no_withdrawal_that_was_refused() {
    let (mut rig, faults) = SourcesRig::with_faults();
    let before = rig.hop();
    rig.says(FPM, vec![announce(7, 10)]);
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.says(FPM, vec![withdraw()]);
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0", "the engine refuses the withdrawal");
    rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap_err();
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.tries_again();
    assert_eq!(rig.hop(), before);
}

#[test]
fn of_what_is_refused_withdrawals_are_tried_first() {
    let (mut rig, faults) = SourcesRig::with_faults();
    rig.says(FPM, vec![numbered(1).1]);
    faults.fail_from(Call::Apply, 0, How::Full);
    let interfaces = rig.feeds.interfaces().clone();
    let FeedEvent::Announce { prefix, route, .. } = numbered(2).1 else { panic!("not an announcement") };
    let source = SourceId::of_feed(FPM.0);
    rig.vrf.announce(source, (prefix, 0), &route, &interfaces);
    let gone = Said { source, prefix: numbered(1).0, metric: 0, route: None };
    rig.vrf.candidates.set_and_mark(&gone, || NextHopId::NONE);
    rig.vrf.refused.round_max = Duration::ZERO;
    rig.vrf.drain(None);
    assert_eq!(rig.vrf.refused.len(), 2);
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.vrf.refused.round_max = Duration::from_secs(3600);
    rig.vrf.refused.due = Some(Instant::now());
    rig.vrf.try_again();
    assert_eq!((rig.in_service(1..2), rig.in_service(2..3), rig.vrf.refused.len()), (0, 0, 1));
    rig.vrf.try_again();
    assert_eq!((rig.in_service(2..3), rig.vrf.refused.len()), (1, 0));
}

#[test]
fn another_engine_gets_what_was_refused_at_once() {
    let (mut rig, faults) = SourcesRig::with_faults();
    rig.vrf.refused.retry_now();
    assert!(!rig.vrf.refused.is_due(), "nothing was refused");
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.says_all(FPM, vec![numbered(1).1]);
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    assert!(!rig.vrf.refused.is_due() && rig.in_service(1..2) == 0);
    rig.vrf.refused.retry_now();
    while rig.learn() {}
    assert_eq!(rig.in_service(1..2), 1);
}

#[test]
fn a_withdrawal_over_the_control_socket_that_is_refused_is_tried_again() {
    let (mut rig, faults) = SourcesRig::with_faults();
    let before = rig.hop();
    rig.says(FPM, vec![announce(7, 10)]);
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.vrf.remove_route(prefix()).unwrap();
    rig.vrf.commit().unwrap_err();
    assert_eq!(rig.hop(), "via 192.0.2.7 dev 0");
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.tries_again();
    assert_eq!(rig.hop(), before);
}

#[test]
fn the_routes_of_an_address_that_are_refused_are_tried_again() {
    let (mut rig, faults) = SourcesRig::with_faults();
    let before = rig.hop();
    faults.fail_from(Call::Apply, 0, How::Full);
    let own = vec![(prefix(), NextHop::Connected { port: PortRef::Index(1) })];
    rig.vrf.set_own_routes(own.clone()).unwrap();
    rig.vrf.commit().unwrap_err();
    assert_eq!((rig.hop(), rig.vrf.refused.len()), (before.clone(), 1));
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.says(FPM, vec![numbered(1).1]);
    assert_eq!(rig.in_service(1..2), 1);
    rig.tries_again();
    assert_eq!((rig.hop(), rig.vrf.refused.len()), ("dev 1".to_owned(), 0));
    // The withdrawal of the address is refused and retried as well.
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.vrf.set_own_routes(Vec::new()).unwrap();
    rig.vrf.commit().unwrap_err();
    assert_eq!((rig.hop(), rig.vrf.refused.len()), ("dev 1".to_owned(), 1));
    rig.vrf.set_own_routes(own).unwrap();
    assert_eq!(rig.vrf.refused.len(), 0, "it is back before its turn");
    rig.vrf.set_own_routes(Vec::new()).unwrap();
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.vrf.commit().unwrap();
    assert_eq!(rig.hop(), before);
}

#[test]
fn next_hops_do_not_grow_while_every_commit_is_refused() {
    const MIN: usize = 64;
    let (mut rig, faults) = SourcesRig::with_faults();
    let unused = &mut rig.vrf.egress.unused;
    (unused.at, unused.min, unused.stay) = (MIN, MIN, Duration::ZERO);
    let start = rig.vrf.hops().len();
    faults.fail_from(Call::Apply, 0, How::Full);
    let mut most = 0;
    for round in 0..300_u32 {
        let [.., high, low] = round.to_be_bytes();
        let path = Path { gateway: Some(IpAddr::from([10, 0, high, low])), ifindex: 10, weight: 1 };
        let route = Arc::new(Route::Paths(Box::new([path])));
        rig.says_all(FPM, vec![FeedEvent::Announce { vrf: 0, prefix: prefix(), metric: 0, route }]);
        most = most.max(rig.vrf.hops().len());
    }
    assert!(most < 2 * MIN + start, "{most} next hops, {start} at the start");
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.tries_again();
    assert_eq!(rig.hop(), "via 10.0.1.43 dev 0");
}

#[test]
fn a_route_that_the_engine_refuses_keeps_no_other_one_out() {
    let (mut rig, faults) = SourcesRig::with_faults();
    *faults.refused.lock().unwrap() = vec![numbered(37).0];
    rig.says_all(FPM, (0..100).map(|number| numbered(number).1).collect());
    assert_eq!(rig.in_service(0..100), 99);
    for hundred in 1..5 {
        rig.says_all(FPM, (100 * hundred..100 * hundred + 100).map(|number| numbered(number).1).collect());
        rig.tries_again();
        assert_eq!(rig.in_service(0..500), 100 * (hundred as usize + 1) - 1);
    }
    assert_eq!(rig.vrf.refused.len(), 1);
    let mut events: Vec<_> = [37, 500, 501].map(|number| numbered(number).1).into();
    events.push(FeedEvent::Withdraw { vrf: 0, prefix: numbered(0).0, metric: 0 });
    rig.says_all(FPM, events);
    assert_eq!((rig.in_service(0..502), rig.in_service(0..1)), (500, 0));
    faults.refused.lock().unwrap().clear();
    rig.tries_again();
    assert_eq!((rig.in_service(0..502), rig.vrf.refused.len()), (501, 0));
}

#[test]
fn routes_of_a_family_that_the_engine_lacks_keep_no_other_one_out() {
    let mut rig = SourcesRig::new();
    rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap();
    rig.vrf.replace_engine(ENGINES.make("sail-m", &fib::EngineOptions::default()).unwrap());
    let link = |text: &str| {
        let path = Path { gateway: None, ifindex: 10, weight: 1 };
        let (prefix, route) = (text.parse().unwrap(), Arc::new(Route::Paths(Box::new([path]))));
        FeedEvent::Announce { vrf: 0, prefix, metric: 0, route }
    };
    rig.says_all(FPM, vec![numbered(0).1, link("fe80::/64"), numbered(1).1, numbered(2).1]);
    assert_eq!(rig.in_service(0..3), 3);
    assert_eq!(rig.vrf.refused.len(), 0);
    assert_eq!(rig.outcome(FPM), FeedOutcome { no_table: 1, ..FeedOutcome::default() });
}

#[test]
fn a_change_that_the_engine_refuses_is_tried_again() {
    let mut rig = SourcesRig::new();
    let faults = Arc::new(Faults::default());
    rig.vrf.replace_engine(Box::new(FaultyEngine::new(&faults)));
    let before = rig.hop();
    faults.fail_from(Call::Apply, 0, How::Full);
    rig.says(FPM, vec![announce(7, 10)]);
    assert_eq!(rig.hop(), before);
    faults.fail_from(Call::Apply, u64::MAX, How::Full);
    rig.vrf.refused.due = Some(Instant::now());
    assert!(rig.learn());
    assert_eq!((rig.hop(), rig.vrf.refused.len()), ("via 192.0.2.7 dev 0".to_owned(), 0));
}

#[test]
fn what_is_refused_is_tried_in_bounded_rounds_and_each_route_has_its_turn() {
    let (mut rig, faults) = SourcesRig::with_faults();
    // The only acceptable route is among the last.
    *faults.refused.lock().unwrap() = (0..999).map(|number| numbered(number).0).collect();
    let tries = |rig: &mut SourcesRig, work: &mut dyn FnMut(&mut SourcesRig) -> usize| {
        let before = faults.calls(Call::Apply);
        let turns = work(rig);
        let tries = faults.calls(Call::Apply) - before;
        assert!(tries <= 65 && tries <= 2 * turns as u64, "{tries} tries in {turns} turns");
    };
    tries(&mut rig, &mut |rig| rig.says_all(FPM, (0..1000).map(|number| numbered(number).1).collect()));
    let mut rounds = 0;
    while rig.in_service(999..1000) == 0 {
        tries(&mut rig, &mut SourcesRig::tries_again);
        rounds += 1;
        assert!(rounds <= 2 * 1000 / 64 + 1, "it had no turn");
    }
    let outcome = rig.outcome(FPM);
    assert_eq!((outcome.refused, rig.vrf.refused.len()), (999, 999));
    // Other commits succeed meanwhile, except of a refused prefix.
    rig.vrf.add_route(numbered(0).0, &Hop::Hop(NextHop::Blackhole)).unwrap_or_else(|error| panic!("{error}"));
    rig.vrf.commit().unwrap_err();
    rig.vrf.add_route(numbered(2000).0, &Hop::Hop(NextHop::Blackhole)).unwrap();
    rig.vrf.commit().unwrap();
    rig.file(id(77));
    assert_eq!((rig.hop().as_str(), rig.vrf.refused.len()), ("77", 999));
    let gone = (0..1000).map(|number| FeedEvent::Withdraw { vrf: 0, prefix: numbered(number).0, metric: 0 });
    rig.says_all(FPM, gone.collect());
    assert_eq!((rig.in_service(0..1000), rig.vrf.refused.len()), (0, 0));
}

#[test]
fn an_engine_without_a_familys_table_takes_the_place_of_one_with_it_and_back() {
    let mut rig = SourcesRig::new();
    rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap();
    let link = |text: &str| {
        let path = Path { gateway: None, ifindex: 10, weight: 1 };
        let (prefix, route) = (text.parse().unwrap(), Arc::new(Route::Paths(Box::new([path]))));
        FeedEvent::Announce { vrf: 0, prefix, metric: 0, route }
    };
    let own = [("192.0.2.0/24", 0), ("2001:db8:1::/64", 1)];
    let own =
        own.map(|(text, port)| (text.parse().unwrap(), NextHop::Connected { port: PortRef::Index(port) }));
    rig.vrf.set_own_routes(own.to_vec()).unwrap();
    rig.says_all(FPM, vec![numbered(0).1, link("2001:db8::/32")]);
    let lens = |rig: &SourcesRig| (rig.vrf.rib().v4.len(), rig.vrf.rib().v6.len());
    assert_eq!(lens(&rig), (2, 2));
    let move_to = |rig: &mut SourcesRig, (name, lost): (&str, LostFamilies), meanwhile: Vec<FeedEvent>| {
        rig.vrf.build_engine(EngineSpec::named(name), lost, None).unwrap();
        rig.says_all(FPM, meanwhile);
        let result = loop {
            match rig.vrf.finish_engine(&Handle::default()) {
                Some(result) => break result,
                None => std::thread::yield_now(),
            }
        };
        while rig.learn() {}
        result
    };
    // Not silently: nothing would forward IPv6.
    let sail_m = ("sail-m", LostFamilies::LeftOut);
    // Every host has these, and no engine is refused for them.
    let local = ["::1/128", "fe80::/64", "ff00::/8"];
    let meanwhile = local.map(link).to_vec();
    let refused = move_to(&mut rig, ("sail-m", LostFamilies::Refused), meanwhile).unwrap_err().to_string();
    assert!(
        refused.contains("2 routes of feeds and addresses") && refused.contains("sail-m force"),
        "{refused}"
    );
    assert_eq!((rig.vrf.engine().info().name, lens(&rig)), ("oracle", (2, 5)));
    let gone = |text: &str| FeedEvent::Withdraw { vrf: 0, prefix: text.parse().unwrap(), metric: 0 };
    rig.says_all(FPM, local.map(gone).to_vec());
    move_to(&mut rig, sail_m, vec![numbered(1).1, link("2001:db8:8000::/33")]).unwrap();
    assert_eq!((rig.vrf.engine().info().name, lens(&rig), rig.in_service(0..2)), ("sail-m", (3, 0), 2));
    assert_eq!(rig.outcome(FPM), FeedOutcome { no_table: 2, ..FeedOutcome::default() });
    rig.says_all(FPM, vec![numbered(2).1, link("2001:db8:c000::/34")]);
    assert_eq!((lens(&rig), rig.in_service(0..3)), ((4, 0), 3));
    // Routes of the control socket and of files refuse the engine.
    let (v6, hop) = ("2001:db8:2::/48".parse().unwrap(), Hop::Hop(NextHop::Blackhole));
    rig.vrf.add_route(v6, &hop).unwrap();
    assert!(rig.vrf.commit().unwrap_err().to_string().contains("IPv6 routes (sail-m"));
    move_to(&mut rig, ("oracle", LostFamilies::Refused), vec![]).unwrap();
    assert_eq!((rig.vrf.engine().info().name, lens(&rig)), ("oracle", (4, 4)));
    assert_eq!(rig.outcome(FPM), FeedOutcome::default());
    rig.vrf.add_route(v6, &hop).unwrap();
    rig.vrf.commit().unwrap();
    let refused = move_to(&mut rig, sail_m, vec![]).unwrap_err().to_string();
    assert!(refused.contains("no table for ipv6, and 1 routes of files and ctl"), "{refused}");
    assert_eq!((rig.vrf.engine().info().name, lens(&rig)), ("oracle", (4, 5)));
}

fn routes(vrf: &crate::routes::Vrf) -> Vec<String> {
    let of = |prefix: IpPrefix, id: NextHopId| format!("{prefix} {id} {:?}", vrf.hops().get(id));
    let v4 = vrf.rib().v4.iter().map(|(prefix, id)| of(IpPrefix::V4(prefix), id));
    let mut all: Vec<_> =
        v4.chain(vrf.rib().v6.iter().map(|(prefix, id)| of(IpPrefix::V6(prefix), id))).collect();
    all.sort();
    all
}

#[test]
fn a_reload_in_slices_is_taken_whole_or_not_at_all() {
    let (mut rig, faults) = SourcesRig::with_faults();
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let id = hops.bare(5).unwrap();
    for number in 0..6_u32 {
        rib.set(numbered(number).0, id);
    }
    let before = routes(&rig.vrf);
    for (refused_at, done) in [(0, 0), (1, 2), (2, 4)] {
        let mut replacement = rig.vrf.replace_routes(rib.clone(), hops.clone()).unwrap();
        replacement.slice = 2;
        faults.fail_from(Call::Apply, faults.calls(Call::Apply) + refused_at, How::Full);
        while rig.vrf.rib().len() < before.len() + done {
            assert!(replacement.advance(&mut rig.vrf).is_pending());
        }
        // This slice and all remaining routes are refused.
        let refusals = faults.calls(Call::Apply) + 2;
        while faults.calls(Call::Apply) < refusals {
            assert!(replacement.advance(&mut rig.vrf).is_pending());
        }
        faults.fail_from(Call::Apply, u64::MAX, How::Full);
        replacement.finish(&mut rig.vrf).unwrap_err();
        assert_eq!(routes(&rig.vrf), before, "refused at {refused_at}");
    }
    let deltas = rig.vrf.tally.deltas;
    let mut replacement = rig.vrf.replace_routes(rib, hops).unwrap();
    replacement.slice = 2;
    assert_eq!(replacement.finish(&mut rig.vrf).unwrap(), 6 + before.len() as u64);
    assert_eq!(rig.vrf.rib().len(), 6);
    assert_eq!(rig.vrf.tally.deltas - deltas, (6 + before.len() as u64).div_ceil(2));
}
