//! `capture drops FILE N`: a pcapng file with the drop reason as each packet's comment.
//!
//! A separate thread writes the file, since every call on NFS or FUSE may block, `close` included. The control thread never waits for it,
//! and abandons a writer that hangs.

use super::capture_file;
use super::site::Site;
use crate::console::{Answer, ClientCommand};
use crate::datapath::egress::Named as _;
use crate::datapath::watch::{Fate, PacketFilter, Purpose, Watch, WatchedPacket};
use crate::notice;
use crate::threads::spawn;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, bounded};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Timeout for creating the file, and for writing and closing it.
const LIMIT: Duration = Duration::from_secs(3);
/// Packets queued to the writer, up to 2 KB each: several times a burst of all lcores. More are counted as missed.
const QUEUED_MAX: usize = 4096;
/// Number of abandoned writers at which captures are refused.
const LEFT_MAX: usize = 4;
/// `if_tsresol`: 10^-9 s.
const NANOSECONDS: u8 = 9;

#[derive(Default)]
pub(super) struct Captures {
    running: Option<Capture>,
    left: Vec<Writer>,
}

/// The thread that writes. It returns the number of packets.
type Writer = JoinHandle<anyhow::Result<u64>>;

type Output = Box<dyn Write + Send>;

struct Capture {
    file: String,
    wanted: (NonZeroU64, PacketFilter),
    watch: Arc<Watch>,
    /// Interface index of outgoing packets: the last one.
    leaving: usize,
    step: CaptureStep,
    since: Instant,
    waiting: Option<ClientCommand>,
    /// `None` once the capture is ending.
    packets: Option<Sender<CapturedPacket>>,
    /// Signalled once the file has its header.
    begun: Receiver<()>,
    writer: Writer,
    skipped: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CaptureStep {
    Beginning,
    Writing,
    Ending,
}

struct CapturedPacket {
    interface: u32,
    time: Duration,
    frame: Vec<u8>,
    frame_bytes: u32,
    reason: &'static str,
}

impl Drop for Captures {
    fn drop(&mut self) {
        let Some(mut capture) = self.running.take() else { return };
        capture.end(None);
        while !capture.writer.is_finished() && capture.since.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The end of the process ends an abandoned writer.
        let _ = capture.advance(false, &mut self.left);
    }
}

impl Captures {
    /// Captures the next matching dropped packets to `file`, called `name` in messages. A client is answered once the file has its
    /// header; without a client this call waits for that.
    ///
    /// # Errors
    /// Without a client: the file cannot be written.
    pub(super) fn start(
        &mut self,
        (name, file): (String, File),
        wanted: (NonZeroU64, PacketFilter),
        client: Option<ClientCommand>,
        watch: &Arc<Watch>,
        site: &Site,
    ) -> anyhow::Result<()> {
        let title = |port: u16| site.ports.get(usize::from(port)).map(|named| named.title(port));
        let input =
            |(port, queue): &(u16, u16)| format!("{} queue {queue}", title(*port).unwrap_or_default());
        let interfaces = site.inputs.iter().map(input).chain(["tx".to_owned()]).collect();
        if let Some(refusal) = self.refusal() {
            close(file);
            return refuse(client, refusal);
        }
        let open = move || {
            capture_file::check(&file)?;
            file.set_len(0)?;
            Ok(Box::new(file) as Output)
        };
        self.start_to(name, open, interfaces, (wanted, client), watch)
    }

    fn refusal(&mut self) -> Option<anyhow::Error> {
        self.left.retain(|writer| !writer.is_finished());
        match &self.running {
            Some(Capture { file, .. }) => {
                Some(anyhow::anyhow!("a capture to {file} is running; stop it first"))
            }
            None if self.left.len() >= LEFT_MAX => {
                Some(anyhow::anyhow!("{LEFT_MAX} earlier captures still wait to write their files"))
            }
            None => None,
        }
    }

