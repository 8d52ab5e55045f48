//! Tables on the device: the current one, the second one for rebuilds, and the swap (GAMT, section 4.3).

use super::gpu::Gpu;
use crate::cu::{Device, DeviceWords, Event, GpuError, HostSide, Kernel, Pinned, Stream};
use crate::host::{HEADER_WORDS, Image};
use fib::EngineError;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Words of a copy (4 MiB): lookups that share the bus wait for at most one.
const PIECE_WORDS: usize = 1 << 20;

/// Time for a piece or the rest of a table; then the device is given up.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct DeviceTable {
    /// The array; may be larger than the table.
    pub(super) words: DeviceWords,
    pub(super) header: DeviceWords,
    pub(super) kernel: Kernel,
    used: usize,
}

pub(super) const fn table_bytes(words: usize) -> u64 {
    (words as u64 + HEADER_WORDS as u64) * 4
}

impl DeviceTable {
    pub(super) const fn bytes(&self) -> u64 {
        table_bytes(self.used)
    }

    pub(super) const fn allocated_bytes(&self) -> u64 {
        self.words.bytes() + self.header.bytes()
    }
}

/// The tables of a family that are not in service. A batch in flight holds its table, and retired tables cannot be reached
/// otherwise: so a table whose only owner is this can be rewritten, and a swap needs no grace period.
#[derive(Debug, Default)]
pub(super) struct Spares {
    retired: Vec<Arc<DeviceTable>>,
}

impl Spares {
    pub(super) fn retire(&mut self, table: Arc<DeviceTable>) {
        self.retired.push(table);
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.retired.iter().map(|table| table.allocated_bytes()).sum()
    }

    /// Whether lookups in flight read a table of these.
    pub(super) fn are_held(&self) -> bool {
        self.retired.iter().any(|table| Arc::strong_count(table) > 1)
    }

    /// Takes a table of at most `bytes_max` that no lookup holds and that fits `words` without wasting three quarters; frees the
    /// others not held.
    fn reuse_retired(&mut self, words: usize, bytes_max: u64) -> Option<DeviceTable> {
        let mut found = None;
        let mut held = Vec::with_capacity(self.retired.len());
        for table in self.retired.drain(..) {
            match Arc::try_unwrap(table) {
                Ok(table)
                    if found.is_none()
                        && (words..=words.saturating_mul(4)).contains(&table.words.len())
                        && table.allocated_bytes() <= bytes_max =>
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

    /// A table of `words` with undefined contents, spare or new, of at most `bytes_max`. `allowance_bytes` limits all spare tables.
    pub(super) fn reserve(
        &mut self,
        gpu: &Gpu,
        words: usize,
        kernel: Kernel,
        (bytes_max, allowance_bytes): (u64, u64),
    ) -> Result<DeviceTable, EngineError> {
        if let Some(table) = self.reuse_retired(words, bytes_max) {
            return Ok(DeviceTable { words: table.words, header: table.header, kernel, used: words });
        }
        let bytes = table_bytes(words);
        let left = allowance_bytes.saturating_sub(self.allocated_bytes());
        if bytes > left {
            let reason =
                format!("only {left} bytes are left, because lookups in flight still read replaced tables");
            return Err(EngineError::Memory { bytes, reason });
        }
        let new = |words| DeviceWords::new(&gpu.device, words).map_err(|error| gpu.fault(error));
        Ok(DeviceTable { words: new(words)?, header: new(HEADER_WORDS)?, kernel, used: words })
    }
}

/// Page-locked buffers for uploads of tables: one is filled while the other is copied. No `cuMemset` and no copy from
/// pageable memory here: either may wait for a persistent kernel, that is, for ever. A memset is a kernel that the driver
/// loads at its first use, and a pageable copy uses a buffer that other streams share.
#[derive(Debug)]
pub(super) struct TableStaging {
    pieces: [Piece; 2],
    zeros: Pinned<u32>,
}

#[derive(Debug)]
struct Piece {
    words: Pinned<u32>,
    gone: Event,
}

impl TableStaging {
    pub(super) fn new(device: &Device, stream: &Stream) -> Result<Self, GpuError> {
        let words = || Pinned::new(device, PIECE_WORDS, HostSide::Writes);
        let piece = || Ok(Piece { words: words()?, gone: stream.event(false)? });
        Ok(Self { pieces: [piece()?, piece()?], zeros: words()? })
    }

    /// Writes `image` into `table`, which has room for it. Returns when the upload has ended.
    pub(super) fn write(
        &mut self,
        stream: &mut Stream,
        table: &mut DeviceTable,
        image: &Image<'_>,
    ) -> Result<(), GpuError> {
        stream.finish(LIMIT)?; // an earlier write may have failed with copies in flight
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
