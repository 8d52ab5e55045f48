//! Effects of reloads, reasons to refuse one, and the values in effect afterwards.

use super::*;
use crate::engines::EngineSpec;
use crate::forwarder::in_effect::changed_paths;
use crate::forwarder::test_forwarder::forwarder;
use crate::ports::record::MtuRange;
use crate::ports::table::tests::ports;
use crate::ports::taps::TapSpec;
use crate::routes::feeds::interfaces::Interfaces;
use crate::routes::feeds::running::{FeedSpec, Feeds};
use crate::routes::spec::{DEFAULT, TableSpec, VrfSpec};
use fib::{MacAddr, Neighbour};
use std::net::IpAddr;

fn address(text: &str) -> PortAddress {
    PortAddress { port: PortRef::Index(0), address: text.parse().unwrap(), prefix_len: 24 }
}

fn value(path: &str, value: u32) -> ConfigValue {
    ConfigValue { path: path.to_owned(), value: value.into(), origin: format!("f:{value}") }
}

fn with_ports(has_tap: bool) -> Forwarder {
    let mut forwarder = forwarder();
    let taps = has_tap.then(|| (PortRef::Index(0), "tap0".to_owned())).into_iter().collect();
    let mut table =
        ports(2).with_interfaces(&[address("192.0.2.1")], &TapSpec { taps, ..TapSpec::default() }).unwrap();
    table.ports.iter_mut().for_each(|port| port.mtu_range = MtuRange { default: 1500, max: 2000 });
    forwarder.set_ports(table).unwrap();
    forwarder.commit().unwrap();
    forwarder.config = vec![value("port.p0.mtu", 1), value("forwarder.batch", 1), value("sources.fib", 1)];
    forwarder
}

fn files(vrfs: &[(&str, &[PathBuf])]) -> VrfFiles {
    vrfs.iter().map(|(name, files)| ((*name).to_owned(), files.to_vec())).collect()
}

fn plan(forwarder: &Forwarder, addresses: &[&str]) -> ReloadPlan {
    ReloadPlan {
        files: files(&[(DEFAULT, &forwarder.main().files)]),
        addresses: addresses.iter().map(|text| address(text)).collect(),
        netns: Some(PathBuf::from("/nonexistent")),
        applied: vec!["port.p0.addresses".to_owned()],
        ..ReloadPlan::default()
    }
}

/// The answer to a client when devices take MTUs up to `mtu_max`.
fn reloaded(forwarder: &mut Forwarder, plan: ReloadPlan, mtu_max: u16) -> ReloadResult {
    reloaded_with(forwarder, plan, &mut |_, mtu| {
        anyhow::ensure!(mtu <= mtu_max, "the device is busy");
        Ok(())
    })
}

fn reloaded_with(forwarder: &mut Forwarder, plan: ReloadPlan, device: SetMtu<'_>) -> ReloadResult {
    let read: ReadConfig = Arc::new(move |_: &[ConfigValue]| Ok(plan.clone()));
    let (mut reloads, client) = Reloads::new(Signals::default(), Some(read));
    client.ask();
    loop {
        reloads.advance(forwarder, device);
        if let Ok(answer) = client.answers.try_recv() {
            return answer;
        }
        std::thread::yield_now();
    }
}

fn state(forwarder: &Forwarder) -> (Vec<String>, u16, Vec<ConfigValue>) {
    let port = &forwarder.ports().ports[0];
    (port.v4().map(|address| address.to_string()).collect(), port.mtu_bytes, forwarder.config.clone())
}

#[test]
fn addresses_are_replaced_and_the_routes_to_them_follow() {
    let mut forwarder = with_ports(false);
    let routes = forwarder.main().rib().v4.len();
    let plan = plan(&forwarder, &["192.0.2.7", "198.51.100.7"]);
    let report = reloaded(&mut forwarder, plan, 1500).unwrap();
    assert_eq!((report.applied, report.routes > 0), (vec!["port.p0.addresses".to_owned()], true));
    assert_eq!(state(&forwarder).0, ["192.0.2.7", "198.51.100.7"]);
    let route = |text: &str| forwarder.main().longest(text.parse().unwrap()).unwrap().0;
    assert_eq!(route("192.0.2.7").prefix.to_string(), "192.0.2.7/32");
    assert_ne!(route("192.0.2.1").prefix.to_string(), "192.0.2.1/32", "the router is not there any more");
    assert!(forwarder.main().rib().v4.len() > routes);
}

