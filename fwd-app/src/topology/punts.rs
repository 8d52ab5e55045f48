//! Rings of punts from the sending stages to the router, and of the router's packets to one stage.
//!
//! All sending stages share the rings, one per class. The router sends to the first stage alone, so packets of a neighbour stay in order.

use crate::datapath::Published;
use crate::datapath::drop_reason::PuntClass;
use crate::datapath::punt::{PuntAddresses, PuntMarker};
use crate::datapath::tx::{ORIGINATED_MAX, Originated, PuntSender};
use arc_swap::ArcSwap;
use dpdk_ffi::{Burst, DpdkError, Eal, Ring, RingSync, SocketId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) const RING_SLOTS: u32 = 1024;

/// Most packets that wait for one neighbour, and most unresolved neighbours of an interface.
pub(crate) const WAITING: (usize, usize) = (8, 128);

/// Most packets held by punts of `ports` interfaces: in the rings, on the way back, and waiting for neighbours.
pub(crate) const fn held_max(ports: usize) -> usize {
    let rings = (PuntClass::ALL.len() + 1) * RING_SLOTS as usize;
    if ports == 0 { 0 } else { rings + waiting_max(ports) }
}

/// Most packets that wait for neighbours on `ports` interfaces. The pool has mbufs for them.
pub(crate) const fn waiting_max(ports: usize) -> usize {
    ports * WAITING.0 * WAITING.1
}

pub(crate) struct PuntRings {
    /// By class. The tag of an mbuf is a [`PuntTag`](crate::datapath::punt::PuntTag).
    pub(crate) rings: [Ring; PuntClass::ALL.len()],
    /// By port: whether a neighbour's answer may have been dropped since the router last checked.
    pub(crate) have_lost_answers: Arc<[AtomicBool]>,
    /// Packets of the router, with the egress port as tag.
    pub(crate) originated: Ring,
    /// Router packets that drivers may hold: the descriptors of all their TX queues.
    pub(crate) kept_max: usize,
    /// Set by the router when its pool runs low: the sending stage makes drivers free sent mbufs.
    pub(crate) is_short: Arc<AtomicBool>,
    pub(crate) published: Arc<Published>,
    /// By port; `None` where a port is no interface.
    ours: Vec<Option<Arc<ArcSwap<PuntAddresses>>>>,
}

impl PuntRings {
    /// Like [`Self::new`]; `None` when no port is an interface.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn for_interfaces(
        eal: &Eal,
        ours: Vec<Option<Arc<ArcSwap<PuntAddresses>>>>,
        tx_descriptors: impl IntoIterator<Item = u16>,
    ) -> Result<Option<Self>, DpdkError> {
        let has_interfaces = ours.iter().any(Option::is_some);
        has_interfaces.then(|| Self::new(eal, ours, tx_descriptors)).transpose()
    }

    /// Creates rings for ports with local addresses `ours` and `tx_descriptors`, both by port.
    ///
    /// # Errors
    /// When no memory is left for the rings.
    pub(crate) fn new(
        eal: &Eal,
        ours: Vec<Option<Arc<ArcSwap<PuntAddresses>>>>,
        tx_descriptors: impl IntoIterator<Item = u16>,
    ) -> Result<Self, DpdkError> {
        let of_interfaces = ours.iter().zip(tx_descriptors).filter(|(ours, _)| ours.is_some());
        let kept_max = of_interfaces.map(|(_, descriptors)| usize::from(descriptors)).sum();
        let ring = |name, sync| Ring::new(eal, name, RING_SLOTS, sync, SocketId::ANY);
        Ok(Self {
            rings: [
                ring("resolution", RingSync::MpSc)?,
                ring("local", RingSync::MpSc)?,
                ring("errors", RingSync::MpSc)?,
            ],
            have_lost_answers: ours.iter().map(|_| AtomicBool::default()).collect(),
            originated: ring("originated", RingSync::SpSc)?,
            kept_max,
            is_short: Arc::default(),
            published: Arc::default(),
            ours,
        })
    }

    /// # Errors
    /// When another stage has them.
    pub(crate) fn ends(&self, eal: &Eal, tx: u16, batch_max: usize) -> Result<PuntSender, DpdkError> {
        let consumer = (tx == 0).then(|| self.originated.consumer()).transpose()?;
        let originated = consumer.map(|from| Originated {
            from,
            fresh: Burst::with_capacity(eal, ORIGINATED_MAX),
            is_short: Arc::clone(&self.is_short),
        });
        let [resolution, local, errors] = &self.rings;
        Ok(PuntSender {
            punts: [resolution.producer()?, local.producer()?, errors.producer()?],
            sorted: PuntClass::ALL.map(|_| Burst::with_capacity(eal, batch_max)),
            classes: Vec::with_capacity(batch_max),
            have_lost_answers: Arc::clone(&self.have_lost_answers),
            originated,
        })
    }

    pub(crate) fn punting(&self, port: u16, parts: usize) -> Option<PuntMarker> {
        let ours = self.ours.get(usize::from(port))?.as_ref()?;
        let ports = u16::try_from(self.ours.len()).unwrap_or(u16::MAX);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        Some(PuntMarker::new(Arc::clone(ours), ports, RING_SLOTS / parts.max(1)))
    }
}
