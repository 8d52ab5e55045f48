//! The host as files: what the kernel says below `/proc`, `/sys`, `/dev` and `/etc`, read through a root folder so that
//! tests can lay out a host of their own. What cannot be read is absent.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that the dynamic linker searches whatever its configuration says.
const LIBRARY_FOLDERS: [&str; 6] =
    ["lib64", "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/lib64"];

/// A host below a root folder.
pub(super) struct Host {
    root: PathBuf,
    /// `LD_LIBRARY_PATH`, split.
    loader_path: Vec<PathBuf>,
}

impl Host {
    /// The host this runs on.
    pub(super) fn here() -> Self {
        let loader_path = std::env::var_os("LD_LIBRARY_PATH")
            .map(|paths| std::env::split_paths(&paths).filter(|p| p.is_absolute()).collect())
            .unwrap_or_default();
        Self { root: PathBuf::from("/"), loader_path }
    }

    /// The contents of a file, without blanks around them. `path` is relative to the root.
    pub(super) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The number in a file.
    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none when there is no such folder.
    pub(super) fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Whether there is a file or folder.
    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// The last part of what a symbolic link points to (the driver of a device).
    pub(super) fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// The value of `KEY:` in a file of `KEY: VALUE` lines.
    pub(super) fn field(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    }

    /// Folders in which the dynamic linker looks, relative to the root or absolute, each once.
    pub(super) fn linker_folders(&self) -> Vec<PathBuf> {
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

    /// The first library folder with a file whose name starts with `prefix`, and those names, shortest first.
    pub(super) fn find_library(&self, prefix: &str) -> Option<(PathBuf, Vec<String>)> {
        self.linker_folders().into_iter().find_map(|folder| {
            let mut names = self.list(&folder);
            names.retain(|name| name.starts_with(prefix));
            names.sort_by_key(String::len);
            (!names.is_empty()).then_some((folder, names))
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A host laid out in a scratch folder.
    pub(in super::super) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(in super::super) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(in super::super) fn host(&self) -> Host {
            Host { root: self.0.path().to_owned(), loader_path: Vec::new() }
        }

        pub(in super::super) fn file(&self, path: &str, text: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        pub(in super::super) fn link(&self, path: &str, target: &str) -> &Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
            self
        }

        /// DPDK 22.11 as Debian lays it out.
        pub(in super::super) fn dpdk(&self) -> &Self {
            self.file("etc/ld.so.conf.d/x.conf", "# multiarch\n/usr/lib/x86_64-linux-gnu\n");
            for name in ["librte_eal.so.23", "librte_eal.so.23.0", "dpdk/pmds-23.0/librte_net_ring.so"] {
                self.file(&format!("usr/lib/x86_64-linux-gnu/{name}"), "");
            }
            self
        }
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
