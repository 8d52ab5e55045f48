//! The words of IP forwarding, and the contract between routes and engines.
//!
//! ```text
//! feed -> Rib -> FibDelta -> [EngineWriter: apply -> Generation] -> EngineReader: submit .. collect
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`prefix`] | [`Prefix`], [`IpPrefix`], [`Key`]: what a route is for |
//! | [`next_hop`] | [`NextHopId`], [`NextHopTable`]: what a lookup answers, and what that means |
//! | [`rib`] | [`Rib`]: what the feeds told, and its compiler into what an engine has |
//! | [`delta`] | [`Routes`]: what is told; [`FibDelta`], [`Generation`]: what crosses to an engine |
//! | [`engine`] | [`EngineWriter`], [`EngineReader`]: the contract of every engine |
//! | [`keys`] | [`Keys`], [`KeyBuffer`]: batches of keys, borrowed and owned |
//! | [`isa`] | [`Isa`]: the instruction sets kernels are written for |
//! | [`loads`] | [`Loads`]: how a lookup reads its table, so that tests can stop it between two loads |
//! | [`host`] | lists of CPUs and NUMA nodes, as Linux prints them |
//! | [`feed`] | route files and update streams: text, iproute2, l3fwd, JSON, MRT; writers |
//! | [`oracle`] | longest-prefix match by the definition; the engine `oracle` |
//! | [`generate`] | seeded tables and update streams shaped like today's Internet |
//! | [`traffic`] | the keys that measurements look up: random, table, zipf, a capture's destinations |
//! | `conformance` | the one suite every engine passes (feature `testing`) |
//! | `faulty` | an engine that fails on demand (feature `testing`) |
//! | `stores` | checks updates made of single stores, after each store (feature `testing`) |
//!
//! This crate imports nothing of ours and has no unsafe code.

#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
pub mod conformance;
pub mod delta;
pub mod engine;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod feed;
pub mod generate;
pub mod host;
pub mod isa;
pub mod keys;
pub mod loads;
pub mod next_hop;
pub mod oracle;
pub mod prefix;
mod random;
pub mod rib;
#[cfg(feature = "testing")]
pub mod stores;
pub mod traffic;

pub use delta::{Change, FibDelta, Generation, Route, Routes};
pub use engine::{Capacity, EngineError, EngineOptions, EngineReader, EngineStats, EngineWriter, SlotId};
pub use isa::{Isa, IsaError};
pub use keys::{KeyBuffer, Keys};
pub use loads::Loads;
pub use next_hop::{MacAddr, Neighbour, NextHop, NextHopError, NextHopId, NextHopTable, PortRef};
pub use prefix::{Family, IpPrefix, Key, Prefix, Prefix4, Prefix6, PrefixError};
pub use rib::{Rib, RibTable};
