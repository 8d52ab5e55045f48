//! Queues of a port that goes out of use, on their way from the stages of an lcore to the control thread, or back.

use dpdk_ffi::{QueueId, RxQueue, TxQueue};

/// Queues of a port, of one lcore.
pub(crate) struct PortQueues {
    /// The port's index.
    pub(crate) port: u16,
    /// Its RX queues.
    pub(crate) rx: Queues<RxQueue>,
    /// Its TX queues.
    pub(crate) tx: Queues<TxQueue>,
}

/// Some queues, with room for all of one port that an lcore has, so that it does not allocate.
pub(crate) struct Queues<Q>(pub(crate) Vec<Q>);

impl<Q> Queues<Q> {
    /// A stage's side: puts its queue `theirs` here, or if it has none, takes that of this number.
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
