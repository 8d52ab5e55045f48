//! The reader contract: batches of any size, slots in any order, and typed errors for batches that do not fit.

use super::draw::{TestKey, Universe};
use super::options::{MakeEngine, Options};
use super::rig::{COLLECT_LIMIT, TestRig, collect, fail, reader_of};
use crate::{EngineError, EngineReader, Key, KeyBuffer, Keys, NextHopId, Routes, SlotId};
use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Instant;

/// Batch sizes around the lane counts 8, 16 and 32, which a kernel may get wrong, and sizes that the datapath uses.
const SIZES: [usize; 16] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 255, 256, 4096];
const SLOTS: u16 = 8;
const BATCH_MAX: usize = 4096;

fn load(rig: &mut TestRig) -> (Universe<u32>, Universe<u128>) {
    let (u4, u6) = (rig.universe::<u32>(64), rig.universe::<u128>(64));
    let delta = Routes { v4: rig.drawn(&u4, 3000), v6: rig.drawn(&u6, 3000) };
    rig.apply(&delta);
    (u4, u6)
}

/// Batches of 0 to 4096 keys, through `lookup` and through eight slots in flight with mixed families, collected in random order.
/// Also `lookup` of more than `batch_max` keys, readers made before and after deltas, and answers collected after a delta.
pub fn batches(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "batches", options);
    let mut early = reader_of(rig.writer.as_ref(), SLOTS, BATCH_MAX);
    let (u4, u6) = load(&mut rig);
    let mut late = reader_of(rig.writer.as_ref(), SLOTS, BATCH_MAX);
    for size in SIZES {
        rig.case(format_args!("batches of {size}"));
        for reader in [&mut early, &mut late] {
            one_lookup::<u32>(&mut rig, reader.as_mut(), &u4, size);
            one_lookup::<u128>(&mut rig, reader.as_mut(), &u6, size);
        }
    }
    rig.case(format_args!("lookup of more keys than a slot holds"));
    one_lookup::<u32>(&mut rig, early.as_mut(), &u4, BATCH_MAX * 2 + 1);
    one_lookup::<u128>(&mut rig, early.as_mut(), &u6, BATCH_MAX * 2 + 1);
    for round in 0..options.rounds(20) {
        rig.case(format_args!("slots in flight, round {round}"));
        slots_in_flight(&mut rig, early.as_mut(), &u4, &u6);
    }
    drop(early);
    rig.case(format_args!("another reader is gone"));
    one_lookup::<u32>(&mut rig, late.as_mut(), &u4, 1000);
    collected_after_a_delta(&mut rig, late.as_mut(), &u4);
}

fn draw<K: TestKey>(rig: &mut TestRig, universe: &Universe<K>, count: usize) -> Vec<K> {
    (0..count).map(|_| universe.key(&mut rig.rng)).collect()
}

fn one_lookup<K: TestKey>(
    rig: &mut TestRig,
    reader: &mut dyn EngineReader,
    universe: &Universe<K>,
    count: usize,
) {
    let keys = draw(rig, universe, count);
    let batch: KeyBuffer = keys.iter().copied().collect();
    // One element more than keys, to detect a write past the end.
    let mut answers = vec![NextHopId::MAX; count + 1];
    if let Err(error) = reader.lookup(batch.keys(), &mut answers[..count]) {
        fail(format_args!("{}: lookup of {count}: {error}", rig.name()));
    }
    rig.compare(&keys, &answers, &format!("lookup of {count}"));
    assert_eq!(answers[count], NextHopId::MAX, "{}: an answer was written behind the last", rig.name());
}

enum FlightKeys {
    V4(Vec<u32>),
    V6(Vec<u128>),
}

impl FlightKeys {
    fn batch(&self) -> KeyBuffer {
        match self {
            Self::V4(keys) => keys.iter().copied().collect(),
            Self::V6(keys) => keys.iter().copied().collect(),
        }
    }
}

