//! VRFs and their routes: what sources say, who wins, and how it gets into the engine.
//!
//! A [`Vrf`] owns a RIB, its next hops, an engine's writer and the egress table. It is used by one thread; lcores never wait for it.
//!
//! | module | what lives there |
//! |---|---|
//! | [`vrf`] | [`Vrf`]: its parts, and the routes that feeds, files, addresses and the control socket announce |
//! | [`egress`] | next hops, neighbours, the egress table |
//! | [`feeds`] | routes, links and neighbours from FRR and the kernel while packets flow |
//! | [`files`] | route files, at the start and read again |
//! | [`candidates`] | whose route of a prefix wins |
//! | [`walk`] | the prefixes to which a link, a sweep or an order may give another winner |
//! | [`distinct`] | distinct routes with their next hops, and those of next-hop objects |
//! | [`commit`] | how changes get into service, and what the engine refuses |
//! | [`engine_swap`] | another engine, built while routes go on changing |
//! | [`listing`] | the routes in service, a slice at a time |
//! | [`spec`] | files, engine, ports and tables of each VRF, as configured |

pub(crate) mod candidates;
pub(crate) mod commit;
mod distinct;
pub(crate) mod egress;
pub(crate) mod engine_swap;
pub(crate) mod feeds;
pub(crate) mod files;
pub(crate) mod listing;
pub(crate) mod spec;
#[cfg(test)]
pub(crate) mod test_vrf;
pub(crate) mod vrf;
mod walk;

pub(crate) use vrf::Vrf;