    fn start_to(
        &mut self,
        file: String,
        open: impl FnOnce() -> anyhow::Result<Output> + Send + 'static,
        interfaces: Vec<String>,
        (wanted, client): ((NonZeroU64, PacketFilter), Option<ClientCommand>),
        watch: &Arc<Watch>,
    ) -> anyhow::Result<()> {
        let leaving = interfaces.len().saturating_sub(1);
        let (packets, to_write) = bounded(QUEUED_MAX);
        let (begin, begun) = bounded(1);
        let waits = client.is_none();
        let writer = match spawn("capture", move || write(open, interfaces, &begin, &to_write)) {
            Ok(writer) => writer,
            Err(error) => return refuse(client, anyhow::Error::from(error)),
        };
        let mut capture = Capture {
            file,
            wanted,
            watch: Arc::clone(watch),
            leaving,
            step: CaptureStep::Beginning,
            since: Instant::now(),
            waiting: client,
            packets: Some(packets),
            begun,
            writer,
            skipped: 0,
        };
        if waits {
            if capture.begun.recv().is_err() {
                return capture.outcome().map(drop);
            }
            capture.write();
        }
        self.running = Some(capture);
        Ok(())
    }

    /// Ends the capture. The client is answered once the file is closed.
    pub(super) fn stop(&mut self, client: ClientCommand) {
        match &mut self.running {
            Some(capture) if capture.step != CaptureStep::Ending => capture.end(Some(client)),
            Some(capture) if capture.waiting.is_none() => capture.waiting = Some(client),
            Some(_) => client.answer(Err(anyhow::anyhow!("the capture is ending").into())),
            None => client.answer(Err(anyhow::anyhow!("no capture is running").into())),
        }
    }

    /// Whether the writer has room for a packet. Without room, packets stay in the buffers of the lcores, which count missed packets.
    pub(super) fn has_room(&self) -> bool {
        let packets = self.running.as_ref().and_then(|capture| capture.packets.as_ref());
        packets.is_none_or(|packets| !packets.is_full())
    }

    pub(super) fn capture(&mut self, seen: &WatchedPacket, tsc_hz: u64) {
        if let Some(capture) = &mut self.running {
            capture.capture(seen, tsc_hz);
        }
    }

    /// Advances the capture without blocking. `is_idle`: no packet was seen since the last call.
    pub(super) fn advance(&mut self, is_idle: bool) {
        self.running = self.running.take().and_then(|capture| capture.advance(is_idle, &mut self.left));
    }
}

impl Capture {
    fn write(&mut self) {
        self.step = CaptureStep::Writing;
        let (packets, filter) = self.wanted;
        self.watch.want(Purpose::Capture, packets.get(), filter);
        if let Some(client) = self.waiting.take() {
            client.answer(Ok(Answer::done()));
        }
    }

    /// Stops the flow of packets; `client` waits for the writer.
    fn end(&mut self, client: Option<ClientCommand>) {
        self.watch.stop(Purpose::Capture);
        (self.step, self.since, self.packets) = (CaptureStep::Ending, Instant::now(), None);
        if let Some(before) = std::mem::replace(&mut self.waiting, client) {
            before.answer(Err(anyhow::anyhow!("the capture was stopped").into()));
        }
    }

