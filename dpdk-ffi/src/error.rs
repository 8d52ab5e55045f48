//! The crate's error type: one variant for each possible reaction of a caller, with the numbers.

use std::ffi::CStr;

use crate::ids::{LcoreId, PortId, QueueId};
use crate::sys;

/// Why a DPDK operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// EAL was already initialised in this process, or an attempt was made: DPDK allows only one.
    #[error("EAL was already initialised in this process; DPDK allows that once")]
    AlreadyInitialised,
    /// The bindings were compiled for another release of DPDK than the library's.
    #[error(
        "compiled for {compiled}, but the running library is {running}: rebuild with its headers installed"
    )]
    Version {
        /// The release compiled for, e.g. `DPDK 22.11.11`.
        compiled: String,
        /// The result of `rte_version`.
        running: String,
    },
    /// A DPDK call failed.
    #[error("{call} failed: {} (errno {errno})", text(*errno))]
    Call {
        /// The C function, or the operation of a library.
        call: &'static str,
        /// The positive errno; 0 if unknown.
        errno: i32,
    },
    /// A DPDK call on a named object (a mempool, a ring, a device, a command) failed.
    #[error("{call} failed for {name}: {} (errno {errno})", text(*errno))]
    NamedCall {
        /// The C function, or the operation of a library.
        call: &'static str,
        /// The object's name.
        name: String,
        /// The positive errno; 0 if unknown.
        errno: i32,
    },
    /// A DPDK call on a port failed.
    #[error("port {port}: {call} failed: {} (errno {errno})", text(*errno))]
    PortCall {
        /// The port.
        port: PortId,
        /// The C function, or the operation of a library.
        call: &'static str,
        /// The positive errno; 0 if unknown.
        errno: i32,
    },
    /// A port refuses a configuration.
    #[error("port {port} refuses {asked}: {} (errno {errno})", text(*errno))]
    Configure {
        /// The port.
        port: PortId,
        /// The refused configuration.
        asked: String,
        /// The positive errno; 0 if unknown.
        errno: i32,
    },
    /// No port has this name or number.
    #[error("there is no port {wanted}; there {}", list_ports(known))]
    UnknownPort {
        /// The requested name or number.
        wanted: String,
        /// The names of the existing ports.
        known: Vec<String>,
    },
    /// The queue number is beyond the port's configured queues.
    #[error("port {port} has {count} {direction} queues, so there is no queue {queue}")]
    UnknownQueue {
        /// The port.
        port: PortId,
        /// `rx` or `tx`.
        direction: &'static str,
        /// The requested queue.
        queue: QueueId,
        /// The number of configured queues.
        count: u16,
    },
    /// The queue's only handle is taken.
    #[error("{direction} queue {queue} of port {port} is already taken")]
    QueueTaken {
        /// The port.
        port: PortId,
        /// `rx` or `tx`.
        direction: &'static str,
        /// The requested queue.
        queue: QueueId,
    },
    /// The port cannot stop, close or be configured while queue handles are held.
    #[error("port {port} is in use: {rx} rx and {tx} tx queues are taken")]
    QueuesInUse {
        /// The port.
        port: PortId,
        /// Rx queues taken.
        rx: usize,
        /// Tx queues taken.
        tx: usize,
    },
    /// Another thread makes a control call, of this port or another, and the caller does not wait for its end.
    #[error("a device is being reset or brought back; try again")]
    Busy,
    /// The call needs the port in another state.
    #[error("port {port} is {is}; it must be {must} first")]
    PortState {
        /// The port.
        port: PortId,
        /// The port's state.
        is: &'static str,
        /// The required state.
        must: &'static str,
    },
    /// The mempool has too few mbufs left.
    #[error("mempool {pool} is exhausted: {wanted} mbufs are needed, {available} of {size} are available")]
    Exhausted {
        /// The mempool.
        pool: String,
        /// Mbufs wanted.
        wanted: usize,
        /// Mbufs available directly after the failure.
        available: usize,
        /// The size of the mempool.
        size: usize,
    },
    /// A quantity exceeds a limit.
    #[error("{what}: {wanted} wanted, the limit is {limit}")]
    TooMuch {
        /// The quantity.
        what: &'static str,
        /// The requested amount.
        wanted: usize,
        /// The limit.
        limit: usize,
    },
    /// A single-producer or single-consumer end of a ring is already held.
    #[error("the {end} end of ring {ring} is already taken, and this end has room for one user")]
    RingEndTaken {
        /// The ring.
        ring: String,
        /// `producer` or `consumer`.
        end: &'static str,
    },
    /// A string with a NUL byte cannot be passed to C.
    #[error("{what} has a NUL byte: {value:?}")]
    NulByte {
        /// A description of the string.
        what: &'static str,
        /// The string.
        value: String,
    },
    /// EAL has no such lcore.
    #[error("EAL has no lcore {lcore}; it has {}", list(known))]
    UnknownLcore {
        /// The requested lcore.
        lcore: LcoreId,
        /// The lcores of EAL.
        known: Vec<LcoreId>,
    },
    /// A table's lookup function cannot change while readers exist, since one may be running it.
    #[error("{table} has {readers} readers, so its lookup function cannot be changed")]
    TableInUse {
        /// The table's library.
        table: &'static str,
        /// The number of readers.
        readers: usize,
    },
    /// The CPU or EAL does not allow a lookup with AVX-512.
    #[error(
        "{table} cannot use AVX-512: it needs a CPU with AVX-512, and EAL with \
         --force-max-simd-bitwidth=512; EAL allows {allowed_bits} bits"
    )]
    SimdWidth {
        /// The table's library.
        table: &'static str,
        /// The vector width that EAL allows.
        allowed_bits: u16,
    },
    /// The lcore is running a job, or it is the main lcore, which runs `main`.
    #[error("lcore {lcore} is busy{}", if *.main { ": it is the main lcore" } else { "" })]
    LcoreBusy {
        /// The lcore.
        lcore: LcoreId,
        /// Whether it is the main lcore.
        main: bool,
    },
    /// The function that ran on an lcore panicked.
    #[error("lcore {lcore} panicked: {message}")]
    Panicked {
        /// The lcore.
        lcore: LcoreId,
        /// The panic's message.
        message: String,
    },
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn list_ports(known: &[String]) -> String {
    if known.is_empty() { "are no ports at all".into() } else { format!("are: {}", list(known)) }
}