fn slots_in_flight(
    rig: &mut TestRig,
    reader: &mut dyn EngineReader,
    u4: &Universe<u32>,
    u6: &Universe<u128>,
) {
    let mut flights: BTreeMap<u16, (FlightKeys, usize)> = BTreeMap::new();
    let slots = (0..SLOTS).chain((0..3).map(|_| u16::from(rig.rng.between(0, 7)))).collect::<Vec<_>>();
    for slot in slots {
        let size = SIZES[rig.rng.below(SIZES.len() - 1)];
        let flight = if rig.rng.percent(50) {
            FlightKeys::V4(draw(rig, u4, size))
        } else {
            FlightKeys::V6(draw(rig, u6, size))
        };
        if let Err(error) = reader.submit(SlotId(slot), flight.batch().keys()) {
            fail(format_args!("{}: submit of {size} to slot {slot}: {error}", rig.name()));
        }
        flights.insert(slot, (flight, size)); // a second batch in a slot replaces the first
    }
    let mut order: Vec<_> = flights.into_iter().collect();
    while !order.is_empty() {
        let (slot, (flight, len)) = order.swap_remove(rig.rng.below(order.len()));
        let mut answers = vec![NextHopId::MAX; len];
        if let Err(error) = collect(reader, SlotId(slot), flight.batch().keys(), &mut answers) {
            fail(format_args!("{}: collect of slot {slot}: {error}", rig.name()));
        }
        let asked = format!("slot {slot} of {len}");
        match flight {
            FlightKeys::V4(keys) => rig.compare(&keys, &answers, &asked),
            FlightKeys::V6(keys) => rig.compare(&keys, &answers, &asked),
        }
    }
}

/// The answers may be of either generation. The delta does not wait for the batch.
fn collected_after_a_delta(rig: &mut TestRig, reader: &mut dyn EngineReader, universe: &Universe<u32>) {
    rig.case(format_args!("collected after a delta"));
    for _ in 0..20 {
        let keys = draw(rig, universe, 256);
        let before: Vec<_> = keys.iter().map(|key| rig.oracle.v4.lookup(*key)).collect();
        if let Err(error) = reader.submit(SlotId(1), Keys::V4(&keys)) {
            fail(format_args!("{}: submit: {error}", rig.name()));
        }
        let changes = rig.drawn(universe, 50);
        rig.change(changes);
        let mut answers = vec![NextHopId::MAX; keys.len()];
        if let Err(error) = collect(reader, SlotId(1), Keys::V4(&keys), &mut answers) {
            fail(format_args!("{}: collect: {error}", rig.name()));
        }
        for ((key, answer), old) in keys.iter().zip(answers).zip(before) {
            let new = rig.oracle.v4.lookup(*key);
            assert!(
                answer == old || answer == new,
                "{}: {} answered {answer}; before the delta {old} was right, after it {new}",
                rig.name(),
                key.to_ip()
            );
        }
    }
}

/// Too large a batch, answers of another length, unequal IPv6 halves, and other keys at `collect` than at `submit` must be refused with
/// [`EngineError::Batch`]; too large an id with [`EngineError::Full`]. Reader and old table stay in service.
pub fn refusals(make: MakeEngine<'_>, options: Options) {
    let mut rig = TestRig::new(make, "refusals", options);
    let (u4, u6) = load(&mut rig);
    let limit = rig.reader.batch_max();
    let (v4, half) = (vec![0u32; limit + 1], vec![0u64; limit + 1]);
    let mut few = vec![NextHopId::NONE; 3];
    let refused = [
        ("IPv4 batch over batch_max", rig.reader.submit(SlotId(0), Keys::V4(&v4))),
        ("IPv6 batch over batch_max", rig.reader.submit(SlotId(0), Keys::V6 { hi: &half, lo: &half })),
        ("4 keys for 3 answers", rig.reader.lookup(Keys::V4(&v4[..4]), &mut few)),
        ("2 keys for 3 answers", rig.reader.lookup(Keys::V4(&v4[..2]), &mut few)),
        (
            "4 IPv6 keys for 3 answers",
            rig.reader.lookup(Keys::V6 { hi: &half[..4], lo: &half[..4] }, &mut few),
        ),
        (
            "IPv6 halves 3 and 2, lookup",
            rig.reader.lookup(Keys::V6 { hi: &half[..3], lo: &half[..2] }, &mut few),
        ),
        ("IPv6 halves 2 and 3, submit", {
            rig.reader.submit(SlotId(0), Keys::V6 { hi: &half[..2], lo: &half[..3] })
        }),
        ("IPv6 halves 3 and 2, submit", {
            rig.reader.submit(SlotId(0), Keys::V6 { hi: &half[..3], lo: &half[..2] })
        }),
    ];
    for (what, got) in refused {
        let typed = matches!(got, Err(EngineError::Batch { .. }));
        assert!(typed, "{}: {what} must be EngineError::Batch, got {got:?}", rig.name());
    }
    other_keys_at_collect(&mut rig, &u4);
    rig.case(format_args!("after refused batches"));
    let keys = draw(&mut rig, &u4, 300);
    rig.check(&keys);
    rig.check(&keys);
    id_above_capacity(&mut rig, &u4, &u6);
}

