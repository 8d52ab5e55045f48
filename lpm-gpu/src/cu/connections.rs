//! Connections to the device, which streams share.
//!
//! The driver reads `CUDA_DEVICE_MAX_CONNECTIONS` when it is initialised: 8 connections unless told otherwise, 32 at most. A
//! stream that shares a connection with a persistent kernel waits for that kernel, which is for ever. So we ask for all
//! connections, and refuse readers beyond them ([`ResidentRoom`](super::ResidentRoom)).

use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable, and what the driver takes without it and at most (CUDA C++ programming guide, environment variables).
const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const USUAL: usize = 8;
const MOST: usize = 32;

/// The connections that the driver was initialised with; 0 before.
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Sets `CUDA_DEVICE_MAX_CONNECTIONS` to 32 unless it is set. Does nothing in a process with several threads, which may read
/// the environment at the same time: call it first of all in `main`. The driver is not loaded.
pub fn ask_for_connections() {
    if std::env::var_os(VARIABLE).is_none() && is_single_threaded() {
        // SAFETY: this is the only thread of the process, so no other one reads or writes the environment, nor can one be
        // started before the call returns.
        unsafe { std::env::set_var(VARIABLE, MOST.to_string()) };
    }
}

/// Whether the calling thread is the only one. `false` when that is not known.
fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Notes what the driver is going to read. To be called before it is initialised.
pub(super) fn settle() {
    ask_for_connections();
    let connections = parse(std::env::var(VARIABLE).ok().as_deref());
    // The driver reads the variable once a process.
    let _known = CONNECTIONS.compare_exchange(0, connections, Ordering::Relaxed, Ordering::Relaxed);
}

/// What the driver makes of the variable's `value`.
fn parse(value: Option<&str>) -> usize {
    let asked = value.and_then(|value| value.trim().parse().ok()).filter(|&asked| asked > 0);
    asked.unwrap_or(USUAL).min(MOST)
}

/// The connections to a device.
pub(super) fn connections() -> usize {
    match CONNECTIONS.load(Ordering::Relaxed) {
        0 => USUAL,
        connections => connections,
    }
}

/// Makes `connections` those of the driver from now on, for a driver whose streams share none.
#[cfg(feature = "testing")]
pub(super) fn set(connections: usize) {
    CONNECTIONS.store(connections, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_as_the_driver_reads_it() {
        for (value, connections) in [
            (None, 8),
            (Some(""), 8),
            (Some("many"), 8),
            (Some("0"), 8),
            (Some("1"), 1),
            (Some(" 20 "), 20),
            (Some("32"), 32),
            (Some("1000"), 32),
        ] {
            assert_eq!(parse(value), connections, "{value:?}");
        }
    }
}
