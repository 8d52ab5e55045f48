//! The host: files below `/proc`, `/sys`, `/dev` and `/etc`, read through a root folder so that tests can lay out their own host.
//! Files that cannot be read count as absent.

use fib::host::list_holds;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that the dynamic linker searches independently of its configuration.
const LIBRARY_FOLDERS: [&str; 6] =
    ["lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/lib64"];

/// The most CPUs that a kernel is built for.
const CPUS_MAX: u16 = 8192;

/// A host below a root folder.
pub(crate) struct Host {
    root: PathBuf,
    /// `LD_LIBRARY_PATH`, split.
    loader_path: Vec<PathBuf>,
}

impl Host {
    /// The host of this process.
    pub(crate) fn here() -> Self {
        let loader_path = std::env::var_os("LD_LIBRARY_PATH")
            .map(|paths| std::env::split_paths(&paths).filter(|p| p.is_absolute()).collect())
            .unwrap_or_default();
        Self { root: PathBuf::from("/"), loader_path }
    }

    /// The contents of a file, trimmed. `path` is relative to the root.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The number that a file contains.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted; empty if the folder does not exist.
    pub(crate) fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Whether a file or folder exists.
    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The last component of a symbolic link's target (such as the driver of a device).
    pub(crate) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// The value of `KEY:` in a file of `KEY: VALUE` lines.
    pub(crate) fn field(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }

    /// The CPUs that this process may use, in the kernel's list format (`0-3,8`).
    pub(crate) fn cpu_list(&self) -> Option<String> {
        self.field("proc/self/status", "Cpus_allowed_list")
    }

    /// The same as numbers; CPU 0 if the list cannot be read.
    pub(crate) fn cpus_allowed(&self) -> Vec<u16> {
        let list = self.cpu_list().unwrap_or_default();
        let cpus: Vec<_> = (0..CPUS_MAX).filter(|cpu| list_holds(&list, u64::from(*cpu))).collect();
        if cpus.is_empty() { vec![0] } else { cpus }
    }

    /// The model name of the CPU.
    pub(crate) fn cpu_name(&self) -> Option<String> {
        self.field("proc/cpuinfo", "model name")
    }

    /// Huge pages of `kb` KB: the total, and the free ones.
    pub(crate) fn huge_pages(&self, kb: u32) -> (u64, u64) {
        let folder = format!("sys/kernel/mm/hugepages/hugepages-{kb}kB");
        let number = |name: &str| self.number(format!("{folder}/{name}")).unwrap_or(0);
        (number("nr_hugepages"), number("free_hugepages"))
    }

    /// Folders that the dynamic linker searches, relative to the root or absolute, each once.
    pub(crate) fn linker_folders(&self) -> Vec<PathBuf> {
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

    /// The first library folder that has files whose names start with `prefix`, and those names, shortest first.
    pub(crate) fn find_library(&self, prefix: &str) -> Option<(PathBuf, Vec<String>)> {
        self.linker_folders().into_iter().find_map(|folder| {
            let mut names = self.list(&folder);
            names.retain(|name| name.starts_with(prefix));
            names.sort_by_key(String::len);
            (!names.is_empty()).then_some((folder, names))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A host laid out in a scratch folder.
    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(crate) fn host(&self) -> Host {
            Host { root: self.0.path().to_owned(), loader_path: Vec::new() }
        }

        pub(crate) fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        pub(crate) fn link(&self, path: &str, target: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
            self
        }

        /// DPDK 22.11 as Debian lays it out.
        pub(crate) fn dpdk(&self) -> &Self {
            self.file("etc/ld.so.conf.d/x.conf", "# multiarch\n/usr/lib/x86_64-linux-gnu\n");
            for name in ["librte_eal.so.23", "librte_eal.so.23.0", "dpdk/pmds-23.0/librte_net_ring.so"] {
                self.file(&format!("usr/lib/x86_64-linux-gnu/{name}"), "");
            }
            self
        }
    }

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
}
