//! Looks on at packets: `trace N`, whose answer waits for N packets, and `capture drops FILE N`, a pcapng file with the reason of
//! each drop as its comment, which the client opens. Both take filters, which lcores apply.

use super::Site;
use crate::console::{Answer, ClientCommand, Refusal};
use crate::datapath::check::{self, Destination};
use crate::datapath::watch::{Fate, PacketFilter, Purpose, Watch, WatchedPacket};
use crate::forwarder::Forwarder;
use crate::notice;
use anyhow::Context as _;
use fib::{MacAddr, NextHop, NextHopId};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long `trace` waits for its packets.
const TRACE_LIMIT: Duration = Duration::from_secs(3);
/// The most packets of a trace: each is several lines.
const TRACE_MAX: u64 = 100;
/// Time stamps of a capture are nanoseconds: 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Who looks on.
#[derive(Default)]
pub(super) struct Watching {
    trace: Option<Trace>,
    capture: Option<Capture>,
}

struct Trace {
    command: ClientCommand,
    packets: usize,
    shown: Vec<TraceShown>,
    end: Instant,
}

struct Capture {
    file: String,
    writer: PcapNgWriter<BufWriter<File>>,
    written: u64,
    watch: Arc<Watch>,
}

impl Drop for Watching {
    /// The forwarder ends.
    fn drop(&mut self) {
        self.capture.take().into_iter().for_each(Capture::end);
    }
}

impl Watching {
    /// Starts a trace, whose answer comes from a later [`Self::turn`].
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

    /// Starts a capture of the next `packets` dropped packets that match `filter` to `opened`, which messages call `file`.
    ///
    /// # Errors
    /// When the file cannot be written, or there is a capture.
    pub(super) fn capture(
        &mut self,
        (file, opened): (String, File),
        (packets, filter): (NonZeroU64, PacketFilter),
        watch: &Arc<Watch>,
        site: &Site,
    ) -> anyhow::Result<()> {
        if let Some(Capture { file, .. }) = &self.capture {
            anyhow::bail!("a capture to {file} is running; stop it first");
        }
        let writer = begin(opened, site).with_context(|| format!("cannot write {file}"))?;
        self.capture = Some(Capture { file, writer, written: 0, watch: Arc::clone(watch) });
        watch.want(Purpose::Capture, packets.get(), filter);
        Ok(())
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// When there is none, or the file cannot be written.
    pub(super) fn stop(&mut self) -> Result<Answer, Refusal> {
        let capture = self.capture.take().context("no capture is running")?;
        capture.watch.stop(Purpose::Capture);
        Ok(Answer::new(capture.finish()?))
    }

    /// Takes the packets that were seen; returns whether there were any. Those that nobody wants any more are not kept for whoever looks on
    /// next.
    pub(super) fn turn(&mut self, forwarder: &Forwarder, site: &Site) -> bool {
        let watch = forwarder.running().watch();
        let mut worked = false;
        while let Some(seen) = watch.next() {
            worked = true;
            match (seen.purpose, &mut self.trace, &mut self.capture) {
                (Purpose::Trace, Some(trace), _) => trace.shown.push(TraceShown::new(&seen, forwarder, site)),
                (Purpose::Capture, _, Some(capture)) => {
                    if let Err(error) = capture.write(&seen, site.tsc_hz) {
                        notice::warn(format_args!("{}: {error}; the capture ends", capture.file));
                        watch.stop(Purpose::Capture);
                        self.capture = None;
                    }
                }
                _ => {}
            }
            watch.give_back(seen);
        }
        let is_over = |trace: &mut Trace| trace.shown.len() >= trace.packets || Instant::now() >= trace.end;
        if let Some(Trace { command, shown, .. }) = self.trace.take_if(is_over) {
            watch.stop(Purpose::Trace);
            command.answer(Ok(Answer::new(TracesShown(shown))));
        }
        let is_over = |_: &mut Capture| watch.left(Purpose::Capture) == 0 && !worked;
        self.capture.take_if(is_over).into_iter().for_each(Capture::end);
        worked
    }
}

/// A capture file with the inputs as interfaces, and one more for packets on their way out. What `file` had before is gone.
fn begin(file: File, site: &Site) -> anyhow::Result<PcapNgWriter<BufWriter<File>>> {
    file.set_len(0)?;
    let mut writer = PcapNgWriter::new(BufWriter::new(file)).map_err(plain)?;
    let inputs = site.inputs.iter().map(|(port, queue)| format!("port {port} queue {queue}"));
    for name in inputs.chain(["tx".to_owned()]) {
        let options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        writer.write_pcapng_block(block).map_err(plain)?;
    }
    Ok(writer)
}

/// The I/O error inside a library's error.
fn plain(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => std::io::Error::other(other),
    }
}

