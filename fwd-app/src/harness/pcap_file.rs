//! Writes frames to a pcap file: Ethernet, nanoseconds.

use anyhow::Context as _;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The last time a pcap file can hold, in 2106: its seconds have 32 bits. Damaged captures contain later ones.
const TIME_NS_MAX: u64 = (u32::MAX as u64) * 1_000_000_000 + 999_999_999;

pub(super) struct PcapFile {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl PcapFile {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("cannot write {}", path.display());
        let file = File::create(path).with_context(what)?;
        let header = PcapHeader {
            snaplen: 1 << 18,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header).with_context(what)?;
        Ok(Self { path: path.to_owned(), writer })
    }

    /// Appends a frame with its time in nanoseconds since 1970.
    pub(super) fn write(&mut self, time_ns: u64, frame: &[u8]) -> anyhow::Result<()> {
        let packet = PcapPacket {
            timestamp: Duration::from_nanos(time_ns.min(TIME_NS_MAX)),
            orig_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(frame),
        };
        let written = self.writer.write_packet(&packet);
        written.map(drop).with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.writer.into_writer().flush().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::trace::Trace;

    #[test]
    fn frames_of_any_time_are_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut pcap = PcapFile::create(file.path()).unwrap();
        for time_ns in [0, TIME_NS_MAX, u64::MAX] {
            pcap.write(time_ns, &[7; 60]).unwrap();
        }
        pcap.finish().unwrap();
        let trace = Trace::load(file.path()).unwrap();
        assert_eq!([0, 1, 2].map(|frame| trace.time_ns(frame)), [0, TIME_NS_MAX, TIME_NS_MAX]);
    }
}
