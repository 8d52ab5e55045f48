//! Page-locked memory on the device's NUMA node: the pages that the driver gets from the kernel follow the memory policy of
//! the thread that allocates them. A node that is full, or a host that forbids policies (some containers do), costs nothing
//! but the distance: the kernel then takes pages of another node.

use fib::host::Host;
use std::ffi::{c_int, c_ulong};
use std::marker::PhantomData;

/// From `linux/mempolicy.h`.
const MPOL_PREFERRED: c_int = 1;

/// Words of a set of nodes: 1,024 nodes, the most that Linux can be built for.
const MASK_WORDS: usize = 16;
/// Bits of such a set, as these system calls count them: one more than there are.
const MASK_BITS: c_ulong = MASK_WORDS as c_ulong * 64 + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryPolicy {
    mode: c_int,
    nodes: [u64; MASK_WORDS],
}

impl MemoryPolicy {
    fn preferring(node: u32) -> Option<Self> {
        let mut nodes = [0; MASK_WORDS];
        *nodes.get_mut(node as usize / 64)? = 1 << (node % 64);
        Some(Self { mode: MPOL_PREFERRED, nodes })
    }

    fn of_thread() -> Option<Self> {
        let mut policy = Self { mode: 0, nodes: [0; MASK_WORDS] };
        // SAFETY: out pointers for a number and for `MASK_BITS - 1` bits; without an address and flags the call reads the
        // thread's policy.
        let code = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                MASK_BITS,
                0_usize,
                0_usize,
            )
        };
        (code == 0).then_some(policy)
    }

    fn set(&self) -> bool {
        // SAFETY: a mode, and a set of `MASK_BITS - 1` bits that outlives the call. A policy affects no existing page.
        let code =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), MASK_BITS) };
        code == 0
    }
}

/// Prefers a node for the calling thread's new pages until it is dropped.
pub(super) struct PreferredNode {
    before: Option<MemoryPolicy>,
    /// Dropped by the same thread.
    _thread: PhantomData<*const ()>,
}

impl PreferredNode {
    /// Without a node, or where the kernel refuses, the policy stays.
    pub(super) fn new(node: Option<u32>) -> Self {
        let preferred = node.and_then(MemoryPolicy::preferring);
        let before = preferred.and_then(|preferred| {
            let before = MemoryPolicy::of_thread()?;
            preferred.set().then_some(before)
        });
        Self { before, _thread: PhantomData }
    }
}

impl Drop for PreferredNode {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _set = before.set();
        }
    }
}

/// The node of the PCI device at `address`, if the kernel knows it.
pub(super) fn node_of(host: &Host, address: &str) -> Option<u32> {
    // The kernel writes -1 for unknown.
    u32::try_from(host.number(format!("sys/bus/pci/devices/{address}/numa_node"))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::host::Tree;

    #[test]
    fn the_node_is_what_the_kernel_says_of_the_address() {
        let tree = Tree::new();
        tree.file("sys/bus/pci/devices/0000:8a:00.0/numa_node", "1\n");
        tree.file("sys/bus/pci/devices/10ff:c1:1f.0/numa_node", "-1\n");
        assert_eq!(node_of(&tree.host(), "0000:8a:00.0"), Some(1));
        assert_eq!(node_of(&tree.host(), "10ff:c1:1f.0"), None);
        assert_eq!(node_of(&tree.host(), "0000:8b:00.0"), None);
    }

    #[test]
    fn a_node_is_preferred_for_as_long_as_it_is_asked_for() {
        let Some(before) = MemoryPolicy::of_thread().filter(MemoryPolicy::set) else {
            fib::testing::skip("numa", "this host forbids memory policies");
            return;
        };
        let wanted = MemoryPolicy::preferring(0).unwrap();
        let preferred = PreferredNode::new(Some(0));
        assert_eq!(MemoryPolicy::of_thread(), Some(wanted));
        let none = PreferredNode::new(None);
        assert_eq!(MemoryPolicy::of_thread(), Some(wanted));
        drop((none, preferred));
        assert_eq!(MemoryPolicy::of_thread(), Some(before));
        drop(PreferredNode::new(Some(100_000)));
        assert_eq!(MemoryPolicy::of_thread(), Some(before), "no such node");
    }
}
