//! Two engines in one: what `--fallback` and the engine `coop` have in common.
//!
//! [`fallback`] puts one engine behind another, `coop` (in `lpm-phi`) shares each batch between two. In both, an engine that fails goes
//! out of service once and for good, the other one goes on alone, and the keys of what was in flight are looked up again.
//!
//! | module | what lives there |
//! |---|---|
//! | this one | [`Pair`]: both writers; who takes a delta, and what becomes of one that an engine refuses |
//! | [`half`] | the writer of one engine, called here or on a thread of its own |
//! | [`service`], [`why`] | which engines are in service, and who is told when that changes; the reasons to go out of service |
//! | [`reader`], `flight` | both readers, and the batches in flight |
//! | [`lane`], [`group`], `helper` | the reader of one engine: called here, asked through its slots, or on helper threads |
//! | [`fallback`] | a second engine that takes over when the first fails |
//!
//! Invariant: one engine at least is in service. The errors of the last one are its caller's.

pub mod fallback;
mod flight;
pub mod group;
pub mod half;
mod helper;
pub mod lane;
pub mod reader;
pub mod service;
pub mod why;

pub use half::HalfWriter;
pub use service::{BatchOutcome, Listener, Service};
pub use why::{Wait, Why};

use crate::sync::Arc;
use fib::{EngineError, EngineInfo, FibDelta, Generation, Rib};

/// The engine that is asked first; the one behind which a fallback stands.
pub const FIRST: usize = 0;
/// The other engine.
pub const SECOND: usize = 1;
/// Halves of a pair.
pub const HALVES: usize = 2;
/// The mask of [`Service::mask`] while both are in service.
pub const BOTH: u8 = 0b11;

/// Both writers.
pub struct Pair {
    /// `None` without a table of its own: one that could not be made, or threads over the second half's table.
    first: Option<HalfWriter>,
    second: HalfWriter,
    service: Arc<Service>,
    generation: Generation,
}

impl Pair {
    /// Over two engines, both empty.
    pub fn new(service: Arc<Service>, first: Option<HalfWriter>, second: HalfWriter) -> Self {
        Self { first, second, service, generation: Generation::default() }
    }

    /// Which of the two are in service.
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

    /// Whether `half` has a table that lookups use. The only table is used whatever becomes of its half.
    fn is_used(&self, half: usize) -> bool {
        if self.first.is_some() { self.service.has(half) } else { half == SECOND }
    }

    /// The halves that have tables, while they are in service.
    pub fn used(&self) -> impl Iterator<Item = &HalfWriter> {
        let first = self.first.iter().filter(|_| self.is_used(FIRST));
        first.chain([&self.second].into_iter().filter(|_| self.is_used(SECOND)))
    }

    /// The name and the instruction set are those of the first half in service. Room and wishes are those of all in service. There is a
    /// table for a family if both halves have one, in service or not.
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

    /// Has each half in service take a delta, in this order. When the first one refuses, nothing has changed in either, and the delta is
    /// refused as a whole. A half that fails, or refuses what the other one has taken, goes out of service: to take the delta back would
    /// show lookups a table that is no generation. The half that `stays` never does; its errors refuse the delta.
    ///
    /// # Errors
    /// Those of a half that refuses first, of the one that stays, and of the last one in service.
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

    /// Has each half in service free what it has retired.
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
