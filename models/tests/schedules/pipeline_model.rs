//! Batches between lcores: no loss, no duplicates; inputs keep their order, and all stages end, also when one ends early.

use crate::channel::{Receiver, Sender, bounded, full};
use crate::check::{InjectedFault, check, check_fails};
use crate::coop_engines::{Engine, EngineState, Trouble};
use crate::datapath::audit::AuditSampler;
use crate::datapath::counters::BusyClock;
use crate::datapath::lookup::InFlight;
use crate::datapath::rx::Rx;
use crate::datapath::swap::{ReaderSwap, VrfReader};
use crate::datapath::tx::{Tx, Wire};
use crate::datapath::vlans::VlanSort;
use crate::datapath::{Batch, Counters, EgressTable};
use crate::memory::KeyArena;
use crate::sync::{Arc, thread};
use crate::topology::pipeline::{BATCHES_PER_INPUT, EngineStage, RxStage, TxStage, VlanStock, VrfInFlight};
use crate::topology::{Stage, StageControl, StageOutcome, StageProgress};
use crate::{Burst, tsc};
use arc_swap::{ArcSwap, Cache};
use fib::{EngineReader, EngineWriter};
use shuttle::rand::{Rng, thread_rng};

/// Inputs, the last one with VLANs in another VRF; packets per input, more than fit in its batches; packets per batch.
const INPUTS: usize = 2;
const PACKETS: u32 = 20;
const BATCH: usize = Burst::CAPACITY;

type Travelling = Box<Batch>;
type Channel = (Sender<Travelling>, Receiver<Travelling>);

/// Stages as `topology/lcores.rs` wires them, with `senders` tx stages, and receivers that count the batches left behind.
fn stages(
    senders: usize,
    trouble: Trouble,
    control: &Arc<StageControl>,
    wire: &Wire,
    swap: &Arc<ReaderSwap>,
) -> (Vec<Box<dyn Stage>>, Vec<Receiver<Travelling>>) {
    let has_vlans = |input| input == INPUTS - 1;
    let batches = |input| BATCHES_PER_INPUT + usize::from(has_vlans(input));
    let all = (0..INPUTS).map(batches).sum();
    let homes: Vec<Channel> = (0..INPUTS)
        .map(|input| {
            let home = bounded(batches(input));
            for _ in 0..batches(input) {
                let mut batch = Box::new(Batch::new(Burst::default(), &mut KeyArena).unwrap());
                batch.input = input;
                drop(home.0.try_send(batch));
            }
            home
        })
        .collect();
    let to_engine: Channel = bounded(all);
    let to_tx: Vec<Channel> = (0..senders).map(|_| bounded(all)).collect();
    let mut stages: Vec<Box<dyn Stage>> = Vec::new();
    for (input, home) in homes.iter().enumerate() {
        stages.push(Box::new(RxStage {
            rx: Rx { last: 0, end: PACKETS },
            input,
            free: home.1.clone(),
            to_engine: to_engine.0.clone(),
            control: Arc::clone(control),
            published: Arc::default(),
            counters: Counters::default(),
            clock: BusyClock::default(),
            filling: None,
            vlans: has_vlans(input).then(|| Box::new(VlanStock::new(VlanSort { odd: Vec::new() }, 0))),
            turn: 0,
        }));
    }
    let vrf = |()| VrfInFlight {
        in_flight: InFlight::new(
            reader(trouble),
            if trouble == Trouble::Hangs { 100 } else { u64::MAX },
            Arc::default(),
            AuditSampler::default(),
        ),
        egress: Cache::new(Arc::new(ArcSwap::from_pointee(EgressTable))),
        count: None,
    };
    stages.push(Box::new(EngineStage {
        from_rx: to_engine.1.clone(),
        to_tx: to_tx.iter().map(|(sender, _)| sender.clone()).collect(),
        vrfs: [(), ()].map(vrf).into(),
        swap: Arc::clone(swap),
        watch: Arc::default(),
        lane: 0,
        published: Arc::default(),
        counters: Counters::default(),
        clock: BusyClock::default(),
        turn: 0,
        closed: false,
    }));
    for (_, receiver) in &to_tx {
        stages.push(Box::new(TxStage {
            from_engine: receiver.clone(),
            homes: homes.iter().map(|(sender, _)| sender.clone()).collect(),
            tx: Tx { wire: Arc::clone(wire) },
            published: Arc::default(),
            counters: Counters::default(),
            turn: 0,
        }));
    }
    let kept = to_tx.iter().chain([&to_engine]).map(|(_, receiver)| receiver.clone()).collect();
    (stages, kept)
}

