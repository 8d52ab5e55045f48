//! Route text, one route a line: `PREFIX ID`, iproute2's dialect, l3fwd's rules, neighbours.
//!
//! ```text
//! 192.0.2.0/24 17                               a bare next-hop id
//! 192.0.2.0/24 via 198.51.100.1 dev 1           iproute2; dev is a port's index or name, and is optional
//! default via fe80::1 dev eth0 proto ra         the gateway's family; without a gateway IPv4, or IPv6 if there is a `pref`
//! 192.0.2.0/24 dev 2                            connected: every destination is its own gateway
//! blackhole 192.0.2.0/24                        also unreachable and prohibit, whose senders may be told
//! 192.0.2.0/24 proto static                     several paths, on lines of their own or on this one
//!     nexthop via 198.51.100.1 dev 1 weight 2
//!     nexthop via 198.51.100.5 dev 2 weight 1
//! R192.0.2.0/24 0                               l3fwd: the port, from 0
//! neigh 198.51.100.1 lladdr 02:00:00:00:00:01 dev 1
//! ```
//!
//! `#` starts a comment. Words of iproute2 that do not change where a packet goes (proto, metric, mtu, ..) are ignored. Words
//! that do and are not supported (encap, from, iif, ..), and unknown words, are errors.

use super::collect::{Collected, Place};
use super::error::excerpt;
use super::lines::{Lines, Words};
use super::{FeedError, Hop, LineError, Progress};
use crate::{Family, Group, IpPrefix, MacAddr, Neighbour, NextHop, NextHopId, PortRef, Prefix4};
use std::net::IpAddr;

/// Words of a route that take no value and do not change where a packet goes.
const FLAGS: [&str; 13] = [
    "onlink",
    "linkdown",
    "dead",
    "pervasive",
    "offload",
    "offload_failed",
    "rt_offload",
    "rt_offload_failed",
    "rt_trap",
    "trap",
    "notify",
    "unresolved",
    "\\", // `ip -o` writes it in place of a line end
];

/// Words of a route that take a value and do not change where a packet goes.
const SETTINGS: [&str; 30] = [
    "proto",
    "protocol",
    "metric",
    "preference",
    "priority",
    "scope",
    "src",
    "table",
    "expires",
    "realm",
    "realms",
    "error",
    "mtu",
    "advmss",
    "window",
    "rtt",
    "rttvar",
    "rto_min",
    "reordering",
    "hoplimit",
    "initcwnd",
    "initrwnd",
    "ssthresh",
    "cwnd",
    "quickack",
    "congctl",
    "features",
    "fastopen_no_cookie",
    "nhid",
    "ttl-propagate",
];

/// Words allowed after the prefix of a route, for error messages.
const ROUTE_WORDS: &str = "a next-hop id, 'via', 'dev', 'nexthop' or another word of `ip route`";

/// The destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A prefix.
    Prefix(IpPrefix),
    /// `default`: 0.0.0.0/0 or ::/0, depending on the rest of the route.
    Default,
}

impl Destination {
    pub(super) fn parse(text: &str) -> Result<Self, LineError> {
        if text == "default" { Ok(Self::Default) } else { Ok(Self::Prefix(text.parse()?)) }
    }

    /// The prefix, for a route with this path.
    pub(super) fn resolve(self, path: &Path) -> IpPrefix {
        match (self, path.default_family()) {
            (Self::Prefix(prefix), _) => prefix,
            (Self::Default, Family::V4) => IpPrefix::V4(crate::Prefix::DEFAULT),
            (Self::Default, Family::V6) => IpPrefix::V6(crate::Prefix::DEFAULT),
        }
    }
}

/// The gateway and port that a route or one of its nexthops names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// The gateway.
    pub(super) gateway: Option<IpAddr>,
    /// Whether the gateway's family was given (`via inet6 ..`); it then differs from the route's.
    pub(super) gateway_family_named: bool,
    /// The port.
    pub(super) port: Option<PortRef>,
    /// Whether the route has a `pref`, which only IPv6 routes have.
    pub(super) has_pref: bool,
    /// Its weight, if it has one.
    pub(super) weight: Option<u16>,
}

impl Path {
    fn default_family(&self) -> Family {
        match (self.gateway, self.gateway_family_named) {
            (Some(gateway), named) if gateway.is_ipv4() == named => Family::V6,
            (None, _) if self.has_pref => Family::V6,
            _ => Family::V4,
        }
    }

