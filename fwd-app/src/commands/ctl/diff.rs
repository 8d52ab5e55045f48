//! `route diff`: compares the routes in service with a local route file.
//!
//! Both sides are sorted and merged part by part, so that only the file and one part of the list are in memory.

use super::{RemoteForwarder, show};
use crate::commands::tables;
use crate::console::grammar::RouteDiff;
use crate::datapath::egress::{Named, find_port};
use anyhow::Context as _;
use fib::feed::{Hop, RouteWords, parse_route};
use fib::{IpPrefix, NextHop, NextHopId, NextHopTable, PortRef, Prefix};
use serde::Deserialize;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[error(
    "the routes differ: {removed} of the file are not in service, {added} in service are not in the file"
)]
pub(super) struct RoutesDiffer {
    removed: u64,
    added: u64,
}

/// Prints the differences in order of prefix: `-` for routes of the file, `+` for routes in service.
///
/// # Errors
/// [`RoutesDiffer`], `FeedError` for the file, and the errors of [`RemoteForwarder::ask`].
pub(super) fn main(forwarder: &RemoteForwarder, diff: &RouteDiff) -> anyhow::Result<()> {
    let (rib, hops, _) = tables::load_rib(&[PathBuf::from(&diff.file)])?;
    let file = rib.starting_at(IpPrefix::V4(Prefix::DEFAULT));
    let has_ports = hops.iter().any(|(_, hop)| hop.with_ports(&|_| PortRef::ById) != *hop);
    let ports = if has_ports { known_ports(forwarder)? } else { Vec::new() };
    let mut merge = Merge::new(file, &hops, ports);
    let flow = forwarder.ask(&diff.list.to_string(), None, false, &mut |part| show(&merge.compare(part)?))?;
    if flow.is_break() {
        return Ok(()); // nobody reads the differences any more
    }
    let _ = show(&merge.end())?;
    match merge.differences {
        RoutesDiffer { removed: 0, added: 0 } => Ok(()),
        differ => Err(differ.into()),
    }
}

/// A port, with both names that routes may use for it. Its PCI device may have other ports, too.
#[derive(Deserialize)]
struct KnownPort {
    name: String,
    dpdk_name: String,
}

impl Named for KnownPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn device(&self) -> &str {
        &self.dpdk_name
    }
}