fn reader(trouble: Trouble) -> Box<dyn EngineReader> {
    Engine(EngineState::new("engine", trouble, thread_rng().gen_range(0..4))).reader(4, BATCH).unwrap()
}

/// Runs an lcore a stage, and changes the engine once. With `ends_early` one lcore ends after some polls, as a stage that panics does.
fn model(senders: usize, trouble: Trouble, ends_early: bool) {
    let (control, wire) = (Arc::new(StageControl::default()), Wire::default());
    let swap = Arc::new(ReaderSwap::default());
    let (stages, kept) = stages(senders, trouble, &control, &wire, &swap);
    let early = if ends_early { thread_rng().gen_range(0..stages.len()) } else { usize::MAX };
    let lcores: Vec<_> = stages
        .into_iter()
        .enumerate()
        .map(|(at, mut stage)| {
            let (control, mut polls) = (Arc::clone(&control), thread_rng().gen_range(0..30));
            thread::spawn(move || -> StageOutcome {
                loop {
                    if at == early && polls == 0 {
                        control.stop_rx();
                        return stage.finish();
                    }
                    polls -= 1;
                    match stage.poll() {
                        StageProgress::Done => return stage.finish(),
                        StageProgress::Idle => thread::yield_now(),
                        StageProgress::Worked => {}
                    }
                }
            })
        })
        .collect();
    let swap_at = thread_rng().gen_range(0..200);
    for turn in 0..thread_rng().gen_range(0..200) {
        if turn == swap_at {
            swap.offer(VrfReader { vrf: thread_rng().gen_range(0..2), reader: reader(trouble) });
        }
        tsc();
        thread::yield_now();
    }
    control.stop_rx();
    let (mut received, mut sent, mut dropped, mut held) = (0, 0, 0, 0);
    for lcore in lcores {
        let outcome = lcore.join().unwrap();
        received += outcome.counters.rx_packets;
        sent += outcome.counters.tx_packets;
        dropped += outcome.counters.drops.total();
        held += outcome.held;
    }
    let left = kept.iter().flat_map(Receiver::try_iter).map(|batch| batch.packets.len() as u64).sum::<u64>();
    held += left;
    assert_eq!(
        received,
        sent + dropped + held,
        "packets are lost: {sent} sent, {dropped} dropped, {held} held"
    );
    assert!(ends_early || held == 0, "{held} packets held in the end");
    assert!(trouble != Trouble::Never || ends_early || dropped == 0, "packets dropped without a reason");
    assert_eq!(full(), 0, "a channel was full");
    for input in 0..INPUTS {
        // Packets of one VRF stay in order.
        let mut last = [0; 2];
        for (_, packet) in wire.lock().unwrap().iter().filter(|(from, _)| *from == input) {
            let vrf = if input == INPUTS - 1 { (packet % 2) as usize } else { 0 };
            assert!(*packet > last[vrf], "input {input}: {packet} left after {}", last[vrf]);
            last[vrf] = *packet;
        }
    }
}

fn usual() {
    model(thread_rng().gen_range(1..=2), Trouble::Never, false);
}

fn engine_fails() {
    let trouble = [Trouble::Refuses, Trouble::Fails, Trouble::Short][thread_rng().gen_range(0..3)];
    model(1, trouble, false);
}

fn engine_stalls() {
    model(1, Trouble::Hangs, false);
}

fn stage_ends() {
    model(thread_rng().gen_range(1..=2), Trouble::Never, true);
}

#[test]
fn no_batch_is_lost_or_overtaken() {
    check(usual, 1000);
    check_fails(usual, InjectedFault::NarrowChannels, 300, &["a channel was full", "packets are lost"]);
}

#[test]
fn an_engine_that_fails_costs_its_packets_only() {
    check(engine_fails, 1000);
}

#[test]
fn an_engine_that_stalls_stops_no_stage() {
    check(engine_stalls, 1000);
}

#[test]
fn stages_end_when_one_of_them_has_ended() {
    check(stage_ends, 1000);
}