    /// Where the path leads for a route of `prefix`; `None` when it has neither gateway nor port.
    pub(super) fn hop(self, prefix: IpPrefix) -> Result<Option<NextHop>, LineError> {
        Ok(match (self.gateway, self.port) {
            (Some(gateway), port) => {
                let family = prefix.family();
                if gateway.is_ipv4() != (family == Family::V4) && !self.gateway_family_named {
                    return Err(LineError::GatewayFamily { gateway, family });
                }
                Some(NextHop::Gateway { gateway, port: port.unwrap_or(PortRef::ById) })
            }
            (None, Some(port)) => Some(NextHop::Connected { port }),
            (None, None) => None,
        })
    }
}

/// The paths of a route so far. The first one decides what `default` means.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    destination: Destination,
    hops: Vec<(NextHop, u16)>,
}

impl Paths {
    /// No path yet.
    pub(super) const fn new(destination: Destination) -> Self {
        Self { destination, hops: Vec::new() }
    }

    /// Adds a path; nothing when it has neither gateway nor port. Returns whether it has.
    pub(super) fn add(&mut self, path: Path) -> Result<bool, LineError> {
        let prefix = self.destination.resolve(&path);
        let weight = path.weight.unwrap_or(1);
        let Some(hop) = path.hop(prefix)? else { return Ok(false) };
        self.destination = Destination::Prefix(prefix);
        self.hops.push((hop, weight));
        Ok(true)
    }

    /// Adds what a `nexthop` says.
    pub(super) fn add_nexthop(&mut self, path: Path) -> Result<(), LineError> {
        if self.add(path)? { Ok(()) } else { Err(LineError::NoNextHop) }
    }

    /// The route; `None` while there is no path.
    pub(super) fn route(self) -> Result<Option<(IpPrefix, Hop)>, LineError> {
        match self.destination {
            Destination::Prefix(prefix) if !self.hops.is_empty() => {
                Ok(Some((prefix, Hop::Hop(Group::next_hop(self.hops)?))))
            }
            _ => Ok(None),
        }
    }
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A blank line or a comment.
    Nothing,
    /// A route.
    Route(IpPrefix, Hop),
    /// A route whose next hops are on the following lines, and whether it has a `pref`.
    Multipath(Destination, bool),
    /// A next hop of the preceding route.
    NextHop(Path),
    /// A neighbour.
    Neighbour(Neighbour),
}

/// Reads a whole text feed.
pub(super) fn read(
    lines: &mut Lines,
    collected: &mut Collected,
    progress: &mut Progress<'_>,
) -> Result<(), FeedError> {
    // The current multipath route: its line, whether it has a `pref`, and its paths so far.
    let mut open: Option<(u64, bool, Paths)> = None;
    while lines.next_line()?.is_some() {
        let number = lines.number();
        if number.is_multiple_of(1024) {
            progress.tick(lines.source());
        }
        let line = if let Some((prefix, id)) = quick(lines.line()) {
            Line::Route(prefix, Hop::Id(id))
        } else {
            parse(lines.line()).map_err(|error| lines.error_at(number, error))?
        };
        match line {
            Line::Nothing => continue,
            Line::NextHop(path) => {
                let Some((_, has_pref, paths)) = &mut open else {
                    return Err(lines.error_at(number, LineError::StrayNextHop));
                };
                let path = Path { has_pref: *has_pref, ..path };
                paths.add_nexthop(path).map_err(|error| lines.error_at(number, error))?;
                continue;
            }
            _ => {}
        }
        close(open.take(), lines, collected)?;
        match line {
            Line::Route(prefix, hop) => collected.add(prefix, hop, Place::line(number)),
            Line::Multipath(destination, has_pref) => {
                open = Some((number, has_pref, Paths::new(destination)))
            }
            Line::Neighbour(neighbour) => collected.add_neighbour(neighbour),
            Line::Nothing | Line::NextHop(_) => {}
        }
    }
    close(open, lines, collected)
}

/// Collects a route whose paths were on lines of their own; an error is in the line that named its prefix.
fn close(
    open: Option<(u64, bool, Paths)>,
    lines: &Lines,
    collected: &mut Collected,
) -> Result<(), FeedError> {
    let Some((start, _, paths)) = open else { return Ok(()) };
    let route = paths.route().and_then(|route| route.ok_or(LineError::NoNextHop));
    let (prefix, hop) = route.map_err(|error| lines.error_at(start, error))?;
    collected.add(prefix, hop, Place::line(start));
    Ok(())
}

