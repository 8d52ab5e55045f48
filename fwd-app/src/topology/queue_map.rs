//! Which lcore serves which RX queue.

use crate::datapath::EgressError;
use fib::PortRef;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueLcore {
    pub(crate) port: u16,
    pub(crate) queue: u16,
    pub(crate) lcore: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueMapError {
    /// Two lcores poll one queue: packets would be reordered, and DPDK forbids it.
    #[error(
        "queue {queue} of port {port} is given to lcore {first} and to lcore {second}; a queue has one lcore"
    )]
    TwoLcores { port: String, queue: u16, first: u16, second: u16 },
    #[error("({port},{queue},{lcore}) is given twice")]
    Twice { port: String, queue: u16, lcore: u16 },
    #[error("port {port} has queue {queue} but no queue {missing}; its queues must be 0, 1, ..")]
    Hole { port: String, queue: u16, missing: u16 },
    #[error("port {port} has both auto and named lcores; give only one of them")]
    BesideAuto { port: String },
    #[error(transparent)]
    NoPort(#[from] EgressError),
}

impl QueueMapError {
    pub(super) fn of_port(mut self, written: &PortRef) -> Self {
        match &mut self {
            Self::TwoLcores { port, .. }
            | Self::Twice { port, .. }
            | Self::Hole { port, .. }
            | Self::BesideAuto { port } => *port = written.to_string(),
            Self::NoPort(_) => {}
        }
        self
    }
}

/// The lcore of each queue, in the given order. No queue occurs twice, and the queues of each port are `0..n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueMap(Vec<QueueLcore>);

impl QueueMap {
    /// # Errors
    /// [`QueueMapError`] for a queue that occurs twice, or a gap among the queues of a port.
    pub(crate) fn new(tuples: Vec<QueueLcore>) -> Result<Self, QueueMapError> {
        for (i, &QueueLcore { port, queue, lcore }) in tuples.iter().enumerate() {
            if let Some(other) = tuples[..i].iter().find(|other| (other.port, other.queue) == (port, queue)) {
                return Err(if other.lcore == lcore {
                    QueueMapError::Twice { port: port.to_string(), queue, lcore }
                } else {
                    QueueMapError::TwoLcores {
                        port: port.to_string(),
                        queue,
                        first: other.lcore,
                        second: lcore,
                    }
                });
            }
        }
        for &QueueLcore { port, queue, .. } in &tuples {
            let is_there = |q: &u16| tuples.iter().any(|other| (other.port, other.queue) == (port, *q));
            if let Some(missing) = (0..queue).find(|q| !is_there(q)) {
                return Err(QueueMapError::Hole { port: port.to_string(), queue, missing });
            }
        }
        Ok(Self(tuples))
    }

    pub(crate) fn tuples(&self) -> &[QueueLcore] {
        &self.0
    }

    /// The lcores, each once, in order of first occurrence.
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
    /// In the syntax of `--config`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, QueueLcore { port, queue, lcore }) in self.0.iter().enumerate() {
            write!(f, "{}({port},{queue},{lcore})", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
