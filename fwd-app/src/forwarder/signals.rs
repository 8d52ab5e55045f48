//! Signals: the first SIGINT or SIGTERM stops receiving and drains; a second one ends the process at once. SIGUSR1 prints statistics,
//! SIGHUP starts a reload.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    stats: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    is_reloading: Arc<AtomicBool>,
}

/// Exit code when a second signal ends the process before it has drained.
const AT_ONCE: i32 = 1;

impl Signals {
    /// Installs the handler of SIGUSR1, whose default would end the process; call it first. SIGINT and SIGTERM end the process at once
    /// until [`Self::drain_on_stop`] is called.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub(crate) fn take_over() -> std::io::Result<Self> {
        let signals = Self::default();
        flag::register(SIGUSR1, Arc::clone(&signals.stats))?;
        Ok(signals)
    }

    /// Installs the handler of SIGHUP, whose default would end the process. For commands with reloads.
    ///
    /// # Errors
    /// When the system refuses the handler.
    pub(crate) fn reload_on_hangup(&self) -> std::io::Result<()> {
        flag::register(SIGHUP, Arc::clone(&self.reload)).map(drop)
    }

    /// Installs the handlers of SIGINT and SIGTERM. Call it after the EAL has started: the EAL logs to stderr and blocks until that is
    /// read, so its start must stay interruptible.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub(crate) fn drain_on_stop(&self) -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the shutdown finds the flag unset at the first signal, which then sets it, and set at the second.
            flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&self.stop))?;
            flag::register(signal, Arc::clone(&self.stop))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether statistics were requested since the last call.
    pub(crate) fn stats_wanted(&self) -> bool {
        self.stats.load(Ordering::Relaxed) && self.stats.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_reloading(&self, is_reloading: bool) {
        self.is_reloading.store(is_reloading, Ordering::Relaxed);
    }

    pub(crate) fn is_reloading(&self) -> bool {
        self.is_reloading.load(Ordering::Relaxed)
    }

    pub(crate) fn reload_wanted(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
