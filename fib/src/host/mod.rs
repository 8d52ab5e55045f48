//! The host as files: `/proc`, `/sys`, `/dev` and `/etc`, read below a root folder, so that tests can lay out a host.
//! Unreadable files are absent. Lists of CPUs and NUMA nodes have Linux's form, `0-3,8`.

mod facts;

pub use facts::HostFacts;

use crate::units::size;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LIBRARY_FOLDERS: [&str; 6] =
    ["lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/lib64"];

/// The maximum number of CPUs of a kernel.
const CPUS_MAX: u16 = 8192;

/// A data cache of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level; 1 is the nearest.
    pub level: u8,
    /// Its size.
    pub bytes: u64,
    /// The number of CPUs that share it, at least one.
    pub sharers: u64,
}

/// A host below a root folder.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    /// The entries of `LD_LIBRARY_PATH`.
    loader_path: Vec<PathBuf>,
}

impl Host {
    /// The host this runs on.
    #[must_use]
    pub fn here() -> Self {
        let loader_path = std::env::var_os("LD_LIBRARY_PATH")
            .map(|paths| std::env::split_paths(&paths).filter(|p| p.is_absolute()).collect())
            .unwrap_or_default();
        Self { root: PathBuf::from("/"), loader_path }
    }

    /// The contents of a file, trimmed. `path` is relative to the root.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    #[must_use]
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted; empty if there is no such folder.
    #[must_use]
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a file or folder.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The last component of the target of a symbolic link, such as the driver of a device.
    #[must_use]
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// The value of `KEY:` in a file of `KEY: VALUE` lines.
    #[must_use]
    pub fn field(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }

    /// The CPUs that this process may use, as the kernel lists them (`0-3,8`).
    #[must_use]
    pub fn cpu_list(&self) -> Option<String> {
        self.field("proc/self/status", "Cpus_allowed_list")
    }

    /// [`Self::cpu_list`] as numbers; CPU 0 if it is unknown.
    #[must_use]
    pub fn cpus_allowed(&self) -> Vec<u16> {
        let list = self.cpu_list().unwrap_or_default();
        let cpus: Vec<_> = (0..CPUS_MAX).filter(|cpu| list_holds(&list, u64::from(*cpu))).collect();
        if cpus.is_empty() { vec![0] } else { cpus }
    }

    /// The model name of the CPU.
    #[must_use]
    pub fn cpu_name(&self) -> Option<String> {
        self.field("proc/cpuinfo", "model name")
    }

    /// The numbers of all and of free huge pages of `kb` KB.
    #[must_use]
    pub fn huge_pages(&self, kb: u32) -> (u64, u64) {
        let folder = format!("sys/kernel/mm/hugepages/hugepages-{kb}kB");
        let number = |name: &str| self.number(format!("{folder}/{name}")).unwrap_or(0);
        (number("nr_hugepages"), number("free_hugepages"))
    }

    /// The list of NUMA nodes with memory.
    #[must_use]
    pub fn memory_nodes(&self) -> Option<String> {
        let nodes = Path::new("sys/devices/system/node");
        self.read(nodes.join("has_memory")).or_else(|| self.read(nodes.join("online")))
    }

    /// When ordinary pages become huge ones: `always`, `madvise` or `never`.
    #[must_use]
    pub fn transparent_huge_pages(&self) -> Option<String> {
        let choices = self.read("sys/kernel/mm/transparent_hugepage/enabled")?;
        let (_, rest) = choices.split_once('[')?;
        rest.split_once(']').map(|(choice, _)| choice.to_owned())
    }

    /// Whether the kernel makes transparent huge pages on request.
    #[must_use]
    pub fn has_transparent_huge_pages(&self) -> bool {
        self.transparent_huge_pages().is_some_and(|choice| choice != "never")
    }

    /// The data caches of CPU 0, including unified ones.
    #[must_use]
    pub fn data_caches(&self) -> Vec<Cache> {
        let folder = Path::new("sys/devices/system/cpu/cpu0/cache");
        let cache = |name: &String| {
            let word = |file: &str| self.read(folder.join(name).join(file));
            if word("type")? == "Instruction" {
                return None;
            }
            let sharers = count_list(&word("shared_cpu_list").unwrap_or_default()).max(1);
            Some(Cache { level: word("level")?.parse().ok()?, bytes: size(&word("size")?)?, sharers })
        };
        self.list(folder).iter().filter_map(cache).collect()
    }

    /// The load average of the last minute.
    #[must_use]
    pub fn load_average(&self) -> Option<f64> {
        self.read("proc/loadavg")?.split_whitespace().next()?.parse().ok()
    }

    /// The folders that the dynamic linker searches, relative to the root or absolute, each once.
    fn linker_folders(&self) -> Vec<PathBuf> {
        let mut folders = self.loader_path.clone();
        for name in self.list("etc/ld.so.conf.d").iter().filter(|name| name.ends_with(".conf")) {
            let text = self.read(Path::new("etc/ld.so.conf.d").join(name)).unwrap_or_default();
            let lines = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
            folders.extend(lines.map(|line| PathBuf::from(line.trim_start_matches('/'))));
        }
        folders.extend(LIBRARY_FOLDERS.map(PathBuf::from));
        let mut seen = BTreeSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        folders
    }

