//! The table's rules, from the paper and from the engine's contract.

use crate::churn::rig;
use crate::random::next_hop;
use fib::random::Seeded;
use fib::{EngineError, NextHopId, Prefix, Prefix4, Prefix6, Route};
use lpm_gpu::gamt::{GamtOptions, GamtTable, Layout, NextHops};
use lpm_gpu::host::{Due, HostTable as _, UpdateStep};
use lpm_gpu::testing::HostRig;
use std::collections::BTreeMap;

fn id(value: u32) -> NextHopId {
    NextHopId::new(value).unwrap()
}

fn v4(text: &str) -> Prefix4 {
    let fib::IpPrefix::V4(prefix) = text.parse().unwrap() else { panic!("{text}") };
    prefix
}

fn set(text: &str, next_hop: u32) -> Route<u32> {
    Route { prefix: v4(text), next_hop: NextHopId::from_answer(next_hop) }
}

fn writes(steps: &[UpdateStep]) -> usize {
    let count = |step: &UpdateStep| if let UpdateStep::Writes(writes) = step { writes.len() } else { 0 };
    steps.iter().map(count).sum()
}

fn table_rig(next_hops: NextHops, levels: u8) -> HostRig<u32, GamtTable<u32>> {
    rig(GamtOptions { next_hops, levels: Some(levels), ..GamtOptions::default() }, 1)
}

fn routes(count: usize, seed: u64) -> Vec<Route<u32>> {
    let mut random = Seeded::new(seed, 0);
    let routes: BTreeMap<Prefix4, NextHopId> = (0..count)
        .map(|_| {
            let len = 8 + u8::try_from(random.below(25)).unwrap();
            let address = random.u32();
            (Prefix::truncating(address, len), next_hop(&mut random))
        })
        .collect();
    routes.into_iter().map(|(prefix, next_hop)| Route { prefix, next_hop }).collect()
}

#[test]
fn next_hops_alone_write_nothing_when_they_are_apart() {
    for (next_hops, expected) in [(NextHops::Apart, false), (NextHops::Together, true)] {
        let mut rig = table_rig(next_hops, 6);
        let mut all = routes(5000, 4);
        assert_eq!(rig.apply_to_host(&all), Due::Image);
        rig.steps();
        rig.table.reclaim(1);
        for change in &mut all {
            change.next_hop = id(change.next_hop.get() + 7);
        }
        let mut bubbles = 0;
        for part in all.chunks(100) {
            assert_eq!(rig.apply_to_host(part), Due::Steps);
            bubbles += writes(&rig.steps());
        }
        assert_eq!(bubbles > 0, expected, "{next_hops:?}: {bubbles}");
        assert_eq!(rig.table.figures().next_hop_updates, if expected { 0 } else { all.len() as u64 });
        rig.load();
        for change in &all {
            let key = change.prefix.last_address();
            let longest =
                all.iter().filter(|other| other.prefix.contains(key)).max_by_key(|other| other.prefix.len());
            assert_eq!(rig.lookup(key), longest.unwrap().next_hop);
        }
    }
}

#[test]
fn a_route_that_lost_keys_to_one_beyond_64_bits_is_not_changed_in_place_under_lookups() {
    let set = |text: &str, next_hop: u32| {
        let fib::IpPrefix::V6(prefix) = text.parse().unwrap() else { panic!("{text}") };
        Route { prefix, next_hop: NextHopId::from_answer(next_hop) }
    };
    let options = GamtOptions { next_hops: NextHops::Apart, ..GamtOptions::default() };
    let mut rig = rig::<u128>(options, 1);
    let apply = |rig: &mut HostRig<u128, GamtTable<u128>>, changes: &[Route<u128>]| {
        rig.apply_to_host(changes);
        rig.steps();
        rig.table.figures().next_hop_updates
    };
    // The group exists, so the device need not change for another route in it.
    assert_eq!(apply(&mut rig, &[set("2001:db8::/64", 1), set("2001:db8::1/128", 2)]), 0);
    rig.table.reclaim(1);
    assert_eq!(apply(&mut rig, &[set("2001:db8::/64", 3)]), 1, "no keys were lost: in place");
    rig.table.reclaim(2);
    // A lookup of 2001:db8::5 from before this may hold the /64's entry, and the /64 changes while it is in flight.
    apply(&mut rig, &[set("2001:db8::5/128", 4)]);
    assert_eq!(apply(&mut rig, &[set("2001:db8::/64", 5)]), 1, "to a new entry");
    // In one delta, too.
    rig.table.reclaim(4);
    assert_eq!(apply(&mut rig, &[set("2001:db8::/64", 6)]), 2, "no such lookup is left");
    rig.table.reclaim(5);
    assert_eq!(apply(&mut rig, &[set("2001:db8::/64", 7), set("2001:db8::6/128", 8)]), 2, "to a new entry");
}

