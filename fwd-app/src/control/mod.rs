//! The control side: everything that changes while packets flow, and what changes it.
//!
//! Nothing here prints: results are structs, and unsolicited events are posted as [notices](crate::notice).
//!
//! | module | what lives there |
//! |---|---|
//! | [`thread`] | the control thread, on which routes and ports change while the main lcore forwards |
//! | [`service`] | the loop of that thread: what changes the forwarder's routes and ports |
//! | [`updates`] | `--updates`: a stream of route changes |
//! | [`spec`] | [`ForwardSpec`]: topology, sizes |
//! | [`ports`] | DPDK ports: set-up, links, statistics, closing |
//! | [`devices`] | devices that are reset, removed, and come back |
//! | [`taps`] | TAPs of ports, and their addresses |
//! | [`exceptions`] | the thread of the router: ARP, neighbours, ICMP; what other threads ask it |
//! | [`signals`] | SIGINT, SIGTERM, SIGUSR1, SIGHUP |

pub(crate) mod devices;
pub(crate) mod exceptions;
pub(crate) mod ports;
pub(crate) mod service;
pub(crate) mod signals;
pub(crate) mod spec;
pub(crate) mod taps;
#[cfg(test)]
pub(crate) mod test_forwarder;
pub(crate) mod thread;
pub(crate) mod updates;

pub(crate) use signals::Signals;
pub(crate) use spec::ForwardSpec;
