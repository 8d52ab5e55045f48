//! The vocabulary of IP forwarding (prefixes, next hops, routes), and the interface between routes and lookup engines.
//!
//! ```text
//! feed -> Rib -> FibDelta -> [EngineWriter: apply -> Generation] -> EngineReader: submit .. collect
//! ```
//!
//! | module | what lives there |
//! |---|---|
//! | [`prefix`] | [`Prefix`], [`IpPrefix`], [`Key`]: routes' prefixes and lookup keys |
//! | [`next_hop`] | [`NextHopId`], the answer of a lookup; [`NextHopTable`] resolves it to a gateway, port and MAC |
//! | [`group`] | [`Group`]: several paths for the packets of one route |
//! | [`rib`] | [`Rib`]: the routes of all feeds, compiled into the routes that an engine has |
//! | [`delta`] | [`Routes`]: changes to the RIB; [`FibDelta`]: changes to an engine's table; [`Generation`] |
//! | [`engine`] | [`EngineWriter`], [`EngineReader`]: the contract of every engine |
//! | [`reader`] | [`reader::SlotReader`]: the slots of engines whose answers are there when `submit` returns |
//! | [`keys`] | [`Keys`], [`KeyBuffer`]: batches of keys, borrowed and owned |
//! | [`fibs`] | [`FibId`], [`Fibs`]: the FIBs of an engine that holds several, and those of a batch |
//! | [`details`] | [`Details`]: the figures of one engine, by name |
//! | [`registry`] | [`Registry`]: which engines there are, by name |
//! | [`isa`] | [`Isa`]: the instruction sets kernels are written for; [`CheckedIsa`]: one that this CPU has |
//! | [`loads`] | [`Loads`]: how a lookup reads its table, so that tests can stop it between two loads |
//! | [`units`] | sizes, rates and times as people write and read them |
//! | [`digest`] | hashes of tables and packets |
//! | [`picture`] | graphs as SVG |
//! | [`output`] | files that appear whole or not at all |
//! | [`host`] | what Linux says of this host, read from its files |
//! | [`feed`] | route files and update streams: text, iproute2, l3fwd, JSON, MRT; writers |
//! | [`oracle`] | longest-prefix match by the definition; the engine `oracle` |
//! | [`generate`] | seeded tables and update streams shaped like today's Internet |
//! | [`capture`] | the packets of a pcap or pcapng file |
//! | [`random`] | seeded random numbers |
//! | [`traffic`] | the keys that measurements look up: random, table, zipf, a capture's destinations |
//! | `conformance` | the test suite that every engine passes (feature `testing`) |
//! | `faulty` | an engine that fails on demand (feature `testing`) |
//! | `testing` | what the tests of all crates share (feature `testing`) |
//! | `stores` | checks updates made of single stores, after each store (feature `testing`) |
//!
//! This crate imports nothing of ours and has no unsafe code.

#![forbid(unsafe_code)]

pub mod capture;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod delta;
pub mod details;
pub mod digest;
pub mod engine;
#[cfg(feature = "testing")]
pub mod faulty;
pub mod feed;
pub mod fibs;
pub mod generate;
pub mod group;
pub mod host;
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
pub use engine::{
    Capacity, EngineError, EngineInfo, EngineOptions, EngineReader, EngineStats, EngineWriter, SlotId,
};
pub use fibs::{FibId, Fibs};
pub use group::{Group, GroupPath};
pub use isa::{CheckedIsa, Isa, IsaError};
pub use keys::{KeyBuffer, Keys};
pub use loads::Loads;
pub use next_hop::{
    MacAddr, Neighbour, NextHop, NextHopError, NextHopId, NextHopTable, PortRef, is_port_name,
};
pub use prefix::{Family, IpPrefix, Key, Prefix, Prefix4, Prefix6, PrefixError};
pub use registry::{ENGINES, Engine, Registry};
pub use rib::{Rib, RibTable};
