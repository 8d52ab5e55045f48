//! The control side: everything that changes while packets flow, and what changes it.
//!
//! A [`Session`] owns the RIB, the next hops, the engine's writer, the egress table and a handle on the running topology. `run`,
//! `replay` and `lookup` make one. A session is used by one thread; lcores never wait for it. Nothing here prints: results are
//! structs, and unsolicited events are posted as [notices](crate::notice).
//!
//! | module | what lives there |
//! |---|---|
//! | [`session`] | [`Session`]: tables, commits, the start of the topology |
//! | [`thread`] | the control thread, on which a session works while the main lcore forwards |
//! | [`service`] | the loop of that thread: what changes the session's routes and ports |
//! | [`updates`] | `--updates`: a stream of route changes |
//! | [`spec`] | [`TableSpec`], [`ForwardSpec`]: files, engine, topology, sizes |
//! | [`feeds`] | routes, links and neighbours from FRR and the kernel while packets flow |
//! | [`ports`] | DPDK ports: set-up, links, statistics, closing |
//! | [`devices`] | devices that are reset, removed, and come back |
//! | [`interfaces`] | ports with addresses of this router, and what follows from them |
//! | [`exceptions`] | the thread of the router: ARP, neighbours, ICMP; what other threads ask it |
//! | [`signals`] | SIGINT, SIGTERM, SIGUSR1, SIGHUP |
//! | [`vrfs`] | [`Vrfs`](vrfs::Vrfs): a session for each VRF, over one topology |
//! | [`ctl`] | steering over a local socket: grammar, server, client |

pub(crate) mod ctl;
pub(crate) mod devices;
pub(crate) mod exceptions;
pub(crate) mod feeds;
pub(crate) mod interfaces;
pub(crate) mod ports;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod signals;
pub(crate) mod spec;
pub(crate) mod taps;
#[cfg(test)]
pub(crate) mod test_peers;
#[cfg(test)]
pub(crate) mod test_session;
pub(crate) mod thread;
pub(crate) mod updates;
pub(crate) mod vrfs;

pub(crate) use session::{Session, Site};
pub(crate) use signals::Signals;
pub(crate) use spec::{ForwardSpec, TableSpec};
pub(crate) use vrfs::Vrfs;
