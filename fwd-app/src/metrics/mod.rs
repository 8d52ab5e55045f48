//! Metrics over HTTP: for Prometheus at `/metrics`, for programs at `/snapshot.json`, and as a page at `/`.
//!
//! ```text
//! control thread: [Publisher: rates, routes, feeds, latencies -> Snapshot] --ArcSwap--> [MetricsServer] <--HTTP-- client
//! ```
//!
//! The control thread makes a [`Snapshot`] once a second, after each sample of the counters, and replaces the one before as a whole. The
//! server has a thread of its own, which reads the newest snapshot: a client waits neither for the control thread nor for an lcore, and
//! every answer says how old its numbers are. What a client may cost is bounded: connections, bytes of a request, the time to send one
//! and to read its answer.
//!
//! | module | what lives there |
//! |---|---|
//! | [`snapshot`] | [`Snapshot`]: what is exported, and its JSON |
//! | [`publisher`] | [`Publisher`]: makes the snapshots |
//! | [`families`] | the metrics: names, help, labels, values |
//! | [`exposition`] | metrics as text: Prometheus 0.0.4 and OpenMetrics 1.0 |
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

/// Where the newest snapshot is; none before the forwarder has started.
pub(crate) type SharedSnapshot = Arc<ArcSwapOption<Snapshot>>;
