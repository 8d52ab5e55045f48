//! Two engines in one: the common parts of `--fallback` and of the engine `coop`.
//!
//! [`fallback`] puts one engine behind another; `coop` (in `lpm-phi`) splits each batch between two. In both, an engine that fails goes
//! out of service for good, the other one continues alone, and keys in flight are looked up again.
//!
//! Invariant: at least one engine is in service. The errors of the last one go to its caller.

pub mod fallback;
mod flight;
pub mod group;
pub mod half;
mod halves;
mod helper;
pub mod lane;
pub mod reader;
pub mod service;
pub mod why;

pub use half::HalfWriter;
pub use halves::{BOTH, FIRST, HALVES, SECOND};
pub use service::{BatchOutcome, Listener, Service};
pub use why::{Wait, Why};

use crate::sync::Arc;
use fib::{EngineError, EngineInfo, FibDelta, Generation, Rib};

/// The writers of two engines.
pub struct Pair {
    /// `None` if it has no table: it could not be made, or its threads read the second half's table.
    first: Option<HalfWriter>,
    second: HalfWriter,
    service: Arc<Service>,
    generation: Generation,
}

impl Pair {
    /// A pair of two empty engines.
    pub fn new(service: Arc<Service>, first: Option<HalfWriter>, second: HalfWriter) -> Self {
        Self { first, second, service, generation: Generation::default() }
    }

    /// Which of the engines are in service.
    #[must_use]
    pub fn service(&self) -> Arc<Service> {
        Arc::clone(&self.service)
    }

    /// The first half, if it has a table.
    #[must_use]
    pub fn first(&self) -> Option<&HalfWriter> {
        self.first.as_ref()
    }

    /// The second half.
    #[must_use]
    pub fn second(&self) -> &HalfWriter {
        &self.second
    }

    /// The generation in service.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether `half` has a table that lookups use. A single table is used even when its half is out of service.
    fn is_used(&self, half: usize) -> bool {
        if self.first.is_some() { self.service.has(half) } else { half == SECOND }
    }

    /// The halves in service that have tables.
    pub fn used(&self) -> impl Iterator<Item = &HalfWriter> {
        let first = self.first.iter().filter(|_| self.is_used(FIRST));
        first.chain([&self.second].into_iter().filter(|_| self.is_used(SECOND)))
    }

    /// Name and instruction set of the first half in service; capacity and wishes of the halves in service. A family needs a
    /// table in both halves, in service or not.
    #[must_use]
    pub fn info(&self) -> EngineInfo {
        let mut second = self.second.info().clone();
        let Some(first) = self.first.as_ref().map(HalfWriter::info) else { return second };
        second.families.retain(|family| first.has_family(*family));
        match [FIRST, SECOND].map(|half| self.service.has(half)) {
            [false, _] => second,
            [true, false] => EngineInfo { families: second.families, ..first.clone() },
            [true, true] => EngineInfo {
                capacity: first.capacity.of_both(second.capacity),
                families: second.families,
                wants_fewer_routes: first.wants_fewer_routes && second.wants_fewer_routes,
                may_hang: first.may_hang || second.may_hang,
                ..first.clone()
            },
        }
    }

    /// Applies a delta to each half in service, in this order. If the first one refuses, the delta is refused, and neither has changed. A
    /// half that fails, or refuses when the other one has accepted, goes out of service: undoing the delta would show lookups a table that
    /// is no generation. The half `stays` never goes out of service; its errors refuse the delta.
    ///
    /// # Errors
    /// A refusal of the first half, any error of the half `stays`, and any error of the last half in service.
    pub fn apply(
        &mut self,
        order: [usize; HALVES],
        stays: Option<usize>,
        delta: &FibDelta,
        rib: &Rib,
    ) -> Result<Generation, EngineError> {
        let mut is_taken = false;
        for half in order {
            if !self.is_used(half) {
                continue;
            }
            let Err(why) = self.half_mut(half).apply(delta, rib) else {
                is_taken = true;
                continue;
            };
            if stays == Some(half) || !is_taken && why.is_refusal() {
                return Err(why.into_error(self.service.names()[half]));
            }
            self.service.fail(half, why)?;
        }
        self.generation = self.generation.next();
        Ok(self.generation)
    }

    /// Frees the retired tables of each half in service.
    pub fn free_retired(&mut self) {
        for half in [FIRST, SECOND] {
            if self.is_used(half) {
                self.half_mut(half).free_retired();
            }
        }
    }

    fn half_mut(&mut self, half: usize) -> &mut HalfWriter {
        match &mut self.first {
            Some(first) if half == FIRST => first,
            _ => &mut self.second,
        }
    }
}
