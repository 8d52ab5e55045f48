//! VRFs and their routes: the routes of each source, the winner of each prefix, and commits to the engine.
//!
//! A [`Vrf`] owns a RIB, its next hops, an engine's writer and the egress table. Only the control thread uses it; lcores never wait for it.

pub(crate) mod audit;
pub(crate) mod candidates;
mod distinct;
pub(crate) mod egress;
pub(crate) mod engine_swap;
pub(crate) mod feeds;
pub(crate) mod files;
pub(crate) mod listing;
mod marked;
mod refused;
pub(crate) mod spec;
#[cfg(test)]
pub(crate) mod test_vrf;
pub(crate) mod vrf;

pub(crate) use vrf::Vrf;
