//! What a client asks a running forwarder for: a [`Request`], made from a line of words by [`crate::console::grammar`].
//!
//! A request is complete and well-formed, but says nothing about the forwarder: whether a port, an engine or a route exists is found
//! out by the one who answers. Its text form is a line of words that parses to the same request.

use crate::datapath::DropReason;
use crate::datapath::flow::{Flow, has_ports};
use fib::feed::{Hop, RouteWords};
use fib::{IpPrefix, MacAddr, Neighbour, PortRef};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;

/// One request to the forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// `show WHAT`.
    Show(Show),
    /// `vrf NAME WORDS..`: the same about one VRF.
    Vrf { name: String, request: Box<Self> },
    /// `show port WHAT [PORT|all]`.
    ShowPort { what: PortFacts, ports: Ports },
    /// `clear WHAT`.
    Clear(Clear),
    /// `clear port WHAT [PORT|all]`.
    ClearPort { what: PortCounters, ports: Ports },
    /// `clear neigh [ADDR]`: what was learned of one neighbour, or of all.
    ClearNeigh { address: Option<IpAddr> },
    /// `route get ADDR ..`: its route, and of a flow its path.
    RouteGet { address: IpAddr, flow: Option<Flow> },
    /// `route list ..`: routes in service, a slice of them.
    RouteList(RouteList),
    /// `route add PREFIX ..`; a route of the same prefix is replaced.
    RouteAdd { prefix: IpPrefix, hop: Hop },
    /// `route del PREFIX`.
    RouteDel { prefix: IpPrefix },
    /// `neigh add ADDR lladdr MAC dev PORT`.
    NeighAdd { address: IpAddr, mac: MacAddr, port: PortRef },
    /// `neigh del ADDR`.
    NeighDel { address: IpAddr },
    /// `start`: receive again.
    Start,
    /// `reload`: read the configuration and the route files again.
    Reload,
    /// `stop`: receive nothing. With `drain`, when no packets come any more, and the answer waits until all inside have left.
    Stop { drain: bool },
    /// `set engine NAME [key=value..]`.
    SetEngine { name: String, parameters: Vec<(String, String)>, force: bool },
    /// `set promisc PORT|all on|off`.
    SetPromiscuous { ports: Ports, on: bool },
    /// `set link PORT up|down`.
    SetLink { port: PortRef, up: bool },
    /// `set next-hop-counters on|off`.
    SetNextHopCounters { on: bool },
    /// `trace N [FILTERS..]`: how the next N packets are forwarded.
    Trace { packets: NonZeroU64, filter: WatchFilter },
    /// `capture drops FILE N [FILTERS..]`: the next N dropped packets, with their reasons. The client opens the file.
    CaptureDrops { file: String, packets: NonZeroU64, filter: WatchFilter },
    /// `capture stop`.
    CaptureStop,
}

/// Which routes `route list` lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteList {
    /// The route of this prefix alone.
    pub(crate) prefix: Option<IpPrefix>,
    /// Those of all more specific prefixes, too.
    pub(crate) longer: bool,
    /// Those of this source, one of [`SOURCES`].
    pub(crate) source: Option<&'static str>,
    /// Those that their feed has not announced again since it came back.
    pub(crate) stale: bool,
    /// Those after this prefix: where the slice before ended.
    pub(crate) after: Option<IpPrefix>,
}

/// The names of the sources of routes.
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

/// What `show` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Dropped packets by reason.
    Drops,
    /// The engine, its table and its figures.
    Engine,
    /// The table in service.
    Fib,
    /// Neighbours.
    Neigh,
    /// Latency percentiles.
    Latency,
    /// Lcores, and what they do.
    Lcores,
    /// Queues, and what they received.
    Queues,
    /// What ports, lcores and VRFs did over the last second and the last ten.
    Rates,
    /// How the forwarder is set up.
    Config,
    /// The summary so far, with the keys of the report.
    Stats,
    /// Routes by length.
    Routes,
    /// Where routes come from.
    Feeds,
    /// VRFs.
    Vrfs,
    /// Addresses of ports.
    Addresses,
    /// Packets and bytes by next hop.
    NextHops,
}

/// What `show port` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortFacts {
    /// Packets and bytes, as the driver counts them.
    Stats,
    /// The driver's own counters, by name.
    Xstats,
    /// Device, link, MTU, queues, offloads.
    Info,
}

/// What `clear` resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// Dropped packets by reason.
    Drops,
    /// The latency histogram.
    Latency,
}

/// What `clear port` resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortCounters {
    /// Packets and bytes.
    Stats,
    /// The driver's own counters.
    Xstats,
}

/// Which packets are looked at: those with all that is given here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchFilter {
    /// `port P`: the port that received them.
    pub(crate) port: Option<PortRef>,
    /// `vrf V`: the name of their VRF.
    pub(crate) vrf: Option<String>,
    /// `to PREFIX`: what their destination is in.
    pub(crate) to: Option<IpPrefix>,
    /// `reason R`: why they are dropped.
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

/// The ports that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Every port.
    All,
    /// One port.
    One(PortRef),
}

impl Show {
    /// Whether its answer is made in slices, since it may take long.
    pub(crate) fn is_counted(self) -> bool {
        matches!(self, Self::Fib | Self::Routes | Self::NextHops)
    }

    /// The word for it.
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
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Xstats => "xstats",
            Self::Info => "info",
        }
    }
}

impl Clear {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Drops => "drops",
            Self::Latency => "latency",
        }
    }
}

impl PortCounters {
    /// The word for it.
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
    /// Whether it is about one VRF, so that `vrf NAME` may stand before it.
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

    /// Whether it changes nothing and takes nothing from others, so that whoever may only read may ask.
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Self::Show(_) | Self::ShowPort { .. } | Self::RouteGet { .. } | Self::RouteList(_) => true,
            Self::Vrf { request, .. } => request.only_reads(),
            _ => false,
        }
    }

    /// Whether it needs a file that the client has opened.
    pub(crate) fn takes_file(&self) -> bool {
        matches!(self, Self::CaptureDrops { .. })
    }

    /// Whether it asks for another engine.
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

/// The words of a route, as in route text, but with the prefix before the word of a route that drops.
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
