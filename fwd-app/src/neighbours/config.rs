//! Timers and limits of the router, and their defaults.

use super::limiter::{LimitRate, LimiterConfig};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterConfig {
    pub(crate) neighbours: NeighbourConfig,
    pub(crate) errors: LimiterConfig,
    /// "Packet too big" and "fragmentation needed", used by path MTU discovery.
    pub(crate) too_big: LimiterConfig,
    pub(crate) echoes: LimiterConfig,
}

impl Default for RouterConfig {
    fn default() -> Self {
        let (errors, too_big, echoes) =
            (LimiterConfig::ERRORS, LimiterConfig::TOO_BIG, LimiterConfig::ECHOES);
        Self { neighbours: NeighbourConfig::default(), errors, too_big, echoes }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourConfig {
    pub(crate) retransmit: Duration,
    /// Multicast requests before an address counts as unreachable.
    pub(crate) requests: u32,
    /// Unicast probes before a neighbour counts as lost.
    pub(crate) probes: u32,
    /// Mean time that a confirmation stays valid. Each neighbour uses 0.5 to 1.5 times this.
    pub(crate) reachable: Duration,
    pub(crate) delay: Duration,
    pub(crate) stale: Duration,
    /// Pause before an unreachable address is requested again.
    pub(crate) hold_down: Duration,
    /// A second ARP answer from another MAC within this time is ignored (Linux's `locktime`).
    pub(crate) lock: Duration,
    pub(crate) waiting_max: usize,
    pub(crate) waiting_all_max: usize,
    pub(crate) entries_max: usize,
    /// Unanswered entries per interface, pinned ones not counted.
    pub(crate) incomplete_max: usize,
    pub(crate) resolutions: LimitRate,
}

impl NeighbourConfig {
    /// Replaces [`Self::reachable`] and adapts the timers that depend on it.
    pub(crate) fn with_reachable(self, reachable: Duration) -> Self {
        Self { reachable, stale: 2 * reachable, delay: self.delay.min(reachable), ..self }
    }
}

impl Default for NeighbourConfig {
    /// The timers of RFC 4861 10; the rest as in Linux or smaller.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            retransmit: seconds(1),
            requests: 3,
            probes: 3,
            reachable: seconds(30),
            delay: seconds(5),
            stale: seconds(60),
            hold_down: seconds(3),
            lock: seconds(1),
            waiting_max: 32,
            waiting_all_max: 4096,
            entries_max: 8192,
            incomplete_max: 512,
            resolutions: LimitRate { per_second: 1000, burst: 500 },
        }
    }
}
