//! `route get`: source, next hop and neighbour of an address's route, and the path of a flow.

use super::neighbours::NeighbourShown;
use crate::console::desk::Steering;
use crate::console::{Answer, Refusal};
use crate::datapath::egress::PathState;
use crate::datapath::flow::Flow;
use crate::datapath::{DropReason, EgressTable, Exit};
use fib::{Keys, MacAddr, NextHop, NextHopId};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

/// Limit of routes followed from a gateway to its neighbour.
const DEPTH_MAX: usize = 8;

impl Steering<'_> {
    pub(in crate::console) fn route_get(
        &self,
        address: IpAddr,
        flow: Option<Flow>,
    ) -> Result<Answer, Refusal> {
        let vrf = self.vrf();
        let engine_id = self.looked_up(address)?.get();
        let Some((route, id)) = vrf.longest(address) else {
            return Ok(Answer::new(RouteShown { engine_id, ..RouteShown::default() }));
        };
        let table = vrf.egress.table();
        let table = table.as_ref().map(|table| table.load());
        // Without an answer of the router the neighbour's state is left out.
        let known = self.known_neighbours().unwrap_or_default();
        let towards = |id| Some(self.towards(table.as_deref()?, id, address, &known)).flatten();
        let hop = |id| self.hop_text(id);
        let paths = table.as_ref().and_then(|table| table.paths(id));
        let path_of = |flow: Flow| {
            let table = table.as_ref()?;
            let (path, _) = table.path_of(id, flow.hash(table.hash_key(), address)?);
            let next_hop = hop(path).unwrap_or_default();
            Some(FlowPath { id: vrf.hops().announced_id(path).get(), next_hop, towards: towards(path) })
        };
        Ok(Answer::new(RouteShown {
            prefix: Some(route.prefix.to_string()),
            id: route.id.get(),
            engine_id,
            next_hop: hop(id),
            source: route.origin.and_then(|origin| self.forwarder.source_name(origin.source)),
            metric: route.origin.map_or(0, |origin| origin.metric),
            stale: route.origin.is_some_and(|origin| origin.is_stale),
            towards: if paths.is_none() { towards(id) } else { None },
            flow_path: flow.and_then(path_of),
            paths: paths
                .into_iter()
                .flatten()
                .map(|PathState { id, weight, share }| PathShown {
                    id: id.get(),
                    next_hop: hop(id).unwrap_or_default(),
                    weight,
                    alive: share.is_some(),
                    share: share.unwrap_or(0.0),
                    towards: towards(id),
                })
                .collect(),
        }))
    }

    fn looked_up(&self, address: IpAddr) -> anyhow::Result<NextHopId> {
        let mut answer = [NextHopId::NONE];
        let mut reader = self.vrf().engine().reader(1, 1)?;
        match address {
            IpAddr::V4(address) => reader.lookup(Keys::V4(&[u32::from(address)]), &mut answer)?,
            IpAddr::V6(address) => {
                let key = u128::from(address);
                #[expect(clippy::cast_possible_truncation, reason = "the halves of an address")]
                let (hi, lo) = ([(key >> 64) as u64], [key as u64]);
                reader.lookup(Keys::V6 { hi: &hi, lo: &lo }, &mut answer)?
            }
        }
        Ok(answer[0])
    }

    /// Where the datapath sends packets to `address` with next hop `id`; `None` for the forwarder itself.
    fn towards(
        &self,
        table: &EgressTable,
        id: NextHopId,
        address: IpAddr,
        known: &[NeighbourShown],
    ) -> Option<Towards> {
        let mut entry = table.get(id);
        if Exit::from_word(entry.port) == Exit::Connected {
            entry = table.connected(id, address);
        }
        let (port, dropped) = match Exit::from_word(entry.port) {
            Exit::Local => return None,
            Exit::Port(port) => (Some(port), None),
            other => (None, other.drop_reason()),
        };
        // The gateway or the host itself; a bare id has none, its MAC follows from the number.
        let of = self.neighbour(table, id, address);
        let of = of.map(|(address, named)| (address, port.or(named)));
        let known = of.and_then(|(address, port)| {
            known.iter().find(|known| known.address == address && (port.is_none() || known.port == port))
        });
        let port = port.or(of.and_then(|(_, port)| port));
        let name =
            |port: u16| self.forwarder.ports().ports.get(usize::from(port)).map(|port| port.name.clone());
        let mac = entry.macs.first_chunk().map(|mac| MacAddr(*mac)).filter(|_| dropped.is_none());
        Some(Towards {
            dropped: dropped.map(DropReason::name),
            port,
            name: port.and_then(name),
            neighbour: of.map(|(address, _)| NeighbourOf {
                address,
                mac: mac.map(|mac| mac.to_string()),
                state: known.and_then(|known| known.state),
                origin: known.map(|known| known.origin),
            }),
            mac: mac.map(|mac| mac.to_string()),
        })
    }

    /// The neighbour that gets packets to `address` with next hop `id`, and its port if known.
    fn neighbour(
        &self,
        table: &EgressTable,
        id: NextHopId,
        address: IpAddr,
    ) -> Option<(IpAddr, Option<u16>)> {
        let (hops, mut id) = (self.vrf().hops(), id);
        for _ in 0..DEPTH_MAX {
            if let Some(wanted) = table.wanted(id, address) {
                return Some(wanted);
            }
            let gateway = hops.get(id).and_then(NextHop::gateway)?;
            if hops.neighbour(gateway).is_some() {
                return Some((gateway, None));
            }
            // A recursive gateway: continue with the route to it.
            id = self.vrf().rib().longest(gateway)?.1;
        }
        None
    }
}