/// Fast path: parses an ordinary `PREFIX ID` line directly from the bytes. `None` leaves the line, and the report of any error in
/// it, to [`parse`]. A full table is a million such lines; with this, loading is dominated by the RIB.
fn quick(line: &[u8]) -> Option<(IpPrefix, NextHopId)> {
    let space = line.iter().position(|&byte| matches!(byte, b' ' | b'\t'))?;
    let (prefix, id) = (&line[..space], &line[space + 1..]);
    if id.len() > 8 {
        return None;
    }
    let id = NextHopId::new(number(id)?).ok()?;
    let slash = prefix.iter().rposition(|&byte| byte == b'/')?;
    if let Some(address) = quick_v4(&prefix[..slash]) {
        let len = u8::try_from(number(&prefix[slash + 1..])?).ok()?;
        return Some((IpPrefix::V4(Prefix4::new(address, len).ok()?), id));
    }
    Some((str::from_utf8(prefix).ok()?.parse().ok()?, id))
}

/// A decimal number of at most eight digits and no leading zero.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 8 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, &digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then_some(value * 10 + u32::from(digit))
    })
}

fn quick_v4(text: &[u8]) -> Option<u32> {
    let mut octets = text.split(|&byte| byte == b'.');
    let mut address = 0;
    for _ in 0..4 {
        let octet = number(octets.next()?)?;
        if octet > 255 {
            return None;
        }
        address = address << 8 | octet;
    }
    octets.next().is_none().then_some(address)
}

/// Reads one line of a route file.
pub(super) fn parse(line: &[u8]) -> Result<Line, LineError> {
    let mut words = Words::new(line)?;
    let Some(first) = words.next() else { return Ok(Line::Nothing) };
    if let Some(prefix) = first.strip_prefix('R') {
        return l3fwd(prefix, words);
    }
    if let Some(hop) = NextHop::discarding(first) {
        let destination = Destination::parse(words.want("a prefix")?)?;
        let path = path(&mut words)?;
        words.end()?;
        return Ok(Line::Route(destination.resolve(&path), Hop::Hop(hop)));
    }
    match first {
        "neigh" => neighbour(words).map(Line::Neighbour),
        "nexthop" => {
            let path = path(&mut words)?;
            words.end()?;
            Ok(Line::NextHop(path))
        }
        "unicast" => {
            let destination = words.want("a prefix")?;
            route(destination, words)
        }
        "local" | "broadcast" | "multicast" | "anycast" | "throw" | "nat" => {
            Err(LineError::RouteType { text: excerpt(first) })
        }
        _ => route(first, words),
    }
}

/// Parses one route, in the words of a line of route text: `PREFIX ID`, `PREFIX via GATEWAY dev PORT`, `blackhole PREFIX`.
///
/// # Errors
/// [`LineError`] for wrong words, and for a line that is something other than one route.
pub fn parse_route(text: &str) -> Result<(IpPrefix, Hop), LineError> {
    only_route(parse(text.as_bytes())?, text, "a route")
}

/// Parses one neighbour, in the words of a line of route text after `neigh`: `ADDR lladdr MAC dev PORT`.
///
/// # Errors
/// [`LineError`] for wrong words.
pub fn parse_neighbour(text: &str) -> Result<Neighbour, LineError> {
    neighbour(Words::new(text.as_bytes())?)
}

/// The route of a parsed line whose text is `text`.
pub(super) fn only_route(line: Line, text: &str, wanted: &'static str) -> Result<(IpPrefix, Hop), LineError> {
    match line {
        Line::Route(prefix, hop) => Ok((prefix, hop)),
        Line::Multipath(..) => Err(LineError::NoNextHop),
        Line::Nothing | Line::NextHop(_) | Line::Neighbour(_) => {
            Err(LineError::Word { text: excerpt(text), wanted })
        }
    }
}

