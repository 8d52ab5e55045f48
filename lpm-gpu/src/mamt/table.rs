//! A family's table: GAMT's host table, and the words that lookups read.

use super::params::MamtParams;
use crate::gamt::GamtTable;
use crate::gamt::answers::GamtAnswers;
use crate::host::{Due, HEADER_WORDS, HostTable as _, Image, UpdateStep};
use fib::{Change, Details, EngineError, Key, NextHopId, Prefix, Rib, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use lpm_core::memory::Array;
use lpm_core::publish::Publish as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A GAMT table's image in the flat layout, kept up by its steps, which lookups read.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) words: Array<AtomicU32>,
    pub(super) header: [u32; HEADER_WORDS],
    pub(super) answers: Arc<GamtAnswers>,
}

impl Words {
    fn new(image: &Image<'_>, answers: Arc<GamtAnswers>, params: &MamtParams) -> Result<Self, EngineError> {
        let words = Array::<AtomicU32>::zeroed(image.words, params.common.placement)?;
        for (start, run) in &image.runs {
            for (word, value) in words[*start as usize..].iter().zip(*run) {
                word.store(*value, Ordering::Relaxed); // published with the whole table
            }
        }
        Ok(Self { words, header: image.header, answers })
    }
}

pub(super) struct MamtTable<K: Key> {
    host: GamtTable<K>,
    shared: Arc<Words>,
    update: u64,
}

impl<K: Key> FibTable<K> for MamtTable<K> {
    type Params = MamtParams;
    type Shared = Words;
    /// The built trie; its image is laid out later.
    type Size = GamtTable<K>;

    fn size(
        routes: &[(Prefix<K>, NextHopId)],
        params: &MamtParams,
        budget: Budget,
    ) -> Result<GamtTable<K>, EngineError> {
        let mut host = GamtTable::new(params.gamt(K::FAMILY, budget.has_reserve()))?;
        let added = |&(prefix, new)| Change { prefix, old: NextHopId::NONE, new };
        let changes: Vec<_> = routes.iter().map(added).collect();
        let none = Rib::new();
        if host.apply(&changes, K::part(&none))? == Due::Steps {
            host.rebuild()?; // few routes: the shape is the empty table's
        }
        host.take_steps(1, K::part(&none));
        Ok(host)
    }

    fn size_bytes(host: &GamtTable<K>) -> u64 {
        4 * host.shape().words
    }

    fn build(host: GamtTable<K>, _: Routes<K>, params: &MamtParams) -> Result<Self, EngineError> {
        let none = Rib::new();
        let shared = Arc::new(Words::new(&host.image(K::part(&none)), host.shared_answers(), params)?);
        Ok(Self { host, shared, update: 1 })
    }

    fn shared(&self) -> &Arc<Words> {
        &self.shared
    }

    fn bytes(&self) -> u64 {
        self.shared.words.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        self.host.host_bytes()
    }

    fn retired_bytes(&self) -> u64 {
        self.host.retired_bytes()
    }

    fn free_retired(&mut self) {
        self.host.free_retired();
    }

    fn details(&self) -> Details {
        self.host.details()
    }

    fn admits(&self, changes: &[Change<K>], _: &RibTable<K>) -> bool {
        self.host.admits(changes)
    }

    fn owes_grace(&self) -> bool {
        self.host.has_unlinked()
    }

    fn grace_over(&mut self) {
        self.host.reclaim(self.update);
    }

    fn update(&mut self, changes: &[Change<K>], routes: &RibTable<K>, _: &dyn Fn()) {
        let made = self.host.apply(changes, routes);
        assert!(matches!(made, Ok(Due::Steps)), "a delta that the table admits is made in place: {made:?}");
        self.update += 1;
        // Steps and stores keep their order: new nodes before pointers to them.
        for step in self.host.take_steps(self.update, routes) {
            let UpdateStep::Writes(writes) = step else { continue };
            for write in writes {
                self.shared.words[write.at as usize].publish(write.value);
            }
        }
    }
}
