//! [`Request`]: a parsed command for the forwarder, whose text form parses to the same request. The control thread checks whether a named
//! port, engine or route exists.

use crate::datapath::DropReason;
use crate::datapath::flow::{Flow, has_ports};
use fib::feed::{Hop, RouteWords};
use fib::{IpPrefix, MacAddr, Neighbour, PortRef};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// `show WHAT`.
    Show(Show),
    /// `vrf NAME WORDS..`: a request for one VRF.
    Vrf { name: String, request: Box<Self> },
    /// `show port WHAT [PORT|all]`.
    ShowPort { what: PortFacts, ports: Ports },
    /// `clear WHAT`.
    Clear(Clear),
    /// `clear port WHAT [PORT|all]`.
    ClearPort { what: PortCounters, ports: Ports },
    /// `clear neigh [ADDR]`: one learned neighbour, or all.
    ClearNeigh { address: Option<IpAddr> },
    /// `route get ADDR ..`: the route, and the path of a flow.
    RouteGet { address: IpAddr, flow: Option<Flow> },
    /// `route list ..`: a slice of the routes in service.
    RouteList(RouteList),
    /// `route add PREFIX ..`: replaces a route of the same prefix.
    RouteAdd { prefix: IpPrefix, hop: Hop },
    /// `route del PREFIX`.
    RouteDel { prefix: IpPrefix },
    /// `neigh add ADDR lladdr MAC dev PORT`.
    NeighAdd { address: IpAddr, mac: MacAddr, port: PortRef },
    /// `neigh del ADDR`.
    NeighDel { address: IpAddr },
    /// `start`: resume receiving.
    Start,
    /// `reload`: read the configuration and the route files again.
    Reload,
    /// `stop`: stop receiving. With `drain` only after arrivals have ended; the answer comes once all packets have left.
    Stop { drain: bool },
    /// `set engine NAME [key=value..]`.
    SetEngine { name: String, parameters: Vec<(String, String)>, force: bool },
    /// `set promisc PORT|all on|off`.
    SetPromiscuous { ports: Ports, on: bool },
    /// `set link PORT up|down`.
    SetLink { port: PortRef, up: bool },
    /// `set audit N`; 0 is off.
    SetAudit { one_in: u32 },
    /// `set next-hop-counters on|off`.
    SetNextHopCounters { on: bool },
    /// `trace N [FILTERS..]`: the forwarding of the next N packets.
    Trace { packets: NonZeroU64, filter: WatchFilter },
    /// `capture drops FILE N [FILTERS..]`: the next N dropped packets, with their reasons. The client opens the file.
    CaptureDrops { file: String, packets: NonZeroU64, filter: WatchFilter },
    /// `capture stop`.
    CaptureStop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteList {
    pub(crate) prefix: Option<IpPrefix>,
    /// More specific prefixes too.
    pub(crate) longer: bool,
    /// Only this source, one of [`SOURCES`].
    pub(crate) source: Option<&'static str>,
    /// Only routes that their feed has not announced since it reconnected.
    pub(crate) stale: bool,
    /// Only routes after this prefix, the end of the previous slice.
    pub(crate) after: Option<IpPrefix>,
}

pub(crate) const SOURCES: &[&str] = &["addresses", "ctl", "files", "fpm", "kernel"];

impl fmt::Display for RouteList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, longer, source, stale, after } = self;
        f.write_str("route list")?;
        prefix.iter().try_for_each(|prefix| write!(f, " {prefix}"))?;
        f.write_str(if *longer { " longer" } else { "" })?;
        source.iter().try_for_each(|source| write!(f, " source {source}"))?;
        f.write_str(if *stale { " stale" } else { "" })?;
        after.iter().try_for_each(|after| write!(f, " after {after}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Drops,
    Engine,
    Fib,
    Neigh,
    Latency,
    Lcores,
    Queues,
    /// Rates of ports, lcores and VRFs over the last second and the last ten.
    Rates,
    Config,
    /// The summary so far, with the keys of the report.
    Stats,
    Routes,
    Feeds,
    Vrfs,
    Addresses,
    NextHops,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortFacts {
    /// Packets and bytes, from the driver.
    Stats,
    /// The driver's own counters.
    Xstats,
    /// Device, link, MTU, queues, offloads.
    Info,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    Drops,
    Latency,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortCounters {
    Stats,
    Xstats,
}

/// A filter of packets; all given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchFilter {
    /// `port P`: the receiving port.
    pub(crate) port: Option<PortRef>,
    pub(crate) vrf: Option<String>,
    /// `to PREFIX`: contains the destination.
    pub(crate) to: Option<IpPrefix>,
    pub(crate) reason: Option<DropReason>,
}

impl fmt::Display for WatchFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, vrf, to, reason } = self;
        port.iter().try_for_each(|port| write!(f, " port {port}"))?;
        vrf.iter().try_for_each(|vrf| write!(f, " vrf {vrf}"))?;
        to.iter().try_for_each(|prefix| write!(f, " to {prefix}"))?;
        reason.iter().try_for_each(|reason| write!(f, " reason {reason}"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    All,
    One(PortRef),
}

impl Show {
    /// Whether its answer is counted in slices, since it may take long.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Feeds | Self::Fib | Self::Routes | Self::NextHops)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::Engine => "engine",
            Self::Fib => "fib",
            Self::Neigh => "neigh",
            Self::Latency => "latency",
            Self::Lcores => "lcores",
            Self::Queues => "queues",
            Self::Rates => "rates",
            Self::Config => "config",
            Self::Stats => "stats",
            Self::Routes => "routes",
            Self::Feeds => "feeds",
            Self::Vrfs => "vrfs",
            Self::Addresses => "addresses",
            Self::NextHops => "next-hops",
        }
    }
}