/// Parses the rest of a route after its destination.
fn route(destination: &str, mut words: Words<'_>) -> Result<Line, LineError> {
    let destination = Destination::parse(destination)?;
    let mut ahead = words.clone();
    if let Some(id) = ahead.next()
        && id.trim_start_matches(['-', '+']).starts_with(|first: char| first.is_ascii_digit())
    {
        let id = bare_id(id)?;
        ahead.end()?;
        return Ok(Line::Route(destination.resolve(&Path::default()), Hop::Id(id)));
    }
    let own = path(&mut words)?;
    let has_pref = own.has_pref;
    let mut paths = Paths::new(destination);
    paths.add(own)?;
    // `nexthop`s on the same line, as `ip -o` writes them. If words are left, `path` has stopped before a `nexthop`.
    while words.next().is_some() {
        paths.add_nexthop(Path { has_pref, ..path(&mut words)? })?;
    }
    let route = paths.route()?;
    Ok(route.map_or(Line::Multipath(destination, has_pref), |(prefix, hop)| Line::Route(prefix, hop)))
}

/// A bare next-hop id.
pub(super) fn bare_id(text: &str) -> Result<NextHopId, LineError> {
    let id = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    id.and_then(|id| NextHopId::new(id).ok()).ok_or_else(|| LineError::Id { text: excerpt(text) })
}

/// Parses the words of a route or of one of its nexthops, up to the end of the line or the next `nexthop`.
fn path(words: &mut Words<'_>) -> Result<Path, LineError> {
    let mut path = Path::default();
    loop {
        let before = words.clone();
        let Some(word) = words.next() else { return Ok(path) };
        match word {
            "nexthop" => {
                *words = before;
                return Ok(path);
            }
            "via" if path.gateway.is_none() => {
                let mut text = words.want("a gateway")?;
                let family = match text {
                    "inet" => Some(Family::V4),
                    "inet6" => Some(Family::V6),
                    _ => None,
                };
                if family.is_some() {
                    text = words.want("a gateway")?;
                    path.gateway_family_named = true;
                }
                let gateway = address("via", text)?;
                if family.is_some_and(|family| gateway.is_ipv4() != (family == Family::V4)) {
                    return Err(LineError::Address { word: "via", text: excerpt(text) });
                }
                path.gateway = Some(gateway);
            }
            "dev" if path.port.is_none() => path.port = Some(port_of(words.want("a port")?)?),
            "via" | "dev" => {
                return Err(LineError::Word { text: excerpt(word), wanted: "it once in a route or nexthop" });
            }
            "pref" => {
                words.want("a value")?;
                path.has_pref = true;
            }
            "weight" => path.weight = Some(weight(words.want("a weight")?)?),
            _ if FLAGS.contains(&word) => {}
            _ if SETTINGS.contains(&word) => {
                // `mtu lock 1500`
                if words.want("a value")? == "lock" {
                    words.want("a value")?;
                }
            }
            _ => return Err(LineError::Word { text: excerpt(word), wanted: ROUTE_WORDS }),
        }
    }
}

/// The weight of a path.
pub(super) fn weight(text: &str) -> Result<u16, LineError> {
    let weight = text.parse().ok().filter(|weight| *weight > 0);
    weight.ok_or_else(|| LineError::Weight { text: excerpt(text) })
}

/// A port by index or name. A name must be one word without control characters that does not start a comment, so that it can be
/// written as text.
pub(super) fn port_of(text: &str) -> Result<PortRef, LineError> {
    let is_word = text.split_ascii_whitespace().eq([text]) && !text.starts_with('#');
    if is_word && !text.contains(|c: char| c.is_ascii_control()) {
        Ok(PortRef::parse(text))
    } else {
        Err(LineError::Word { text: excerpt(text), wanted: "a port's index or its name" })
    }
}

pub(super) fn address(word: &'static str, text: &str) -> Result<IpAddr, LineError> {
    text.parse().map_err(|_| LineError::Address { word, text: excerpt(text) })
}

/// `R<prefix> <port>`, the port from 0.
fn l3fwd(prefix: &str, mut words: Words<'_>) -> Result<Line, LineError> {
    let prefix = prefix.parse()?;
    let text = words.want("a port")?;
    let port = text
        .parse()
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| LineError::Port { text: excerpt(text) })?;
    words.end()?;
    Ok(Line::Route(prefix, Hop::Hop(NextHop::Port { port })))
}

