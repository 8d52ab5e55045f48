//! `crate::topology` around the pipeline's stages.

#[path = "../../../fwd-app/src/topology/pipeline.rs"]
pub(crate) mod pipeline;
#[path = "../../../fwd-app/src/topology/stage.rs"]
mod stage;

pub(crate) use stage::{Stage, StageOutcome, StageProgress};

use crate::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct StageControl {
    stop_rx: AtomicBool,
}

impl StageControl {
    pub(crate) fn stop_rx(&self) {
        self.stop_rx.store(true, Ordering::Release);
    }
    pub(crate) fn is_paused(&self) -> bool {
        false
    }
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_rx.load(Ordering::Relaxed)
    }
}