impl PortFacts {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Xstats => "xstats",
            Self::Info => "info",
        }
    }
}

impl Clear {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::Latency => "latency",
        }
    }
}

impl PortCounters {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Xstats => "xstats",
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::One(port) => port.fmt(f),
        }
    }
}

impl Request {
    pub(crate) fn is_about_vrf(&self) -> bool {
        match self {
            Self::Show(what) => {
                use Show::{Engine, Feeds, Fib, Neigh, NextHops, Routes};
                matches!(what, Engine | Fib | Neigh | Routes | Feeds | NextHops)
            }
            Self::ClearNeigh { .. }
            | Self::RouteGet { .. }
            | Self::RouteList(_)
            | Self::RouteAdd { .. }
            | Self::RouteDel { .. }
            | Self::NeighAdd { .. }
            | Self::NeighDel { .. }
            | Self::SetEngine { .. } => true,
            _ => false,
        }
    }

    /// Whether it is read-only and takes nothing from other clients, so that a user with read rights may send it.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Show(_) | Self::ShowPort { .. } | Self::RouteGet { .. } | Self::RouteList(_) => true,
            Self::Vrf { request, .. } => request.only_reads(),
            _ => false,
        }
    }

    pub(crate) fn takes_file(&self) -> bool {
        matches!(self, Self::CaptureDrops { .. })
    }

    pub(crate) fn sets_engine(&self) -> bool {
        match self {
            Self::SetEngine { .. } => true,
            Self::Vrf { request, .. } => request.sets_engine(),
            _ => false,
        }
    }
}

impl From<Neighbour> for Request {
    fn from(Neighbour { address, port, mac }: Neighbour) -> Self {
        Self::NeighAdd { address, mac, port }
    }
}

/// A route as in route text, but with the prefix before `blackhole`, `unreachable` or `prohibit`.
fn write_route(f: &mut fmt::Formatter<'_>, prefix: IpPrefix, hop: &Hop) -> fmt::Result {
    match hop {
        Hop::Id(id) => write!(f, "{prefix} {id}"),
        Hop::Hop(hop) if hop.discard_word().is_some() => write!(f, "{prefix} {hop}"),
        Hop::Hop(hop) => write!(f, "{}", RouteWords { prefix, hop }),
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Show(what) => write!(f, "show {}", what.name()),
            Self::Vrf { name, request } => write!(f, "vrf {name} {request}"),
            Self::ShowPort { what, ports } => write!(f, "show port {} {ports}", what.name()),
            Self::Clear(what) => write!(f, "clear {}", what.name()),
            Self::ClearPort { what, ports } => write!(f, "clear port {} {ports}", what.name()),
            Self::ClearNeigh { address: None } => f.write_str("clear neigh"),
            Self::ClearNeigh { address: Some(address) } => write!(f, "clear neigh {address}"),
            Self::RouteGet { address, flow: None } => write!(f, "route get {address}"),
            Self::RouteGet { address, flow: Some(flow) } => {
                let Flow { source, protocol, ports: [from, to], label } = flow;
                write!(f, "route get {address} from {source} proto {protocol}")?;
                if has_ports(*protocol) {
                    write!(f, " ports {from},{to}")?;
                }
                if *label > 0 { write!(f, " label {label}") } else { Ok(()) }
            }
            Self::RouteList(list) => list.fmt(f),
            Self::RouteAdd { prefix, hop } => {
                f.write_str("route add ")?;
                write_route(f, *prefix, hop)
            }
            Self::RouteDel { prefix } => write!(f, "route del {prefix}"),
            Self::NeighAdd { address, mac, port } => write!(f, "neigh add {address} lladdr {mac} dev {port}"),
            Self::NeighDel { address } => write!(f, "neigh del {address}"),
            Self::Start => f.write_str("start"),
            Self::Reload => f.write_str("reload"),
            Self::Stop { drain: false } => f.write_str("stop"),
            Self::Stop { drain: true } => f.write_str("stop --drain"),
            Self::SetEngine { name, parameters, force } => {
                write!(f, "set engine {name}")?;
                parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))?;
                if *force { f.write_str(" force") } else { Ok(()) }
            }
            Self::SetPromiscuous { ports, on } => {
                write!(f, "set promisc {ports} {}", if *on { "on" } else { "off" })
            }
            Self::SetLink { port, up } => write!(f, "set link {port} {}", if *up { "up" } else { "down" }),
            Self::SetAudit { one_in } => write!(f, "set audit {one_in}"),
            Self::SetNextHopCounters { on } => {
                write!(f, "set next-hop-counters {}", if *on { "on" } else { "off" })
            }
            Self::Trace { packets, filter } => write!(f, "trace {packets}{filter}"),
            Self::CaptureDrops { file, packets, filter } => {
                write!(f, "capture drops {file} {packets}{filter}")
            }
            Self::CaptureStop => f.write_str("capture stop"),
        }
    }
}
