//! Frames written as a pcap file: Ethernet, nanoseconds.

use anyhow::Context as _;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A pcap file that is being written.
pub(super) struct PcapFile {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl PcapFile {
    /// Makes the file, or makes it empty.
    ///
    /// # Errors
    /// When it cannot be made.
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

    /// Adds a frame of this time, nanoseconds since 1970.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&mut self, time_ns: u64, frame: &[u8]) -> anyhow::Result<()> {
        let packet = PcapPacket {
            timestamp: Duration::from_nanos(time_ns),
            orig_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(frame),
        };
        let written = self.writer.write_packet(&packet);
        written.map(drop).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot be written to its end.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.writer.into_writer().flush().with_context(|| format!("cannot write {}", self.path.display()))
    }
}
