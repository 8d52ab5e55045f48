//! The capture to replay: its frames in one block of memory, with their time stamps.

use super::interfaces::{InterfacePorts, PortOf};
use super::make::FrameChanges;
use super::pcap_file::PcapFile;
use fib::capture::{self, CaptureError, UnknownLink};
use fib::digest::PacketsHash;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("{path}: packet {packet}: {source}")]
    Link { path: PathBuf, packet: usize, source: UnknownLink },
    #[error("{path}: there is no packet in it")]
    Empty { path: PathBuf },
    #[error("{path}: the file is cut short within its first packet")]
    CutShort { path: PathBuf },
    #[error("{path}: reading it panicked: {message}")]
    Panicked { path: PathBuf, message: String },
    #[error("--port-of {interface}: no packet of {path} was captured on that interface; there are {there}")]
    NoInterface { path: PathBuf, interface: String, there: String },
}

#[derive(Clone, Debug)]
pub(crate) struct TraceSpec {
    pub(crate) path: PathBuf,
    pub(crate) limit: Option<usize>,
    pub(crate) port_of: Vec<PortOf>,
    pub(crate) changes: FrameChanges,
}

/// Facts of a capture, as far as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceFacts {
    pub(crate) frames: usize,
    /// Frames captured shorter than they were on the wire.
    pub(crate) snapped: usize,
    /// The file ends within a packet; the packets before it are replayed.
    pub(crate) truncated: bool,
    pub(crate) remapped: u64,
    pub(crate) longer: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    start: usize,
    bytes: u32,
    port: u16,
    time_ns: u64,
}

pub(crate) struct Captured<'a> {
    pub(crate) bytes: &'a [u8],
    /// Nanoseconds since 1970.
    pub(crate) time_ns: u64,
    pub(crate) port: u16,
}

impl TraceSpec {
    /// Passes each packet of a pcap or pcapng file to `each` as an Ethernet frame, until `each` breaks. Returns the facts of the part read.
    pub(crate) fn frames(
        &self,
        ports: &mut InterfacePorts,
        mut each: impl FnMut(Captured<'_>, &TraceFacts) -> ControlFlow<()>,
    ) -> Result<TraceFacts, TraceError> {
        let (mut made, mut changed, mut changes) = (Vec::new(), Vec::new(), self.changes.clone());
        let (mut facts, mut last_ns) = (TraceFacts::default(), 0);
        facts.truncated = capture::read(&self.path, |packet| {
            let fault = |source| TraceError::Link { path: self.path.clone(), packet: packet.number, source };
            let mut bytes = packet.ethernet(&mut made).map_err(fault)?;
            if !changes.is_none() {
                changed.clear();
                changed.extend_from_slice(bytes);
                changes.apply(&mut changed);
                bytes = &changed;
            }
            // A clock that steps back would make a packet due before its predecessor.
            last_ns = packet.time_ns.max(last_ns);
            facts.frames += 1;
            facts.snapped += usize::from(packet.wire_bytes > packet.bytes.len());
            (facts.remapped, facts.longer) = (changes.remapped, changes.longer);
            let flow = each(Captured { bytes, time_ns: last_ns, port: ports.port(&packet) }, &facts);
            let is_full = self.limit.is_some_and(|limit| facts.frames >= limit);
            Ok::<_, TraceError>(if is_full { ControlFlow::Break(()) } else { flow })
        })?;
        match (facts.frames, facts.truncated) {
            (0, true) => Err(TraceError::CutShort { path: self.path.clone() }),
            (0, false) => Err(TraceError::Empty { path: self.path.clone() }),
            _ => Ok(facts),
        }
    }

    /// Checks that every interface in `--port-of` had packets; to be called at the end of the file.
    pub(crate) fn check_interfaces(&self, ports: &InterfacePorts) -> Result<(), TraceError> {
        ports.unmet().map_or(Ok(()), |(interface, there)| {
            Err(TraceError::NoInterface { path: self.path.clone(), interface, there })
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    pub(crate) facts: TraceFacts,
}

impl Trace {
    /// `None` when the frames exceed `bytes_max` bytes. A truncated file yields its whole packets, if it has one at least.
    pub(crate) fn load_within(spec: &TraceSpec, bytes_max: usize) -> Result<Option<Self>, TraceError> {
        let (mut trace, mut ports) = (Self::default(), InterfacePorts::new(&spec.port_of));
        let mut fits = true;
        trace.facts = spec.frames(&mut ports, |captured, _| {
            fits = captured.bytes.len() <= bytes_max - trace.bytes.len();
            if !fits {
                return ControlFlow::Break(());
            }
            trace.push(&captured);
            ControlFlow::Continue(())
        })?;
        if !fits {
            return Ok(None);
        }
        spec.check_interfaces(&ports)?;
        Ok(Some(trace))
    }

    pub(crate) fn push(&mut self, captured: &Captured<'_>) {
        let Captured { bytes, time_ns, port } = *captured;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.facts.frames += 1;
        self.frames.push(Frame {
            start,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            port,
            time_ns,
        });
    }

    /// Removes all frames; keeps memory for `bytes` bytes of frames.
    pub(crate) fn clear(&mut self, bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes);
        self.bytes.reserve(bytes);
        self.frames.clear();
        self.facts = TraceFacts::default();
    }

    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut file = PcapFile::create(path)?;
        (0..self.len()).try_for_each(|i| file.write(self.time_ns(i), self.frame(i)))?;
        file.finish()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn frame(&self, i: usize) -> &[u8] {
        let Frame { start, bytes, .. } = self.frames[i];
        &self.bytes[start..start + bytes as usize]
    }

    /// Capture time, nanoseconds since 1970.
    pub(crate) fn time_ns(&self, i: usize) -> u64 {
        self.frames[i].time_ns
    }

    pub(crate) fn port(&self, i: usize) -> u16 {
        self.frames[i].port
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes and frames below 2^53")]
    pub(crate) fn frame_bytes_mean(&self) -> f64 {
        self.bytes() as f64 / self.len().max(1) as f64
    }

    pub(crate) fn hash(&self) -> String {
        let mut hash = PacketsHash::default();
        (0..self.len()).for_each(|i| hash.add(self.frame(i)));
        hash.finish()
    }

    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes as usize).max().unwrap_or(0)
    }
}

#[cfg(any(test, feature = "testing"))]
impl Trace {
    /// Reads all packets of a file; all arrive on port 0.
    pub(crate) fn load(path: &Path) -> Result<Self, TraceError> {
        Self::load_within(&TraceSpec::new(path), usize::MAX).map(Option::unwrap_or_default)
    }
}

#[cfg(any(test, feature = "testing"))]
impl TraceSpec {
    /// All packets of a file; all arrive on port 0.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), limit: None, port_of: Vec::new(), changes: FrameChanges::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little-endian microsecond pcap with these frames, a millisecond apart.
    fn pcap(link: u32, frames: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, link] {
            file.extend(word.to_le_bytes());
        }
        for (i, frame) in (0_u32..).zip(frames) {
            let bytes = u32::try_from(frame.len()).unwrap();
            for word in [5, i * 1000, bytes, bytes] {
                file.extend(word.to_le_bytes());
            }
            file.extend(*frame);
        }
        file
    }

    fn load(bytes: &[u8]) -> Result<Trace, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Trace::load(file.path())
    }

