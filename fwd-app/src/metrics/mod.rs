//! Metrics over HTTP: for Prometheus at `/metrics`, for programs at `/snapshot.json`, and as a page at `/`.
//!
//! ```text
//! control thread: [Publisher: rates, routes, feeds, latencies -> Snapshot] --ArcSwap--> [MetricsServer] <--HTTP-- client
//! ```
//!
//! The control thread publishes a [`Snapshot`] once a second, after each sample of the counters, with one pointer swap. The server's thread
//! reads the latest one, so a client never blocks the control thread or an lcore. Limits bound the cost of clients: connections, request
//! size, and times.

mod exposition;
mod families;
pub(crate) mod publisher;
pub(crate) mod server;
mod snapshot;
#[cfg(test)]
mod test_snapshot;

pub(crate) use publisher::Publisher;
pub(crate) use server::MetricsServer;
pub(crate) use snapshot::Snapshot;

use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// The latest snapshot; `None` before the forwarder has started.
pub(crate) type SharedSnapshot = Arc<ArcSwapOption<Snapshot>>;