impl Capture {
    fn write(&mut self, seen: &WatchedPacket, tsc_hz: u64) -> std::io::Result<()> {
        let reason = if let Fate::Dropped(reason) = seen.fate { reason.name() } else { "" };
        let last = self.writer.interfaces().len().saturating_sub(1);
        let input = seen.origin.input.filter(|_| !seen.is_leaving);
        let age =
            u128::from(dpdk_ffi::tsc().saturating_sub(seen.tsc)) * 1_000_000_000 / u128::from(tsc_hz.max(1));
        let age = Duration::from_nanos(u64::try_from(age).unwrap_or(0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let block = EnhancedPacketBlock {
            interface_id: u32::try_from(input.unwrap_or(last).min(last)).unwrap_or(0),
            timestamp: now.saturating_sub(age),
            original_len: seen.frame_bytes,
            data: seen.frame.as_slice().into(),
            options: vec![EnhancedPacketOption::Comment(reason.into())],
        };
        self.writer.write_pcapng_block(block).map_err(plain)?;
        self.written += 1;
        Ok(())
    }

    /// Closes the file, which nobody has asked for, and says so.
    fn end(self) {
        match self.finish() {
            Ok(done) => notice::post(done),
            Err(error) => notice::warn(format_args!("{error:#}")),
        }
    }

    fn finish(self) -> anyhow::Result<CaptureDone> {
        let Self { file, writer, written, watch } = self;
        writer.into_inner().flush().with_context(|| format!("cannot write {file}"))?;
        Ok(CaptureDone { file, written, missed: watch.missed() })
    }
}

#[derive(Serialize)]
struct CaptureDone {
    file: String,
    written: u64,
    /// Packets that no buffer was free for, since the start.
    missed: u64,
}

impl fmt::Display for CaptureDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, written, missed } = self;
        write!(f, "{file}: {written} dropped packets")?;
        if *missed > 0 {
            write!(f, ", {missed} missed")?;
        }
        Ok(())
    }
}

/// How one packet was forwarded, stage by stage.
#[derive(Serialize)]
struct TraceShown {
    /// Where it was received; `None` for a packet that this router has made.
    port: Option<u16>,
    name: Option<String>,
    queue: Option<u16>,
    bytes: u32,
    /// Source and destination; `None` when the packet is no IP packet.
    addresses: Option<(IpAddr, IpAddr)>,
    engine: &'static str,
    generation: u64,
    /// The route that covers the destination now.
    prefix: Option<String>,
    next_hop: Option<String>,
    id: Option<u32>,
    /// The path that it took, if the next hop is a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Where it leaves.
    out: Option<OutShown>,
    /// Why it was handed to the router, which decides what becomes of it.
    punted: Option<&'static str>,
    /// Why it was dropped.
    dropped: Option<&'static str>,
}

#[derive(Serialize)]
struct OutShown {
    port: u16,
    name: String,
    source: String,
    destination: String,
    /// The MTU of the port, if it leaves as fragments.
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
        // The verdict puts a path in place of its group.
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
            id: id.map(|id| vrf.hops().told(id).get()),
            out,
            punted,
            dropped,
        }
    }
}

/// The addresses of a packet that parse passed.
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
            return writeln!(f, "no such packet came in {} s", TRACE_LIMIT.as_secs());
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
                let prefix = packet.prefix.as_deref().unwrap_or("a route that is gone");
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