#[test]
fn a_withdraw_rewrites_the_units_of_its_prefix_only() {
    let mut rig = table_rig(NextHops::Together, 4); // 8-8-8-8 when it is empty
    assert_eq!(rig.table.shape().strides, [8, 8, 8, 8]);
    let first = [set("10.0.0.0/8", 1), set("10.1.0.0/16", 2), set("10.1.16.0/20", 3), set("10.1.18.0/24", 4)];
    rig.apply_to_host(&first);
    rig.steps();
    let used = rig.table.units_used();
    // A /20 of 16 units, one of which belongs to the /24.
    rig.apply_to_host(&[set("10.1.16.0/20", 0)]);
    assert_eq!(writes(&rig.steps()), 15);
    rig.apply_to_host(&[set("10.1.18.0/24", 0)]);
    assert_eq!(writes(&rig.steps()), 1);
    assert_eq!(rig.table.units_used(), used, "nodes stay: lazy mode");
    rig.apply_to_host(&[set("10.1.18.0/24", 9)]);
    assert_eq!(writes(&rig.steps()), 1, "and are there when the route comes back");
    let again = [set("10.1.18.0/24", 9), set("10.9.0.0/16", 0)];
    rig.apply_to_host(&again);
    assert!(rig.steps().is_empty(), "announced again, or withdrawn while absent");
}

#[test]
fn new_nodes_come_in_a_step_before_the_pointer() {
    let mut rig = table_rig(NextHops::Together, 4);
    rig.apply_to_host(&[set("10.0.0.0/8", 1)]);
    rig.steps();
    rig.apply_to_host(&[set("10.1.2.3/32", 2)]);
    let steps = rig.steps();
    let sizes: Vec<usize> = steps.iter().map(|step| writes(std::slice::from_ref(step))).collect();
    assert_eq!(sizes, [3 * 256, 1], "three nodes, then the pointer to the first of them");
}

#[test]
fn a_prefix_changed_often_between_two_updates_is_written_once() {
    let mut rig = table_rig(NextHops::Together, 4);
    for next_hop in 1..=10 {
        rig.apply_to_host(&[set("10.0.0.0/8", next_hop)]);
    }
    let steps = rig.steps();
    let [UpdateStep::Writes(writes)] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(writes.iter().map(|write| write.value >> 8).collect::<Vec<_>>(), [10]);
}

