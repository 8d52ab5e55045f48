//! `crate::topology` around the pipeline's stages.

#[path = "../../../fwd-app/src/topology/pipeline.rs"]
pub(crate) mod pipeline;

use crate::datapath::{Counters, Latency};
use crate::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Worked,
    Idle,
    Done,
}

pub(crate) trait Stage: Send {
    fn poll(&mut self) -> Progress;
    fn finish(self: Box<Self>) -> Outcome;
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counters: Counters,
    pub(crate) latency: Option<Latency>,
    pub(crate) held: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    stop_rx: AtomicBool,
}

impl Control {
    pub(crate) fn stop_rx(&self) {
        self.stop_rx.store(true, Ordering::Release);
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_rx.load(Ordering::Relaxed)
    }
}
