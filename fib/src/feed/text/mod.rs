//! Route text, one route a line: `PREFIX ID`, iproute2's dialect, l3fwd's rules, neighbours.
//!
//! ```text
//! 192.0.2.0/24 17                               a bare next-hop id
//! 192.0.2.0/24 via 198.51.100.1 dev 1           iproute2; dev is a port's index or name, and is optional
//! default via fe80::1 dev eth0 proto ra         the gateway's family; without a gateway IPv4, or IPv6 if there is a `pref`
//! 192.0.2.0/24 dev 2                            connected: every destination is its own gateway
//! blackhole 192.0.2.0/24                        also unreachable and prohibit, which are reported to the sender
//! 192.0.2.0/24 proto static                     several paths, on separate lines or on this one
//!     nexthop via 198.51.100.1 dev 1 weight 2
//!     nexthop via 198.51.100.5 dev 2 weight 1
//! R192.0.2.0/24 0                               l3fwd: the port, from 0
//! neigh 198.51.100.1 lladdr 02:00:00:00:00:01 dev 1
//! ```
//!
//! `#` starts a comment. Words of iproute2 that do not affect forwarding (proto, mtu, ..) are ignored. Unsupported
//! words that do (encap, from, iif, ..), and unknown words, are errors.
//!
//! Routes in iproute2's form have a metric (`metric`, `priority` or `preference`). Its default is the kernel's: 0 for
//! IPv4 and 1024 for IPv6.

use super::collect::{Collected, FeedPlace};
use super::format::excerpt;
use super::lines::{LineWords, Lines};
use super::loaded::LoadProgress;
use super::{FeedError, Hop, LineError};
use crate::{Family, Group, IpPrefix, MacAddr, Neighbour, NextHop, NextHopId, PortRef, Prefix4};
use std::net::IpAddr;
use std::str::FromStr;

/// Words of a route without a value that do not affect forwarding.
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

/// Words of a route with a value that do not affect forwarding.
const SETTINGS: [&str; 27] = [
    "proto",
    "protocol",
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

/// The kernel's metric of IPv6 routes without one or with metric 0 (`IP6_RT_PRIO_USER`).
const METRIC_V6: u32 = 1024;

/// Words allowed after the prefix of a route, for error messages.
const ROUTE_WORDS: &str = "a next-hop id, 'via', 'dev', 'nexthop' or another word of `ip route`";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Prefix(IpPrefix),
    /// `default`: 0.0.0.0/0 or ::/0, depending on the rest of the route.
    Default,
}

impl Destination {
    pub(super) fn parse(text: &str) -> Result<Self, LineError> {
        if text == "default" { Ok(Self::Default) } else { Ok(Self::Prefix(text.parse()?)) }
    }

