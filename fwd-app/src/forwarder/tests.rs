//! VRFs of ports and VLANs, names, and feeds over several VRFs.

use super::*;
use crate::datapath::vlans::PortVrfs;
use crate::ports::InterfaceId;
use crate::ports::table::tests::{address, configured, ports};
use crate::ports::taps::TapSpec;
use crate::routes::engine_swap::LostFamilies;
use crate::routes::feeds::RoutingTables;
use crate::routes::feeds::interfaces::Interfaces;
use crate::routes::feeds::running::{FeedSource, FeedSpec};
use crate::routes::feeds::{ChangeSet, FeedEvent, FeedId, Link, LinkAddress, Path, Route};
use crate::routes::spec::load_rib;
use crate::routes::spec::{NamedFile, NamedTable, vrfs_of_ports};
use crate::routes::test_vrf::bundled;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use fib::faulty::{Call, Faults, FaultyEngine, How};
use fib::feed::Hop;
use fib::{IpPrefix, Keys, MacAddr, NextHop, NextHopId, PortRef, Prefix, SlotId};
use lpm_core::each_fib::each_fib;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;
use std::time::Duration;

fn spec(name: &str, ports: &[&str]) -> VrfSpec {
    let ports = ports.iter().map(|port| PortRef::parse(port)).collect();
    VrfSpec { name: name.to_owned(), ports, files: Vec::new() }
}