#[test]
fn an_mtu_is_applied_and_what_needs_a_restart_stays_in_effect() {
    let mut forwarder = with_ports(false);
    let mut plan = plan(&forwarder, &["192.0.2.1"]);
    plan.mtus = vec![(PortRef::Name("p0".to_owned()), 1600)];
    plan.restart = vec!["forwarder.batch".to_owned()];
    plan.config = vec![value("port.p0.mtu", 2), value("forwarder.batch", 2), value("sources.fib", 2)];
    reloaded(&mut forwarder, plan, 1600).unwrap();
    let (_, mtu_bytes, config) = state(&forwarder);
    assert_eq!(mtu_bytes, 1600);
    assert_eq!(config, [value("port.p0.mtu", 2), value("sources.fib", 2), value("forwarder.batch", 1)]);
}

#[test]
fn whatever_is_wrong_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().join("routes.txt");
    std::fs::write(&routes, "10.0.0.0/8 via 192.0.2.2 dev p9\n").unwrap();
    let first = PortAddress { port: PortRef::Index(1), ..address("192.0.2.9") };
    type Change<'a> = &'a dyn Fn(&mut ReloadPlan);
    let wrong: [(&str, Change<'_>); 5] = [
        ("the device is busy", &|plan| plan.mtus = vec![(PortRef::Index(0), 1700)]),
        ("can get at most 2000 bytes", &|plan| plan.mtus = vec![(PortRef::Index(0), 2001)]),
        ("p9", &|plan| plan.mtus = vec![(PortRef::Name("p9".to_owned()), 1400)]),
        ("port 1 (p1) had no address", &|plan| plan.addresses.push(first.clone())),
        ("p9", &|plan| plan.files = files(&[(DEFAULT, std::slice::from_ref(&routes))])),
    ];
    for (what, change) in wrong {
        let mut forwarder = with_ports(false);
        let before = state(&forwarder);
        let routes = forwarder.main().rib().v4.sorted();
        let mut plan = plan(&forwarder, &["192.0.2.7"]);
        plan.config = vec![value("port.p0.mtu", 2)];
        change(&mut plan);
        let why = reloaded(&mut forwarder, plan, 1600).unwrap_err();
        assert!(why.contains(what) && why.ends_with("; nothing was changed"), "{why}");
        assert_eq!(state(&forwarder), before, "{what}");
        assert_eq!(forwarder.main().rib().v4.sorted(), routes, "{what}");
    }
}

#[test]
fn each_vrf_has_the_files_of_its_name_wherever_its_table_stands() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, routes: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, routes).unwrap();
        vec![path]
    };
    let (red, blue) = (file("red", "10.1.0.0/16 1\n"), file("blue", "10.2.0.0/16 2\n"));
    let main = TableSpec { files: Vec::new(), routes_max: None, engine: EngineSpec::named("oracle") };
    let vrf = |name: &str, files: &Vec<PathBuf>| VrfSpec {
        name: name.to_owned(),
        ports: Vec::new(),
        files: files.clone(),
    };
    let mut forwarder = Forwarder::open(&main, &[vrf("red", &red), vrf("blue", &blue)], &mut |_| ()).unwrap();
    forwarder.commit().unwrap();
    let routes = |forwarder: &Forwarder| {
        let prefix = |number| {
            forwarder
                .vrf(number)
                .rib()
                .v4
                .sorted()
                .iter()
                .map(|(prefix, _)| prefix.to_string())
                .collect::<Vec<_>>()
        };
        [prefix(1), prefix(2)]
    };
    assert_eq!(routes(&forwarder), [["10.1.0.0/16"], ["10.2.0.0/16"]]);
    let plan = ReloadPlan {
        files: files(&[("blue", &blue), (DEFAULT, &[]), ("red", &red)]),
        ..ReloadPlan::default()
    };
    let report = reloaded(&mut forwarder, plan, 1500).unwrap();
    assert_eq!(
        (report.changed, routes(&forwarder)),
        (0, [["10.1.0.0/16"], ["10.2.0.0/16"]].map(|one| one.map(str::to_owned).to_vec()))
    );
    let plan = ReloadPlan {
        files: files(&[("blue", &red), (DEFAULT, &[]), ("red", &red)]),
        ..ReloadPlan::default()
    };
    reloaded(&mut forwarder, plan, 1500).unwrap();
    assert_eq!(routes(&forwarder), [["10.1.0.0/16"], ["10.1.0.0/16"]]);
    assert_eq!(forwarder.vrf(2).files, red);
    let plan = ReloadPlan { files: files(&[(DEFAULT, &[]), ("red", &blue)]), ..ReloadPlan::default() };
    let why = reloaded(&mut forwarder, plan, 1500).unwrap_err();
    assert_eq!(why, "there is no VRF blue any more; nothing was changed");
    assert_eq!(routes(&forwarder), [["10.1.0.0/16"], ["10.1.0.0/16"]]);
}

