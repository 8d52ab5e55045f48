//! The data caches of this host.
//!
//! Linux lists them in `/sys/devices/system/cpu/cpu0/cache`, one folder per cache with the files `level`, `type`, `size` (`1024K`)
//! and `shared_cpu_list` (`0-7,16`). Sizes that it does not list default to those of a server core of 2024.

use fib::host::count_list;
use std::fs;
use std::path::Path;

/// The bytes of each data cache that one CPU can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The first level.
    pub l1_bytes: u64,
    /// The second level.
    pub l2_bytes: u64,
    /// Its share of the last level, which CPUs may share.
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
        Self::read(Path::new("/sys/devices/system/cpu/cpu0/cache"))
    }

    fn read(folder: &Path) -> Self {
        let mut caches = Self::default();
        for cache in fs::read_dir(folder).into_iter().flatten().flatten() {
            let word = |name: &str| fs::read_to_string(cache.path().join(name)).unwrap_or_default();
            let (level, kind) = (word("level"), word("type"));
            let Some(size) = bytes(word("size").trim()) else { continue };
            match (level.trim(), kind.trim()) {
                ("1", "Data") => caches.l1_bytes = size,
                ("2", "Unified") => caches.l2_bytes = size,
                ("3", "Unified") => caches.l3_bytes = size / count_list(&word("shared_cpu_list")).max(1),
                _ => {}
            }
        }
        // One busy CPU gets more of a large shared cache than an equal share of it.
        caches.l3_bytes = caches.l3_bytes.max(2 * caches.l2_bytes);
        caches
    }
}

/// Parses a size like `1024K` or `32M` into bytes; `None` if it is malformed or 0.
fn bytes(size: &str) -> Option<u64> {
    let (digits, shift) = match size.as_bytes().last()? {
        b'K' => (&size[..size.len() - 1], 10),
        b'M' => (&size[..size.len() - 1], 20),
        _ => (size, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(
            ["48K", "2M", "512", "", "K", "x", "0K"].map(bytes),
            [Some(48 << 10), Some(2 << 20), Some(512), None, None, None, None]
        );
    }

    #[test]
    fn a_folder_as_linux_has_it() {
        let folder = std::env::temp_dir().join(format!("caches-{}", std::process::id()));
        for (at, words) in [
            ["1", "Data", "48K", "0,64"],
            ["1", "Instruction", "64K", "0,64"],
            ["2", "Unified", "2048K", "0,64"],
            ["3", "Unified", "48M", "0-3"],
        ]
        .iter()
        .enumerate()
        {
            let cache = folder.join(format!("index{at}"));
            fs::create_dir_all(&cache).unwrap();
            for (name, word) in ["level", "type", "size", "shared_cpu_list"].iter().zip(words) {
                fs::write(cache.join(name), format!("{word}\n")).unwrap();
            }
        }
        let found = Caches::read(&folder);
        assert_eq!(found, Caches { l1_bytes: 48 << 10, l2_bytes: 2 << 20, l3_bytes: 12 << 20 });
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Caches::read(&folder), Caches::default(), "a host that lists no caches");
    }
}
