//! `trace N`, which is answered after N packets, and `capture drops FILE N` ([`Captures`]). Lcores apply the filters of both.

use super::capture::Captures;
use super::site::Site;
use crate::console::{Answer, ClientCommand};
use crate::datapath::check::{self, Destination};
use crate::datapath::watch::{Fate, PacketFilter, Purpose, Watch, WatchedPacket};
use crate::forwarder::Forwarder;
use fib::{MacAddr, NextHop, NextHopId};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

const TRACE_LIMIT: Duration = Duration::from_secs(3);
/// Limit of packets per trace, each of which takes several lines.
const TRACE_MAX: u64 = 100;

#[derive(Default)]
pub(super) struct Watching {
    trace: Option<Trace>,
    pub(super) captures: Captures,
}

struct Trace {
    command: ClientCommand,
    packets: usize,
    shown: Vec<TraceShown>,
    end: Instant,
}

impl Watching {
    /// Starts a trace; a later [`Self::handle_packets`] answers.
    pub(super) fn trace(
        &mut self,
        command: ClientCommand,
        (packets, filter): (NonZeroU64, PacketFilter),
        watch: &Watch,
    ) {
        if self.trace.is_some() {
            return command.answer(Err(anyhow::anyhow!("another trace is running").into()));
        }
        let packets = packets.get().min(TRACE_MAX);
        let end = Instant::now() + TRACE_LIMIT;
        self.trace = Some(Trace { command, packets: packets as usize, shown: Vec::new(), end });
        watch.want(Purpose::Trace, packets, filter);
    }

    /// Handles watched packets; returns whether it found any. Packets without a receiver are discarded, not kept for the next one.
    pub(super) fn handle_packets(&mut self, forwarder: &Forwarder, site: &Site) -> bool {
        let watch = forwarder.running().watch();
        let mut worked = false;
        while self.captures.has_room()
            && let Some(seen) = watch.next()
        {
            worked = true;
            match (seen.purpose, &mut self.trace) {
                (Purpose::Trace, Some(trace)) => trace.shown.push(TraceShown::new(&seen, forwarder, site)),
                (Purpose::Trace, None) => {}
                (Purpose::Capture, _) => self.captures.capture(&seen, site.tsc_hz),
            }
            watch.give_back(seen);
        }
        let is_over = |trace: &mut Trace| trace.shown.len() >= trace.packets || Instant::now() >= trace.end;
        if let Some(Trace { command, shown, .. }) = self.trace.take_if(is_over) {
            watch.stop(Purpose::Trace);
            command.answer(Ok(Answer::new(TracesShown(shown))));
        }
        self.captures.advance(!worked && self.captures.has_room());
        worked
    }
}

#[derive(Serialize)]
struct TraceShown {
    /// The receiving port; `None` for a packet made by the router.
    port: Option<u16>,
    name: Option<String>,
    queue: Option<u16>,
    bytes: u32,
    addresses: Option<(IpAddr, IpAddr)>,
    engine: &'static str,
    generation: u64,
    /// The route that covers the destination now.
    prefix: Option<String>,
    next_hop: Option<String>,
    id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    out: Option<OutShown>,
    /// Why it was punted to the router, which decides its fate.
    punted: Option<&'static str>,
    dropped: Option<&'static str>,
}

#[derive(Serialize)]
struct OutShown {
    port: u16,
    name: String,
    source: String,
    destination: String,
    /// The port's MTU, if it leaves as fragments.
    #[serde(skip_serializing_if = "Option::is_none")]
    fragments_max: Option<u16>,
}

