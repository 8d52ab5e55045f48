//! The persistent kernels: slots, blocks, batch sizes, alignments, table changes, concurrent word writes, and the stop.

use crate::model::{RandomTrie, TrieImage};
use crate::{COUNTS, KernelRig, LIMIT, same};
use lpm_gpu::cu::testing;
use lpm_gpu::cu::{Arg, DeviceWords, Element, Priority, Resident, Shape, Shared, Stream};
use lpm_gpu::gamt::Layout;
use lpm_gpu::host::Write;
use std::time::Instant;

const SLOTS: usize = 2;
const PARTS: usize = 3;
/// 64-bit words of a slot, and the offset of its table (`Slot` in `kernels/common.cuh`).
const SLOT_WORDS: usize = 8;
const TABLE: usize = 2;
const STOP: u64 = 0xffff_ffff;

struct ControlBlock<K: Element> {
    slots: Shared<u64>,
    done: Shared<u32>,
    keys: Vec<Shared<K>>,
    raw: Vec<Shared<u32>>,
}

impl<K: Element> ControlBlock<K> {
    fn new(rig: &KernelRig, keys_max: usize) -> Self {
        Self {
            slots: Shared::new(&rig.device, SLOTS * SLOT_WORDS).unwrap(),
            done: Shared::new(&rig.device, SLOTS * PARTS).unwrap(),
            keys: (0..SLOTS).map(|_| Shared::new(&rig.device, keys_max).unwrap()).collect(),
            raw: (0..SLOTS).map(|_| Shared::new(&rig.device, keys_max).unwrap()).collect(),
        }
    }

    fn launch(&self, rig: &KernelRig, entry: &str, threads: u32) -> Resident {
        let kernel = rig.kernel("gamt", entry);
        let slots = self.slots.clone();
        Resident::launch(
            Stream::new(&rig.device, Priority::Usual).unwrap(),
            &kernel,
            Shape::new(u32::try_from(PARTS).unwrap(), threads).with_rows(u32::try_from(SLOTS).unwrap()),
            &mut [Arg::shared(&self.slots), Arg::shared(&self.done), Arg::u32(u32::try_from(PARTS).unwrap())],
            Box::new(move || (0..SLOTS).for_each(|slot| slots.store(slot * SLOT_WORDS, STOP))),
        )
        .unwrap()
    }

    /// Submits batch `number` to `slot`, with keys and answers from these elements on.
    fn ring(
        &self,
        slot: usize,
        number: u32,
        (words, header): (&DeviceWords, &DeviceWords),
        keys: &[K],
        (offset, raw_offset): (usize, usize),
    ) {
        self.keys[slot].write(offset, keys).unwrap();
        let from = self.keys[slot].address() + (offset * size_of::<K>()) as u64;
        let to = self.raw[slot].address() + 4 * raw_offset as u64;
        let at = slot * SLOT_WORDS;
        self.slots.write(at + TABLE, &[words.address(), header.address(), from, to]).unwrap();
        self.slots.store(at, (keys.len() as u64) << 32 | u64::from(number));
    }

    fn answers(
        &self,
        resident: &mut Resident,
        slot: usize,
        number: u32,
        offset: usize,
        count: usize,
    ) -> Vec<u32> {
        let start = Instant::now();
        while !(0..PARTS).all(|part| self.done.load(slot * PARTS + part) == number) {
            assert!(resident.is_running().unwrap(), "it ended without a stop");
            assert!(start.elapsed() < LIMIT, "no answer to batch {number} of slot {slot}");
            std::thread::yield_now();
        }
        let mut raw = vec![0; count];
        self.raw[slot].read(offset, &mut raw).unwrap();
        raw
    }
}

