//! Reserved huge pages that the kernel promises but does not supply, since a control group allows none. The test runs itself as a child in
//! that group. It needs root, the controller `hugetlb`, and a few free 2 MB pages.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use lpm_core::memory::{Array, Placement, mapped, refused_bytes};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};

const GROUP: &str = "LPM_CORE_TEST_GROUP";
const BYTES: usize = 4 << 20;

/// A control group without 2 MB pages, removed on drop.
struct ControlGroup {
    folder: PathBuf,
    mounted: Option<PathBuf>,
}

impl ControlGroup {
    fn new() -> io::Result<Self> {
        let unified = Path::new("/sys/fs/cgroup");
        let has_controller = fs::read_to_string(unified.join("cgroup.controllers"))
            .is_ok_and(|names| names.split_whitespace().any(|name| name == "hugetlb"));
        let (root, limit, mounted) = if has_controller {
            fs::write(unified.join("cgroup.subtree_control"), "+hugetlb")?;
            (unified.to_owned(), "hugetlb.2MB.max", None)
        } else {
            let root = env::temp_dir().join(format!("lpm-core-hugetlb-{}", process::id()));
            fs::create_dir(&root)?;
            let mount =
                Command::new("mount").args(["-t", "cgroup", "-o", "hugetlb", "none"]).arg(&root).output()?;
            if !mount.status.success() {
                fs::remove_dir(&root)?;
                return Err(io::Error::other(String::from_utf8_lossy(&mount.stderr).into_owned()));
            }
            (root.clone(), "hugetlb.2MB.limit_in_bytes", Some(root))
        };
        let group = Self { folder: root.join(format!("lpm-core-test-{}", process::id())), mounted };
        fs::create_dir(&group.folder)?;
        fs::write(group.folder.join(limit), "0")?;
        Ok(group)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.folder);
        if let Some(root) = &self.mounted {
            let _unmounted = Command::new("umount").arg(root).status();
            let _gone = fs::remove_dir(root);
        }
    }
}

fn free_pages() -> u64 {
    let text = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn pages_that_a_control_group_refuses_are_not_used() {
    if let Some(folder) = env::var_os(GROUP) {
        return in_group(Path::new(&folder));
    }
    if free_pages() < 2 * (BYTES >> 21) as u64 {
        return eprintln!("SKIPPED: too few pages of 2 MB are free");
    }
    let group = match ControlGroup::new() {
        Ok(group) => group,
        Err(error) => return eprintln!("SKIPPED: no control group for huge pages: {error}"),
    };
    let name = "pages_that_a_control_group_refuses_are_not_used";
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", name, "--nocapture"]).env(GROUP, &group.folder).output().unwrap();
    assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}

fn in_group(folder: &Path) {
    fs::write(folder.join("cgroup.procs"), process::id().to_string()).unwrap();
    for numa_node in [None, Some(0)] {
        let refused = refused_bytes();
        let placement = Placement { huge_pages: true, numa_node };
        let array = Array::<AtomicU64>::zeroed(BYTES / 8, placement).unwrap();
        array.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        assert_eq!((mapped().huge_bytes, refused_bytes() - refused), (0, BYTES as u64), "{array:?}");
    }
}
