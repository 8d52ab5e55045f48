//! The update stream: runs steps on the device in order, while lookups run in other streams (GAMT, section 3.2).

use super::gpu::Gpu;
use super::tables::{DeviceTable, TableStaging};
use crate::cu::{
    Arg, DeviceBuffer, GpuError, HostSide, Kernel, Pinned, Plain, Priority, ResidentRoom, Shape, Stream,
};
use crate::host::{Image, PrefixOp, UpdateStep, Write};
use serde::Serialize;
use std::mem::discriminant;
use std::time::Duration;

/// Most writes or operations of one copy: 512 KiB or 1 MiB.
const STAGED: usize = 1 << 16;

/// Block size and most blocks of the write kernel, which leave most of the device to lookups.
const WRITE_THREADS: u32 = 128;
const WRITE_BLOCKS_MAX: u32 = 32;

/// Time for the steps of one copy; then the device is given up.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct DeviceWork {
    pub(super) bubbles: u64,
    pub(super) device_ops: u64,
    update_launches: u64,
}

struct Staging<T: Plain> {
    host: Pinned<T>,
    device: DeviceBuffer<T>,
}

impl<T: Plain> Staging<T> {
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self {
            host: Pinned::new(&gpu.device, STAGED, HostSide::Writes)?,
            device: DeviceBuffer::new(&gpu.device, STAGED)?,
        })
    }
}

pub(super) struct Bubbles {
    /// Rebuilt tables are uploaded on it, too.
    stream: Stream,
    tables: TableStaging,
    write_words: Kernel,
    writes: Staging<Write>,
    ops: Option<Staging<PrefixOp>>,
    /// Threads of the block that runs operations; fewer if registers require.
    ops_threads: u32,
    pub(super) done: DeviceWork,
}

impl Bubbles {
    pub(super) fn new(gpu: &Gpu, ops_threads: Option<u32>) -> Result<Self, GpuError> {
        let stream = Stream::new(&gpu.device, Priority::First)?;
        Ok(Self {
            tables: TableStaging::new(&gpu.device, &stream)?,
            stream,
            write_words: gpu.kernel("gamt", "write_words")?,
            writes: Staging::new(gpu)?,
            ops: ops_threads.map(|_| Staging::new(gpu)).transpose()?,
            ops_threads: ops_threads.unwrap_or(0),
            done: DeviceWork::default(),
        })
    }

    pub(super) fn write_table(&mut self, table: &mut DeviceTable, image: &Image<'_>) -> Result<(), GpuError> {
        self.tables.write(&mut self.stream, table, image)
    }

    /// Room for the update kernels while persistent kernels of any engine run: the kernel of writes, and those in `ops`.
    pub(super) fn rooms(&self, ops: &[Option<&Kernel>]) -> Result<Vec<ResidentRoom>, GpuError> {
        let ops = ops.iter().flatten().map(|kernel| (*kernel, fitting(self.ops_threads, kernel)));
        let kernels = ops.chain([(&self.write_words, WRITE_THREADS)]);
        kernels.map(|(kernel, threads)| ResidentRoom::for_one_block(kernel, threads)).collect()
    }

    /// Runs `steps` on `table` in order, each to its end before the next; `ops` is the kernel of operations.
    pub(super) fn run(
        &mut self,
        table: &DeviceTable,
        ops: Option<&Kernel>,
        steps: &[UpdateStep],
    ) -> Result<(), GpuError> {
        for steps in steps.chunk_by(|one, other| discriminant(one) == discriminant(other)) {
            match &steps[0] {
                UpdateStep::Writes(_) => self.run_writes(table, steps)?,
                UpdateStep::Ops(_) => self.run_ops(table, ops, steps)?,
            }
        }
        Ok(())
    }

    fn run_writes(&mut self, table: &DeviceTable, steps: &[UpdateStep]) -> Result<(), GpuError> {
        let writes = steps.iter().filter_map(|step| match step {
            UpdateStep::Writes(writes) => Some(writes.as_slice()),
            UpdateStep::Ops(_) => None,
        });
        let (kernel, done) = (&self.write_words, &mut self.done);
        staged(&mut self.stream, &mut self.writes, writes, |stream, staged, count| {
            done.bubbles += u64::from(count);
            done.update_launches += 1;
            let shape = Shape::new(count.div_ceil(WRITE_THREADS).clamp(1, WRITE_BLOCKS_MAX), WRITE_THREADS);
            stream.launch(
                kernel,
                shape,
                &mut [Arg::buffer(&table.words), Arg::buffer(staged), Arg::u32(count)],
            )
        })
    }

    fn run_ops(
        &mut self,
        table: &DeviceTable,
        kernel: Option<&Kernel>,
        steps: &[UpdateStep],
    ) -> Result<(), GpuError> {
        let (Some(kernel), Some(stage)) = (kernel, &mut self.ops) else {
            return Err(GpuError::Kernel {
                module: "the table's".into(),
                entry: "for operations".into(),
                reason: "no kernel for the table's operations",
            });
        };
        let ops = steps.iter().filter_map(|step| match step {
            UpdateStep::Ops(ops) => Some(ops.as_slice()),
            UpdateStep::Writes(_) => None,
        });
        let (done, threads) = (&mut self.done, fitting(self.ops_threads, kernel));
        staged(&mut self.stream, stage, ops, |stream, staged, count| {
            done.device_ops += u64::from(count);
            done.update_launches += 1;
            stream.launch(
                kernel,
                Shape::new(1, threads),
                &mut [
                    Arg::buffer(&table.words),
                    Arg::buffer(&table.header),
                    Arg::buffer(staged),
                    Arg::u32(count),
                ],
            )
        })
    }
}

/// `threads`, limited to what a block of `kernel` can have, in whole warps.
fn fitting(threads: u32, kernel: &Kernel) -> u32 {
    threads.min(kernel.facts().threads_block_max & !31).max(32)
}

/// Calls `launch` for each piece of `parts`, copied through `stage`: stream order puts a copy after the previous launch.
fn staged<'a, T: Plain>(
    stream: &mut Stream,
    stage: &mut Staging<T>,
    parts: impl Iterator<Item = &'a [T]>,
    mut launch: impl FnMut(&mut Stream, &DeviceBuffer<T>, u32) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let mut pieces = parts.flat_map(|part| part.chunks(STAGED)).peekable();
    let mut ranges = Vec::new();
    while pieces.peek().is_some() {
        ranges.clear();
        let host = stage.host.slice_mut()?;
        let mut filled = 0;
        while let Some(piece) = pieces.next_if(|piece| filled + piece.len() <= STAGED) {
            host[filled..filled + piece.len()].copy_from_slice(piece);
            ranges.push(filled..filled + piece.len());
            filled += piece.len();
        }
        for range in ranges.drain(..) {
            let count = u32::try_from(range.len()).unwrap_or(u32::MAX);
            stream.upload(&stage.device, 0, &mut stage.host, range)?;
            launch(stream, &stage.device, count)?;
        }
        stream.finish(LIMIT)?; // the page-locked buffer is free again
    }
    Ok(())
}
