//! The table of a family that an engine does not support: it refuses every route, and lookups answer "no route".

use crate::engine::{Budget, FibTable, Routes};
use fib::{Details, EngineError, Key, NextHopId, Prefix};
use std::marker::PhantomData;
use std::sync::Arc;

/// Parameters of an engine that has a table for one family only.
pub trait OneFamily: 'static {
    /// The message that refuses the other family's routes: which routes, and why.
    fn refusal(&self) -> &'static str;
}

/// The missing table of an engine with parameters `P`.
#[derive(Debug)]
pub struct NoTable<P> {
    shared: Arc<()>,
    params: PhantomData<fn(P)>,
}

impl<K: Key, P: OneFamily> FibTable<K> for NoTable<P> {
    type Params = P;
    type Shared = ();
    type Size = ();

    const HOLDS_ROUTES: bool = false;

    fn size(routes: &[(Prefix<K>, NextHopId)], params: &P, _: Budget) -> Result<(), EngineError> {
        if routes.is_empty() {
            return Ok(());
        }
        Err(EngineError::Full { what: params.refusal(), used: routes.len() as u64, limit: 0 })
    }

    fn size_bytes((): &()) -> u64 {
        0
    }

    fn build((): (), _: Routes<K>, _: &P) -> Result<Self, EngineError> {
        Ok(Self { shared: Arc::new(()), params: PhantomData })
    }

    fn shared(&self) -> &Arc<()> {
        &self.shared
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn writer_bytes(&self) -> u64 {
        0
    }

    fn details(&self) -> Details {
        Details::default()
    }
}