#[test]
fn a_port_belongs_to_one_vrf() {
    let ports = ports(4);
    let of = |specs: &[VrfSpec]| vrfs_of_ports(specs, &ports.ports);
    let own = |numbers: [usize; 4]| numbers.map(|own| PortVrfs { own, ..PortVrfs::default() }).to_vec();
    assert_eq!(of(&[]), Ok(own([0; 4])));
    let specs = [spec("red", &["3", "p1"]), spec("blue", &["0"])];
    assert_eq!(of(&specs), Ok(own([2, 1, 0, 1])));
    let message = |specs: &[VrfSpec]| of(specs).unwrap_err().to_string();
    assert_eq!(
        message(&[spec("red", &["1"]), spec("blue", &["1"])]),
        "--vrf: port 1 is in the VRFs red and blue"
    );
    assert!(message(&[spec("red", &["1", "p1"])]).contains("red and red"));
    assert!(matches!(of(&[spec("red", &["4"])]), Err(ConfigError::NoDevice(_))));
    // A VLAN in the VRF of its port needs no entry.
    let specs = [spec("red", &["1.100", "2", "2.100"]), spec("blue", &["p1.4094", "1.7", "3.7"])];
    let mut wanted = own([0, 0, 1, 0]);
    wanted[1].vlans = BTreeMap::from([(7, 2), (100, 1), (4094, 2)]);
    wanted[3].vlans = BTreeMap::from([(7, 2)]);
    assert_eq!(of(&specs), Ok(wanted));
    assert_eq!(
        message(&[spec("red", &["1.100"]), spec("blue", &["p1.100"])]),
        "--vrf: port p1.100 is in the VRFs red and blue"
    );
    for none in ["1.0", "1.4095", "1.x", "9.1", "eth1.1"] {
        assert!(matches!(of(&[spec("red", &[none])]), Err(ConfigError::NoDevice(_))), "{none}");
    }
}
#[test]
fn names_are_those_of_vrfs() {
    let red = [spec("red", &["0"]), spec("blue", &["1"])];
    let file = |vrf: &str, file: &str| NamedFile { vrf: vrf.to_owned(), file: file.into() };
    let vrfs = VrfSpec::all(&red, &[file("blue", "a"), file("red", "b"), file("blue", "c")]).unwrap();
    assert_eq!((vrfs[0].files.len(), vrfs[1].files.len()), (1, 2));
    for (vrfs, files, message) in [
        (vec![spec("default", &["0"])], vec![], "--vrf default: another VRF has this name"),
        (vec![spec("a", &["0"]), spec("a", &["1"])], vec![], "--vrf a: another VRF has this name"),
        (red.to_vec(), vec![file("x", "a")], "--vrf-fib x: no --vrf has this name; there are: red, blue"),
    ] {
        assert_eq!(VrfSpec::all(&vrfs, &files).unwrap_err().to_string(), message);
    }
    let table = |vrf: &str, table| NamedTable { vrf: vrf.to_owned(), table };
    let files = FeedSpec { sources: vec![FeedSource::Files], ..FeedSpec::default() };
    assert!(files.clone().for_vrfs(&red, &[]).is_ok());
    let without = files.for_vrfs(&red, &[table("red", 10)]).unwrap_err().to_string();
    assert_eq!(without, "--vrf-table needs --fpm or --kernel-routes");
    let mut wanted = RoutingTables::default();
    assert_eq!((wanted.set(10, 2), wanted.set(1000, 1)), (None, None));
    assert_eq!(VrfSpec::tables(&red, &[table("blue", 10), table("red", 1000)]), Ok(wanted));
    for (tables, message) in [
        ([table("red", 10), table("x", 11)], "--vrf-table x: no --vrf has this name; there are: red, blue"),
        ([table("red", 10), table("red", 11)], "--vrf-table red=11: the VRF has a table already"),
        ([table("red", 10), table("blue", 10)], "--vrf-table blue=10: the VRF red has this table"),
        ([table("red", 10), table("blue", 254)], "--vrf-table blue=254: the VRF default has this table"),
    ] {
        assert_eq!(VrfSpec::tables(&red, &tables).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_vrf_that_refuses_its_files_keeps_those_of_others_out_of_nothing() {
    let mut forwarder = over_two_ports(&[spec("red", &["1"]), spec("blue", &[])]);
    let faults = Arc::new(Faults::default());
    forwarder.vrf_mut(1).replace_engine(Box::new(FaultyEngine::new(&faults)));
    faults.fail_from(Call::Apply, faults.calls(Call::Apply), How::Full);
    let new = "198.51.100.128/25".parse().unwrap();
    let again = || {
        let (mut rib, hops, _) = load_rib(&[bundled("routes.txt")], &mut |_| ()).unwrap();
        let known = rib.v4.iter().next().unwrap().1;
        rib.set(new, known);
        (rib, hops)
    };
    let [main, red, blue] = [0, 1, 2].map(|number| {
        let (rib, hops) = again();
        forwarder.vrf_mut(number).replace_all(rib, hops)
    });
    assert_eq!((main.unwrap(), blue.unwrap()), (1, 1));
    let refusal = format!("{:#}", red.unwrap_err());
    assert!(refusal.starts_with("VRF red: "), "{refusal}");
    let has_it =
        [0, 1, 2].map(|number| forwarder.vrf(number).rib().v4.prefixes().any(|of| IpPrefix::V4(of) == new));
    assert_eq!(has_it, [true, false, true]);
}

fn over_two_ports(others: &[VrfSpec]) -> Forwarder {
    let main = TableSpec {
        files: vec![bundled("routes.txt")],
        routes_max: None,
        engine: EngineSpec::named("oracle"),
    };
    let with_files = |vrf: &VrfSpec| VrfSpec { files: main.files.clone(), ..vrf.clone() };
    let others: Vec<_> = others.iter().map(with_files).collect();
    let mut forwarder = Forwarder::open(&main, &others, &mut |_| ()).unwrap();
    set_ports(&mut forwarder, &others, ports(2));
    forwarder
}

fn set_ports(forwarder: &mut Forwarder, others: &[VrfSpec], ports: PortTable) {
    let vrfs = vrfs_of_ports(others, &ports.ports).unwrap();
    forwarder.set_ports(ports.with_vrfs(vrfs)).unwrap();
}

/// Two VRFs over the ports p0 and p1, which are the interfaces 10 and 11 of the feed behind the returned channel.
fn with_feeds() -> (Forwarder, Sender<ChangeSet>) {
    let mut forwarder = over_two_ports(&[spec("red", &["1"])]);
    let interfaces = Interfaces::new(&forwarder.ports().ports);
    let (sender, receiver) = bounded(100);
    forwarder.set_feeds(Feeds::for_test(receiver, 0, interfaces)).unwrap();
    (forwarder, sender)
}

#[test]
fn feeds_give_each_vrf_its_own_routes_which_go_stale_and_are_swept_there() {
    let (mut forwarder, sender) = with_feeds();
    let links = [(10, "p0"), (11, "p1")].map(|(ifindex, name)| {
        let name = name.to_owned();
        FeedEvent::Link(Link { ifindex, name, is_up: true, is_running: true, is_local: false })
    });
    let mut says = |events: &[FeedEvent]| {
        sender.send(ChangeSet { feed: FeedId(0), events: events.to_vec() }).unwrap();
        assert!(forwarder.learn() && !forwarder.learn());
        [0, 1].map(|number| {
            let vrf = forwarder.vrf(number);
            let found = vrf.rib().longest([198, 18, 0, 1].into());
            found.filter(|(prefix, _)| prefix.len() == 24).and_then(|(_, id)| vrf.hops().get(id)).cloned()
        })
    };
    let route = |vrf, last, ifindex| {
        let path = Path { gateway: Some([192, 0, 2, last].into()), ifindex, weight: 1 };
        let (prefix, route) = ("198.18.0.0/24".parse().unwrap(), Arc::new(Route::Paths(Box::new([path]))));
        FeedEvent::Announce { vrf, prefix, metric: 0, route }
    };
    let via = |last: u8, port| {
        Some(NextHop::Gateway { gateway: [192, 0, 2, last].into(), port: PortRef::Index(port) })
    };
    says(&links);
    assert_eq!(says(&[FeedEvent::Connected, route(0, 1, 10)]), [via(1, 0), None]);
    // The same prefix and metric, via a link of the other VRF.
    assert_eq!(says(&[route(1, 2, 10)]), [via(1, 0), via(2, 0)]);
    assert_eq!(says(&[route(1, 3, 11)]), [via(1, 0), via(3, 1)]);
    assert_eq!(says(&[FeedEvent::Disconnected, FeedEvent::Stale]), [via(1, 0), via(3, 1)]);
    assert_eq!(says(&[FeedEvent::Connected, route(0, 4, 10), FeedEvent::Sweep]), [via(4, 0), None]);
    let count = |number: usize| forwarder.vrf(number).rib().v4.len();
    assert_eq!(count(0), count(1) + 1);
}

#[test]
fn a_gateway_without_a_port_is_a_neighbour_in_its_vrf_alone() {
    let (mut forwarder, _) = with_feeds();
    let gateway = [192, 0, 2, 9].into();
    let hop = NextHop::Gateway { gateway, port: PortRef::ById };
    let mac = |last| MacAddr([2, 0, 0, 0, 1, last]);
    for vrf in [0, 1] {
        forwarder.vrf_mut(vrf).add_route("198.18.0.0/24".parse().unwrap(), &Hop::Hop(hop.clone())).unwrap();
    }
    let mut found = |learned: &[(u16, Option<MacAddr>)]| {
        for (port, mac) in learned {
            forwarder.set_resolved([Resolved { key: Key::untagged(InterfaceId(*port), gateway), mac: *mac }]);
        }
        forwarder.commit().unwrap();
        [0, 1].map(|vrf| {
            let vrf = forwarder.vrf(vrf);
            let table = vrf.egress.table().unwrap().load_full();
            let entry = table.get(vrf.hops().find(&hop).unwrap());
            (entry.port < 2).then(|| (entry.port, entry.macs[5]))
        })
    };
    assert_eq!(found(&[(0, Some(mac(1)))]), [Some((0, 1)), None]);
    assert_eq!(found(&[(1, Some(mac(2)))]), [Some((0, 1)), Some((1, 2))]);
    assert_eq!(found(&[(0, None)]), [None, Some((1, 2))]);
}

/// A changed MAC must not rebuild the tables of all VRFs.
#[test]
fn a_learned_neighbour_costs_a_table_only_where_one_needs_it() {
    let (mut forwarder, _) = with_feeds();
    let gateway = [192, 0, 2, 9].into();
    let [hop, link] = [
        NextHop::Gateway { gateway, port: PortRef::Index(0) },
        NextHop::Connected { port: PortRef::Index(1) },
    ];
    for (vrf, hop) in [(0, hop.clone()), (1, link)] {
        forwarder.vrf_mut(vrf).replace_all(fib::Rib::new(), fib::NextHopTable::new()).unwrap();
        forwarder.vrf_mut(vrf).add_route("198.18.0.0/24".parse().unwrap(), &Hop::Hop(hop)).unwrap();
    }
    forwarder.commit().unwrap();
    let tables =
        |forwarder: &Forwarder| [0, 1].map(|vrf| forwarder.vrf(vrf).egress.table().unwrap().load_full());
    let mut changed = |(address, port): (std::net::IpAddr, u16), last: u8| {
        let before = tables(&forwarder);
        let key = Key::untagged(InterfaceId(port), address);
        forwarder.set_resolved([Resolved { key, mac: Some(MacAddr([2, 0, 0, 0, 0, last])) }]);
        forwarder.commit().unwrap();
        let after = tables(&forwarder);
        [0, 1].map(|vrf| !Arc::ptr_eq(&before[vrf], &after[vrf]))
    };
    let host = [192, 0, 2, 77].into();
    assert_eq!(changed((gateway, 0), 1), [true, false], "a gateway of the first");
    assert_eq!(changed((host, 0), 2), [false, false], "a host of no link");
    assert_eq!(changed((host, 1), 3), [false, true], "a host on the link of the second");
    let table = forwarder.vrf(0).egress.table().unwrap().load_full();
    assert_eq!(table.get(forwarder.vrf(0).hops().find(&hop).unwrap()).macs[5], 1);
    let late = NextHop::Gateway { gateway: host, port: PortRef::Index(0) };
    forwarder.vrf_mut(0).add_route("198.18.1.0/24".parse().unwrap(), &Hop::Hop(late.clone())).unwrap();
    forwarder.commit().unwrap();
    let table = forwarder.vrf(0).egress.table().unwrap().load_full();
    assert_eq!(table.get(forwarder.vrf(0).hops().find(&late).unwrap()).macs[5], 2);
}

#[test]
fn the_addresses_of_a_port_are_those_of_its_vrf() {
    let (mut forwarder, _) = with_feeds();
    let addresses = [("0", "198.18.1.1", 24), ("1", "198.18.1.1", 24), ("1", "198.18.2.1", 24)];
    let addresses = addresses.map(|(port, text, len)| address(port, text, len));
    let red = [spec("red", &["1"])];
    let vrfs = vrfs_of_ports(&red, &ports(2).ports).unwrap();
    let table = ports(2).with_vrfs(vrfs).with_interfaces(&addresses, &TapSpec::default()).unwrap();
    set_ports(&mut forwarder, &red, table);
    let ours: Vec<_> =
        forwarder.punt_addresses().iter().map(|ours| ours.as_ref().unwrap().load_full()).collect();
    forwarder.commit().unwrap();
    let of = |port: usize, text: &str| {
        let address: std::net::Ipv4Addr = text.parse().unwrap();
        ours[port].v4.contains(&address.to_bits())
    };
    assert!(of(0, "198.18.1.1") && of(1, "198.18.1.1") && of(1, "198.18.2.1") && !of(0, "198.18.2.1"));
    let routes = |vrf: usize, text: &str| {
        let vrf = forwarder.vrf(vrf);
        vrf.rib().longest(text.parse().unwrap()).and_then(|(_, id)| vrf.hops().get(id)).cloned()
    };
    let link = |port| Some(NextHop::Connected { port: PortRef::Index(port) });
    assert_eq!((routes(0, "198.18.1.7"), routes(1, "198.18.1.7")), (link(0), link(1)));
    assert_eq!(
        (routes(0, "198.18.1.1"), routes(1, "198.18.2.1")),
        (Some(NextHop::Local), Some(NextHop::Local))
    );
    assert_ne!(routes(0, "198.18.2.1"), Some(NextHop::Local));
}

/// Runs `work` while `faults` block in `apply`. After a minute they unblock; then `work` has waited for them.
fn does_not_wait(faults: &Arc<Faults>, work: impl FnOnce()) {
    let (done, waited) = bounded::<()>(0);
    let theirs = Arc::clone(faults);
    let watch = std::thread::spawn(move || {
        let is_stuck = waited.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout);
        if is_stuck {
            theirs.hang_in_apply.store(false, SeqCst);
        }
        is_stuck
    });
    work();
    drop(done);
    assert!(!watch.join().unwrap(), "the control thread waits for a build");
}

#[test]
fn the_control_thread_does_not_wait_while_one_vrf_of_a_common_engine_is_built() {
    let (mut forwarder, sender) = with_feeds();
    let faults = Arc::new(Faults::default());
    faults.hang_from.store(1, SeqCst);
    faults.hang_in_apply.store(true, SeqCst);
    let options = fib::EngineOptions::with_parameters(&[("fibs", "2")]);
    let engine = FaultyEngine::over(crate::engines::ENGINES.make("sail-m", &options).unwrap(), &faults);
    let engines = each_fib(Box::new(engine)).into_iter();
    let engines = engines.map(|engine| Made { engine, service: None, is_shared: true }).collect();
    for vrf in [0, 1] {
        forwarder.vrf_mut(vrf).replace_all(fib::Rib::new(), fib::NextHopTable::new()).unwrap();
        forwarder
            .vrf_mut(vrf)
            .add_route("198.18.0.0/24".parse().unwrap(), &Hop::Hop(NextHop::Blackhole))
            .unwrap();
    }
    forwarder.commit().unwrap();
    forwarder.build_each(&EngineSpec::named("sail-m"), engines, LostFamilies::Refused).unwrap();
    while faults.calls(Call::Apply) < 1 || forwarder.vrfs().iter().all(|vrf| vrf.engine.is_building_part()) {
        std::thread::yield_now();
    }
    let base = |vrf: usize| if vrf == 0 { 1000 } else { 2000 };
    does_not_wait(&faults, || {
        for round in 1..=100_u32 {
            for vrf in [0, 1] {
                assert!(forwarder.finish_engine(vrf).is_none(), "round {round}");
            }
            forwarder.set_link(1, round % 2 == 0);
            forwarder.commit().unwrap();
            let set = ChangeSet { feed: FeedId(0), events: vec![FeedEvent::Connected] };
            sender.send(set).unwrap();
            forwarder.learn();
            for vrf in [0, 1] {
                let hop = Hop::Id(NextHopId::new(base(vrf) + round).unwrap());
                forwarder.vrf_mut(vrf).add_route("198.18.0.0/24".parse().unwrap(), &hop).unwrap();
                forwarder.commit().unwrap();
                assert_eq!(forwarder.vrf(vrf).engine().info().name, "oracle");
            }
        }
    });
    faults.hang_in_apply.store(false, SeqCst);
    let mut finished = [false; 2];
    while finished != [true; 2] {
        for vrf in [0, 1] {
            if let Some(result) = forwarder.finish_engine(vrf) {
                result.unwrap();
                finished[vrf] = true;
            }
        }
    }
    for vrf in [0, 1] {
        let engine = forwarder.vrf(vrf).engine();
        let mut reader = engine.reader(1, 1).unwrap();
        let keys = Keys::V4(&[0xc612_0001]);
        reader.submit(SlotId(0), keys).unwrap();
        let Poll::Ready(Ok([id])) = reader.collect(SlotId(0), keys) else { panic!("no answer") };
        assert_eq!((engine.info().name, id.get()), ("fake", base(vrf) + 100));
    }
}

#[test]
fn no_vrf_takes_its_part_of_an_engine_that_a_panic_has_broken() {
    let (mut forwarder, _sender) = with_feeds();
    let faults = Arc::new(Faults::default());
    let options = fib::EngineOptions::with_parameters(&[("fibs", "2")]);
    let engine = FaultyEngine::over(crate::engines::ENGINES.make("sail-m", &options).unwrap(), &faults);
    let mut engines = each_fib(Box::new(engine));
    for vrf in [0, 1] {
        forwarder.vrf_mut(vrf).replace_all(fib::Rib::new(), fib::NextHopTable::new()).unwrap();
    }
    forwarder.commit().unwrap();
    for vrf in [1, 0] {
        // The first build panics, the second does not.
        faults.die_in_apply.store(vrf == 1, SeqCst);
        let made = Made { engine: engines.remove(vrf), service: None, is_shared: true };
        let spec = EngineSpec::named("sail-m");
        forwarder.vrf_mut(vrf).build_engine(spec, LostFamilies::Refused, Some(made)).unwrap();
        while forwarder.vrf(vrf).engine.is_building_part() {
            std::thread::yield_now();
        }
    }
    let wanted = ["a panic in the delta of another FIB has left the engine broken", "has panicked"];
    for (vrf, wanted) in wanted.into_iter().enumerate() {
        let why = format!("{:#}", forwarder.finish_engine(vrf).unwrap().unwrap_err());
        assert!(why.contains(wanted), "{why}");
        assert_eq!(forwarder.vrf(vrf).engine().info().name, "oracle");
    }
}

#[test]
fn addresses_of_taps_come_and_go() {
    let mut forwarder = over_two_ports(&[]);
    set_ports(&mut forwarder, &[], configured(2, &[("0", "192.0.2.1", 24)], &[("0", "tap0")]).unwrap());
    let (events, receiver) = bounded(8);
    let interfaces = Interfaces::new(&forwarder.ports().ports);
    forwarder.set_feeds(Feeds::for_test(receiver, 0, interfaces)).unwrap();
    forwarder.commit().unwrap();
    let here = forwarder.punt_addresses()[0].clone().unwrap();
    let routes = forwarder.main().rib().len();
    let link_of_file = Prefix::truncating(0xc633_6400, 24);
    let id_of_file = forwarder.main().rib().v4.get(link_of_file);
    assert!(!id_of_file.is_none());

    let link = |ifindex, name: &str, is_local| {
        FeedEvent::Link(Link { ifindex, name: name.to_owned(), is_up: true, is_running: true, is_local })
    };
    let at = |ifindex, last| LinkAddress { ifindex, address: [198, 51, 100, last].into(), len: 24 };
    let other = |ifindex, address: &str| {
        FeedEvent::Address(LinkAddress { address: address.parse().unwrap(), ..at(ifindex, 0) })
    };
    let says = |forwarder: &mut Forwarder, said: Vec<FeedEvent>| {
        events.send(ChangeSet { feed: FeedId(0), events: said }).unwrap();
        forwarder.learn();
    };
    let is_ours = |last: u32| here.load().v4.contains(&(0xc633_6400 | last));
    let of_port = |forwarder: &Forwarder| forwarder.ports().ports[0].v4().collect::<Vec<_>>();
    // The second is on an interface that is no TAP, the third no address of a host.
    let addresses = [FeedEvent::Address(at(5, 1)), FeedEvent::Address(at(6, 9)), other(5, "127.0.0.1")];
    says(&mut forwarder, [vec![link(5, "tap0", false), link(6, "p1", false)], addresses.into()].concat());
    // The address and its broadcast address. The connected route replaces the file's route.
    assert_eq!(forwarder.main().rib().len(), routes + 2);
    assert_ne!(forwarder.main().rib().v4.get(link_of_file), id_of_file);
    assert!(is_ours(1) && is_ours(255) && !is_ours(9));
    assert_eq!(of_port(&forwarder), [[192, 0, 2, 1], [198, 51, 100, 1]].map(Ipv4Addr::from));

    says(&mut forwarder, vec![FeedEvent::AddressGone(at(5, 1)), FeedEvent::Address(at(5, 2))]);
    assert!(is_ours(2) && !is_ours(1));
    // Addresses of a loopback interface are punted but add no connected route.
    let own = ["127.0.0.1", "::1", "fe80::1"].map(|address| other(1, address));
    says(&mut forwarder, [vec![link(1, "lo", true), FeedEvent::Address(at(1, 1))], own.into()].concat());
    assert!(is_ours(1) && here.load().v4.len() == 6);
    let wanted = [[192, 0, 2, 1], [198, 51, 100, 2], [198, 51, 100, 1]].map(Ipv4Addr::from);
    assert_eq!(of_port(&forwarder), wanted, "the router sends from addresses of the link");
    assert_eq!(forwarder.main().rib().len(), routes + 3);
    says(&mut forwarder, vec![link(1, "lo", false)]);
    assert!(!is_ours(1) && of_port(&forwarder) == wanted[..2]);
    says(&mut forwarder, vec![FeedEvent::LinkGone(5)]);
    let ribs = (forwarder.main().rib().len(), forwarder.main().rib().v4.get(link_of_file));
    assert_eq!(ribs, (routes, id_of_file));
    assert!(!is_ours(2) && of_port(&forwarder) == wanted[..1]);
}