    fn capture(&mut self, seen: &WatchedPacket, tsc_hz: u64) {
        let Some(packets) = &self.packets else { return };
        let input = seen.origin.input.filter(|_| !seen.is_leaving);
        let age =
            u128::from(dpdk_ffi::tsc().saturating_sub(seen.tsc)) * 1_000_000_000 / u128::from(tsc_hz.max(1));
        let age = Duration::from_nanos(u64::try_from(age).unwrap_or(0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let packet = CapturedPacket {
            interface: u32::try_from(input.unwrap_or(self.leaving).min(self.leaving)).unwrap_or(0),
            time: now.saturating_sub(age),
            frame: seen.frame.clone(),
            frame_bytes: seen.frame_bytes,
            reason: if let Fate::Dropped(reason) = seen.fate { reason.name() } else { "" },
        };
        // The next turn notices a failed writer.
        self.skipped += u64::from(packets.try_send(packet).is_err());
    }

    /// Advances the capture; returns `None` when it is over.
    fn advance(mut self, is_idle: bool, left: &mut Vec<Writer>) -> Option<Self> {
        if self.writer.is_finished() {
            self.watch.stop(Purpose::Capture);
            let client = self.waiting.take();
            match (client, self.outcome()) {
                (Some(client), outcome) => client.answer(outcome.map(Answer::new).map_err(Into::into)),
                (None, Ok(done)) => notice::post(done),
                (None, Err(error)) => notice::warn(format_args!("{error:#}; the capture ends")),
            }
            return None;
        }
        match self.step {
            CaptureStep::Beginning if self.begun.try_recv().is_ok() => self.write(),
            CaptureStep::Writing if is_idle && self.watch.left(Purpose::Capture) == 0 => self.end(None),
            CaptureStep::Beginning | CaptureStep::Ending if self.since.elapsed() >= LIMIT => {
                self.watch.stop(Purpose::Capture);
                let error = anyhow::anyhow!(
                    "{} takes no data; packets that are not yet written may be lost",
                    self.file
                );
                match self.waiting.take() {
                    Some(client) => client.answer(Err(error.into())),
                    None => notice::warn(error),
                }
                left.push(self.writer);
                return None;
            }
            _ => {}
        }
        Some(self)
    }

    fn outcome(self) -> anyhow::Result<CaptureDone> {
        let Self { file, writer, watch, skipped, .. } = self;
        let joined =
            writer.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that writes has panicked")));
        let written = joined.with_context(|| format!("cannot write {file}"))?;
        Ok(CaptureDone { file, written, missed: watch.missed() + skipped })
    }
}

/// Closes a client's file on a thread that may block.
pub(super) fn close(file: File) {
    // Without a thread it is closed here.
    drop(spawn("capture", move || drop(file)));
}

fn refuse(client: Option<ClientCommand>, why: anyhow::Error) -> anyhow::Result<()> {
    let Some(client) = client else { return Err(why) };
    client.answer(Err(why.into()));
    Ok(())
}

/// Body of the writer: writes the header with these interfaces, then packets until the channel closes. Returns their number.
fn write(
    open: impl FnOnce() -> anyhow::Result<Output>,
    interfaces: Vec<String>,
    begun: &Sender<()>,
    packets: &Receiver<CapturedPacket>,
) -> anyhow::Result<u64> {
    let mut writer = PcapNgWriter::new(BufWriter::new(open()?)).map_err(plain)?;
    for name in interfaces {
        let options = vec![
            InterfaceDescriptionOption::IfName(name.into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        writer.write_pcapng_block(block).map_err(plain)?;
    }
    // The receiver may have timed out.
    let _ = begun.send(());
    let mut written = 0;
    for CapturedPacket { interface, time, frame, frame_bytes, reason } in packets {
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: time,
            original_len: frame_bytes,
            data: frame.into(),
            options: vec![EnhancedPacketOption::Comment(reason.into())],
        };
        writer.write_pcapng_block(block).map_err(plain)?;
        written += 1;
    }
    writer.into_inner().flush()?;
    Ok(written)
}

fn plain(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => std::io::Error::other(other),
    }
}

#[derive(Debug, Serialize)]
struct CaptureDone {
    file: String,
    written: u64,
    /// Packets without a free buffer since the start, or above the writer's queue.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::Inbox;
    use crate::console::client::{self, ClientError};
    use crate::console::server::wire::{Ask, Reply};
    use crate::console::server::{Limits, Server};
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A stream whose buffer is full and whose peer does not read.
    fn full() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4096]).is_ok() {}
        ours.set_nonblocking(false).unwrap();
        (ours, theirs)
    }

    fn start(
        captures: &mut Captures,
        client: ClientCommand,
        open: impl FnOnce() -> anyhow::Result<Output> + Send + 'static,
    ) {
        let wanted = (NonZeroU64::new(9).unwrap(), PacketFilter::default());
        captures
            .start_to("x".to_owned(), open, vec!["tx".to_owned()], (wanted, Some(client)), &Arc::default())
            .unwrap();
    }

