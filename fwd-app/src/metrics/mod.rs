//! Metrics over HTTP: for Prometheus at `/metrics`, for programs at `/snapshot.json`, and as a page at `/`.
//!
//! ```text
//! control thread: [Publisher: rates, routes, feeds, latencies -> Snapshot] --ArcSwap--> [MetricsServer] <--HTTP-- client
//! ```
//!
//! The control thread builds a [`Snapshot`] once a second, after each sample of the counters, and publishes it with one pointer swap. The
//! server runs on a separate thread and reads the latest snapshot, so a client never blocks the control thread or an lcore; every response
//! contains the age of its numbers. Limits bound the cost of clients: connections, request size, and the times to send a request and to
//! read the response.
//!
//! | module | contents |
//! |---|---|
//! | [`snapshot`] | [`Snapshot`]: the exported state, and its JSON |
//! | [`publisher`] | [`Publisher`]: builds snapshots |
//! | [`families`] | the metrics: names, help, labels, values |
//! | [`exposition`] | text formats: Prometheus 0.0.4 and OpenMetrics 1.0 |
//! | [`server`] | [`MetricsServer`]: connections, requests, responses |

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
