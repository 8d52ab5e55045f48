//! A feed's bytes: plain, gzip, bzip2, xz or zstd, recognized by the first bytes, never by the file name.
//!
//! [`FeedSource`] can look ahead without consuming, counts the bytes read, and records whether a compressed file was cut short.

use super::format::{Compression, Format, is_mrt_type};
use super::{FeedError, FeedErrorKind};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// Large enough that the cost of system calls and calls into a decompressor is negligible per line.
const BUFFER_BYTES: usize = 256 << 10;
/// The bytes used to guess the format: more than the comments at the head of most files.
const HEAD_BYTES: usize = 4096;
/// The length of the longest magic number below.
const MAGIC_BYTES: usize = 6;

/// Counts the bytes read from a file, and detects at its end whether the file was modified meanwhile.
struct CountedFile {
    file: File,
    done: Arc<AtomicU64>,
    /// The file's length and modification time when it was opened; `None` if it is not a regular file.
    opened: Option<(u64, SystemTime)>,
}

#[derive(Debug, thiserror::Error)]
#[error("the file was changed while it was read")]
struct ChangedMeanwhile;

fn state(metadata: &Metadata) -> Option<(u64, SystemTime)> {
    Some((metadata.len(), metadata.modified().ok()?)).filter(|_| metadata.is_file())
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        if read == 0 && !buffer.is_empty() && self.opened != state(&self.file.metadata()?) {
            return Err(io::Error::other(ChangedMeanwhile));
        }
        self.done.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

/// The bytes of a feed, decompressed. Made by [`open`].
pub struct FeedSource {
    path: PathBuf,
    compression: Compression,
    inner: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// A failure met while looking ahead. It is reported once the bytes before it are consumed.
    failure: Option<io::Error>,
    finished: bool,
    cut_short: bool,
    offset_bytes: u64,
    done: Arc<AtomicU64>,
    bytes_total: u64,
}

/// Opens a feed, and recognizes its compression (none, gzip, bzip2, xz or zstd) by its first bytes.
///
/// # Errors
/// [`FeedErrorKind::Open`], [`FeedErrorKind::Directory`], [`FeedErrorKind::UnknownCompression`] for lz4. An empty file is accepted.
pub fn open(path: &Path) -> Result<FeedSource, FeedError> {
    let fail = |source| FeedErrorKind::Open { source }.with_path(path);
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(FeedErrorKind::Directory.with_path(path));
    }
    let done = Arc::new(AtomicU64::new(0));
    let mut counted = CountedFile { file, done: Arc::clone(&done), opened: state(&metadata) };
    let mut magic = Vec::with_capacity(MAGIC_BYTES);
    counted.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic).map_err(fail)?;
    let compression = match magic[..] {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [b'B', b'Z', b'h', ..] => Compression::Bzip2,
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
        [0x04, 0x22, 0x4d, 0x18, ..] => {
            return Err(FeedErrorKind::UnknownCompression { name: "lz4" }.with_path(path));
        }
        _ => Compression::None,
    };
    let whole = io::Cursor::new(magic).chain(counted);
    let buffered = |whole| BufReader::with_capacity(BUFFER_BYTES, whole);
    let inner: Box<dyn Read + Send> = match compression {
        Compression::None => Box::new(whole),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(whole))),
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(buffered(whole))),
        Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(buffered(whole))),
        Compression::Zstd => Box::new(zstd::Decoder::with_buffer(buffered(whole)).map_err(fail)?),
    };
    Ok(FeedSource {
        path: path.to_owned(),
        compression,
        inner,
        buffer: vec![0; BUFFER_BYTES],
        start: 0,
        end: 0,
        failure: None,
        finished: false,
        cut_short: false,
        offset_bytes: 0,
        done,
        bytes_total: if metadata.is_file() { metadata.len() } else { 0 },
    })
}

