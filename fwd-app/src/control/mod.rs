//! The control side: what changes while packets flow, and who changes it.
//!
//! A [`Session`] owns the RIB, the next hops, the engine's writer, the egress table and a handle on the running topology. `run` and
//! `replay` make one and drive it. A session is used by one thread; lcores never wait for it. Nothing here prints: results are
//! structs, and what happens unasked is a [notice](crate::notice).
//!
//! | module | what lives there |
//! |---|---|
//! | [`session`] | tables, commits, the start of the topology |
//! | [`thread`] | the control thread: a session at work while the main lcore forwards |
//! | [`spec`] | what a session is told: files, engine, topology, sizes |
//! | [`ports`] | DPDK ports: configured, started, counted, closed |
//! | [`signals`] | SIGINT, SIGTERM, SIGUSR1 |

pub(crate) mod ports;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod spec;
#[cfg(test)]
pub(crate) mod test_session;
pub(crate) mod thread;

pub(crate) use session::{Session, Site};
pub(crate) use signals::Signals;
pub(crate) use spec::{ForwardSpec, TableSpec};
