//! The data caches of this host. A size that Linux does not report defaults to that on a server core of 2024.

use fib::host::Host;

/// The bytes of each data cache that one CPU can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The first level.
    pub l1_bytes: u64,
    /// The second level.
    pub l2_bytes: u64,
    /// This CPU's share of the last level.
    pub l3_bytes: u64,
}

impl Default for Caches {
    fn default() -> Self {
        Self { l1_bytes: 32 << 10, l2_bytes: 1 << 20, l3_bytes: 16 << 20 }
    }
}

impl Caches {
    /// The caches of CPU 0.
    pub fn detect() -> Self {
        Self::from_host(&Host::here())
    }

    fn from_host(host: &Host) -> Self {
        let mut caches = Self::default();
        for cache in host.data_caches() {
            match cache.level {
                1 => caches.l1_bytes = cache.bytes,
                2 => caches.l2_bytes = cache.bytes,
                3 => caches.l3_bytes = cache.bytes / cache.sharers,
                _ => {}
            }
        }
        // A busy CPU gets more than an equal share of a large shared cache.
        caches.l3_bytes = caches.l3_bytes.max(2 * caches.l2_bytes);
        caches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::host::Tree;

    #[test]
    fn a_cpu_has_its_share_of_the_last_level() {
        let tree = Tree::new();
        assert_eq!(Caches::from_host(&tree.host()), Caches::default(), "a host without any file");
        for (at, words) in
            [["1", "48K", "0,64"], ["2", "2048K", "0,64"], ["3", "48M", "0-3"]].iter().enumerate()
        {
            let folder = format!("sys/devices/system/cpu/cpu0/cache/index{at}");
            tree.file(&format!("{folder}/type"), "Unified");
            for (name, word) in ["level", "size", "shared_cpu_list"].iter().zip(words) {
                tree.file(&format!("{folder}/{name}"), word);
            }
        }
        let found = Caches::from_host(&tree.host());
        assert_eq!(found, Caches { l1_bytes: 48 << 10, l2_bytes: 2 << 20, l3_bytes: 12 << 20 });
    }
}
