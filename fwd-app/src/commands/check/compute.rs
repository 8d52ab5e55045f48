//! CPUs, instruction sets, NUMA nodes, pages, memory.

use super::Finding;
use crate::topology::QueueSpec;
use fib::Isa;
use fib::host::{Host, count_list, list_holds};

/// Memory without routes: DPDK, mempools, stacks, bytes.
const BASE_BYTES: u64 = 300 << 20;
/// Peak memory per route, bytes: RIB and engine while one is built from the other. Full tables took 60 to 90; gateways and MRT
/// attributes take more.
const ROUTE_BYTES: u64 = 300;
/// Peak table memory per route, bytes, while a larger table is built (engine `bloom`).
const TABLE_ROUTE_BYTES: u64 = 100;
/// 2 MB pages that EAL uses for mbufs in the bundled examples.
const PAGES_2M_WANTED: u64 = 256;

pub(super) fn cpus(host: &Host, config: Option<&QueueSpec>) -> Finding {
    let online = host.read("sys/devices/system/cpu/online").unwrap_or_default();
    let allowed = host.cpu_list().unwrap_or_else(|| online.clone());
    let count = count_list(&allowed);
    let model = host.cpu_name().unwrap_or_else(|| "unknown model".into());
    let found = format!("{count} ({allowed}), {model}");
    let beyond: Vec<u16> = config.map_or_else(Vec::new, |map| {
        let mut lcores = map.lcores();
        lcores.sort_unstable();
        lcores.retain(|lcore| !list_holds(&allowed, u64::from(*lcore)));
        lcores
    });
    if !beyond.is_empty() {
        return Finding::warn(
            format!("{found}; no CPU for lcores {beyond:?}"),
            "let lcores share CPUs with EAL's --lcores 'LCORE@CPU,..', or change --config",
        );
    }
    if count < 2 {
        return Finding::warn(found, "lcores share the only CPU with all other programs, which adds latency");
    }
    Finding::ok(found)
}

pub(super) fn isa() -> Finding {
    isa_of(&Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect::<Vec<_>>())
}

/// `there`: the CPU's instruction sets, plainest first.
fn isa_of(there: &[Isa]) -> Finding {
    let found = there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let hint = match there.last() {
        Some(Isa::Avx512f) => return Finding::ok(found),
        Some(Isa::Avx2) => {
            "engines with avx2 kernels, such as host and bloom, use them; the others run scalar code"
        }
        Some(Isa::Scalar) | None => "every engine runs scalar code",
    };
    Finding::warn(format!("{found}; no avx512f"), hint)
}

pub(super) fn isolated(host: &Host) -> Finding {
    match host.read("sys/devices/system/cpu/isolated").filter(|list| !list.is_empty()) {
        Some(list) => Finding::ok(list),
        None => Finding::warn(
            "none",
            "boot with isolcpus=N-M nohz_full=N-M rcu_nocbs=N-M for lcores that nothing else interrupts",
        ),
    }
}

pub(super) fn numa(host: &Host) -> Finding {
    let nodes: Vec<_> = host
        .list("sys/devices/system/node")
        .into_iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
        .collect();
    let memory_only = nodes.iter().filter(|node| {
        host.read(format!("sys/devices/system/node/{node}/cpulist")).is_some_and(|list| list.is_empty())
    });
    let memory_only: Vec<_> = memory_only.cloned().collect();
    let mut found = format!("{} node(s)", nodes.len().max(1));
    if !memory_only.is_empty() {
        found += &format!("; memory only: {}, for --table-node", memory_only.join(", "));
    }
    Finding::ok(found)
}

pub(super) fn tables(host: &Host, routes: u64, node: Option<u32>) -> Finding {
    let nodes = "sys/devices/system/node";
    let there = host.memory_nodes();
    let count = there.as_deref().map_or(1, count_list);
    let place = match (node, there) {
        (Some(node), Some(there)) if !list_holds(&there, node.into()) => {
            return Finding::fail(
                format!("there is no NUMA node {node}; this host has memory on {there}"),
                "give --table-node a node that has memory",
            );
        }
        (Some(node), _) => format!("on node {node}"),
        (None, _) if count > 1 => "on the node of the thread that loads them (or on --table-node)".into(),
        (None, _) => "on the only node".into(),
    };
    let wanted = routes.saturating_mul(TABLE_ROUTE_BYTES).div_ceil(2 << 20).max(1);
    let free = match node {
        Some(node) => {
            host.number(format!("{nodes}/node{node}/hugepages/hugepages-2048kB/free_hugepages")).unwrap_or(0)
        }
        None => host.huge_pages(2048).1,
    };
    if free >= wanted {
        return Finding::ok(format!(
            "{place}, in 2 MB pages: {free} are free, {routes} routes need about {wanted}"
        ));
    }
    let hint = format!("sysctl -w vm.nr_hugepages=N with at least {} more than now", wanted - free);
    if !host.has_transparent_huge_pages() {
        return Finding::warn(format!("{place}, in 4 KB pages: TLB misses slow lookups down"), hint);
    }
    Finding::ok(format!(
        "{place}, in transparent huge pages: {free} reserved 2 MB pages are free, about {wanted} are needed"
    ))
}