fn text(errno: i32) -> String {
    // SAFETY: rte_strerror returns a NUL-terminated string, a constant or this thread's buffer, which is valid until the thread's next
    // call; it is copied before that.
    unsafe { CStr::from_ptr(sys::rte_strerror(errno)) }.to_string_lossy().into_owned()
}

impl DpdkError {
    /// The error of a call that left its errno in `rte_errno`.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::call(call, Self::last_errno())
    }

    pub(crate) fn last_errno() -> i32 {
        // SAFETY: reads a thread-local integer.
        unsafe { sys::dffi_errno() }
    }

    /// The error of a call that returned `-errno` (either sign is accepted).
    pub(crate) fn call(call: &'static str, errno: i32) -> Self {
        Self::Call { call, errno: errno.abs() }
    }

    pub(crate) fn named(call: &'static str, name: &str, errno: i32) -> Self {
        Self::NamedCall { call, name: name.into(), errno: errno.abs() }
    }

    pub(crate) fn port(port: PortId, call: &'static str, errno: i32) -> Self {
        Self::PortCall { port, call, errno: errno.abs() }
    }

    pub(crate) fn within(what: &'static str, wanted: usize, limit: usize) -> Result<(), Self> {
        if wanted <= limit { Ok(()) } else { Err(Self::TooMuch { what, wanted, limit }) }
    }

    #[inline]
    pub(crate) fn check_named(name: &str, call: &'static str, answer: i32) -> Result<(), Self> {
        if answer == 0 { Ok(()) } else { Err(Self::named(call, name, answer)) }
    }

    pub(crate) fn check_port(port: PortId, call: &'static str, answer: i32) -> Result<u32, Self> {
        u32::try_from(answer).map_err(|_| Self::port(port, call, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_of_either_sign_is_told_once() {
        let text = DpdkError::port(PortId(3), "rte_eth_dev_start", -22).to_string();
        assert_eq!(text, "port 3: rte_eth_dev_start failed: Invalid argument (errno 22)");
        assert_eq!(DpdkError::call("f", 12), DpdkError::call("f", -12));
    }

    #[test]
    fn a_limit_is_inclusive() {
        assert_eq!(DpdkError::within("queues", 4, 4), Ok(()));
        let wanted = DpdkError::TooMuch { what: "queues", wanted: 5, limit: 4 };
        assert_eq!(DpdkError::within("queues", 5, 4), Err(wanted));
    }

    #[test]
    fn an_unknown_port_lists_the_names_that_exist() {
        let known = vec!["net_null0".to_string(), "net_pcap1".into()];
        let text = DpdkError::UnknownPort { wanted: "eth9".into(), known }.to_string();
        assert_eq!(text, "there is no port eth9; there are: net_null0, net_pcap1");
        let none = DpdkError::UnknownPort { wanted: "4".into(), known: vec![] }.to_string();
        assert_eq!(none, "there is no port 4; there are no ports at all");
    }
}
