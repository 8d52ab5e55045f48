//! Tables on the device: the one in service, the second one that a rebuild goes to, and the swap (section 4.3).

use super::gpu::Gpu;
use crate::cu::{Device, DeviceWords, Event, GpuError, HostSide, Kernel, Pinned, Stream};
use crate::host::{HEADER_WORDS, Image};
use fib::EngineError;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Words copied at a time (4 MB): batches of lookups that share the bus with a rebuild wait for one such piece at most.
const PIECE_WORDS: usize = 1 << 20;

/// How long a piece, or what is left of a table, may take before the device is given up.
const LIMIT: Duration = Duration::from_secs(30);

/// A table on the device, and the kernel that looks up in it.
#[derive(Debug)]
pub(super) struct DeviceTable {
    /// The array; it may have more words than the table needs.
    pub(super) words: DeviceWords,
    /// What tells the kernel the table's shape.
    pub(super) header: DeviceWords,
    /// The lookup kernel.
    pub(super) kernel: Kernel,
    /// Words that the table needs.
    used: usize,
}

/// Bytes of a table of `words`, its header included.
pub(super) const fn table_bytes(words: usize) -> u64 {
    (words as u64 + HEADER_WORDS as u64) * 4
}

impl DeviceTable {
    /// Memory that the table takes, bytes.
    pub(super) const fn bytes(&self) -> u64 {
        table_bytes(self.used)
    }

    /// Memory that is allocated, bytes.
    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.words.bytes() + self.header.bytes()
    }
}

/// The tables of a family that are not in service.
///
/// A reader holds the table of each batch in flight. Nobody can get at a table that was taken out of service, so once we hold
/// it alone it is ours to write again: the grace period of a swap costs readers nothing.
#[derive(Debug, Default)]
pub(super) struct Spares {
    retired: Vec<Arc<DeviceTable>>,
}

impl Spares {
    /// Takes in a table that was in service.
    pub(super) fn retire(&mut self, table: Arc<DeviceTable>) {
        self.retired.push(table);
    }

    /// Memory of all of them, bytes.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.retired.iter().map(|table| table.allocated_bytes()).sum()
    }

    /// A table that nobody reads and that has room for `words`, without wasting most of it; frees what nobody reads otherwise.
    fn take(&mut self, words: usize) -> Option<DeviceTable> {
        let mut found = None;
        let mut held = Vec::with_capacity(self.retired.len());
        for table in self.retired.drain(..) {
            match Arc::try_unwrap(table) {
                Ok(table)
                    if found.is_none() && table.words.len() >= words && table.words.len() / 4 <= words =>
                {
                    found = Some(table);
                }
                Ok(_freed) => {}
                Err(table) => held.push(table),
            }
        }
        self.retired = held;
        found
    }

    /// A table of `words` for `kernel`, its content arbitrary: one out of service when one fits, else a new one.
    /// `allowance_bytes` is what tables out of service may take in all.
    pub(super) fn reserve(
        &mut self,
        gpu: &Gpu,
        words: usize,
        kernel: Kernel,
        allowance_bytes: u64,
    ) -> Result<DeviceTable, EngineError> {
        if let Some(table) = self.take(words) {
            return Ok(DeviceTable { words: table.words, header: table.header, kernel, used: words });
        }
        let bytes = table_bytes(words);
        let left = allowance_bytes.saturating_sub(self.allocated_bytes());
        if bytes > left {
            let reason = format!("{left} bytes are left beside tables that lookups in flight still read");
            return Err(EngineError::Memory { bytes, reason });
        }
        let new = |words| DeviceWords::new(&gpu.device, words).map_err(|error| gpu.fault(error));
        Ok(DeviceTable { words: new(words)?, header: new(HEADER_WORDS)?, kernel, used: words })
    }
}

/// Page-locked memory through which tables go to the device: a piece is filled while the one before is on its way.
///
/// Nothing here fills device memory by the driver (`cuMemset`) or copies from pageable memory. Either may wait for a persistent
/// kernel, that is, for ever: a fill is a kernel of the driver's own, which it loads when it is first used, and a copy from pageable
/// memory goes through a buffer that other streams share.
#[derive(Debug)]
pub(super) struct TableStaging {
    pieces: [Piece; 2],
    /// Zeros; never written.
    zeros: Pinned<u32>,
}

/// A part of a table on its way.
#[derive(Debug)]
struct Piece {
    words: Pinned<u32>,
    /// Completes when the device has it.
    gone: Event,
}

impl TableStaging {
    /// For tables that go up on `stream`.
    pub(super) fn new(device: &Device, stream: &Stream) -> Result<Self, GpuError> {
        let words = || Pinned::new(device, PIECE_WORDS, HostSide::Writes);
        let piece = || Ok(Piece { words: words()?, gone: stream.event(false)? });
        Ok(Self { pieces: [piece()?, piece()?], zeros: words()? })
    }

    /// Writes `image` into `table`, which has room for it. Returns when it is there.
    pub(super) fn write(
        &mut self,
        stream: &mut Stream,
        table: &mut DeviceTable,
        image: &Image<'_>,
    ) -> Result<(), GpuError> {
        stream.finish(LIMIT)?; // after a write that failed half-way, its pieces are ours again
        table.used = image.words;
        let mut at = 0;
        for (start, run) in &image.runs {
            let start = *start as usize;
            self.clear(stream, &table.words, at..start)?;
            self.copy(stream, &table.words, start, run)?;
            at = start + run.len();
        }
        self.clear(stream, &table.words, at..image.words)?;
        self.copy(stream, &table.header, 0, &image.header)?;
        stream.finish(LIMIT)
    }

    /// Zeros to words `range`.
    fn clear(
        &mut self,
        stream: &mut Stream,
        words: &DeviceWords,
        range: Range<usize>,
    ) -> Result<(), GpuError> {
        for at in range.clone().step_by(PIECE_WORDS) {
            stream.upload(words, at, &mut self.zeros, 0..PIECE_WORDS.min(range.end - at))?;
        }
        Ok(())
    }

    /// Copies `run` to `words`, from word `at` on.
    fn copy(
        &mut self,
        stream: &mut Stream,
        words: &DeviceWords,
        at: usize,
        run: &[u32],
    ) -> Result<(), GpuError> {
        for (at, part) in (at..).step_by(PIECE_WORDS).zip(run.chunks(PIECE_WORDS)) {
            let [piece, next] = &mut self.pieces;
            piece.gone.wait(LIMIT)?;
            piece.words.slice_mut()?[..part.len()].copy_from_slice(part);
            stream.upload(words, at, &mut piece.words, 0..part.len())?;
            stream.record(&mut piece.gone)?;
            std::mem::swap(piece, next);
        }
        Ok(())
    }
}
