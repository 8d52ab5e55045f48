//! What clients ask for, from the forwarder: each file has its part of `Steering`, and the types of its answers.
//!
//! | module | what lives there |
//! |---|---|
//! | [`lcores`] | counters by lcore and queue, drops, latencies, the summary so far |
//! | [`ports`] | devices, links, drivers' statistics |
//! | [`neighbours`] | neighbours, given and learned |
//! | [`routes`] | the routes in service |
//! | [`tables`] | counts of routes, feeds, next hops, the engine |

mod lcores;
mod neighbours;
mod ports;
mod routes;
pub(super) mod tables;
