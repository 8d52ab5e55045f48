//! EAL as a value that its users hold, and virtual devices created and removed at run time. Every handle of this crate keeps a `Token`.
//! `rte_eal_cleanup` runs when the last token is dropped, so no handle outlives the DPDK memory it points to.

use std::ffi::CString;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::c_text::c_string;
use crate::device::{self, ADD, control, device_add};
use crate::error::DpdkError;
use crate::ids::PortId;
use crate::sys;
use crate::version;

/// DPDK allows one `rte_eal_init` a process, successful or not.
static TRIED: AtomicBool = AtomicBool::new(false);

pub(crate) type Token = Arc<Running>;

pub(crate) struct Running {
    _made_by_init: (),
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: reads a thread-local number.
        let lcore = unsafe { sys::dffi_lcore_id() };
        // SAFETY: EAL runs, so the main lcore's number is set.
        let main = unsafe { sys::rte_get_main_lcore() };
        if lcore != main && lcore != sys::DFFI_LCORE_ID_ANY {
            // The last handle was dropped on a worker lcore, whose thread EAL's cleanup would end.
            return;
        }
        device::close_all();
        // SAFETY: EAL runs and no handle is left, so nothing of ours touches DPDK after this.
        unsafe { sys::rte_eal_cleanup() };
    }
}

/// DPDK's environment abstraction layer, initialised. May be shared between threads (`&Eal`). Handles made from it keep EAL running.
pub struct Eal {
    token: Token,
}

impl std::fmt::Debug for Eal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Eal").field("handles", &self.handles()).finish()
    }
}

impl Eal {
    /// Starts EAL with `args` as on a DPDK program's command line, without the program's name. The calling thread becomes the main lcore
    /// and is pinned to its CPUs. Threads that it spawns later inherit this affinity: spawn others before this call, or pin them. EAL logs
    /// to standard error, unless [`listen_to_log`](crate::listen_to_log) was called before; `--help` ends the process.
    ///
    /// # Errors
    /// [`DpdkError::Version`] if the library's release differs from the release this crate was compiled for; nothing is started then.
    /// [`DpdkError::AlreadyInitialised`] at the second call in a process, even after the first failed or was cleaned up;
    /// [`DpdkError::Call`] if EAL refuses (its log has the reason); [`DpdkError::NulByte`].
    pub fn init<S: AsRef<str>>(args: &[S]) -> Result<Eal, DpdkError> {
        version::check()?;
        let mut argv = vec![CString::from(c"fwd")];
        for arg in args {
            argv.push(c_string("an EAL argument", arg.as_ref())?);
        }
        let count = i32::try_from(argv.len()).map_err(|_| DpdkError::TooMuch {
            what: "EAL arguments",
            wanted: argv.len(),
            limit: i32::MAX as usize,
        })?;
        if TRIED.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::AlreadyInitialised);
        }
        let pointers: Vec<_> = argv.into_iter().map(CString::into_raw).chain([ptr::null_mut()]).collect();
        // EAL may keep pointers to the strings and permutes the array, so both are leaked.
        let pointers = pointers.leak().as_mut_ptr();
        // SAFETY: `count` strings, each NUL-terminated, writable and never freed, and a NULL after them, as main's argv.
        let answer = unsafe { sys::rte_eal_init(count, pointers) };
        if answer < 0 {
            return Err(DpdkError::last("rte_eal_init"));
        }
        let eal = Eal { token: Arc::new(Running { _made_by_init: () }) };
        // SAFETY: EAL runs.
        let answer = unsafe { sys::dffi_watch_ports() };
        if answer != 0 {
            return Err(DpdkError::call("rte_eth_dev_callback_register", answer));
        }
        Ok(eal)
    }

    /// Lets other processes (`dpdk-dumpcap`) capture on the ports. Impossible with `--in-memory`, `--no-shconf` or `--no-huge`.
    ///
    /// # Errors
    /// [`DpdkError::Call`], with errno 95 (`ENOTSUP`) if other processes cannot attach.
    pub fn allow_captures(&self) -> Result<(), DpdkError> {
        let _control = control();
        // SAFETY: EAL runs.
        if unsafe { sys::rte_pdump_init() } != 0 {
            return Err(DpdkError::last("rte_pdump_init"));
        }
        Ok(())
    }

    pub(crate) fn token(&self) -> Token {
        Arc::clone(&self.token)
    }

    /// The number of live handles made from this EAL. EAL is cleaned up once they and this value are dropped.
    #[must_use]
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.token) - 1
    }

    /// Whether EAL has huge pages (false with `--no-huge`).
    #[must_use]
    pub fn has_hugepages(&self) -> bool {
        // SAFETY: reads EAL's configuration, set by rte_eal_init.
        unsafe { sys::rte_eal_has_hugepages() != 0 }
    }

    /// EAL's memory in bytes, in use or not. With `--no-huge` it is fixed (`-m`); huge pages are added as needed.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        // SAFETY: EAL is up; the call takes its own lock.
        unsafe { sys::rte_eal_get_physmem_size() }
    }

    /// Creates a virtual device, e.g. `("net_pcap0", "rx_pcap=in.pcap,tx_pcap=out.pcap")`; its port has the same name.
    ///
    /// # Errors
    /// [`DpdkError::NamedCall`] if the driver refuses (unknown driver, file not readable) or a port of this name exists (errno 17).
    pub fn vdev_create(&self, name: &str, args: &str) -> Result<(), DpdkError> {
        let (c_name, c_args) = (c_string("a device name", name)?, c_string("device arguments", args)?);
        let _control = control();
        // EAL reports success for a device that already exists, with any arguments.
        if device::exists(name) {
            return Err(DpdkError::named(ADD, name, libc::EEXIST));
        }
        device_add(c"vdev", &c_name, &c_args)?;
        if device::exists(name) { Ok(()) } else { Err(DpdkError::named(ADD, name, libc::ENODEV)) }
    }

    /// The usable ports in the order of their numbers: ports owned by another driver are left out.
    #[must_use]
    pub fn ports(&self) -> Vec<PortId> {
        let _control = control();
        device::unowned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_argument_does_not_use_up_the_one_init() {
        assert!(matches!(Eal::init(&["-m\0"]), Err(DpdkError::NulByte { .. })));
        assert!(!TRIED.load(Ordering::Acquire));
    }
}