impl FeedSource {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is compressed.
    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Bytes read from the file so far, as stored (compressed).
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// The file's length; 0 if it is unknown (a pipe).
    #[must_use]
    pub const fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    /// Bytes consumed so far, after decompression.
    #[must_use]
    pub const fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Whether the compressed file was cut short; known once the end is reached.
    #[must_use]
    pub const fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The next `wanted` bytes without consuming them, fewer at the end, at most the buffer. A failure waits until they are consumed.
    pub fn peek(&mut self, wanted: usize) -> &[u8] {
        let wanted = wanted.min(self.buffer.len());
        if self.end - self.start < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < wanted && !self.finished {
                match self.inner.read(&mut self.buffer[self.end..]) {
                    Ok(0) => self.finished = true,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.finished = true;
                        self.cut_short = error.kind() == io::ErrorKind::UnexpectedEof;
                        self.failure = Some(error);
                    }
                }
            }
        }
        &self.buffer[self.start..self.end.min(self.start + wanted)]
    }

    /// Guesses the format from the first bytes, without consuming them. An empty file is text. The fifth byte of an MRT file is zero: it is
    /// the high byte of the record type, and all types are below 256. Text has no zero bytes.
    ///
    /// # Errors
    /// [`FeedErrorKind::UnknownFormat`], and a failure before the first byte as [`Self::error`].
    pub fn sniff(&mut self) -> Result<Format, FeedError> {
        let head = self.peek(HEAD_BYTES);
        let format = if head.get(4) == Some(&0) {
            (head.len() >= 6 && is_mrt_type(u16::from(head[5]))).then_some(Format::Mrt)
        } else if head.iter().any(|byte| matches!(byte, 0..=8 | 14..=31 | 127)) {
            None
        } else {
            let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
            let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
            Some(if matches!(first, Some(b'[' | b'{')) { Format::Json } else { Format::Text })
        };
        if self.start == self.end
            && let Some(failure) = self.failure.take()
        {
            return Err(self.error(failure));
        }
        format.ok_or_else(|| FeedErrorKind::UnknownFormat.with_path(&self.path))
    }

    pub(super) fn holds(&self, format: Format, holds: &'static str, wanted: &'static str) -> FeedError {
        FeedErrorKind::Content { format, holds, wanted }.with_path(&self.path)
    }

    pub(super) fn skip_mark(&mut self) {
        if self.peek(3) == b"\xef\xbb\xbf" {
            self.consume(3);
        }
    }

    /// The failure that ended the content. A file cut short does not count; see [`Self::is_cut_short`].
    pub(super) fn take_failure(&mut self) -> Option<FeedError> {
        let failure = self.failure.take_if(|_| !self.cut_short)?;
        Some(self.error(failure))
    }

    /// Converts a failure of this reader to an error that names the file and the kind of failure.
    #[must_use]
    pub fn error(&self, source: io::Error) -> FeedError {
        let (offset_bytes, compression) = (self.offset_bytes, self.compression);
        let kind = if source.get_ref().is_some_and(|inner| inner.is::<ChangedMeanwhile>()) {
            FeedErrorKind::Changed { offset_bytes }
        } else if compression == Compression::None || source.raw_os_error().is_some() {
            FeedErrorKind::Read { offset_bytes, source }
        } else if source.kind() == io::ErrorKind::UnexpectedEof {
            FeedErrorKind::CutShort { compression, offset_bytes }
        } else {
            FeedErrorKind::Corrupt { compression, offset_bytes, source }
        };
        kind.with_path(&self.path)
    }
}

impl BufRead for FeedSource {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.peek(1);
            if self.start == self.end
                && let Some(failure) = self.failure.take()
            {
                return Err(failure);
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, amount: usize) {
        let amount = amount.min(self.end - self.start);
        self.start += amount;
        self.offset_bytes += amount as u64;
    }
}

