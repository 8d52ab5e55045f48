//! Signals: SIGINT and SIGTERM stop receiving and drain; a second one ends the process at once. SIGUSR1 prints statistics.

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What signals have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    stats: Arc<AtomicBool>,
}

/// Exit code when a second signal ends the process: it failed to drain.
const AT_ONCE: i32 = 1;

impl Signals {
    /// Takes over SIGUSR1, which would end the process; to be called first. SIGINT and SIGTERM end the process at once until
    /// [`Self::drain_on_stop`].
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn take_over() -> std::io::Result<Self> {
        let (stop, stats) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        flag::register(SIGUSR1, Arc::clone(&stats))?;
        Ok(Self { stop, stats })
    }

    /// Takes over SIGINT and SIGTERM. To be called when there is something to drain, and EAL runs: while it starts it waits for as
    /// long as nobody reads the log that it writes to stderr.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn drain_on_stop(&self) -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset, then sets it; the second finds it set.
            flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&self.stop))?;
            flag::register(signal, Arc::clone(&self.stop))?;
        }
        Ok(())
    }

    /// Whether the process is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether statistics were asked for since the last call.
    pub(crate) fn stats_wanted(&self) -> bool {
        self.stats.load(Ordering::Relaxed) && self.stats.swap(false, Ordering::Relaxed)
    }
}