    pub(super) fn resolve(self, path: &PathWords) -> IpPrefix {
        match (self, path.default_family()) {
            (Self::Prefix(prefix), _) => prefix,
            (Self::Default, Family::V4) => IpPrefix::V4(crate::Prefix::DEFAULT),
            (Self::Default, Family::V6) => IpPrefix::V6(crate::Prefix::DEFAULT),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathWords {
    pub(super) gateway: Option<IpAddr>,
    /// Whether the gateway's family was given (`via inet6 ..`); it then differs from the route's.
    pub(super) gateway_family_named: bool,
    pub(super) port: Option<PortRef>,
    /// Whether the route has a `pref`, which only IPv6 routes have.
    pub(super) has_pref: bool,
    pub(super) weight: Option<u16>,
    pub(super) metric: Option<u32>,
}

pub(super) fn metric_of(prefix: IpPrefix, given: Option<u32>) -> u32 {
    match prefix.family() {
        Family::V4 => given.unwrap_or(0),
        Family::V6 => given.filter(|metric| *metric != 0).unwrap_or(METRIC_V6),
    }
}

impl PathWords {
    fn default_family(&self) -> Family {
        match (self.gateway, self.gateway_family_named) {
            (Some(gateway), named) if gateway.is_ipv4() == named => Family::V6,
            (None, _) if self.has_pref => Family::V6,
            _ => Family::V4,
        }
    }

    /// The next hop of the path, for a route of `prefix`; `None` if it has neither gateway nor port.
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

/// The paths of a route so far. The first one decides whether `default` is IPv4 or IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    destination: Destination,
    /// Whether the route has a `pref`, which its paths do not repeat.
    has_pref: bool,
    metric: Option<u32>,
    hops: Vec<(NextHop, u16)>,
}

impl Paths {
    /// A route with the words `own`, which are its first path if they have a gateway or a port.
    pub(super) fn new(destination: Destination, own: PathWords) -> Result<Self, LineError> {
        let (has_pref, metric) = (own.has_pref, own.metric);
        let mut paths = Self { destination, has_pref, metric, hops: Vec::new() };
        paths.add(own)?;
        Ok(paths)
    }

    /// Adds a path, if it has a gateway or a port. Returns whether it has.
    fn add(&mut self, path: PathWords) -> Result<bool, LineError> {
        let path = PathWords { has_pref: self.has_pref, ..path };
        let prefix = self.destination.resolve(&path);
        let weight = path.weight.unwrap_or(1);
        let Some(hop) = path.hop(prefix)? else { return Ok(false) };
        self.destination = Destination::Prefix(prefix);
        self.hops.push((hop, weight));
        Ok(true)
    }

    pub(super) fn add_nexthop(&mut self, path: PathWords) -> Result<(), LineError> {
        if self.add(path)? { Ok(()) } else { Err(LineError::NoNextHop) }
    }

    fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    pub(super) fn route(self) -> Result<(IpPrefix, Hop, u32), LineError> {
        match self.destination {
            Destination::Prefix(prefix) if !self.hops.is_empty() => {
                Ok((prefix, Hop::Hop(Group::next_hop(self.hops)?), metric_of(prefix, self.metric)))
            }
            _ => Err(LineError::NoNextHop),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextLine {
    /// A blank line or a comment.
    Nothing,
    /// A route, and its metric; `None` for forms without metrics.
    Route(IpPrefix, Hop, Option<u32>),
    /// A route whose next hops are on the following lines.
    Multipath(Paths),
    NextHop(PathWords),
    Neighbour(Neighbour),
}

pub(super) fn read(
    lines: &mut Lines,
    collected: &mut Collected,
    progress: &mut LoadProgress<'_>,
) -> Result<(), FeedError> {
    let mut open: Option<(u64, Paths)> = None;
    while lines.next_line()?.is_some() {
        let number = lines.number;
        if number.is_multiple_of(1024) {
            progress.tick(&lines.source);
        }
        let line = if let Some((prefix, id)) = quick(lines.line()) {
            TextLine::Route(prefix, Hop::Id(id), None)
        } else {
            parse(lines.line()).map_err(|error| lines.error_at(number, error))?
        };
        match line {
            TextLine::Nothing => continue,
            TextLine::NextHop(path) => {
                let Some((_, paths)) = &mut open else {
                    return Err(lines.error_at(number, LineError::StrayNextHop));
                };
                paths.add_nexthop(path).map_err(|error| lines.error_at(number, error))?;
                continue;
            }
            _ => {}
        }
        close(open.take(), lines, collected)?;
        match line {
            TextLine::Route(prefix, hop, metric) => {
                collected.add(prefix, hop, metric, FeedPlace::line(number))
            }
            TextLine::Multipath(paths) => open = Some((number, paths)),
            TextLine::Neighbour(neighbour) => collected.add_neighbour(neighbour),
            TextLine::Nothing | TextLine::NextHop(_) => {}
        }
    }
    close(open, lines, collected)
}

/// Collects a route whose paths were on separate lines. An error is reported in the line of its prefix.
fn close(open: Option<(u64, Paths)>, lines: &Lines, collected: &mut Collected) -> Result<(), FeedError> {
    let Some((start, paths)) = open else { return Ok(()) };
    let (prefix, hop, metric) = paths.route().map_err(|error| lines.error_at(start, error))?;
    collected.add(prefix, hop, Some(metric), FeedPlace::line(start));
    Ok(())
}

/// Parses an ordinary `PREFIX ID` line from the bytes: a full table is a million of them. `None` leaves it, and its errors, to [`parse`].
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

pub(super) fn parse(line: &[u8]) -> Result<TextLine, LineError> {
    let mut words = LineWords::new(line)?;
    let Some(first) = words.next() else { return Ok(TextLine::Nothing) };
    if let Some(prefix) = first.strip_prefix('R') {
        return l3fwd(prefix, words);
    }
    if let Some(hop) = NextHop::discarding(first) {
        let destination = Destination::parse(words.want("a prefix")?)?;
        let path = path(&mut words)?;
        words.end()?;
        let prefix = destination.resolve(&path);
        return Ok(TextLine::Route(prefix, Hop::Hop(hop), Some(metric_of(prefix, path.metric))));
    }
    match first {
        "neigh" => neighbour(words).map(TextLine::Neighbour),
        "nexthop" => {
            let path = path(&mut words)?;
            words.end()?;
            Ok(TextLine::NextHop(path))
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

/// Parses one route in the form of a line of route text: `PREFIX ID`, `PREFIX via GATEWAY dev PORT`, `blackhole PREFIX`.
///
/// # Errors
/// [`LineError`] for wrong words, and for any line other than one route.
pub fn parse_route(text: &str) -> Result<(IpPrefix, Hop), LineError> {
    only_route(parse(text.as_bytes())?, text, "a route")
}

/// Parses one neighbour in the form of a line of route text after `neigh`: `ADDR lladdr MAC dev PORT`.
///
/// # Errors
/// [`LineError`] for wrong words.
pub fn parse_neighbour(text: &str) -> Result<Neighbour, LineError> {
    neighbour(LineWords::new(text.as_bytes())?)
}

pub(super) fn only_route(
    line: TextLine,
    text: &str,
    wanted: &'static str,
) -> Result<(IpPrefix, Hop), LineError> {
    match line {
        TextLine::Route(prefix, hop, _) => Ok((prefix, hop)),
        TextLine::Multipath(_) => Err(LineError::NoNextHop),
        TextLine::Nothing | TextLine::NextHop(_) | TextLine::Neighbour(_) => {
            Err(LineError::word(text, wanted))
        }
    }
}

fn route(destination: &str, mut words: LineWords<'_>) -> Result<TextLine, LineError> {
    let destination = Destination::parse(destination)?;
    let mut ahead = words.clone();
    if let Some(id) = ahead.next()
        && id.trim_start_matches(['-', '+']).starts_with(|first: char| first.is_ascii_digit())
    {
        let id = bare_id(id)?;
        ahead.end()?;
        return Ok(TextLine::Route(destination.resolve(&PathWords::default()), Hop::Id(id), None));
    }
    let mut paths = Paths::new(destination, path(&mut words)?)?;
    // `nexthop`s on the same line, as `ip -o` writes them. If words are left, `path` stopped before a `nexthop`.
    while words.next().is_some() {
        paths.add_nexthop(path(&mut words)?)?;
    }
    if paths.is_empty() {
        return Ok(TextLine::Multipath(paths));
    }
    let (prefix, hop, metric) = paths.route()?;
    Ok(TextLine::Route(prefix, hop, Some(metric)))
}

fn digits<T: FromStr>(text: &str, wanted: &'static str) -> Result<T, LineError> {
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    number.ok_or_else(|| LineError::number(text, wanted))
}

pub(super) fn bare_id(text: &str) -> Result<NextHopId, LineError> {
    const WANTED: &str = "a next-hop id in 1..=16777215";
    NextHopId::new(digits(text, WANTED)?).map_err(|_| LineError::number(text, WANTED))
}

pub(super) fn l3fwd_port(text: &str) -> Result<Hop, LineError> {
    digits(text, "an l3fwd port in 0..=65535").map(|port| Hop::Hop(NextHop::Port { port }))
}

/// Parses the words of a route or of one of its nexthops, up to the end of the line or the next `nexthop`.
fn path(words: &mut LineWords<'_>) -> Result<PathWords, LineError> {
    let mut path = PathWords::default();
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
                return Err(LineError::word(word, "each word once in a route or nexthop"));
            }
            "pref" => {
                words.want("a value")?;
                path.has_pref = true;
            }
            "weight" => path.weight = Some(weight(words.want("a weight")?)?),
            "metric" | "priority" | "preference" => {
                path.metric = Some(digits(words.want("a metric")?, "a metric in 0..=4294967295")?);
            }
            _ if FLAGS.contains(&word) => {}
            _ if SETTINGS.contains(&word) => {
                // `mtu lock 1500`
                if words.want("a value")? == "lock" {
                    words.want("a value")?;
                }
            }
            _ => return Err(LineError::word(word, ROUTE_WORDS)),
        }
    }
}

pub(super) fn weight(text: &str) -> Result<u16, LineError> {
    let weight = text.parse().ok().filter(|weight| *weight > 0);
    weight.ok_or_else(|| LineError::number(text, "a weight in 1..=65535"))
}

/// A port by index or name. A name is one word without control characters and is no comment, so that it can be written as text.
pub(super) fn port_of(text: &str) -> Result<PortRef, LineError> {
    let is_word = text.split_ascii_whitespace().eq([text]) && !text.starts_with('#');
    if is_word && !text.contains(|c: char| c.is_ascii_control()) {
        Ok(PortRef::parse(text))
    } else {
        Err(LineError::word(text, "a port's index or its name"))
    }
}

pub(super) fn address(word: &'static str, text: &str) -> Result<IpAddr, LineError> {
    text.parse().map_err(|_| LineError::Address { word, text: excerpt(text) })
}

/// `R<prefix> <port>`, the port from 0.
fn l3fwd(prefix: &str, mut words: LineWords<'_>) -> Result<TextLine, LineError> {
    let prefix = prefix.parse()?;
    let port = l3fwd_port(words.want("a port")?)?;
    words.end()?;
    Ok(TextLine::Route(prefix, port, None))
}

/// `neigh ADDR lladdr MAC dev PORT`, in any order after the address, with the words that `ip neigh` adds.
fn neighbour(mut words: LineWords<'_>) -> Result<Neighbour, LineError> {
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
            _ => return Err(LineError::word(word, "'lladdr MAC' or 'dev PORT'")),
        }
    }
    Ok(Neighbour {
        address,
        port: port.ok_or(LineError::Missing { name: "dev" })?,
        mac: mac.ok_or(LineError::Missing { name: "lladdr" })?,
    })
}

#[cfg(test)]
mod tests;
