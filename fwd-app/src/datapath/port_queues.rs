//! The queues of a port that goes out of use or returns.

use dpdk_ffi::{QueueId, RxQueue, TxQueue};

/// Queues of a port that goes out of use or returns, in transit between an lcore's stages and the control thread.
pub(crate) struct PortQueues {
    pub(crate) port: u16,
    pub(crate) rx: Queues<RxQueue>,
    pub(crate) tx: Queues<TxQueue>,
}

/// Queues, with capacity for all of a port on one lcore, so that the lcore does not allocate.
pub(crate) struct Queues<Q>(pub(crate) Vec<Q>);

impl<Q> Queues<Q> {
    /// Called by a stage: stores its queue `theirs` here, or if it has none, takes back the queue of this number.
    pub(crate) fn exchange(
        &mut self,
        number: QueueId,
        theirs: &mut Option<Q>,
        number_of: impl Fn(&Q) -> QueueId,
    ) {
        match theirs.take() {
            Some(queue) => self.0.push(queue),
            None => {
                let at = self.0.iter().position(|queue| number_of(queue) == number);
                *theirs = at.map(|at| self.0.swap_remove(at));
            }
        }
    }
}