#[test]
fn neighbours_that_users_have_added_stay() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes.txt");
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let neighbour = |last: u8, mac: u8| Neighbour {
        address: IpAddr::from([192, 0, 2, last]),
        port: PortRef::Index(0),
        mac: MacAddr([2, 0, 0, 0, 0, mac]),
    };
    let line = |last: u8, mac: u8| format!("neigh 192.0.2.{last} lladdr 02:00:00:00:00:0{mac} dev 0\n");
    let of = |forwarder: &Forwarder| {
        let all = forwarder.main().hops().neighbours().map(|of| (of.address.to_string(), of.mac.0[5]));
        all.filter_map(|(address, mac)| Some((address.strip_prefix("192.0.2.")?.parse().ok()?, mac)))
            .collect::<Vec<(u8, u8)>>()
    };
    let mut forwarder = with_ports(false);
    let reload = |forwarder: &mut Forwarder| {
        let mut plan = plan(forwarder, &["192.0.2.1"]);
        plan.files = files(&[(DEFAULT, std::slice::from_ref(&file))]);
        reloaded(forwarder, plan, 1500).unwrap();
    };
    write(&format!("10.0.0.0/8 via 192.0.2.7\n{}{}", line(7, 1), line(8, 1)));
    reload(&mut forwarder);
    assert_eq!(of(&forwarder), [(7, 1), (8, 1)]);
    forwarder.vrf_mut(0).egress.add_neighbour(neighbour(8, 2)).unwrap();
    forwarder.vrf_mut(0).egress.add_neighbour(neighbour(9, 2)).unwrap();
    write(&format!("10.0.0.0/8 via 192.0.2.7\n{}{}", line(7, 3), line(8, 3)));
    reload(&mut forwarder);
    assert_eq!(of(&forwarder), [(7, 3), (8, 2), (9, 2)]);
    assert!(forwarder.vrf_mut(0).egress.remove_neighbour(IpAddr::from([192, 0, 2, 9])));
    assert!(forwarder.vrf_mut(0).egress.remove_neighbour(IpAddr::from([192, 0, 2, 8])));
    reload(&mut forwarder);
    assert_eq!(of(&forwarder), [(7, 3), (8, 3)], "the file's is back");
}

#[test]
fn a_tap_that_refuses_changes_nothing() {
    for mtu in [1400, 1600] {
        let mut forwarder = with_ports(true);
        let (before, egress) = (state(&forwarder), forwarder.main().egress.table().unwrap());
        let routes = forwarder.main().rib().v4.sorted();
        let mut plan = plan(&forwarder, &["192.0.2.7"]);
        plan.mtus = vec![(PortRef::Index(0), mtu)];
        plan.config = vec![value("port.p0.mtu", 2)];
        let mut told = Vec::new();
        let answer = reloaded_with(&mut forwarder, plan, &mut |port, mtu| {
            told.push((port, mtu));
            Ok(())
        });
        let why = answer.unwrap_err();
        assert!(why.contains("/nonexistent") && why.ends_with("; nothing was changed"), "{why}");
        assert_eq!(told, [(0, mtu), (0, 1500)]);
        assert_eq!(state(&forwarder), before);
        assert_eq!(forwarder.main().rib().v4.sorted(), routes);
        assert_eq!(egress.load().get(fib::NextHopId::new(1).unwrap()).mtu_bytes, 1500);
    }
}