/// Runs the persistent kernel of a family (4 or 6) over two tables in turn; `narrow` drops bits that its keys lack.
fn serve<K: Element + std::fmt::LowerHex + Into<u64>>(
    rig: &mut KernelRig,
    family: u8,
    layout: Layout,
    strides: [&[u32]; 2],
    narrow: fn(u64) -> K,
) {
    let entry = &format!("gamt_persistent_v{family}_{layout:?}").to_lowercase();
    let bits = if family == 6 { 64 } else { 32 };
    let tries = strides.map(|strides| RandomTrie::new(strides, family == 6, &mut rig.random));
    let tables: Vec<TrieImage> = tries.iter().map(|trie| trie.image(layout, bits)).collect();
    let there: Vec<_> =
        tables.iter().map(|table| (rig.upload(&table.words), rig.upload(&table.header))).collect();
    let control: ControlBlock<K> = ControlBlock::new(rig, 4096 + 3);
    let mut resident = control.launch(rig, entry, 64);
    for (number, count) in (1..).zip(COUNTS) {
        let mut sent = Vec::new();
        for slot in 0..SLOTS {
            let which = (number + slot) % 2;
            let keys: Vec<K> = (0..count).map(|_| narrow(tries[which].key(&mut rig.random))).collect();
            let (words, header) = &there[which];
            control.ring(
                slot,
                u32::try_from(number).unwrap(),
                (words, header),
                &keys,
                (number % 4, number / 2 % 4),
            );
            sent.push((which, keys));
        }
        for (slot, (which, keys)) in sent.iter().enumerate() {
            let found = control.answers(
                &mut resident,
                slot,
                u32::try_from(number).unwrap(),
                number / 2 % 4,
                keys.len(),
            );
            let wanted: Vec<u32> =
                keys.iter().map(|&key| tables[*which].lookup(layout, key.into())).collect();
            same(entry, &format!("batch {number} of slot {slot}"), keys, &found, &wanted);
        }
    }
    resident.stop(LIMIT).unwrap();
    resident.stop(LIMIT).unwrap();
    assert!(!resident.is_running().unwrap());
}

#[test]
fn slots_are_served_until_told_to_stop() {
    let Some(mut rig) = KernelRig::new(21) else { return };
    for layout in [Layout::Flat, Layout::Paper] {
        serve(&mut rig, 4, layout, [&[12, 4, 4, 4, 8], &[8, 8, 8, 8]], |key| (key >> 32) as u32);
        serve(&mut rig, 6, layout, [&[13, 3, 8, 8, 8, 8], &[4; 16]], |key| key);
    }
}

/// A batch sees another stream's writes from before its submit: the persistent kernel drops older cache contents.
#[test]
fn a_batch_sees_what_was_written_before_it() {
    let Some(mut rig) = KernelRig::new(22) else { return };
    let trie = RandomTrie::new(&[8, 8, 8], false, &mut rig.random);
    let mut table = trie.image(Layout::Flat, 32);
    let (words, header) = (rig.upload(&table.words), rig.upload(&table.header));
    let writes_there = lpm_gpu::cu::DeviceBuffer::<Write>::new(&rig.device, 16).unwrap();
    let kernel = rig.kernel("gamt", "write_words");
    let control: ControlBlock<u32> = ControlBlock::new(&rig, 512);
    let mut resident = control.launch(&rig, "gamt_persistent_v4_flat", 64);
    for number in 1..=30 {
        let keys: Vec<u32> = (0..500).map(|_| (trie.key(&mut rig.random) >> 32) as u32).collect();
        control.ring(0, number, (&words, &header), &keys, (0, 0));
        let found = control.answers(&mut resident, 0, number, 0, keys.len());
        let wanted: Vec<u32> = keys.iter().map(|&key| table.lookup(Layout::Flat, key.into())).collect();
        same("gamt_persistent_v4_flat", &format!("after {} updates", number - 1), &keys, &found, &wanted);
        let leaves: Vec<usize> = (0..table.words.len()).filter(|&at| table.words[at] & 0xff == 0).collect();
        let first = rig.random.below(leaves.len() - 16);
        let writes: Vec<Write> = leaves[first..first + 16]
            .iter()
            .map(|&at| Write {
                at: u32::try_from(at).unwrap(),
                value: (table.words[at] ^ number << 8) & !0xff,
            })
            .collect();
        for write in &writes {
            table.words[write.at as usize] = write.value;
        }
        rig.stream.upload_now(&writes_there, 0, &writes).unwrap();
        let args = &mut [Arg::buffer(&words), Arg::buffer(&writes_there), Arg::u32(16)];
        rig.stream.launch(&kernel, Shape::new(1, 32), args).unwrap();
        rig.stream.finish(LIMIT).unwrap();
    }
    // The drop stops the kernel and frees its memory.
    drop((resident, control, words, header, writes_there, kernel));
    let KernelRig { device, stream, _one, .. } = rig;
    drop((stream, device));
    if let Some(mock) = testing::driver().and_then(testing::TestDriver::mock) {
        assert_eq!((mock.memory_used(), mock.host_used()), (0, 0));
    }
}