    /// The first library folder with files whose names start with `prefix`, and these names, shortest first.
    #[must_use]
    pub fn find_library(&self, prefix: &str) -> Option<(PathBuf, Vec<String>)> {
        self.linker_folders().into_iter().find_map(|folder| {
            let mut names = self.list(&folder);
            names.retain(|name| name.starts_with(prefix));
            names.sort_by_key(String::len);
            (!names.is_empty()).then_some((folder, names))
        })
    }
}

/// The ranges of a list, as first and last number. Parts that are neither a number nor a range are skipped.
fn ranges(list: &str) -> impl Iterator<Item = (u64, u64)> {
    list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

/// The number of elements of a list such as `0-3,8`.
#[must_use]
pub fn count_list(list: &str) -> u64 {
    let count = |(first, last): (u64, u64)| last.checked_sub(first)?.checked_add(1);
    ranges(list).filter_map(count).fold(0, u64::saturating_add)
}

/// Whether a list such as `0-3,8` contains `number`.
#[must_use]
pub fn list_holds(list: &str, number: u64) -> bool {
    ranges(list).any(|(first, last)| (first..=last).contains(&number))
}

/// A host laid out in a scratch folder.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct Tree(tempfile::TempDir);

#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::new_without_default, reason = "for tests, which fail loudly")]
impl Tree {
    /// A host without any file.
    #[must_use]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> Host {
        Host { root: self.0.path().to_owned(), loader_path: Vec::new() }
    }

    /// Adds a file.
    pub fn file(&self, path: &str, text: &str) -> &Self {
        fs::write(self.path(path), text).unwrap();
        self
    }

    /// Adds a symbolic link.
    pub fn link(&self, path: &str, target: &str) -> &Self {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// DPDK 22.11 as Debian lays it out.
    pub fn dpdk(&self) -> &Self {
        self.file("etc/ld.so.conf.d/x.conf", "# multiarch\n/usr/lib/x86_64-linux-gnu\n");
        for name in ["librte_eal.so.23", "librte_eal.so.23.0", "dpdk/pmds-23.0/librte_net_ring.so"] {
            self.file(&format!("usr/lib/x86_64-linux-gnu/{name}"), "");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_pages() {
        let tree = Tree::new();
        assert_eq!((tree.host().cpus_allowed(), tree.host().huge_pages(2048)), (vec![0], (0, 0)));
        tree.file("proc/self/status", "Cpus_allowed_list:\t0-2,7\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "9\n")
            .file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "4\n");
        assert_eq!((tree.host().cpus_allowed(), tree.host().huge_pages(2048)), (vec![0, 1, 2, 7], (9, 4)));
    }

    #[test]
    fn files_links_fields_and_libraries() {
        let tree = Tree::new();
        tree.dpdk()
            .file("a/n", "42\n")
            .file("a/f", "Name:\tx y\nUid:\t0\t0\n")
            .link("a/driver", "../bus/vfio-pci");
        let host = tree.host();
        assert_eq!(host.number("a/n"), Some(42));
        assert_eq!(host.number("a/f"), None);
        assert_eq!(host.field("a/f", "Uid").as_deref(), Some("0\t0"));
        assert_eq!(host.link_name("a/driver").as_deref(), Some("vfio-pci"));
        assert_eq!(host.list("a"), ["driver", "f", "n"]);
        assert!(host.list("b").is_empty() && host.read("b").is_none());
        let (folder, names) = host.find_library("librte_eal.so.").unwrap();
        assert_eq!(folder, Path::new("usr/lib/x86_64-linux-gnu"));
        assert_eq!(names, ["librte_eal.so.23", "librte_eal.so.23.0"]);
    }

    #[test]
    fn caches_nodes_and_loads() {
        let tree = Tree::new();
        let host = tree.host();
        assert!(host.data_caches().is_empty() && host.memory_nodes().is_none());
        assert!(host.load_average().is_none() && !host.has_transparent_huge_pages());
        for (at, [level, kind, size, shared]) in [
            ["1", "Data", "48K", "0,64"],
            ["1", "Instruction", "64K", "0,64"],
            ["3", "Unified", "48M", "0-3"],
        ]
        .into_iter()
        .enumerate()
        {
            for (name, word) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
            {
                tree.file(
                    &format!("sys/devices/system/cpu/cpu0/cache/index{at}/{name}"),
                    &format!("{word}\n"),
                );
            }
        }
        let caches = [
            Cache { level: 1, bytes: 48 << 10, sharers: 2 },
            Cache { level: 3, bytes: 48 << 20, sharers: 4 },
        ];
        assert_eq!(host.data_caches(), caches);
        tree.file("sys/devices/system/node/online", "0-1\n")
            .file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
            .file("proc/loadavg", "1.50 2.00 3.00 1/100 7\n");
        assert_eq!((host.memory_nodes().as_deref(), host.load_average()), (Some("0-1"), Some(1.5)));
        assert_eq!(host.transparent_huge_pages().as_deref(), Some("madvise"));
        assert!(host.has_transparent_huge_pages());
    }

    #[test]
    fn lists_as_the_kernel_prints_them() {
        let counts = [("", 0), ("0\n", 1), ("0-3", 4), ("0-3,8", 5), ("0-1,4-5,9", 5), ("x", 0), ("5-2", 0)];
        for (list, count) in counts {
            assert_eq!(count_list(list), count, "{list}");
        }
        assert!(list_holds("0-3,8\n", 8) && list_holds("0-3,8", 2) && list_holds("0", 0));
        assert!(!list_holds("0-3,8", 4) && !list_holds("", 0) && !list_holds("x-y", 0));
    }
}
