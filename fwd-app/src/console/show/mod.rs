//! What clients ask for, from the forwarder: each file has its part of `Steering`, and the types of its answers.
//!
//! | module | what lives there |
//! |---|---|
//! | [`addresses`] | addresses of ports |
//! | [`counts`] | routes by length, and those that drop packets |
//! | [`config`] | how the forwarder is set up |
//! | [`lcores`] | counters by lcore and queue, drops, latencies, the summary so far |
//! | [`ports`] | devices, links, drivers' statistics |
//! | [`rates`] | what ports, lcores and VRFs did over the last second and the last ten |
//! | [`neighbours`] | neighbours, given and learned |
//! | [`next_hops`] | packets by next hop |
//! | [`route`] | the route of an address, its neighbour, and the path of a flow |
//! | [`routes`] | the list of routes in service |
//! | [`tables`] | the table in service, feeds, next hops, the engine |

mod addresses;
pub(super) mod config;
pub(super) mod counts;
mod lcores;
mod neighbours;
mod next_hops;
mod ports;
pub(super) mod rates;
mod route;
mod routes;
pub(super) mod tables;
