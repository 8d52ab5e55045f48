//! Random routes, links, refusals, reloads and orders of sources, against a plain list.

use super::*;
use fib::faulty::{Call, How};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PREFIXES: u32 = 6;
const SOURCES: [SourceId; 5] =
    [SourceId::OWN, SourceId::CTL, SourceId::FILES, SourceId::of_feed(FPM.0), SourceId::of_feed(KERNEL.0)];

/// A next hop: over port 0 or 1, one that drops, or a gateway that no port reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Port(u16),
    Nowhere,
    Unreached,
}

impl To {
    /// The next hop, distinct for each source and prefix.
    fn hop(self, source: usize, at: u32) -> NextHop {
        let last = u8::try_from(10 * at + u32::try_from(source).unwrap() + 1).unwrap();
        match self {
            Self::Port(port) if source == 0 => NextHop::Connected { port: PortRef::Index(port) },
            Self::Port(port) => NextHop::Gateway { gateway: gateway(last), port: PortRef::Index(port) },
            Self::Nowhere => NextHop::Blackhole,
            Self::Unreached => NextHop::Gateway { gateway: [203, 0, 113, last].into(), port: PortRef::ById },
        }
    }

    /// A feed's route to it; for a gateway that no port reaches, over an interface without a port.
    fn route(self, source: usize, at: u32) -> Route {
        let path = |gateway, ifindex| Route::Paths(Box::new([Path { gateway, ifindex, weight: 1 }]));
        match (self, self.hop(source, at)) {
            (Self::Port(port), NextHop::Gateway { gateway, .. }) => path(Some(gateway), 10 + u32::from(port)),
            (Self::Nowhere, _) => Route::Blackhole,
            (_, hop) => path(hop.gateway(), 12),
        }
    }
}

#[derive(Clone, Debug)]
enum ModelStep {
    Say(usize, u32, Option<To>),
    Reload(Vec<Option<To>>),
    Stale(usize),
    Sweep(usize),
    Link(usize, bool),
    Order(Vec<usize>),
    /// The engine refuses a prefix, or nothing.
    Refuse(Option<u32>),
    Full,
    Retry,
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let to =
        || prop_oneof![4 => (0..2_u16).prop_map(To::Port), 1 => Just(To::Nowhere), 1 => Just(To::Unreached)];
    let some = move || prop::option::weighted(0.65, to());
    let step = prop_oneof![
        16 => (0..5_usize, 0..PREFIXES, some()).prop_map(|(source, at, to)| ModelStep::Say(source, at, to)),
        1 => prop::collection::vec(some(), PREFIXES as usize).prop_map(ModelStep::Reload),
        1 => (3..5_usize).prop_map(ModelStep::Stale),
        1 => (3..5_usize).prop_map(ModelStep::Sweep),
        4 => (0..2_usize, any::<bool>()).prop_map(|(port, is_up)| ModelStep::Link(port, is_up)),
        1 => Just(vec![2, 3, 4]).prop_shuffle().prop_map(ModelStep::Order),
        2 => prop::option::of(0..PREFIXES).prop_map(ModelStep::Refuse),
        1 => Just(ModelStep::Full),
        1 => Just(ModelStep::Retry),
    ];
    prop::collection::vec(step, 1..120)
}

fn nth_prefix(number: u32) -> IpPrefix {
    format!("40.0.{number}.0/24").parse().unwrap()
}

struct Model {
    said: BTreeMap<(u32, usize), (To, bool)>,
    order: Vec<usize>,
    is_up: [bool; 2],
}

impl Model {
    fn winner(&self, number: u32) -> String {
        let said = |source: &usize| Some((*source, self.said.get(&(number, *source))?.0));
        let all: Vec<_> = [0, 1].iter().chain(&self.order).filter_map(said).collect();
        let is_foreign = |source: usize, to: To| source >= 3 && to == To::Unreached;
        let forwards = |(_, to): &&(usize, To)| match to {
            To::Port(port) => self.is_up[usize::from(*port)],
            To::Nowhere => true,
            To::Unreached => false,
        };
        let first_with_a_hop = || all.iter().find(|(source, to)| !is_foreign(*source, *to));
        match all.iter().find(forwards).or_else(first_with_a_hop) {
            Some((source, to)) => to.hop(*source, number).to_string(),
            None if all.is_empty() => String::new(),
            None => NextHop::Unreachable.to_string(),
        }
    }
}

impl SourcesRig {
    fn winner(&self, number: u32) -> String {
        let id = self.vrf.rib.get(nth_prefix(number));
        self.vrf.hops().get(id).map(ToString::to_string).unwrap_or_default()
    }

