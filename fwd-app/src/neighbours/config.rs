//! Times and limits of the router, and their defaults.

use super::limiter::{LimitRate, LimiterConfig};
use std::time::Duration;

/// Times and limits of a [`super::Router`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouterConfig {
    /// Of the neighbour table.
    pub(crate) neighbours: NeighbourConfig,
    /// Of all ICMP errors but [`Self::too_big`].
    pub(crate) errors: LimiterConfig,
    /// Of "packet too big" and "fragmentation needed", by which senders find the MTU of a path.
    pub(crate) too_big: LimiterConfig,
    /// Of echo replies.
    pub(crate) echoes: LimiterConfig,
}

impl Default for RouterConfig {
    fn default() -> Self {
        let (errors, too_big, echoes) =
            (LimiterConfig::ERRORS, LimiterConfig::TOO_BIG, LimiterConfig::ECHOES);
        Self { neighbours: NeighbourConfig::default(), errors, too_big, echoes }
    }
}

/// Times and limits of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighbourConfig {
    /// Time between two requests.
    pub(crate) retransmit: Duration,
    /// Requests to all before an address counts as unreachable.
    pub(crate) requests: u32,
    /// Requests to its MAC before a neighbour counts as lost.
    pub(crate) probes: u32,
    /// Mean time that a confirmation is good for. Each neighbour has its own, between half and one and a half of it.
    pub(crate) reachable: Duration,
    /// Time from the use of a stale entry to its first probe.
    pub(crate) delay: Duration,
    /// Time that an entry stays stale before it is probed.
    pub(crate) stale: Duration,
    /// Time that an unreachable address is not asked for again.
    pub(crate) hold_down: Duration,
    /// Time in which a second answer from another MAC does not replace the first (ARP alone; Linux's `locktime`).
    pub(crate) lock: Duration,
    /// Most packets that wait for one neighbour.
    pub(crate) waiting_max: usize,
    /// Most packets that wait for all neighbours together.
    pub(crate) waiting_all_max: usize,
    /// Most entries of an interface.
    pub(crate) entries_max: usize,
    /// Most unanswered entries of an interface, beside those of gateways.
    pub(crate) incomplete_max: usize,
    /// New resolutions of an interface.
    pub(crate) resolutions: LimitRate,
}

impl NeighbourConfig {
    /// With another [`Self::reachable`], and the times that follow from it in the same proportion.
    pub(crate) fn with_reachable(self, reachable: Duration) -> Self {
        Self { reachable, stale: 2 * reachable, delay: self.delay.min(reachable), ..self }
    }
}

impl Default for NeighbourConfig {
    /// The times of RFC 4861 10; what it leaves open is as in Linux or smaller.
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
