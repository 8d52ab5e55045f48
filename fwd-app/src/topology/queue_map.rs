//! Which lcore serves which RX queue.

use std::fmt;

/// An RX queue of a port, and the lcore that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueLcore {
    /// The port's index.
    pub(crate) port: u16,
    /// The RX queue's index on that port.
    pub(crate) queue: u16,
    /// The lcore that polls the queue.
    pub(crate) lcore: u16,
}

/// Why a list of tuples is no [`QueueMap`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueMapError {
    /// One queue for two lcores: packets would be reordered, and DPDK forbids it.
    #[error(
        "queue {queue} of port {port} is given to lcore {first} and to lcore {second}; a queue has one lcore"
    )]
    TwoLcores { port: u16, queue: u16, first: u16, second: u16 },
    /// The same tuple twice.
    #[error("({port},{queue},{lcore}) is there twice")]
    Twice { port: u16, queue: u16, lcore: u16 },
    /// Queues of a port must be 0, 1, .. without a hole, because DPDK numbers them so.
    #[error("port {port} has queue {queue} but no queue {missing}; its queues must be 0, 1, ..")]
    Hole { port: u16, queue: u16, missing: u16 },
}

/// Which lcore serves which queue, in the order given. No queue occurs twice, and each port's queues are `0..n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueMap(Vec<QueueLcore>);

impl QueueMap {
    /// The map of these tuples.
    ///
    /// # Errors
    /// [`QueueMapError`] for a queue that occurs twice, and for a hole among a port's queues.
    pub(crate) fn new(tuples: Vec<QueueLcore>) -> Result<Self, QueueMapError> {
        for (i, &QueueLcore { port, queue, lcore }) in tuples.iter().enumerate() {
            if let Some(other) = tuples[..i].iter().find(|other| (other.port, other.queue) == (port, queue)) {
                return Err(if other.lcore == lcore {
                    QueueMapError::Twice { port, queue, lcore }
                } else {
                    QueueMapError::TwoLcores { port, queue, first: other.lcore, second: lcore }
                });
            }
        }
        for &QueueLcore { port, queue, .. } in &tuples {
            let is_there = |q: &u16| tuples.iter().any(|other| (other.port, other.queue) == (port, *q));
            if let Some(missing) = (0..queue).find(|q| !is_there(q)) {
                return Err(QueueMapError::Hole { port, queue, missing });
            }
        }
        Ok(Self(tuples))
    }

    /// The tuples, in the order given.
    pub(crate) fn tuples(&self) -> &[QueueLcore] {
        &self.0
    }

    /// The lcores, each once, in the order in which they first occur.
    pub(crate) fn lcores(&self) -> Vec<u16> {
        let mut lcores = Vec::new();
        for tuple in &self.0 {
            if !lcores.contains(&tuple.lcore) {
                lcores.push(tuple.lcore);
            }
        }
        lcores
    }
}

impl fmt::Display for QueueMap {
    /// As `--config` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, QueueLcore { port, queue, lcore }) in self.0.iter().enumerate() {
            write!(f, "{}({port},{queue},{lcore})", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