fn known_ports(forwarder: &RemoteForwarder) -> anyhow::Result<Vec<KnownPort>> {
    let mut all = Vec::new();
    let _ = forwarder.ask("show port info all", None, true, &mut |answer| {
        all = serde_json::from_str(answer).context("the forwarder does not list its ports")?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

struct Merge<'a, I: Iterator<Item = (IpPrefix, NextHopId)>> {
    file: Peekable<I>,
    hops: &'a NextHopTable,
    ports: Vec<KnownPort>,
    differences: RoutesDiffer,
}

impl<'a, I: Iterator<Item = (IpPrefix, NextHopId)>> Merge<'a, I> {
    /// `file` must be sorted, with its next hops in `hops`; `ports` are the forwarder's.
    fn new(file: I, hops: &'a NextHopTable, ports: Vec<KnownPort>) -> Self {
        Self { file: file.peekable(), hops, ports, differences: RoutesDiffer { removed: 0, added: 0 } }
    }

    /// Replaces port names by numbers, since a file and the forwarder may name the same port differently.
    fn by_number(&self, hop: &Hop) -> Hop {
        let number = |port: &PortRef| {
            let found = find_port(port, &self.ports, String::new).ok().flatten();
            found.map_or_else(|| port.clone(), PortRef::Index)
        };
        match hop {
            Hop::Id(id) => Hop::Id(*id),
            Hop::Hop(hop) => Hop::Hop(hop.with_ports(&number)),
        }
    }

    /// Compares the next lines of route text, which are sorted. Returns the lines of the differences.
    fn compare(&mut self, lines: &str) -> anyhow::Result<String> {
        let mut out = String::new();
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let (prefix, hop) = parse_route(line).with_context(|| format!("not a route: {line}"))?;
            self.remove_until(Some(prefix), &mut out);
            match self.file.next_if(|(next, _)| *next == prefix) {
                Some((_, id)) if self.by_number(&self.hop(id)) == self.by_number(&hop) => continue,
                Some((_, id)) => self.remove(prefix, id, &mut out),
                None => {}
            }
            self.differences.added += 1;
            let _ = writeln!(out, "+ {line}");
        }
        Ok(out)
    }

    fn end(&mut self) -> String {
        let mut out = String::new();
        self.remove_until(None, &mut out);
        out
    }

    /// Removes the file's routes before `prefix`, which are not in service.
    fn remove_until(&mut self, prefix: Option<IpPrefix>, out: &mut String) {
        while let Some((at, id)) = self.file.next_if(|(at, _)| prefix.is_none_or(|prefix| *at < prefix)) {
            self.remove(at, id, out);
        }
    }

    fn remove(&mut self, prefix: IpPrefix, id: NextHopId, out: &mut String) {
        self.differences.removed += 1;
        let _ = match self.hop(id) {
            Hop::Id(id) => writeln!(out, "- {prefix} {id}"),
            Hop::Hop(hop) => writeln!(out, "- {}", RouteWords { prefix, hop: &hop }),
        };
    }

    fn hop(&self, id: NextHopId) -> Hop {
        match self.hops.get(id) {
            None | Some(NextHop::Bare | NextHop::Moved(_)) => Hop::Id(self.hops.announced_id(id)),
            Some(hop) => Hop::Hop(hop.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::Rib;

    /// Differences between a file and the routes in service, passed one line at a time, and their counts.
    fn diff(file: &str, listed: &str) -> (String, u64, u64) {
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        for line in file.lines() {
            let (prefix, hop) = parse_route(line).unwrap();
            rib.set(prefix, hop.intern(&mut hops).unwrap());
        }
        let ports = r#"[
            {"port": 0, "name": "net_null0", "device": "net_null0", "dpdk_name": "net_null0"},
            {"port": 1, "name": "uplink", "device": "0000:03:00.0", "dpdk_name": "0000:03:00.0"},
            {"port": 2, "name": "0000:04:00.0_p0", "device": "0000:04:00.0", "dpdk_name": "0000:04:00.0_p0"},
            {"port": 3, "name": "lan", "device": "0000:04:00.0", "dpdk_name": "0000:04:00.0_p1"}
        ]"#;
        let ports = serde_json::from_str(ports).unwrap();
        let mut merge = Merge::new(rib.starting_at(IpPrefix::V4(Prefix::DEFAULT)), &hops, ports);
        let mut out = String::new();
        listed.lines().for_each(|line| out.push_str(&merge.compare(line).unwrap()));
        out.push_str(&merge.end());
        (out, merge.differences.removed, merge.differences.added)
    }

    #[test]
    fn differences_are_in_order_and_equal_tables_have_none() {
        let file = "10.0.0.0/8 7\n10.0.0.0/16 via 192.0.2.1 dev 1\nblackhole 10.1.0.0/16\n2001:db8::/32 via fe80::1 dev 2\n";
        assert_eq!(diff(file, file), (String::new(), 0, 0));
        assert_eq!(diff("", "# local 192.0.2.1/32\n"), (String::new(), 0, 0));
        let listed = "0.0.0.0/0 1\n10.0.0.0/8 8\n10.0.0.0/16 via 192.0.2.1 dev 1\nunreachable 10.1.0.0/16\n2001:db8::/33 9\n";
        let wanted = "+ 0.0.0.0/0 1\n- 10.0.0.0/8 7\n+ 10.0.0.0/8 8\n- blackhole 10.1.0.0/16\n+ unreachable 10.1.0.0/16\n\
                      - 2001:db8::/32 via fe80::1 dev 2\n+ 2001:db8::/33 9\n";
        assert_eq!(diff(file, listed), (wanted.to_owned(), 3, 4));
        assert_eq!(diff(file, "").1, 4);
    }

    #[test]
    fn a_port_is_the_same_by_number_name_and_device() {
        let names = ["1", "uplink", "0000:03:00.0", "03:00.0"];
        for (file, listed) in names.iter().flat_map(|file| names.map(|listed| (file, listed))) {
            let route = |port: &str| format!("10.0.0.0/8 via 192.0.2.1 dev {port}\n");
            assert_eq!(diff(&route(file), &route(listed)), (String::new(), 0, 0), "{file} {listed}");
            assert_eq!(diff(&route(file), &route("0")).1, 1, "{file}");
        }
    }

    #[test]
    fn the_ports_of_one_device_are_different_ports() {
        let route = |port: &str| format!("10.0.0.0/8 via 192.0.2.1 dev {port}\n");
        for (file, port) in [("0000:04:00.0_p0", "2"), ("04:00.0_p1", "3"), ("lan", "3")] {
            assert_eq!(diff(&route(file), &route(port)), (String::new(), 0, 0), "{file}");
            assert_eq!(diff(&route(file), &route(if port == "2" { "3" } else { "2" })).1, 1, "{file}");
        }
        assert_eq!(diff(&route("0000:04:00.0"), &route("2")).1, 1);
    }

    #[test]
    fn the_order_and_the_weights_of_paths_are_compared_as_values() {
        let group = |paths: &str| format!("10.0.0.0/8 {paths}\n");
        let one = group("nexthop via 192.0.2.1 dev 0 weight 1 nexthop via inet6 fe80::1 dev 1 weight 2");
        let other = group("nexthop via inet6 fe80::1 dev 1 weight 2 nexthop via 192.0.2.1 dev 0");
        assert_eq!(diff(&one, &other), (String::new(), 0, 0));
        assert_eq!(diff(&one, &other.replace("weight 2", "weight 3")).1, 1);
    }
}
