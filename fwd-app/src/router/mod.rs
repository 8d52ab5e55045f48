//! What a router does besides forwarding: it knows its interfaces, resolves neighbours, answers those who ask for it, and tells senders why
//! their packets went no further.
//!
//! This is the protocol part alone. It has no sockets, no threads and no clock: time since the start, frames and packets that wait come in,
//! frames and actions go out. Nothing here is on the path of a packet that is simply forwarded.
//!

pub(crate) mod action;
pub(crate) mod arp;
pub(crate) mod entries;
pub(crate) mod frame;
pub(crate) mod icmp;
pub(crate) mod icmp_errors;
pub(crate) mod interface;
pub(crate) mod interfaces;
pub(crate) mod ip;
pub(crate) mod limiter;
pub(crate) mod ndp;
pub(crate) mod neighbours;
pub(crate) mod reason;

#[cfg(test)]
mod icmp_errors_test;
#[cfg(test)]
mod neighbours_test;
#[cfg(test)]
pub(crate) mod test_packets;

pub(crate) use reason::Reason;
