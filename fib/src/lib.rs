//! The vocabulary of IP forwarding (prefixes, next hops, routes), and the interface between routes and lookup engines.
//!
//! ```text
//! feed -> Rib -> FibDelta -> [EngineWriter: apply -> Generation] -> EngineReader: submit .. collect
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`prefix`] | [`Prefix`], [`IpPrefix`], [`Key`]: prefixes of routes and lookup keys |
//! | [`next_hop`] | [`NextHopId`], the answer of a lookup; [`NextHopTable`] resolves it to a gateway, port and MAC |
//! | [`group`] | [`Group`]: several paths for the packets of one route |
//! | [`rib`] | [`Rib`]: the routes of all feeds, compiled into the routes of an engine |
//! | [`delta`] | [`Routes`]: changes to the RIB; [`FibDelta`]: changes to an engine's table; [`Generation`] |
//! | [`engine`] | [`EngineWriter`], [`EngineReader`]: the contract of every engine; [`EngineError`] |
//! | [`reader`] | [`reader::SlotReader`]: the slots of engines that finish within `submit` |
//! | [`keys`] | [`Keys`], [`KeyBuffer`]: batches of keys, borrowed and owned |
//! | [`fibs`] | [`Fibs`]: the FIBs of the keys of a batch, by [`FibId`] |
//! | [`details`] | [`Details`]: engine-specific figures by name |
//! | [`registry`] | [`Registry`]: the available engines by name |
//! | [`isa`] | [`Isa`]: instruction sets of kernels; [`CheckedIsa`]: one that this CPU has |
//! | [`loads`] | [`Loads`]: the loads of a lookup, between which tests can stop it |
//! | [`units`] | sizes, rates and times as people write and read them |
//! | [`digest`] | hashes of tables and packets |
//! | [`picture`] | graphs as SVG |
//! | [`output`] | files that are replaced as a whole |
//! | [`host`] | facts about this host, read from Linux's files |
//! | [`feed`] | route files and update streams: text, iproute2, l3fwd, JSON, MRT; writers |
//! | [`oracle`] | longest-prefix match by definition; the engine `oracle` |
//! | [`generate`] | seeded tables and update streams shaped like today's Internet |
//! | [`capture`] | the packets of a pcap or pcapng file |
//! | [`random`] | seeded random numbers |
//! | [`traffic`] | lookup keys for measurements: random, table, zipf, destinations of a capture |
//! | `conformance` | the test suite that every engine passes (feature `testing`) |
//! | `faulty` | an engine that fails on demand (feature `testing`) |
//! | `testing` | helpers for the tests of all crates (feature `testing`) |
//! | `stores` | a checker of updates made of single stores (feature `testing`) |
//!
//! This crate imports no other crate of the workspace and has no unsafe code.

#![forbid(unsafe_code)]

pub mod capture;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod delta;
pub mod details;
pub mod digest;
pub mod engine;
mod engine_error;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod feed;
pub mod fibs;
pub mod generate;
pub mod group;
pub mod host;
mod ids;
pub mod isa;
pub mod keys;
pub mod loads;
pub mod next_hop;
pub mod oracle;
pub mod output;
pub mod picture;
pub mod prefix;
pub mod random;
pub mod reader;
pub mod registry;
pub mod rib;
#[cfg(feature = "testing")]
pub mod stores;
#[cfg(feature = "testing")]
pub mod testing;
pub mod traffic;
pub mod units;

pub use delta::{Change, FibDelta, Generation, Route, Routes};
pub use details::Details;
pub use engine::{Capacity, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, KeyMemory};
pub use engine_error::EngineError;
pub use fibs::Fibs;
pub use group::{Group, GroupPath};
pub use ids::{FibId, SlotId};
pub use isa::{CheckedIsa, Isa, IsaError};
pub use keys::{KeyBuffer, Keys};
pub use loads::Loads;
pub use next_hop::{
    MacAddr, Neighbour, NextHop, NextHopError, NextHopId, NextHopTable, PortRef, is_port_name,
};
pub use prefix::{Family, IpPrefix, Key, Prefix, Prefix4, Prefix6, PrefixError};
pub use registry::{ENGINES, Engine, Registry};
pub use rib::{Rib, RibTable};