/// `neigh ADDR lladdr MAC dev PORT`, in any order after the address, also with the words that `ip neigh` adds.
fn neighbour(mut words: Words<'_>) -> Result<Neighbour, LineError> {
    let address = address("neigh", words.want("an address")?)?;
    let (mut mac, mut port) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "lladdr" => mac = Some(words.want("a MAC address")?.parse::<MacAddr>()?),
            "dev" => port = Some(port_of(words.want("a port")?)?),
            "nud" | "proto" => {
                words.want("a value")?;
            }
            "router" | "extern_learn" | "REACHABLE" | "STALE" | "DELAY" | "PROBE" | "PERMANENT" | "NOARP" => {
            }
            _ => return Err(LineError::Word { text: excerpt(word), wanted: "'lladdr MAC' or 'dev PORT'" }),
        }
    }
    Ok(Neighbour {
        address,
        port: port.ok_or(LineError::Missing { name: "dev" })?,
        mac: mac.ok_or(LineError::Missing { name: "lladdr" })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    fn gateway(gateway: &str, port: PortRef) -> Hop {
        Hop::Hop(NextHop::Gateway { gateway: gateway.parse().unwrap(), port })
    }

    fn connected(port: PortRef) -> Hop {
        Hop::Hop(NextHop::Connected { port })
    }

    /// A group of gateways on ports, with their weights.
    fn group(paths: &[(&str, u16, u16)]) -> Hop {
        let hop = |gateway: &str, port| NextHop::Gateway {
            gateway: gateway.parse().unwrap(),
            port: PortRef::Index(port),
        };
        let paths = paths.iter().map(|(gateway, port, weight)| (hop(gateway, *port), *weight));
        Hop::Hop(Group::next_hop(paths).unwrap())
    }

    #[test]
    fn routes_of_every_dialect() {
        let id = |value| Hop::Id(NextHopId::new(value).unwrap());
        let eth0 = || PortRef::Name("eth0".to_owned());
        let l3fwd = |port| Hop::Hop(NextHop::Port { port });
        for (line, route, hop) in [
            ("192.0.2.0/24 1", "192.0.2.0/24", id(1)),
            ("  192.0.2.0/24\t16777215  # all ones", "192.0.2.0/24", id(0xff_ffff)),
            ("2001:db8::/32 7", "2001:db8::/32", id(7)),
            ("192.0.2.1 3", "192.0.2.1/32", id(3)),
            ("default 3", "0.0.0.0/0", id(3)),
            ("10.0.0.0/8 via 192.0.2.1 dev 1", "10.0.0.0/8", gateway("192.0.2.1", PortRef::Index(1))),
            ("10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8", gateway("192.0.2.1", PortRef::ById)),
            ("unicast 10.0.0.0/8 via 192.0.2.1 dev eth0", "10.0.0.0/8", gateway("192.0.2.1", eth0())),
            (
                "10.0.0.0/8 via 192.0.2.1 dev eth0 proto bird metric 32 mtu lock 1400 onlink",
                "10.0.0.0/8",
                gateway("192.0.2.1", eth0()),
            ),
            ("default via 192.0.2.1 dev eth0", "0.0.0.0/0", gateway("192.0.2.1", eth0())),
            ("default via fe80::1 dev eth0 pref medium", "::/0", gateway("fe80::1", eth0())),
            ("default via inet6 fe80::1 dev eth0", "0.0.0.0/0", gateway("fe80::1", eth0())),
            ("10.0.0.0/8 via inet6 fe80::1 dev eth0", "10.0.0.0/8", gateway("fe80::1", eth0())),
            ("192.0.2.0/24 dev eth0 scope link src 192.0.2.9", "192.0.2.0/24", connected(eth0())),
            ("default dev eth0", "0.0.0.0/0", connected(eth0())),
            ("default dev eth0 metric 1024 pref medium", "::/0", connected(eth0())),
            ("blackhole 10.0.0.0/8", "10.0.0.0/8", Hop::Hop(NextHop::Blackhole)),
            ("unreachable 10.0.0.0/8 metric 4294967295", "10.0.0.0/8", Hop::Hop(NextHop::Unreachable)),
            ("prohibit default dev lo error -13 pref medium", "::/0", Hop::Hop(NextHop::Prohibit)),
            (
                "default proto static nexthop via 192.0.2.1 dev 1 weight 1 nexthop via 192.0.2.2 dev 2 weight 1",
                "0.0.0.0/0",
                group(&[("192.0.2.1", 1, 1), ("192.0.2.2", 2, 1)]),
            ),
            (
                "10.0.0.0/8 proto static \\  nexthop via 192.0.2.1 dev 1 weight 5 \\  nexthop via 192.0.2.2 dev 2",
                "10.0.0.0/8",
                group(&[("192.0.2.1", 1, 5), ("192.0.2.2", 2, 1)]),
            ),
            (
                "10.0.0.0/8 via 192.0.2.1 dev 1 weight 2 nexthop via 192.0.2.1 dev 1 nexthop via 192.0.2.2 dev 2",
                "10.0.0.0/8",
                group(&[("192.0.2.1", 1, 3), ("192.0.2.2", 2, 1)]),
            ),
            ("10.0.0.0/8 nexthop dev 1 nexthop dev 1", "10.0.0.0/8", connected(PortRef::Index(1))),
            (
                "default pref medium nexthop via fe80::1 dev 1 nexthop via fe80::2 dev 2",
                "::/0",
                group(&[("fe80::1", 1, 1), ("fe80::2", 2, 1)]),
            ),
            ("R192.0.2.0/24 0", "192.0.2.0/24", l3fwd(0)),
            ("R2001:0db8:0000:0000:0000:0000:0000:0000/32 65535", "2001:db8::/32", l3fwd(65535)),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Line::Route(prefix(route), hop)), "{line}");
        }
    }

    #[test]
    fn neighbours_and_lines_that_say_nothing() {
        for line in ["", "   \t", "# 10.0.0.0/8 1", "   #", "#10.0.0.1/8"] {
            assert_eq!(parse(line.as_bytes()), Ok(Line::Nothing), "{line}");
        }
        let wanted = Neighbour {
            address: "192.0.2.1".parse().unwrap(),
            port: PortRef::Index(3),
            mac: MacAddr([2, 0, 0, 0, 0, 9]),
        };
        for line in [
            "neigh 192.0.2.1 lladdr 02:00:00:00:00:09 dev 3",
            "neigh 192.0.2.1 dev 3 lladdr 02:00:00:00:00:09 router REACHABLE # as ip neigh",
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(Line::Neighbour(wanted.clone())), "{line}");
        }
    }

    #[test]
    fn one_route_or_neighbour() {
        let route = parse_route("10.0.0.0/8 via 192.0.2.1 dev 1");
        assert_eq!(route, Ok((prefix("10.0.0.0/8"), gateway("192.0.2.1", PortRef::Index(1)))));
        assert_eq!(parse_route("10.0.0.0/8 proto static"), Err(LineError::NoNextHop));
        for text in ["", "# 10.0.0.0/8 1", "nexthop dev 1", "neigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev 1"]
        {
            assert!(matches!(parse_route(text), Err(LineError::Word { .. })), "{text}");
        }
        let neighbour = parse_neighbour("192.0.2.1 lladdr 02:00:00:00:00:09 dev 3").unwrap();
        assert_eq!((neighbour.port, neighbour.mac), (PortRef::Index(3), MacAddr([2, 0, 0, 0, 0, 9])));
        assert!(parse_neighbour("192.0.2.1").is_err() && parse_neighbour("").is_err());
    }

    #[test]
    fn wrong_lines_say_what_was_wanted() {
        for (line, message) in [
            ("10.0.0.1/8 1", "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
            ("10.0.0.0/33 1", "prefix length 33 is above 32"),
            ("10.0.0/8 1", "'10.0.0/8' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
            ("010.0.0.0/8 1", "'010.0.0.0/8' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
            ("10.0.0.0/8 0", "'0' is not a next-hop id in 1..=16777215"),
            ("10.0.0.0/8 16777216", "'16777216' is not a next-hop id in 1..=16777215"),
            (
                "10.0.0.0/8 99999999999999999999",
                "'99999999999999999999' is not a next-hop id in 1..=16777215",
            ),
            ("10.0.0.0/8 -1", "'-1' is not a next-hop id in 1..=16777215"),
            ("10.0.0.0/8 +1", "'+1' is not a next-hop id in 1..=16777215"),
            ("10.0.0.0/8 1x", "'1x' is not a next-hop id in 1..=16777215"),
            ("10.0.0.0/8 1 2", "'2' is not understood here, wanted the end of the line"),
            (
                "10.0.0.0/8 foo",
                "'foo' is not understood here, wanted a next-hop id, 'via', 'dev', 'nexthop' or another word of \
                 `ip route`",
            ),
            ("10.0.0.0/8 via", "'via' is the last word, wanted a gateway after it"),
            ("10.0.0.0/8 via # 1", "'via' is the last word, wanted a gateway after it"),
            ("10.0.0.0/8 via x dev 1", "'x' after 'via' is not an IP address"),
            ("10.0.0.0/8 via inet6 1.2.3.4", "'1.2.3.4' after 'via' is not an IP address"),
            (
                "10.0.0.0/8 via fe80::1 dev 1",
                "the gateway fe80::1 is not ipv4 as the route is; 'via inet6' says that this is meant",
            ),
            ("10.0.0.0/8 dev", "'dev' is the last word, wanted a port after it"),
            ("10.0.0.0/8 dev 1 dev 2", "'dev' is not understood here, wanted it once in a route or nexthop"),
            (
                "10.0.0.0/8 nexthop weight 1",
                "the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line",
            ),
            ("blackhole", "'blackhole' is the last word, wanted a prefix after it"),
            (
                "local 10.0.0.1 dev lo",
                "a 'local' route is not for forwarding, wanted unicast, blackhole, unreachable or prohibit",
            ),
            ("R10.0.0.0/8", "'R10.0.0.0/8' is the last word, wanted a port after it"),
            ("R10.0.0.0/8 65536", "'65536' is not an l3fwd port in 0..=65535"),
            ("R10.0.0.0/8 +1", "'+1' is not an l3fwd port in 0..=65535"),
            ("R10.0.0.1/8 1", "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8"),
            ("neigh 192.0.2.1 dev 1", "there is no 'lladdr'"),
            ("neigh 192.0.2.1 lladdr 02:00:00:00:00:01", "there is no 'dev'"),
            (
                "neigh 192.0.2.1 lladdr 2:0:0:0:0:1 dev 1",
                "'2:0:0:0:0:1' is not a MAC address such as 02:00:00:00:00:01",
            ),
            ("10.0.0.0/8 nexthop via 192.0.2.1 weight 0", "'0' is not a weight in 1..=65535"),
            ("10.0.0.0/8 nexthop via 192.0.2.1 weight 65536", "'65536' is not a weight in 1..=65535"),
            (
                "10.0.0.0/8 nexthop via 192.0.2.1 weight",
                "'weight' is the last word, wanted a weight after it",
            ),
            (
                "default nexthop via 192.0.2.1 nexthop via fe80::1",
                "the gateway fe80::1 is not ipv4 as the route is; 'via inet6' says that this is meant",
            ),
            ("w 10.0.0.0/8", "'w' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32"),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
        }
        assert_eq!(parse(b"10.0.0.0/8 \xff"), Err(LineError::NotText));
        let many: String = (0..65).map(|port| format!(" nexthop dev {port}")).collect();
        let error = parse(format!("10.0.0.0/8{many}").as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "a route has 1 to 64 paths, not 65");
        let encap = parse(b"10.0.0.0/8 encap mpls 100 via 192.0.2.1 dev 1");
        assert!(matches!(encap, Err(LineError::Word { text, .. }) if text == "encap"));
    }

    proptest::proptest! {
        /// Where the fast path returns a route, the slow path must return the same.
        #[test]
        fn the_quick_path_agrees(
            line in "(10|0|00|255|256|1\\.2|9)(\\.[0-9]{1,3}){3}(/[0-9]{0,3})?[ \t]{0,2}[0-9]{0,10} ?",
        ) {
            if let Some((prefix, id)) = quick(line.as_bytes()) {
                proptest::prop_assert_eq!(parse(line.as_bytes()), Ok(Line::Route(prefix, Hop::Id(id))));
            }
        }

        #[test]
        fn the_quick_path_takes_plain_lines(address: u32, len in 0..=32_u8, v6: u128, len6 in 0..=128_u8,
                                            id in 1..=0xff_ffff_u32) {
            let id = NextHopId::new(id).unwrap();
            let v4 = IpPrefix::V4(crate::Prefix::truncating(address, len));
            let v6 = IpPrefix::V6(crate::Prefix::truncating(v6, len6));
            for prefix in [v4, v6] {
                proptest::prop_assert_eq!(quick(format!("{prefix} {id}").as_bytes()), Some((prefix, id)));
            }
        }
    }
}