impl Read for FeedSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source over `content`. The caller must keep the folder while reading.
    fn source(content: &[u8]) -> (tempfile::TempDir, FeedSource) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feed");
        std::fs::write(&path, content).unwrap();
        let source = open(&path).unwrap();
        (folder, source)
    }

    #[test]
    fn looking_ahead_consumes_nothing() {
        let (_folder, mut source) = source(b"0123456789");
        assert_eq!(source.peek(4), b"0123");
        source.consume(2);
        assert_eq!(source.peek(100), b"23456789");
        assert_eq!(source.offset_bytes(), 2);
        let mut rest = String::new();
        source.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "23456789");
        assert!(source.peek(1).is_empty());
        assert_eq!((source.bytes_done(), source.bytes_total(), source.is_cut_short()), (10, 10, false));
    }

    #[test]
    fn a_file_larger_than_the_buffer_is_read_whole() {
        let content: Vec<u8> = (b'a'..=b'w').cycle().take(3 * BUFFER_BYTES + 7).collect();
        let (_folder, mut source) = source(&content);
        let mut read = Vec::new();
        while !source.peek(1000).is_empty() {
            let taken = source.peek(1000).len().min(997);
            read.extend_from_slice(&source.peek(1000)[..taken]);
            source.consume(taken);
        }
        assert!(read == content && source.offset_bytes() == content.len() as u64);
    }

    /// Reads a table from a file that `change` modifies after the first 256 KB are read; once plain and once as gzip.
    fn read_while(change: impl Fn(&Path)) -> Vec<Result<usize, FeedError>> {
        let text: Vec<u8> = (0..200_000_u32)
            .flat_map(|i| {
                format!("{}/32 {}\n", std::net::Ipv4Addr::from(i.wrapping_mul(0x9e37_79b9)), i % 99 + 1)
                    .into_bytes()
            })
            .collect();
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut encoder, &text).unwrap();
            encoder.finish().unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feed");
        let read = |content: Vec<u8>| {
            std::fs::write(&path, content).unwrap();
            // An old modification time, so that the change has a different one even on a coarse clock.
            File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            let mut source = open(&path).unwrap();
            source.peek(1);
            change(&path);
            let mut bytes = Vec::new();
            match source.read_to_end(&mut bytes) {
                Ok(_) => Ok(bytes.len()),
                Err(error) => Err(source.error(error)),
            }
        };
        let whole = text.len();
        let results: Vec<_> = [text, gzip].into_iter().map(read).collect();
        for read in results.iter().flatten() {
            assert_eq!(*read, whole, "silently another content");
        }
        results
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_refused() {
        let open_to_write = |path: &Path| File::options().write(true).open(path).unwrap();
        let empty = |path: &Path| open_to_write(path).set_len(0).unwrap();
        let shorten = |path: &Path| open_to_write(path).set_len(1 << 18).unwrap();
        let rewrite = |path: &Path| std::fs::write(path, b"192.0.2.0/24 1\n").unwrap();
        let append = |path: &Path| {
            let mut file = File::options().append(true).open(path).unwrap();
            io::Write::write_all(&mut file, b"192.0.2.0/24 1\n").unwrap();
        };
        for (name, change) in [
            ("empty", &empty as &dyn Fn(&Path)),
            ("shorten", &shorten),
            ("rewrite", &rewrite),
            ("append", &append),
        ] {
            for result in read_while(change) {
                let error = result.expect_err(name);
                assert!(
                    matches!(error.kind, FeedErrorKind::Changed { .. } | FeedErrorKind::Corrupt { .. }),
                    "{name}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_read_as_it_was() {
        let replace = |path: &Path| {
            let new = path.with_extension("new");
            std::fs::write(&new, b"192.0.2.0/24 1\n").unwrap();
            std::fs::rename(&new, path).unwrap();
        };
        assert!(read_while(replace).iter().all(Result::is_ok));
    }

    #[test]
    fn formats_are_guessed_from_the_first_bytes() {
        for (content, format) in [
            (&b"10.0.0.0/8 1"[..], Some(Format::Text)),
            (b"x", Some(Format::Text)),
            (b"# [1]\n", Some(Format::Text)),
            (b"\r\n\t [", Some(Format::Json)),
            (b"\xef\xbb\xbf{}", Some(Format::Json)),
            (b"\x5a\x00\x00\x00\x00\x0d\x00\x01\x00\x00\x00\x00", Some(Format::Mrt)),
            (b"\x5a\x00\x00\x00\x00\x0e\x00\x01\x00\x00\x00\x00", None),
            (b"\x5a\x00\x00\x00\x00", None),
            (b"10.0.0.0/8\x00", None),
        ] {
            let (_folder, mut source) = source(content);
            assert_eq!(source.sniff().ok(), format, "{content:?}");
            assert_eq!(source.offset_bytes(), 0);
        }
    }
}