#[test]
fn a_reload_names_an_mtu_that_could_not_be_restored() {
    for config in [with_ports(true).config, vec![value("forwarder.batch", 1), value("sources.fib", 1)]] {
        let mut forwarder = with_ports(true);
        forwarder.config.clone_from(&config);
        let mut plan = plan(&forwarder, &["192.0.2.7"]);
        plan.mtus = vec![(PortRef::Index(0), 1600)];
        let why = reloaded_with(&mut forwarder, plan, &mut |_, mtu| {
            anyhow::ensure!(mtu == 1600, "the device is busy");
            Ok(())
        });
        let why = why.unwrap_err();
        assert!(why.contains("/nonexistent") && !why.contains("nothing was changed"), "{why}");
        assert!(why.contains("the device is busy, and keeps 1600 bytes"), "{why}");
        assert_eq!(state(&forwarder).1, 1600);
        // It is in effect, and a reload of the old configuration changes it.
        let kept = ConfigValue { origin: "kept by the device".to_owned(), ..value("port.p0.mtu", 1600) };
        assert_eq!(forwarder.config, [value("forwarder.batch", 1), value("sources.fib", 1), kept]);
        assert_eq!(changed_paths(&forwarder.config, &config), ["port.p0.mtu"]);
    }
}

/// In a list of ports an index is the device's.
#[test]
fn a_kept_mtu_is_that_of_a_port_listed_by_the_index_of_its_device() {
    let mut forwarder = with_ports(true);
    let listed = ["port.1.device", "port.1.mtu", "port.0.device", "port.0.mtu"];
    forwarder.config = listed.map(|path| value(path, 1500)).into();
    let mut plan = plan(&forwarder, &["192.0.2.7"]);
    plan.mtus = vec![(PortRef::Index(0), 1600)];
    let refused = reloaded_with(&mut forwarder, plan, &mut |_, mtu| {
        anyhow::ensure!(mtu == 1600, "the device is busy");
        Ok(())
    });
    assert!(refused.is_err());
    let kept = ConfigValue { origin: "kept by the device".to_owned(), ..value("port.1.mtu", 1600) };
    assert!(forwarder.config.contains(&kept) && forwarder.config.contains(&value("port.0.mtu", 1500)));
    assert_eq!(forwarder.config.len(), 4);
}

#[test]
fn sources_are_preferred_as_the_configuration_says_now() {
    let mut forwarder = with_ports(false);
    let any = FeedSource::Fpm("127.0.0.1:0".parse().unwrap());
    let spec = FeedSpec { sources: vec![any, FeedSource::Files, FeedSource::Kernel], ..FeedSpec::default() };
    let feeds = Feeds::start(&spec).unwrap().unwrap();
    forwarder.set_feeds(feeds.over(Interfaces::default())).unwrap();
    assert_eq!(forwarder.source_order(), ["ctl", "fpm", "files", "kernel"]);
    // A source that the new configuration lacks runs until a restart, as the last one.
    for (order, wanted) in [
        (vec![FeedSource::Files, FeedSource::Kernel], ["ctl", "files", "kernel", "fpm"]),
        (vec![FeedSource::Kernel, any, FeedSource::Files], ["ctl", "kernel", "fpm", "files"]),
    ] {
        let plan = ReloadPlan { order: Some(order), ..plan(&forwarder, &["192.0.2.1"]) };
        reloaded(&mut forwarder, plan, 1500).unwrap();
        assert_eq!(forwarder.source_order(), wanted);
    }
    let same = plan(&forwarder, &["192.0.2.1"]);
    reloaded(&mut forwarder, same, 1500).unwrap();
    assert_eq!(forwarder.source_order(), ["ctl", "kernel", "fpm", "files"], "it stays");
}