impl TraceShown {
    fn new(seen: &WatchedPacket, forwarder: &Forwarder, site: &Site) -> Self {
        let (port, queue) = seen.origin.input.and_then(|input| site.inputs.get(input).copied()).unzip();
        let (vrf, ports) = (forwarder.vrf(seen.origin.vrf.unwrap_or(0)), forwarder.ports());
        let addresses = addresses(&seen.frame, seen.frame_bytes);
        let id = seen.next_hop.map(NextHopId::from_answer).filter(|id| !id.is_none());
        let route = addresses.filter(|_| id.is_some()).and_then(|(_, to)| vrf.rib().longest(to));
        let hop = |id: NextHopId| vrf.hops().get(id).map(|hop| ports.shown(hop).to_string());
        // The verdict replaces a group by the chosen path.
        let group =
            route.map(|(_, id)| id).filter(|id| matches!(vrf.hops().get(*id), Some(NextHop::Group(_))));
        let group = group.filter(|group| Some(*group) != id);
        let path = group.and(id).and_then(hop);
        let id = group.or(id);
        let name = |port: u16| ports.ports.get(usize::from(port)).map(|port| port.name.clone());
        let mac = |bytes: &[u8]| bytes.try_into().map(|mac| MacAddr(mac).to_string()).unwrap_or_default();
        let out = |port: u16, macs: &[u8; 12], fragments_max| OutShown {
            port,
            name: name(port).unwrap_or_default(),
            destination: mac(&macs[..6]),
            source: mac(&macs[6..]),
            fragments_max,
        };
        let (out, punted, dropped) = match &seen.fate {
            Fate::Sent { port, macs, fragments_max } => (Some(out(*port, macs, *fragments_max)), None, None),
            Fate::Punted(punt) => (None, Some(punt.name()), None),
            Fate::Dropped(reason) => (None, None, Some(reason.name())),
        };
        Self {
            port,
            name: port.and_then(name),
            queue,
            bytes: seen.frame_bytes,
            addresses,
            engine: vrf.engine().info().name,
            generation: vrf.engine().generation().0,
            prefix: route.map(|(prefix, _)| prefix.to_string()),
            next_hop: id.and_then(hop),
            path,
            id: id.map(|id| vrf.hops().announced_id(id).get()),
            out,
            punted,
            dropped,
        }
    }
}

fn addresses(frame: &[u8], frame_bytes: u32) -> Option<(IpAddr, IpAddr)> {
    let checked = check::check(frame, frame_bytes).ok()?;
    let packet = frame.get(usize::from(checked.ip_at)..)?;
    Some(match checked.destination {
        Destination::V4(to) => {
            let from: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            (Ipv4Addr::from(from).into(), Ipv4Addr::from(to).into())
        }
        Destination::V6(to) => {
            let from: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            (Ipv6Addr::from(from).into(), Ipv6Addr::from(to).into())
        }
    })
}

#[derive(Serialize)]
struct TracesShown(Vec<TraceShown>);

impl fmt::Display for TracesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return writeln!(f, "no matching packet arrived within {} s", TRACE_LIMIT.as_secs());
        }
        for (number, packet) in (1..).zip(&self.0) {
            writeln!(f, "packet {number}")?;
            match (packet.port, &packet.name, packet.queue) {
                (Some(port), Some(name), Some(queue)) => {
                    write!(f, "  rx       port {port} ({name}) queue {queue}")?;
                }
                _ => write!(f, "  rx       made by this router")?,
            }
            writeln!(f, ", {} bytes", packet.bytes)?;
            if let Some((from, to)) = &packet.addresses {
                writeln!(f, "  parse    {from} > {to}")?;
            }
            if let Some(id) = packet.id {
                let prefix = packet.prefix.as_deref().unwrap_or("a withdrawn route");
                let hop = packet.next_hop.as_deref().unwrap_or("a bare id");
                let (engine, generation) = (packet.engine, packet.generation);
                writeln!(f, "  lookup   {engine}, generation {generation}: {prefix}, id {id} ({hop})")?;
            }
            if let Some(path) = &packet.path {
                writeln!(f, "  path     {path}")?;
            }
            if let Some(OutShown { port, name, source, destination, fragments_max }) = &packet.out {
                write!(f, "  verdict  port {port} ({name})")?;
                match fragments_max {
                    Some(mtu_bytes) => writeln!(f, ", as fragments of at most {mtu_bytes} bytes")?,
                    None => writeln!(f)?,
                }
                writeln!(f, "  rewrite  {source} > {destination}")?;
            }
            if let Some(why) = packet.punted {
                writeln!(f, "  verdict  to the router: {why}")?;
            }
            if let Some(reason) = packet.dropped {
                writeln!(f, "  dropped  {reason}")?;
            }
        }
        Ok(())
    }
}