    struct CaptureRig {
        captures: Captures,
        inbox: Inbox,
        path: PathBuf,
        _server: Server,
        scratch: TempDir,
    }

    impl CaptureRig {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("x.sock");
            let (server, inbox) = Server::start(&path, Limits::default()).unwrap();
            Self { captures: Captures::default(), inbox, path, _server: server, scratch }
        }

        /// Sends `line` as a client, passes the command to `serve`, and takes turns until the client has its reply.
        fn ask(&mut self, line: &str, serve: impl FnOnce(&mut Captures, ClientCommand)) -> Reply {
            let ask = Ask { line: line.to_owned(), json: false };
            let path = self.path.clone();
            let client = std::thread::spawn(move || -> Result<Reply, ClientError> {
                client::ask(&path, &ask, None, Duration::from_secs(30))
            });
            let command = loop {
                if let Some(command) = self.inbox.next(true) {
                    break command;
                }
                std::thread::yield_now();
            };
            serve(&mut self.captures, command);
            while !client.is_finished() {
                self.captures.advance(true);
                std::thread::sleep(Duration::from_millis(1));
            }
            client.join().unwrap().unwrap()
        }
    }

    #[test]
    fn a_file_that_takes_no_data_holds_up_neither_clients_nor_the_end() {
        let mut rig = CaptureRig::new();
        // The header fits the buffer, so the capture starts; closing blocks.
        let begin = |rig: &mut CaptureRig| {
            let (ours, theirs) = full();
            let open = move || Ok(Box::new(ours) as Output);
            let begun = rig.ask("start", |captures, client| start(captures, client, open));
            assert!(begun.ok, "{begun:?}");
            theirs
        };
        let stop = |rig: &mut CaptureRig| {
            let stopped = rig.ask("capture stop", Captures::stop);
            assert!(stopped.error.as_ref().unwrap().contains("x takes no data"), "{stopped:?}");
        };
        let mut others = vec![begin(&mut rig)];
        stop(&mut rig);
        assert!(rig.captures.running.is_none() && rig.captures.left.len() == 1);
        // A file whose `open` hangs.
        let (never, forever) = bounded::<()>(0);
        let open = move || {
            let _ = forever.recv();
            anyhow::bail!("it has ended")
        };
        let begun = rig.ask("start", |captures, client| start(captures, client, open));
        assert!(begun.error.as_ref().unwrap().contains("x takes no data"), "{begun:?}");
        while rig.captures.left.len() < LEFT_MAX {
            assert!(rig.captures.refusal().is_none());
            others.push(begin(&mut rig));
            stop(&mut rig);
        }
        assert!(rig.captures.refusal().unwrap().to_string().contains("still wait to write"));
        drop(never);
        others.clear();
        while rig.captures.refusal().is_some() {
            std::thread::yield_now();
        }
        let _other = begin(&mut rig);
        let ended = Instant::now();
        drop(rig.captures);
        assert!(ended.elapsed() < LIMIT * 3, "the forwarder ends");
    }

    #[test]
    fn a_capture_that_ends_by_itself_or_fails_is_over() {
        let mut rig = CaptureRig::new();
        let file = rig.scratch.path().join("file");
        let failing = || anyhow::bail!("no room");
        let begun = rig.ask("start", |captures, client| start(captures, client, failing));
        assert_eq!(begun.error.unwrap(), "cannot write x: no room");
        let output = File::create(&file).unwrap();
        let open = move || Ok(Box::new(output) as Output);
        let begun = rig.ask("start", |captures, client| start(captures, client, open));
        assert!(
            begun.ok && rig.captures.refusal().unwrap().to_string().contains("a capture to x is running")
        );
        let stopped = rig.ask("capture stop", Captures::stop);
        assert_eq!(stopped.text.unwrap(), "x: 0 dropped packets");
        assert!(std::fs::metadata(&file).unwrap().len() > 0);
        let again = rig.ask("capture stop", Captures::stop);
        assert_eq!(again.error.unwrap(), "no capture is running");
    }
}
