//! The environment of the driver. Its modules are loaded eagerly. Streams share connections to the device: the driver reads `CUDA_DEVICE_MAX_CONNECTIONS` at initialisation: default
//! 8, at most 32. A stream that shares the connection of a persistent kernel waits for it for ever. So the process asks for
//! all connections, and refuses readers beyond them ([`ResidentRoom`](super::ResidentRoom)).

use std::sync::atomic::{AtomicUsize, Ordering};

/// The variable, its default and its maximum (CUDA C++ programming guide, environment variables).
const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const USUAL: usize = 8;
const MOST: usize = 32;

/// The driver's connections; 0 before its initialisation.
static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

/// Sets `CUDA_DEVICE_MAX_CONNECTIONS` to 32, and `CUDA_MODULE_LOADING` to `EAGER`, unless they are set: a kernel that is loaded at its
/// first launch may wait for persistent kernels. Call it first in `main`: it does nothing once other threads run.
pub fn prepare_environment() {
    for (variable, value) in [(VARIABLE, MOST.to_string()), ("CUDA_MODULE_LOADING", "EAGER".to_owned())] {
        if std::env::var_os(variable).is_none() && is_single_threaded() {
            // SAFETY: the process has only this thread, so nothing else reads or writes the environment, and no thread can start
            // before the call returns.
            unsafe { std::env::set_var(variable, value) };
        }
    }
}

fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

/// Sets and notes the variable. Must precede the driver's initialisation.
pub(super) fn settle() {
    prepare_environment();
    let connections = parse(std::env::var(VARIABLE).ok().as_deref());
    // The driver reads the variable once a process.
    let _known = CONNECTIONS.compare_exchange(0, connections, Ordering::Relaxed, Ordering::Relaxed);
}

fn parse(value: Option<&str>) -> usize {
    let asked = value.and_then(|value| value.trim().parse().ok()).filter(|&asked| asked > 0);
    asked.unwrap_or(USUAL).min(MOST)
}

pub(super) fn connections() -> usize {
    match CONNECTIONS.load(Ordering::Relaxed) {
        0 => USUAL,
        connections => connections,
    }
}

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