pub(super) fn pages_2m(host: &Host) -> Finding {
    let (total, free) = host.huge_pages(2048);
    let found = format!("{total}, {free} free ({} MB)", free * 2);
    if host.huge_pages(1_048_576).1 > 0 || free >= PAGES_2M_WANTED {
        return Finding::ok(found);
    }
    let hint = format!(
        "sysctl -w vm.nr_hugepages={}; or use --no-huge, which is slower",
        (total + PAGES_2M_WANTED - free).max(1024)
    );
    Finding::warn(found, hint)
}

/// 1 GB pages reduce TLB misses for large mempools, but 2 MB pages suffice.
pub(super) fn pages_1g(host: &Host) -> Finding {
    let (total, free) = host.huge_pages(1_048_576);
    if total > 0 {
        return Finding::ok(format!("{total}, {free} free"));
    }
    if host.huge_pages(2048).1 > 0 {
        return Finding::ok("none; 2 MB pages are used");
    }
    Finding::warn("none", "boot with default_hugepagesz=1G hugepagesz=1G hugepages=4, or reserve 2 MB pages")
}

pub(super) fn hugetlbfs(host: &Host) -> Finding {
    match hugetlbfs_mounts(host).first() {
        Some(point) => Finding::ok(format!("mounted at {point}")),
        None => Finding::warn(
            "not mounted",
            "mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages, or give EAL --in-memory",
        ),
    }
}

pub(super) fn hugetlbfs_mounts(host: &Host) -> Vec<String> {
    let point = |line: &str| {
        let mut words = line.split(' ');
        let (_, point, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "hugetlbfs").then(|| point.to_owned())
    };
    host.read("proc/mounts").unwrap_or_default().lines().filter_map(point).collect()
}