    #[test]
    fn frames_and_times() {
        let trace = load(&pcap(1, &[&[1; 60], &[], &[3; 9000]])).unwrap();
        assert_eq!(
            (trace.facts, trace.frame_bytes_max()),
            (TraceFacts { frames: 3, ..TraceFacts::default() }, 9000)
        );
        assert_eq!((trace.frame(0), trace.frame(1).len(), trace.frame(2)[8999]), (&[1; 60][..], 0, 3));
        assert_eq!(trace.time_ns(2), 5_002_000_000);
    }

    #[test]
    fn every_length_of_a_capture_is_read_or_refused() {
        let whole = pcap(1, &[&[1; 60], &[2; 60]]);
        for bytes in 0..whole.len() {
            let result = load(&whole[..bytes]);
            match bytes {
                0..24 => assert!(
                    matches!(result, Err(TraceError::Capture(CaptureError::Format { packets: 0, .. }))),
                    "{bytes}"
                ),
                24 => assert!(matches!(result, Err(TraceError::Empty { .. }))),
                25..100 => assert!(matches!(result, Err(TraceError::CutShort { .. })), "{bytes}"),
                _ => {
                    let facts = result.unwrap().facts;
                    assert_eq!((facts.frames, facts.truncated), (1, bytes != 100), "{bytes}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_ethernet_header_gets_one_or_is_refused_by_name() {
        let trace = load(&pcap(101, &[&[0x45; 20]])).unwrap();
        assert_eq!((trace.len(), &trace.frame(0)[12..]), (1, &[&[8, 0][..], &[0x45; 20]].concat()[..]));
        let error = load(&pcap(105, &[&[0x45; 20]])).unwrap_err();
        assert!(error.to_string().contains("packet 1: link type 105 (IEEE 802.11)"), "{error}");
    }

    #[test]
    fn no_more_than_the_limit_is_read() {
        let mut whole = pcap(1, &[&[1; 60], &[2; 60], &[3; 60]]);
        // Beyond the limit nothing is read, so damage there does not matter.
        whole.truncate(whole.len() - 10);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), whole).unwrap();
        for (limit, frames, truncated) in
            [(Some(1), 1, false), (Some(2), 2, false), (Some(3), 2, true), (None, 2, true)]
        {
            let spec = TraceSpec { limit, ..TraceSpec::new(file.path()) };
            let facts = Trace::load_within(&spec, 60 * frames).unwrap().unwrap().facts;
            assert_eq!((facts.frames, facts.truncated), (frames, truncated), "{limit:?}");
            assert!(Trace::load_within(&spec, 60 * frames - 1).unwrap().is_none(), "{limit:?}");
        }
    }
}
