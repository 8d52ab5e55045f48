//! Runs the blocks of a launch: they start in order, each runs until it is done or only waits, and waiting blocks take
//! turns. So a kernel whose blocks wait for each other, or for the host, makes progress as on a device that holds all its
//! blocks. When all blocks only poll, the thread yields the CPU, then sleeps for growing times.

use super::warp::{KernelFault, Pause, Surroundings, Warp, WarpCounters};
use crate::control::control;
use crate::memory::{MockMemory, POISON};
use crate::ptx::code::PtxKernel;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of polling blocks before the thread sleeps instead of yielding, and before each doubling of the sleep.
const IDLE_ROUNDS: u32 = 20;
const IDLE_SLEEP: Duration = Duration::from_micros(50);
/// Doublings of the sleep, up to 800 us: a kernel that waits for the host takes little CPU time.
const IDLE_DOUBLINGS: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<PtxKernel>,
    pub(crate) params: Vec<u8>,
    /// Blocks a row, and rows.
    pub(crate) grid: [u32; 2],
    pub(crate) threads: u32,
}

pub(crate) trait Owner {
    /// The code with which the launch must stop: the context is lost, or the stream is destroyed.
    fn stop(&mut self) -> Option<u32>;
    fn delays(&self) -> bool;
    fn between_blocks(&mut self);
    /// A place for a random delay, in which others may change memory during a lookup.
    fn before_load(&mut self);
}

struct ThreadBlock {
    warps: Vec<Warp>,
    shared: Vec<u32>,
}

enum BlockEnd {
    Done,
    Waits,
}

impl ThreadBlock {
    fn new(launch: &Launch) -> Self {
        Self {
            warps: (0..launch.threads.div_ceil(32)).map(|w| Warp::new(launch, w * 32)).collect(),
            shared: vec![POISON; launch.kernel.shared_bytes.div_ceil(4)],
        }
    }

    fn restart(&mut self, launch: &Launch, place: [u32; 2]) {
        self.shared.fill(POISON);
        for warp in &mut self.warps {
            warp.restart(launch, place);
        }
    }

    fn step(
        &mut self,
        launch: &Launch,
        memory: &'static MockMemory,
        owner: &mut dyn Owner,
        counters: &mut WarpCounters,
    ) -> Result<BlockEnd, KernelFault> {
        let (delays, watched) = (owner.delays(), control().watched());
        loop {
            let (mut yielded, mut at_barrier) = (false, false);
            for warp in self.warps.iter_mut().filter(|w| w.live() != 0) {
                let mut at = Surroundings {
                    kernel: &launch.kernel,
                    params: &launch.params,
                    memory,
                    shared: &mut self.shared,
                    counters,
                    owner,
                    delays,
                    watched: watched.clone(),
                };
                match warp.run(&mut at)? {
                    Pause::Done => {}
                    Pause::Yield => yielded = true,
                    Pause::Barrier => at_barrier = true,
                }
            }
            if yielded {
                return Ok(BlockEnd::Waits);
            }
            if !at_barrier {
                return Ok(BlockEnd::Done);
            }
            for warp in &mut self.warps {
                warp.release();
            }
        }
    }
}

pub(crate) fn run(
    launch: &Launch,
    memory: &'static MockMemory,
    owner: &mut dyn Owner,
    counters: &mut WarpCounters,
) -> Result<(), KernelFault> {
    let mut places = (0..launch.grid[1]).flat_map(|y| (0..launch.grid[0]).map(move |x| [x, y]));
    let mut idle = 0_u32;
    let (mut waiting, mut spare): (Vec<ThreadBlock>, Vec<ThreadBlock>) = (Vec::new(), Vec::new());
    loop {
        if let Some(code) = owner.stop() {
            return Err(KernelFault { code, what: format!("kernel `{}` was stopped", launch.kernel.name) });
        }
        owner.between_blocks();
        if let Some(place) = places.next() {
            let mut block = spare.pop().unwrap_or_else(|| ThreadBlock::new(launch));
            block.restart(launch, place);
            match block.step(launch, memory, owner, counters)? {
                BlockEnd::Done => spare.push(block),
                BlockEnd::Waits => waiting.push(block),
            }
            continue;
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let stores = counters.stores;
        let mut still = Vec::with_capacity(waiting.len());
        for mut block in waiting {
            match block.step(launch, memory, owner, counters)? {
                BlockEnd::Done => spare.push(block),
                BlockEnd::Waits => still.push(block),
            }
        }
        waiting = still;
        idle = if counters.stores == stores { idle + 1 } else { 0 };
        match idle / IDLE_ROUNDS {
            0 => std::thread::yield_now(),
            slept => std::thread::sleep(IDLE_SLEEP * (1 << (slept - 1).min(IDLE_DOUBLINGS))),
        }
    }
}