    /// Announces or withdraws a route of a source. Returns whether it was accepted.
    fn model_says(&mut self, model: &Model, source: usize, number: u32, to: Option<To>) -> bool {
        let prefix = nth_prefix(number);
        let hop = to.map(|to| Hop::Hop(to.hop(source, number)));
        match source {
            0 => {
                let mut own: Vec<_> = (0..PREFIXES).filter(|at| *at != number).collect();
                own.retain(|at| model.said.contains_key(&(*at, 0)));
                let of = |at: u32| (nth_prefix(at), model.said[&(at, 0)].0.hop(0, at));
                let mut own: Vec<_> = own.into_iter().map(of).collect();
                own.extend(to.map(|to| (prefix, to.hop(0, number))));
                self.vrf.set_own_routes(own).unwrap();
                drop(self.vrf.commit());
                true
            }
            1 => {
                let said = match hop {
                    Some(hop) => self.vrf.add_route(prefix, &hop).map(drop),
                    None if model.said.contains_key(&(number, 1)) => self.vrf.remove_route(prefix),
                    None => return false,
                };
                said.is_ok() && self.vrf.commit().is_ok()
            }
            2 => {
                let action = hop.map_or(Action::Withdraw, Action::Announce);
                self.vrf.update(&Update { time_s: 0.0, prefix, action, peer: None }).unwrap();
                self.vrf.commit().is_ok()
            }
            _ => {
                let event = match to {
                    Some(to) => {
                        let route = Arc::new(to.route(source, number));
                        FeedEvent::Announce { vrf: 0, prefix, metric: 0, route }
                    }
                    None => FeedEvent::Withdraw { vrf: 0, prefix, metric: 0 },
                };
                let feed = if source == 3 { FPM } else { KERNEL };
                self.sender.send(ChangeSet { feed, events: vec![event] }).unwrap();
                self.learn();
                true
            }
        }
    }

    fn user_routes(&self, prefix: IpPrefix) -> u64 {
        let candidates = &self.vrf.candidates;
        let is_lone = !candidates.has(prefix);
        let file = if is_lone { self.vrf.rib.get(prefix) } else { candidates.file_route(prefix) };
        let has_ctl = candidates.route_from(prefix, SourceId::CTL).is_some();
        u64::from(!file.is_none()) + u64::from(has_ctl)
    }

    /// Reloads a file with these routes; returns whether it was accepted.
    fn model_reloads(&mut self, routes: &[Option<To>]) -> bool {
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        for (number, to) in (0..).zip(routes) {
            if let Some(to) = to {
                rib.set(nth_prefix(number), hops.intern(to.hop(2, number)).unwrap());
            }
        }
        self.vrf.replace_all(rib, hops).is_ok()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// After any events, once the engine refuses nothing, each prefix has the route of the first source that can forward, else of the first
    /// with a next hop. Refused changes of users have no effect.
    #[test]
    fn the_routes_in_service_are_those_of_a_plain_list(steps in steps()) {
        let (mut rig, faults) = SourcesRig::with_faults();
        rig.vrf.replace_all(Rib::new(), NextHopTable::new()).unwrap();
        let mut model = Model { said: BTreeMap::new(), order: vec![2, 3, 4], is_up: [true; 2] };
        for step in steps {
            match step {
                ModelStep::Say(source, number, to) => {
                    let to = to.filter(|to| source > 0 || matches!(to, To::Port(_)));
                    let is_own = model.said.contains_key(&(number, 0));
                    if source == 1 && is_own { continue }
                    if rig.model_says(&model, source, number, to) {
                        match to {
                            Some(to) => model.said.insert((number, source), (to, false)),
                            None => model.said.remove(&(number, source)),
                        };
                    }
                }
                ModelStep::Reload(routes) => {
                    if rig.model_reloads(&routes) {
                        for (number, to) in (0..).zip(routes) {
                            match to {
                                Some(to) => model.said.insert((number, 2), (to, false)),
                                None => model.said.remove(&(number, 2)),
                            };
                        }
                    }
                }
                ModelStep::Stale(source) | ModelStep::Sweep(source) => {
                    let is_sweep = matches!(step, ModelStep::Sweep(_));
                    let event = if is_sweep { FeedEvent::Sweep } else { FeedEvent::Stale };
                    let feed = if source == 3 { FPM } else { KERNEL };
                    rig.sender.send(ChangeSet { feed, events: vec![event] }).unwrap();
                    rig.learn();
                    if is_sweep {
                        model.said.retain(|(_, of), (_, is_stale)| *of != source || !*is_stale);
                    } else {
                        let of_source = model.said.iter_mut().filter(|((_, of), _)| *of == source);
                        of_source.for_each(|(_, (_, is_stale))| *is_stale = true);
                    }
                }
                ModelStep::Link(port, is_up) => {
                    model.is_up[port] = is_up;
                    crate::ports::PortTable::change(&rig.ports, |table| table.ports[port].is_up = is_up);
                    drop(rig.vrf.commit());
                }
                ModelStep::Order(order) => {
                    let wanted: Vec<_> = order.iter().map(|source| SOURCES[*source]).collect();
                    rig.vrf.candidates.set_order(&wanted);
                    rig.feeds.set_order(wanted);
                    model.order = order;
                }
                ModelStep::Refuse(number) => {
                    *faults.refused.lock().unwrap() = number.map(nth_prefix).into_iter().collect();
                    faults.fail_from(Call::Apply, u64::MAX, How::Full);
                }
                ModelStep::Full => faults.fail_from(Call::Apply, 0, How::Full),
                ModelStep::Retry => { rig.tries_again(); }
            }
            let user_routes: u64 = (0..PREFIXES).map(|number| rig.user_routes(nth_prefix(number))).sum();
            prop_assert_eq!(rig.vrf.user_routes[0], user_routes);
        }
        faults.refused.lock().unwrap().clear();
        faults.fail_from(Call::Apply, u64::MAX, How::Full);
        while rig.tries_again() > 0 {}
        let found: Vec<_> = (0..PREFIXES).map(|number| rig.winner(number)).collect();
        let wanted: Vec<_> = (0..PREFIXES).map(|number| model.winner(number)).collect();
        prop_assert_eq!(found, wanted);
        prop_assert_eq!((rig.vrf.refused.len(), rig.learn()), (0, false));
    }
}
