//! Single kernels against plain Rust models, over `mockcuda`, which checks every access, or with `LPM_GPU=real` over the real driver.

#![expect(clippy::unwrap_used, reason = "a test")]

mod ceilings;
mod direct;
mod gamt;
mod model;
mod persistent;
mod transactions;

use fib::random::Seeded;
use lpm_gpu::cu::testing::{self, Exclusive};
use lpm_gpu::cu::{Arg, Device, DeviceBuffer, DeviceWords, Kernel, Module, Plain, Priority, Shape, Stream};
use std::fmt::LowerHex;
use std::time::Duration;

/// Longer than any step over the mock on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Batch sizes: empty, less than a vector, around a warp, not a power of two, several rounds of the grid.
const COUNTS: [usize; 8] = [0, 1, 3, 31, 32, 33, 255, 4096];

/// Grids: a single warp for many rounds; blocks of several warps; more threads than most batches have keys.
const SHAPES: [Shape; 3] = [Shape::new(1, 32), Shape::new(3, 64), Shape::new(8, 256)];

/// Marks words that no kernel may write.
const CANARY: u32 = 0xdead_beef;

struct KernelRig {
    device: Device,
    stream: Stream,
    random: Seeded,
    _one: Exclusive,
}

impl KernelRig {
    /// `None`, after printing SKIPPED, without a driver.
    fn new(seed: u64) -> Option<Self> {
        let one = testing::exclusive();
        let device = testing::device()?;
        let stream = Stream::new(&device, Priority::Usual).unwrap();
        Some(Self { device, stream, random: Seeded::new(seed, 0), _one: one })
    }

    fn upload<T: Plain>(&mut self, values: &[T]) -> DeviceBuffer<T> {
        let buffer = DeviceBuffer::new(&self.device, values.len()).unwrap();
        self.stream.upload_now(&buffer, 0, values).unwrap();
        buffer
    }

    fn download(&mut self, buffer: &DeviceWords) -> Vec<u32> {
        let mut values = vec![0; usize::try_from(buffer.bytes() / 4).unwrap()];
        self.stream.download_now(&mut values, buffer, 0).unwrap();
        values
    }

    fn kernel(&self, module: &str, entry: &str) -> Kernel {
        Module::new(&self.device, module).unwrap().kernel(entry).unwrap()
    }

    /// Runs lookup `kernel`, with keys and answers at these element offsets; checks that no other words were written.
    fn lookup<K: Plain + Default>(
        &mut self,
        kernel: &Kernel,
        shape: Shape,
        (words, header): (&DeviceWords, &DeviceWords),
        keys: &[K],
        (key_offset, raw_offset): (usize, usize),
    ) -> Vec<u32> {
        let mut shifted = vec![K::default(); key_offset];
        shifted.extend_from_slice(keys);
        let keys_there = self.upload(&shifted);
        let raw = self.upload(&vec![CANARY; raw_offset + keys.len() + 3]);
        let args = &mut [
            Arg::buffer(words),
            Arg::buffer(header),
            Arg::buffer_from(&keys_there, key_offset).unwrap(),
            Arg::buffer_from(&raw, raw_offset).unwrap(),
            Arg::u32(u32::try_from(keys.len()).unwrap()),
        ];
        self.stream.launch(kernel, shape, args).unwrap();
        self.stream.finish(LIMIT).unwrap();
        let raw = self.download(&raw);
        let (before, rest) = raw.split_at(raw_offset);
        let (answers, behind) = rest.split_at(keys.len());
        assert!(before.iter().chain(behind).all(|&word| word == CANARY), "{}: wrote outside", kernel.entry());
        answers.to_vec()
    }

    /// Words of the table that a kernel loads: its loads without keys and `header_words` a thread; `None` on a real device.
    fn table_loads(
        &mut self,
        (module, entry): (&str, &str),
        table: (&DeviceWords, &DeviceWords),
        keys: &[u32],
        header_words: usize,
    ) -> Option<u64> {
        let mock = testing::driver()?.mock()?;
        let (kernel, shape, before) = (self.kernel(module, entry), Shape::new(1, 32), mock.words_read());
        self.lookup(&kernel, shape, table, keys, (0, 0));
        Some(mock.words_read() - before - (keys.len() + 32 * header_words) as u64)
    }

    fn compare<K: Plain + Default + LowerHex>(
        &mut self,
        (module, entry): (&str, &str),
        table: (&DeviceWords, &DeviceWords),
        batches: &[(usize, (usize, usize))],
        mut key: impl FnMut(&mut Seeded, usize) -> K,
        model: impl Fn(K) -> u32,
    ) {
        for kind in ["frozen", "live"] {
            let kernel = self.kernel(module, &format!("{entry}_{kind}"));
            for (number, (count, offsets)) in batches.iter().enumerate() {
                let keys: Vec<K> = (0..*count).map(|at| key(&mut self.random, at)).collect();
                let wanted: Vec<u32> = keys.iter().map(|&key| model(key)).collect();
                let found = self.lookup(&kernel, SHAPES[number % SHAPES.len()], table, &keys, *offsets);
                same(kernel.entry(), &format!("offsets {offsets:?}"), &keys, &found, &wanted);
            }
        }
    }
}

fn sizes() -> Vec<(usize, (usize, usize))> {
    COUNTS.into_iter().enumerate().map(|(number, count)| (count, (number % 3, number % 2))).collect()
}

fn same<K: LowerHex + Copy>(entry: &str, what: &str, keys: &[K], found: &[u32], wanted: &[u32]) {
    for ((key, found), wanted) in keys.iter().zip(found).zip(wanted) {
        assert_eq!(found, wanted, "{entry}, {what}, {} keys: key {key:#x}", keys.len());
    }
    assert_eq!(found.len(), wanted.len(), "{entry}, {what}");
}
