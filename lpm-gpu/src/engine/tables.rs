//! Tables on the device: the one in service, the second one that a rebuild goes to, and the swap (section 4.3).

use super::gpu::Gpu;
use crate::cu::{DeviceWords, GpuError, Kernel, Stream};
use crate::host::{HEADER_WORDS, Image};
use fib::EngineError;
use std::sync::Arc;

/// Words copied at a time (4 MB): batches of lookups that share the bus with a rebuild wait for one such piece at most.
const PIECE_WORDS: usize = 1 << 20;

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

/// Writes `image` into `table`, which has room for it. Returns when it is there.
pub(super) fn write(stream: &mut Stream, table: &mut DeviceTable, image: &Image<'_>) -> Result<(), GpuError> {
    table.used = image.words;
    stream.fill(&table.words, 0..image.words, 0)?;
    for (start, run) in &image.runs {
        let mut at = *start as usize;
        for piece in run.chunks(PIECE_WORDS) {
            stream.upload_now(&table.words, at, piece)?;
            at += piece.len();
        }
    }
    stream.upload_now(&table.header, 0, &image.header)
}