#[test]
fn what_does_not_fit_is_refused_and_can_be_taken_back() {
    for (layout, next_hops) in [(Layout::Flat, NextHops::Together), (Layout::Paper, NextHops::Apart)] {
        let options = GamtOptions { layout, next_hops, table_bytes_max: 400_000, ..GamtOptions::default() };
        let mut rig = rig::<u32>(options, 8);
        rig.in_flight_max = 16;
        let few = routes(300, 1);
        rig.apply(&few).unwrap();
        let before = rig.table.routes();
        for seed in 2..5 {
            let many = routes(60_000, seed);
            let refused = rig.apply(&many).unwrap_err();
            assert!(
                matches!(refused, EngineError::Full { what: "table bytes", used, limit } if used > limit),
                "{refused}"
            );
            // In small deltas: refused only when the room is used up.
            let mut made = 0;
            for part in many.chunks(50) {
                match rig.apply(part) {
                    Ok(()) => made += 1,
                    Err(EngineError::Full { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!((1..1200).contains(&made), "{made}");
            rig.check(&many, 300);
            for part in many.chunks(50) {
                let gone: Vec<_> =
                    part.iter().map(|change| Route { next_hop: NextHopId::NONE, ..*change }).collect();
                rig.apply(&gone).unwrap();
            }
            rig.apply(&few).unwrap();
            rig.check(&few, 300);
            assert_eq!(rig.table.routes(), before);
        }
        assert!(rig.table.image(&rig.rib.v4).words * 4 <= 400_000);
    }
}

#[test]
fn a_level_that_runs_out_of_offsets_in_the_middle_of_a_delta_is_made_anew() {
    let mut rig = table_rig(NextHops::Apart, 4);
    let base: Vec<_> = (0..200_000_u32)
        .map(|n| Route {
            prefix: Prefix::truncating(n * 0x5340, 20 + u8::try_from(n % 5).unwrap()),
            next_hop: id(1),
        })
        .collect();
    assert_eq!(rig.apply_to_host(&base), Due::Image);
    rig.steps();
    // Host routes in many places: the level below 24 bits needs a node for each.
    let hosts: Vec<_> = (0..90_000_u32)
        .map(|n| Route { prefix: Prefix::truncating(n * 0xb900 + 77, 32), next_hop: id(2 + n % 5) })
        .collect();
    let stride = *rig.table.shape().strides.last().unwrap();
    assert!(hosts.len() << stride > 1 << 24, "a stride of {stride} leaves room");
    assert_eq!(rig.apply_to_host(&hosts), Due::Image);
    assert_eq!(rig.table.routes(), (base.len() + hosts.len()) as u64);
    rig.steps();
    rig.load();
    for change in hosts.iter().step_by(7) {
        let key = change.prefix.address();
        assert_eq!(rig.lookup(key), change.next_hop);
    }
}

#[test]
fn a_table_that_cannot_be_is_refused_by_its_parameter() {
    let refused = |options| GamtTable::<u32>::new(options).map(|_| ()).unwrap_err().to_string();
    let text = refused(GamtOptions { levels: Some(3), ..GamtOptions::default() });
    assert!(text.starts_with("levels = 3"), "{text}");
    let text = refused(GamtOptions { transaction_bytes: 100, ..GamtOptions::default() });
    assert!(text.starts_with("transaction-bytes = 100"), "{text}");
    let text = refused(GamtOptions { table_bytes_max: 64, ..GamtOptions::default() });
    assert!(text.contains("table bytes"), "{text}");
}

#[test]
fn many_routes_beyond_64_bits_in_one_64_and_in_many() {
    let mut rig = rig::<u128>(GamtOptions::default(), 2);
    let base = 0x2001_0db8_u128 << 96;
    let host = |n: u128, next_hop: u32| Route {
        prefix: Prefix6::truncating(base | n, 128),
        next_hop: NextHopId::from_answer(next_hop),
    };
    let one: Vec<_> = (0..3000).map(|n| host(n * 3, 1 + u32::try_from(n % 5).unwrap())).collect();
    let many: Vec<_> = (1..3000).map(|n| host(n << 64, 1 + u32::try_from(n % 5).unwrap())).collect();
    rig.apply(&one).unwrap();
    rig.apply(&many).unwrap();
    rig.check(&one, 2000);
    rig.check(&many, 2000);
    for part in [&one[..1000], &many[..1000], &one[1000..], &many[1000..]] {
        let gone: Vec<_> = part.iter().map(|change| Route { next_hop: NextHopId::NONE, ..*change }).collect();
        rig.apply(&gone).unwrap();
        rig.check(&gone, 500);
    }
    assert_eq!(rig.table.routes(), 0);
}

#[test]
fn a_delta_with_routes_beyond_64_bits_builds_the_trie_once() {
    for next_hops in [NextHops::Together, NextHops::Apart] {
        let mut rig = rig::<u128>(GamtOptions { next_hops, ..GamtOptions::default() }, 3);
        let route = |bits: u128, len| Route { prefix: Prefix6::truncating(bits, len), next_hop: id(1) };
        let at = |n: u128| (0x2a00 << 112) | (n << 84);
        let wide = (0..4000_u128).map(|n| route(at(n), 44));
        // Two in each /64, most of which need nodes that no shorter route has.
        let deep = (0..4000_u128).map(|n| route(at(n / 2) | (7 << 64) | n, 128));
        let mut all: Vec<_> = wide.chain(deep).collect();
        all.sort_by_key(|route| route.prefix);
        assert_eq!(rig.apply_to_host(&all), Due::Image);
        let figures = rig.table.figures();
        assert_eq!((figures.builds, figures.rebuilds), (1, 1), "{next_hops:?}");
        rig.steps();
        rig.load();
        rig.check(&all, 4000);
        let gone = rig.rib.v6.withdrawn();
        assert_eq!(rig.apply_to_host(&gone), Due::Image);
        assert_eq!(rig.table.figures().builds, 2);
    }
}

#[test]
fn details_name_what_a_bench_wants() {
    let mut rig = table_rig(NextHops::Apart, 5);
    rig.apply_to_host(&routes(5000, 1));
    let details = rig.table.details();
    let of = |wanted: &str| details.get(wanted);
    assert_eq!(of("gamt_levels_v4"), Some(5.0));
    assert!(of("gamt_bytes_per_prefix_flat_v4").unwrap() <= of("gamt_bytes_per_prefix_paper_v4").unwrap());
    let strides: f64 = (1..=5).map(|level| of(&format!("gamt_stride_{level}_v4")).unwrap()).sum();
    assert!((strides - 32.0).abs() < 1e-9);
    assert_eq!(of("gamt_rebuilds_v4"), Some(1.0));
}