/// Whether `routes` fit the available memory or the tighter limit of a control group.
pub(super) fn memory(host: &Host, routes: u64) -> Finding {
    let wanted = routes.saturating_mul(ROUTE_BYTES).saturating_add(BASE_BYTES);
    let available = host
        .field("proc/meminfo", "MemAvailable")
        .and_then(|text| text.strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .map(|kb| kb << 10);
    let Some(available) = available else {
        return Finding::warn("/proc/meminfo cannot be read", "make sure that /proc is mounted");
    };
    let (room, bound) = match cgroup_room(host) {
        Some(room) if room < available => (room, "left in this control group"),
        _ => (available, "available"),
    };
    let megabytes = |bytes: u64| bytes >> 20;
    let found = format!(
        "{} MB {bound}, about {} MB needed for {routes} routes, without mbufs",
        megabytes(room),
        megabytes(wanted)
    );
    if room < wanted {
        return Finding::fail(found, "free memory, raise the limit, or load fewer routes (--routes)");
    }
    Finding::ok(found)
}

/// Bytes left by the tightest control group of this process; `None` without a limit.
fn cgroup_room(host: &Host) -> Option<u64> {
    let groups = host.read("proc/self/cgroup")?;
    let mut room: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, limit, used) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current"),
            c if c.split(',').any(|c| c == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let mut folder = path.trim_matches('/');
        loop {
            let number = |name: &str| host.number(format!("{base}/{folder}/{name}"));
            if let (Some(limit), Some(used)) = (number(limit), number(used)) {
                let left = limit.saturating_sub(used);
                room = Some(room.map_or(left, |room| room.min(left)));
            }
            if folder.is_empty() {
                break;
            }
            folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use fib::host::Tree;

    #[test]
    fn the_hint_names_the_kernels_that_run() {
        assert_eq!(isa_of(&Isa::ALL).status, Status::Ok);
        for (there, runs) in [(&[Isa::Scalar, Isa::Avx2][..], "avx2 kernels"), (&[Isa::Scalar], "scalar")] {
            let item = isa_of(there);
            assert!(item.status == Status::Warn && item.hint.unwrap().contains(runs), "{there:?}");
        }
    }

    #[test]
    fn lcores_without_a_cpu_are_named() {
        let tree = Tree::new();
        tree.file("proc/self/status", "Cpus_allowed_list:\t0-1\n").file("proc/cpuinfo", "model name : A\n");
        let host = tree.host();
        assert_eq!(cpus(&host, None), Finding::ok("2 (0-1), A"));
        let map = crate::cli::values::queue_spec("(0,0,1),(net_null1,0,7),(2,auto)").unwrap();
        let item = cpus(&host, Some(&map));
        assert!(item.status == Status::Warn && item.found.contains("[7]"), "{item:?}");
    }

    #[test]
    fn pages_are_counted_and_a_hint_says_how_many_to_reserve() {
        let tree = Tree::new();
        let item = pages_2m(&tree.host());
        assert_eq!(item.status, Status::Warn);
        assert!(item.hint.unwrap().contains("vm.nr_hugepages=1024"));
        let folder = "sys/kernel/mm/hugepages/hugepages-2048kB";
        tree.file(&format!("{folder}/nr_hugepages"), "3000\n")
            .file(&format!("{folder}/free_hugepages"), "2900\n");
        assert_eq!(pages_2m(&tree.host()), Finding::ok("3000, 2900 free (5800 MB)"));
        assert_eq!(pages_1g(&tree.host()).status, Status::Ok);
        tree.file(&format!("{folder}/free_hugepages"), "0\n");
        assert!(pages_2m(&tree.host()).hint.unwrap().contains("vm.nr_hugepages=3256"));
    }

    #[test]
    fn memory_counts_the_tightest_limit() {
        let tree = Tree::new();
        tree.file("proc/meminfo", "MemAvailable:   8388608 kB\n");
        assert_eq!(memory(&tree.host(), 1_000_000).status, Status::Ok);
        assert_eq!(memory(&tree.host(), 1 << 40).status, Status::Fail);
        assert_eq!(memory(&tree.host(), u64::MAX).status, Status::Fail);
        tree.file("proc/self/cgroup", "4:memory:/a/b\n0::/\n")
            .file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n")
            .file("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4857600\n");
        assert_eq!(cgroup_room(&tree.host()), Some(100_000_000));
        let item = memory(&tree.host(), 1_000_000);
        assert!(item.status == Status::Fail && item.found.starts_with("95 MB left"), "{item:?}");
        tree.file("proc/self/cgroup", "0::/x\n").file("sys/fs/cgroup/x/memory.max", "max\n");
        assert_eq!(cgroup_room(&tree.host()), None);
    }

    #[test]
    fn tables_lie_in_the_best_pages_of_their_node() {
        let tree = Tree::new();
        let none = tables(&tree.host(), 1_000_000, None);
        assert!(none.status == Status::Warn && none.found.contains("4 KB pages"), "{none:?}");
        tree.file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        let asked = tables(&tree.host(), 1_000_000, None);
        assert!(asked.status == Status::Ok && asked.found.contains("transparent"), "{asked:?}");
        tree.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000\n")
            .file("sys/devices/system/node/has_memory", "0-1\n")
            .file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "1\n");
        let found = |routes, node| tables(&tree.host(), routes, node).found;
        assert!(found(1_000_000, None).starts_with("on the node of the thread that loads them"));
        assert!(found(1_000_000, None).contains("in 2 MB pages: 1000 are free"));
        assert!(found(1_000_000, Some(1)).starts_with("on node 1, in transparent"));
        assert!(found(10_000, Some(1)).starts_with("on node 1, in 2 MB pages"));
        let absent = tables(&tree.host(), 1, Some(7));
        assert!(absent.status == Status::Fail && absent.found.contains("memory on 0-1"), "{absent:?}");
    }

    #[test]
    fn nodes_without_cpus_are_named() {
        let tree = Tree::new();
        tree.file("sys/devices/system/node/node0/cpulist", "0-3\n")
            .file("sys/devices/system/node/node1/cpulist", "\n")
            .file("sys/devices/system/node/possible", "0-1\n");
        assert_eq!(numa(&tree.host()).found, "2 node(s); memory only: node1, for --table-node");
    }

    #[test]
    fn mounts_and_isolation() {
        let tree = Tree::new();
        let statuses = |tree: &Tree| {
            let host = tree.host();
            [hugetlbfs(&host).status, isolated(&host).status]
        };
        assert_eq!(statuses(&tree), [Status::Warn; 2]);
        tree.file("proc/mounts", "proc /proc proc rw 0 0\nnodev /mnt/huge hugetlbfs rw 0 0\n")
            .file("sys/devices/system/cpu/isolated", "2-3\n");
        assert_eq!(statuses(&tree), [Status::Ok; 2]);
    }
}
