//! Blocks of a launch: started in order, each run until it is done or only waits; those that wait take turns.
//!
//! So a kernel whose blocks wait for each other, or for the host, gets on as on a device where all its blocks are
//! resident. When nothing but polling happens the thread yields the CPU, then sleeps.

use super::warp::{Counters, Fault, Pause, Place, Surroundings, Warp};
use crate::memory::{Memory, POISON};
use crate::ptx::code::Kernel;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Multiprocessors that the mock has.
pub(crate) const MULTIPROCESSORS: u32 = 132;

/// Rounds of mere polling before the thread sleeps instead of yielding.
const IDLE_ROUNDS: u32 = 200;
const IDLE_SLEEP: Duration = Duration::from_micros(50);
const IDLE_SLEEP_MAX: Duration = Duration::from_millis(2);

/// A kernel with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) params: Vec<u8>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of shared memory beside the kernel's own.
    pub(crate) shared_dynamic: u32,
}

/// What the runner asks its owner.
pub(crate) trait Owner {
    /// Whether the launch must stop, and with which code: the context is lost, or the stream goes away.
    fn stop(&mut self) -> Option<u32>;
    /// Whether delays are asked for.
    fn delays(&self) -> bool;
    /// Between blocks: a place for a random delay.
    fn between_blocks(&mut self);
    /// Before a load of a warp: another, so that others change memory in the middle of what this warp does.
    fn before_load(&mut self);
}

struct Block {
    warps: Vec<Warp>,
    shared: Vec<u32>,
}

enum Outcome {
    Done,
    Waits,
}

impl Block {
    fn new(launch: &Launch, place: &Place) -> Self {
        let threads: u32 = launch.block.iter().product();
        let bytes = launch.kernel.shared_bytes + launch.shared_dynamic as usize;
        let warps = (0..threads.div_ceil(32)).map(|w| Warp::new(&launch.kernel, w * 32, place)).collect();
        Self { warps, shared: vec![POISON; bytes.div_ceil(4)] }
    }

    fn restart(&mut self, launch: &Launch, place: &Place) {
        self.shared.fill(POISON);
        for warp in &mut self.warps {
            warp.restart(&launch.kernel, place);
        }
    }

    /// Runs all warps until none can go on without others, or all are done.
    fn step(
        &mut self,
        launch: &Launch,
        memory: &'static Memory,
        owner: &mut dyn Owner,
        counters: &mut Counters,
    ) -> Result<Outcome, Fault> {
        let delays = owner.delays();
        loop {
            let (mut yielded, mut at_barrier, mut numbers) = (false, false, None);
            for warp in self.warps.iter_mut().filter(|w| w.live() != 0) {
                let mut at = Surroundings {
                    kernel: &launch.kernel,
                    params: &launch.params,
                    memory,
                    shared: &mut self.shared,
                    counters,
                    owner,
                    delays,
                };
                match warp.run(&mut at)? {
                    Pause::Done => {}
                    Pause::Yield => yielded = true,
                    Pause::Barrier => {
                        at_barrier = true;
                        let number = warp.barrier().map_err(|n| different(launch, n))?;
                        if numbers.is_some() && number != numbers {
                            return Err(different(launch, number.unwrap_or(0)));
                        }
                        numbers = number;
                    }
                }
            }
            if yielded {
                return Ok(Outcome::Waits);
            }
            if !at_barrier {
                return Ok(Outcome::Done);
            }
            for warp in &mut self.warps {
                warp.release();
            }
        }
    }
}

fn different(launch: &Launch, number: u32) -> Fault {
    Fault {
        code: 719,
        what: format!(
            "kernel `{}`: threads of a block wait at different barriers, {number} among them",
            launch.kernel.name
        ),
    }
}

/// Runs a launch to its end.
pub(crate) fn run(
    launch: &Launch,
    memory: &'static Memory,
    owner: &mut dyn Owner,
    counters: &mut Counters,
) -> Result<(), Fault> {
    let total: u64 = launch.grid.iter().map(|&n| u64::from(n)).product();
    let (mut next, mut idle) = (0_u64, 0_u32);
    let (mut waiting, mut spare): (Vec<Block>, Vec<Block>) = (Vec::new(), Vec::new());
    loop {
        if let Some(code) = owner.stop() {
            return Err(Fault { code, what: format!("kernel `{}` was stopped", launch.kernel.name) });
        }
        owner.between_blocks();
        if next < total {
            let place = place(launch, next);
            next += 1;
            let mut block = spare.pop().unwrap_or_else(|| Block::new(launch, &place));
            block.restart(launch, &place);
            match block.step(launch, memory, owner, counters)? {
                Outcome::Done => spare.push(block),
                Outcome::Waits => waiting.push(block),
            }
            continue;
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let (stores, begin) = (counters.stores, Instant::now());
        let mut still = Vec::with_capacity(waiting.len());
        for mut block in waiting {
            match block.step(launch, memory, owner, counters)? {
                Outcome::Done => spare.push(block),
                Outcome::Waits => still.push(block),
            }
        }
        waiting = still;
        idle = if counters.stores == stores { idle + 1 } else { 0 };
        if idle > IDLE_ROUNDS {
            // As long as the round took: many blocks that poll leave half of a CPU to others.
            std::thread::sleep(begin.elapsed().clamp(IDLE_SLEEP, IDLE_SLEEP_MAX));
        } else {
            std::thread::yield_now();
        }
    }
}

fn place(launch: &Launch, number: u64) -> Place {
    let [x, y, _] = launch.grid.map(u64::from);
    Place {
        grid: launch.grid,
        block: launch.block,
        block_index: [(number % x) as u32, (number / x % y) as u32, (number / x / y) as u32],
        smid: (number % u64::from(MULTIPROCESSORS)) as u32,
        shared_dynamic: launch.shared_dynamic,
    }
}
