//! Privileges of this process, and their use in `run`.

use super::Finding;
use fib::host::Host;

struct Capability {
    bit: u32,
    name: &'static str,
    purpose: &'static str,
}

const CAPABILITIES: [Capability; 3] = [
    Capability { bit: 12, name: "CAP_NET_ADMIN", purpose: "TAPs" },
    Capability { bit: 13, name: "CAP_NET_RAW", purpose: "ports of af_packet and flows of mlx5" },
    Capability { bit: 21, name: "CAP_SYS_ADMIN", purpose: "--tap-netns, and NICs on uio without IOMMU" },
];
const CAP_IPC_LOCK: u32 = 14;

/// Whether this user has the privileges that `run` may need. `can_use`: whether a file is readable and writable.
pub(super) fn privilege(host: &Host, can_use: &dyn Fn(&str) -> bool) -> Finding {
    let field = |key| host.field("proc/self/status", key).unwrap_or_default();
    let has = {
        let bits = u64::from_str_radix(&field("CapEff"), 16).unwrap_or(0);
        move |bit: u32| bits >> bit & 1 == 1
    };
    let mut missing: Vec<String> = Vec::new();
    let lacks = |capability: &&Capability| !has(capability.bit);
    missing.extend(CAPABILITIES.iter().filter(lacks).map(|c| format!("{} (for {})", c.name, c.purpose)));
    let locked = locked_memory(host);
    if locked != "unlimited" && !has(CAP_IPC_LOCK) {
        missing.push(format!("unlimited locked memory (for NICs on vfio); the limit is {locked} bytes"));
    }
    missing.extend(unusable(host, can_use));
    let user = field("Uid");
    let user = match user.split_whitespace().nth(1) {
        Some("0") => "root".to_owned(),
        Some(number) => format!("user {number}"),
        None => "user unknown".to_owned(),
    };
    if missing.is_empty() {
        return Finding::ok(user);
    }
    Finding::warn(
        format!("{user}, without {}", missing.join("; ")),
        "virtual ports in memory need none of these; fwd-app.service grants them to its user, see docs/service.md",
    )
}

fn locked_memory(host: &Host) -> String {
    let limits = host.read("proc/self/limits").unwrap_or_default();
    let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    locked.and_then(|rest| rest.split_whitespace().next()).unwrap_or("unknown").to_owned()
}

fn unusable(host: &Host, can_use: &dyn Fn(&str) -> bool) -> Vec<String> {
    let groups =
        host.list("dev/vfio").into_iter().filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
    let groups = groups.map(|name| format!("/dev/vfio/{name}"));
    let mut all: Vec<_> = groups.filter(|path| !can_use(path)).collect();
    let mounts = super::compute::hugetlbfs_mounts(host);
    // A subfolder may belong to this user, as the service's does.
    let folders = |mount: &String| {
        let inner =
            host.list(mount.trim_start_matches('/')).into_iter().map(|name| format!("{mount}/{name}"));
        inner.chain([mount.clone()]).any(|path| can_use(&path))
    };
    if !mounts.is_empty() && !mounts.iter().any(folders) {
        all.push(format!(
            "{} (for huge pages in files: EAL's --huge-dir; --in-memory needs none)",
            mounts.join(", ")
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use fib::host::Tree;

    const UNLIMITED: &str = "Max locked memory         unlimited            unlimited            bytes\n";

    #[test]
    fn what_is_missing_is_said_with_what_it_is_for() {
        let tree = Tree::new();
        tree.file("proc/self/status", "Uid:\t999\t999\t999\t999\nCapEff:\t0000000000001000\n")
            .file("proc/self/limits", "Max locked memory         8388608     8388608     bytes\n")
            .file("proc/mounts", "nodev /dev/hugepages hugetlbfs rw 0 0\n")
            .file("dev/vfio/vfio", "")
            .file("dev/vfio/12", "");
        let item = privilege(&tree.host(), &|path| path == "/dev/vfio/vfio");
        assert_eq!(item.status, Status::Warn);
        for wanted in [
            "user 999, without",
            "CAP_NET_RAW (for ports of af_packet",
            "CAP_SYS_ADMIN (for --tap-netns",
            "it is 8388608 bytes",
            "/dev/vfio/12",
            "/dev/hugepages (for huge pages",
        ] {
            assert!(item.found.contains(wanted), "{wanted}: {}", item.found);
        }
        assert!(!item.found.contains("NET_ADMIN"), "{}", item.found);
    }

    #[test]
    fn nothing_is_missing_for_root_nor_for_a_user_with_all_of_it() {
        let tree = Tree::new();
        tree.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
        assert_eq!(privilege(&tree.host(), &|_| true), Finding::ok("root"));
        let tree = Tree::new();
        tree.file("proc/self/status", "Uid:\t999\t999\t999\t999\nCapEff:\t0000000000203000\n")
            .file("proc/self/limits", UNLIMITED)
            .file("proc/mounts", "nodev /dev/hugepages hugetlbfs rw 0 0\n")
            .file("dev/hugepages/fwd-app/map_0", "")
            .file("dev/vfio/12", "");
        let usable = ["/dev/hugepages/fwd-app", "/dev/vfio/12"];
        assert_eq!(privilege(&tree.host(), &|path| usable.contains(&path)), Finding::ok("user 999"));
        tree.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000003000\n");
        let item = privilege(&tree.host(), &|_| true);
        assert!(item.found.starts_with("root, without CAP_SYS_ADMIN"), "{}", item.found);
    }
}