/// The batch stays where it is, to be collected with its own keys or discarded.
fn other_keys_at_collect(rig: &mut TestRig, universe: &Universe<u32>) {
    rig.case(format_args!("other keys at collect"));
    let (name, slot) = (rig.name(), SlotId(0));
    let (keys, half) = (draw(rig, universe, 4), [0; 4]);
    let mine = Keys::V4(&keys[..3]);
    let others = [
        ("too few", Keys::V4(&keys[..2])),
        ("none", Keys::V4(&[])),
        ("too many", Keys::V4(&keys)),
        ("of the other family", Keys::V6 { hi: &half[..3], lo: &half[..3] }),
        ("half of another length", Keys::V6 { hi: &half[..3], lo: &half[..2] }),
    ];
    for discards in [true, false] {
        if let Err(error) = rig.reader.submit(slot, mine) {
            fail(format_args!("{name}: submit: {error}"));
        }
        for (what, other) in others {
            let got = rig.reader.collect(slot, other).map_ok(<[_]>::to_vec);
            let typed = matches!(got, Poll::Ready(Err(EngineError::Batch { .. })));
            assert!(typed, "{name}: keys that are {what} must be EngineError::Batch, got {got:?}");
        }
        let mut answers = [NextHopId::MAX; 3];
        let done = if discards {
            discard(rig, slot)
        } else {
            collect(rig.reader.as_mut(), slot, mine, &mut answers)
        };
        if let Err(error) = done {
            fail(format_args!("{name}: after refused keys: {error}"));
        }
        if !discards {
            rig.compare(&keys[..3], &answers, "the batch's own keys");
        }
    }
}

fn discard(rig: &mut TestRig, slot: SlotId) -> Result<(), EngineError> {
    let start = Instant::now();
    loop {
        if let Poll::Ready(discarded) = rig.reader.discard(slot) {
            return discarded;
        }
        assert!(start.elapsed() < COLLECT_LIMIT, "{}: a discarded batch that never ends", rig.name());
        std::thread::yield_now();
    }
}

fn id_above_capacity(rig: &mut TestRig, u4: &Universe<u32>, u6: &Universe<u128>) {
    let Ok(id) = NextHopId::new(rig.writer.info().capacity.next_hop_id_max.saturating_add(1)) else {
        return; // the engine stores every id that a `NextHopId` can have
    };
    rig.case(format_args!("id {id}, above the engine's largest"));
    let mut delta = Routes { v4: rig.drawn(u4, 100), v6: rig.drawn(u6, 100) };
    let (mut bad_v4, mut bad_v6) = (delta.clone(), delta.clone());
    (bad_v4.v4[50].next_hop, bad_v6.v6[50].next_hop) = (id, id);
    super::limits::expect_full(rig, &mut bad_v4);
    super::limits::expect_full(rig, &mut bad_v6);
    rig.apply(&delta);
    rig.check_delta(&mut delta);
}
