//! Tests over the whole of GAMT's table on the host.
//!
//! - `stores`: its updates store by store.

mod stores;
