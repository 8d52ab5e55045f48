//! The RIB of an engine, and commits to it.

use super::Rib;
use crate::{EngineError, EngineWriter, Generation};

impl Rib {
    /// An empty RIB for `engine`, which leaves routes out if the engine wants fewer.
    #[must_use]
    pub fn for_engine(engine: &dyn EngineWriter) -> Self {
        let mut rib = Self::default();
        rib.leave_out(engine.info().wants_fewer_routes);
        rib
    }

    /// As [`Self::commit`], to `engine`, which has applied every earlier delta of this RIB.
    ///
    /// # Errors
    /// As [`EngineWriter::apply`].
    pub fn commit_to(&mut self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        self.commit(|delta, rib| engine.apply(delta, rib))
    }

    /// Loads the committed routes into `engine`, which must be empty.
    ///
    /// # Errors
    /// As [`EngineWriter::apply`].
    pub fn load(&self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        engine.apply(&self.full_delta(), self)
    }

    /// Loads the committed routes into the empty `engine`, which then replaces the engine of this RIB. There must be no change since the last
    /// commit. If `engine` refuses, the RIB still matches the previous one.
    ///
    /// # Errors
    /// As [`EngineWriter::apply`].
    pub fn move_to(&mut self, engine: &mut dyn EngineWriter) -> Result<Generation, EngineError> {
        let was_plain = self.v4.is_plain;
        self.reselect_used(engine.info().wants_fewer_routes);
        let loaded = self.load(engine);
        if loaded.is_err() {
            self.reselect_used(!was_plain);
        }
        loaded
    }
}
