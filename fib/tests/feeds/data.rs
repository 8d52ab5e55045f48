//! Feeds of real tables and updates from the folder in `FWD_DATA`. A test whose file is missing prints SKIPPED.

use crate::{LoadedTables, load, load_bytes};
use fib::feed::{self, Action, Format, Truncated, Update};
use fib::testing::data;
use fib::{IpPrefix, NextHop, PortRef};
use std::collections::HashMap;

#[test]
fn full_tables_have_all_their_routes() {
    for (name, routes_v4, routes_v6) in
        [("v4-202401.txt.xz", 901_899, 0), ("v6-202401.txt.xz", 0, 160_147), ("v4-201405.txt.xz", 512_621, 0)]
    {
        let Some([path]) = data([name]) else { continue };
        let (loaded, LoadedTables { rib, hops }) = load(&path).unwrap();
        assert_eq!((loaded.routes_v4, loaded.routes_v6), (routes_v4, routes_v6), "{name}");
        assert_eq!((rib.v4.len() as u64, rib.v6.len() as u64), (routes_v4, routes_v6), "{name}");
        assert_eq!((loaded.duplicates, loaded.format), (0, Format::Text), "{name}");
        assert!(hops.len() <= 255 && hops.iter().all(|(_, hop)| *hop == NextHop::Bare), "{name}");
    }
}

#[test]
fn a_full_table_comes_back_as_it_was_written() {
    let Some([path]) = data(["v6-202401.txt.xz"]) else { return };
    let (_, LoadedTables { rib, hops }) = load(&path).unwrap();
    let mut text = Vec::new();
    let options = feed::WriteOptions::default();
    feed::write(&mut text, feed::WriteFormat::Text, &rib, &hops, &options).unwrap();
    let (_, again) = load_bytes(&text, None).unwrap();
    assert_eq!(again.rib.v6.sorted(), rib.v6.sorted());
}

#[test]
fn a_collector_table_cut_in_its_compression_keeps_what_came_out() {
    let Some([path]) = data(["rib.20140523.0600_firstMB.bz2"]) else { return };
    let (loaded, LoadedTables { rib, hops }) = load(&path).unwrap();
    assert_eq!(loaded.format, Format::Mrt);
    // An independent decoder finds 9,072 complete prefixes after the PEER_INDEX_TABLE, and these gateways by the shortest path.
    assert_eq!(loaded.truncated, Some(Truncated { record: 9074, offset_bytes: 15_273_283 }));
    assert_eq!((rib.v4.len(), rib.v6.len(), loaded.duplicates, loaded.unusable), (9072, 0, 0, 0));
    assert_eq!(hops.len(), 29);
    for (prefix, gateway) in [("1.0.0.0/24", "4.69.184.193"), ("12.0.0.0/8", "12.0.1.63")] {
        let IpPrefix::V4(prefix) = prefix.parse().unwrap() else { continue };
        let hop = NextHop::Gateway { gateway: gateway.parse().unwrap(), port: PortRef::ById };
        assert_eq!(hops.get(rib.v4.get(prefix)), Some(&hop), "{prefix}");
    }
}

#[test]
fn mrt_updates_are_what_another_decoder_read() {
    let Some([mrt, text]) = data(["updates.20190101.0000.mrt.gz", "updates-ris-20190101.txt.xz"]) else {
        return;
    };
    let mut counts: HashMap<(bool, IpPrefix, Option<std::net::IpAddr>), i64> = HashMap::new();
    let mut tally = |path, step| {
        let mut updates = feed::updates(path, None).unwrap();
        let mut count = 0_u64;
        for update in &mut updates {
            let Update { prefix, action, peer, .. } = update.unwrap();
            *counts.entry((action == Action::Withdraw, prefix, peer)).or_default() += step;
            count += 1;
        }
        assert_eq!(updates.truncated(), None);
        count
    };
    let (in_text, in_mrt) = (tally(&text, 1), tally(&mrt, -1));
    counts.retain(|_, count| *count != 0);
    assert_eq!((in_text, in_mrt), (162_574, 162_574));
    assert!(counts.is_empty(), "{} differ", counts.len());
}

#[test]
fn one_peer_s_updates_have_next_hops() {
    let Some([path]) = data(["updates-linx-201412.txt.xz"]) else { return };
    let (mut announced, mut withdrawn, mut hops) = (0, 0, fib::NextHopTable::new());
    for update in feed::updates(&path, None).unwrap() {
        let update = update.unwrap();
        *if update.action == Action::Withdraw { &mut withdrawn } else { &mut announced } += 1;
        assert!(update.peer.is_none() && update.next_hop(&mut hops).is_ok());
    }
    // As `awk` counts them.
    assert_eq!((announced, withdrawn), (18_141, 5305));
    assert!(hops.iter().all(|(_, hop)| matches!(hop, NextHop::Gateway { port: PortRef::ById, .. })));
}