#[derive(Serialize, Default)]
struct RouteShown {
    prefix: Option<String>,
    /// The id in the route file; 0 without a route.
    id: u32,
    engine_id: u32,
    next_hop: Option<String>,
    /// The source; `None` without a route, or when the engine has refused the source's newer route.
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    metric: u32,
    stale: bool,
    /// For a group, each path has its own.
    #[serde(flatten)]
    towards: Option<Towards>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_path: Option<FlowPath>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathShown>,
}

#[derive(Serialize)]
struct Towards {
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<&'static str>,
    port: Option<u16>,
    name: Option<String>,
    mac: Option<String>,
    /// The gateway or the host itself; `None` if the MAC follows from the next hop's number.
    neighbour: Option<NeighbourOf>,
}

#[derive(Serialize)]
struct NeighbourOf {
    address: IpAddr,
    mac: Option<String>,
    state: Option<&'static str>,
    origin: Option<&'static str>,
}

#[derive(Serialize)]
struct FlowPath {
    id: u32,
    next_hop: String,
    #[serde(flatten)]
    towards: Option<Towards>,
}

#[derive(Serialize)]
struct PathShown {
    id: u32,
    next_hop: String,
    weight: u16,
    alive: bool,
    /// The share of flows on it, 0 to 1.
    share: f64,
    #[serde(flatten)]
    towards: Option<Towards>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl fmt::Display for Towards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dropped, port, name, mac, neighbour } = self;
        if let Some(NeighbourOf { address, state, origin, .. }) = neighbour {
            write!(f, "neighbour {address} ")?;
            for word in [origin, state].into_iter().flatten() {
                write!(f, "{word} ")?;
            }
        }
        match (dropped, mac, port.zip(name.as_ref())) {
            (Some(reason), ..) => write!(f, "dropped as {reason}"),
            (None, Some(mac), Some((port, name))) => write!(f, "{mac} on port {port} ({name})"),
            (None, mac, _) => f.write_str(mac.as_deref().unwrap_or("")),
        }
    }
}

impl fmt::Display for RouteShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, id, engine_id, next_hop, source, metric, stale, towards, flow_path, paths } = self;
        let Some(prefix) = prefix else { return writeln!(f, "no route; the engine answers {engine_id}") };
        let hop = next_hop.as_deref().unwrap_or("a bare id");
        writeln!(f, "{prefix}  id {id} ({hop}); the engine answers {engine_id}")?;
        write!(f, "  source {}", source.unwrap_or("withdrawn; the engine has refused the new route"))?;
        if *metric > 0 {
            write!(f, ", metric {metric}")?;
        }
        writeln!(f, "{}", if *stale { ", stale" } else { "" })?;
        if let Some(towards) = towards {
            writeln!(f, "  {towards}")?;
        }
        for PathShown { id, next_hop, weight, alive, share, towards } in paths {
            let percent = share * 100.0;
            let state = if *alive { format!("{percent:.1} % of the flows") } else { "down".into() };
            write!(f, "  id {id} ({next_hop})  weight {weight}, {state}")?;
            towards.iter().try_for_each(|towards| write!(f, ", {towards}"))?;
            writeln!(f)?;
        }
        if let Some(FlowPath { id, next_hop, towards }) = flow_path {
            write!(f, "  the flow takes id {id} ({next_hop})")?;
            towards.iter().try_for_each(|towards| write!(f, ", {towards}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}
