//! DPDK, IOMMU, drivers, NICs, GPU.

use super::Finding;
use crate::engines::ENGINES;
use dpdk_ffi::version;
use fib::host::Host;
use lpm_gpu::cu::{Facts, GpuError};
use std::collections::BTreeSet;
use std::path::Path;

/// Kernel drivers that give a whole device to user space.
const USER_SPACE_DRIVERS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Kernel drivers whose devices the kernel and DPDK share.
const SHARED_DRIVERS: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];
const CLASS_NETWORK: &str = "0x02";

/// DPDK's libraries and poll mode drivers as the linker finds them, and both versions if the `compiled` and the `running` one differ.
pub(super) fn dpdk(host: &Host, compiled: &str, running: &str) -> Finding {
    const HINT: &str =
        "apt-get install librte-eal23 librte-net-ixgbe23 or similar, or add DPDK's folder to LD_LIBRARY_PATH";
    let Some((folder, names)) = host.find_library("librte_eal.so.") else {
        return Finding::fail("no librte_eal.so in the linker's folders", HINT);
    };
    let folder_text = Path::new("/").join(&folder).display().to_string();
    let abi = names.last().map_or("", |name| name.trim_start_matches("librte_eal.so."));
    let version = release_of_abi(abi).map_or_else(|| format!("ABI {abi}"), |r| format!("{r} (ABI {abi})"));
    let pmds = folder.join("dpdk").join(format!("pmds-{abi}"));
    // EAL loads names ending in .so or .so.ABI. Runtime packages have only the latter, development packages both.
    let ending = format!(".so.{abi}");
    let names = host.list(&pmds);
    let drivers: BTreeSet<_> = names
        .iter()
        .filter_map(|name| name.strip_suffix(&ending).or_else(|| name.strip_suffix(".so")))
        .collect();
    let count = drivers.len();
    if count == 0 {
        let major = abi.split('.').next().unwrap_or_default();
        return Finding::fail(
            format!("{version} in {folder_text}, no drivers in dpdk/pmds-{abi} there"),
            format!(
                "apt-get install librte-net-ixgbe{major}, librte-net-virtio{major} or similar; without drivers EAL finds no port"
            ),
        );
    }
    let found = format!("{version} in {folder_text}, {count} drivers in dpdk/pmds-{abi}");
    if compiled == running {
        return Finding::ok(found);
    }
    let found = format!("{found}; compiled for {compiled}, runs {running}");
    match version::fits(compiled, running) {
        Ok(()) => Finding::ok(found),
        Err(_) => Finding::fail(found, "rebuild fwd-app with the headers of the installed DPDK"),
    }
}

/// DPDK's release of an ABI: 23.0 is 22.11; 23.03 (23.1) and 23.07 (23.2) keep that ABI.
fn release_of_abi(abi: &str) -> Option<String> {
    let (major, minor) = abi.split_once('.')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    match minor {
        0 => Some(format!("{}.11", major.checked_sub(1)?)),
        1 => Some(format!("{major}.03")),
        2 => Some(format!("{major}.07")),
        _ => None,
    }
}

/// Exists only in kernels with CONFIG_VFIO_NOIOMMU, unlike Debian's.
const VFIO_WITHOUT_IOMMU: &str = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

fn is_loaded(host: &Host, driver: &str) -> bool {
    host.exists(format!("sys/bus/pci/drivers/{driver}"))
}

fn has_iommu(host: &Host) -> bool {
    !host.list("sys/kernel/iommu_groups").is_empty()
}

fn has_vfio_without_iommu(host: &Host) -> bool {
    host.read(VFIO_WITHOUT_IOMMU).as_deref() == Some("Y")
}

fn user_space_driver(host: &Host) -> &'static str {
    if has_iommu(host) || has_vfio_without_iommu(host) { "vfio-pci" } else { "uio_pci_generic" }
}

/// Whether an IOMMU isolates devices, which vfio-pci requires.
pub(super) fn iommu(host: &Host) -> Finding {
    if has_iommu(host) {
        return Finding::ok(format!("{} groups", host.list("sys/kernel/iommu_groups").len()));
    }
    if has_vfio_without_iommu(host) {
        return Finding::ok("none; vfio runs without one");
    }
    if let Some(driver) = ["uio_pci_generic", "igb_uio"].into_iter().find(|driver| is_loaded(host, driver)) {
        return Finding::ok(format!("none; {driver} works without one"));
    }
    let mut hint = "for NICs boot with intel_iommu=on iommu=pt (AMD: iommu=pt); in a VM without one: modprobe uio_pci_generic".to_owned();
    if host.exists(VFIO_WITHOUT_IOMMU) {
        hint = format!("{hint}, or echo 1 > /{VFIO_WITHOUT_IOMMU}");
    }
    Finding::warn("none", hint)
}

pub(super) fn drivers(host: &Host) -> Finding {
    let known = USER_SPACE_DRIVERS.iter().chain(&SHARED_DRIVERS);
    let loaded: Vec<_> = known.copied().filter(|name| is_loaded(host, name)).collect();
    if loaded.is_empty() {
        let hint = format!("for NICs: modprobe {}", user_space_driver(host));
        return Finding::warn("neither vfio-pci nor uio", hint);
    }
    Finding::ok(loaded.join(", "))
}

pub(super) fn nics(host: &Host) -> Finding {
    let mut lines = Vec::new();
    let mut usable = 0;
    for address in host.list("sys/bus/pci/devices") {
        let folder = format!("sys/bus/pci/devices/{address}");
        if !host.read(format!("{folder}/class")).is_some_and(|class| class.starts_with(CLASS_NETWORK)) {
            continue;
        }
        let driver = host.link_name(format!("{folder}/driver"));
        let driver = driver.as_deref().unwrap_or("no driver");
        let is_usable = USER_SPACE_DRIVERS.contains(&driver) || SHARED_DRIVERS.contains(&driver);
        usable += usize::from(is_usable);
        let node = host.read(format!("{folder}/numa_node")).filter(|node| node != "-1");
        let node = node.map(|node| format!(", node {node}")).unwrap_or_default();
        lines.push(format!("{address} ({driver}{node})"));
    }
    if lines.is_empty() {
        return Finding::warn("none on PCI", "virtual ports work: EAL's --vdev net_tap0, net_af_packet0, ..");
    }
    let found = format!("{usable} of {} for DPDK: {}", lines.len(), lines.join(", "));
    if usable == 0 {
        return Finding::warn(
            found,
            format!(
                "dpdk-devbind.py -b {} ADDRESS takes a NIC from the kernel; virtual ports need no NIC",
                user_space_driver(host)
            ),
        );
    }
    Finding::ok(found)
}

/// GPUs with driver and versions, or why GPU engines cannot start. A host is ready without a GPU.
pub(super) fn gpu(host: &Host, found: &Result<Vec<Facts>, GpuError>) -> Finding {
    let error = match found {
        Ok(gpus) => return Finding::ok(gpus_text(host, gpus)),
        Err(error) => error,
    };
    let nodes = host.list("dev");
    let is_device = |n: &String| n.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
    let count = nodes.iter().filter(|n| is_device(n)).count();
    if count == 0 && error.is_absent() {
        return Finding::ok(format!("no GPU for the engines {}: {error}", ENGINES.device_names().join(", ")));
    }
    Finding::warn(
        format!("{count} NVIDIA device(s), not usable: {error}"),
        "install the driver for CUDA 12.0 or later (525 or later), with its libcuda1; nvidia-smi shows the devices",
    )
}

fn gpus_text(host: &Host, gpus: &[Facts]) -> String {
    let text = |gpu: &Facts| match gpus.len() {
        1 => gpu_text(host, gpu),
        _ => format!("device={}: {}", gpu.index, gpu_text(host, gpu)),
    };
    gpus.iter().map(text).collect::<Vec<_>>().join("; ")
}

fn gpu_text(host: &Host, gpu: &Facts) -> String {
    let kernel_driver = host.read("proc/driver/nvidia/version").unwrap_or_default();
    // NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 ..
    let kernel_driver =
        kernel_driver.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let driver = kernel_driver.map_or_else(|| "driver".to_owned(), |version| format!("driver {version}"));
    let (major, minor) = gpu.capability;
    let memory =
        gpu.memory_bytes.map_or_else(String::new, |bytes| format!(", {:.1} GB", in_units(bytes, 1e9)));
    let l2 = gpu.l2_bytes.map_or_else(String::new, |bytes| format!(", L2 {:.0} MB", in_units(bytes, 1e6)));
    format!(
        "{}, sm_{major}{minor}, {} multiprocessors{memory}{l2}; {driver} for {}",
        gpu.name, gpu.multiprocessors, gpu.driver
    )
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes below 2^53")]
fn in_units(bytes: u64, unit: f64) -> f64 {
    bytes as f64 / unit
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use fib::host::Tree;
    use lpm_gpu::cu::DriverVersion;

    #[test]
    fn dpdk_needs_its_library_and_its_drivers() {
        let tree = Tree::new();
        let dpdk = |tree: &Tree| dpdk(&tree.host(), "DPDK 22.11.11", "DPDK 22.11.11");
        assert_eq!(dpdk(&tree).status, Status::Fail);
        tree.dpdk();
        let item = dpdk(&tree);
        assert_eq!(
            item,
            Finding::ok("22.11 (ABI 23.0) in /usr/lib/x86_64-linux-gnu, 1 drivers in dpdk/pmds-23.0")
        );
        let bare = Tree::new();
        bare.file("usr/lib64/librte_eal.so.25.1", "");
        let item = dpdk(&bare);
        assert!(item.status == Status::Fail && item.found.starts_with("25.03 (ABI 25.1)"), "{item:?}");
    }

    #[test]
    fn drivers_of_runtime_packages_are_counted() {
        let (tree, pmds) = (Tree::new(), "usr/lib64/dpdk/pmds-23.0");
        tree.file("usr/lib64/librte_eal.so.23.0", "");
        // As installed by librte-net-e1000-23 and librte-net-virtio23; only development packages have names without a version.
        for name in ["librte_net_e1000", "librte_net_virtio"] {
            tree.file(&format!("{pmds}/{name}.so.23.0"), "");
            tree.link(&format!("{pmds}/{name}.so.23"), &format!("{name}.so.23.0"));
        }
        let found = "22.11 (ABI 23.0) in /usr/lib64, 2 drivers in dpdk/pmds-23.0";
        let dpdk = || dpdk(&tree.host(), "DPDK 22.11.11", "DPDK 22.11.11");
        assert_eq!(dpdk(), Finding::ok(found));
        // A development link is no second driver, and drivers of another ABI are not loaded.
        tree.link(&format!("{pmds}/librte_net_e1000.so"), "librte_net_e1000.so.23");
        tree.file(&format!("{pmds}/librte_net_ice.so.22.0"), "");
        assert_eq!(dpdk(), Finding::ok(found));
    }

    #[test]
    fn hints_about_dpdk_name_runtime_packages() {
        let tree = Tree::new();
        let hint = || dpdk(&tree.host(), "DPDK 22.11.11", "DPDK 22.11.11").hint.unwrap();
        assert!(hint().contains("librte-eal23") && !hint().contains("-dev"), "{}", hint());
        tree.file("usr/lib64/librte_eal.so.23.0", "");
        assert!(hint().contains("librte-net-ixgbe23"), "{}", hint());
    }

    #[test]
    fn hints_name_the_driver_that_works_on_this_host() {
        let hints = |tree: &Tree| {
            tree.file("sys/bus/pci/devices/0000:00:02.0/class", "0x020000\n");
            let host = tree.host();
            [iommu(&host), drivers(&host), nics(&host)].map(|item| item.hint.unwrap_or_default())
        };
        let wants_vfio = |tree: &Tree| {
            let [iommu, drivers, nics] = hints(tree);
            let is_right = iommu.is_empty() && drivers.contains("vfio-pci") && nics.contains("-b vfio-pci");
            assert!(is_right, "{drivers} {nics}");
        };
        // Debian 12: vfio without the parameter.
        let tree = Tree::new();
        tree.file("sys/module/vfio/refcnt", "0\n");
        for hint in hints(&tree) {
            assert!(hint.contains("uio_pci_generic") && !hint.contains("noiommu"), "{hint}");
        }
        tree.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n");
        assert!(hints(&tree)[0].contains("enable_unsafe_noiommu_mode"));
        tree.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
        wants_vfio(&tree);
        let tree = Tree::new();
        tree.file("sys/kernel/iommu_groups/0/type", "DMA\n");
        wants_vfio(&tree);
        // A loaded driver that needs no IOMMU.
        let tree = Tree::new();
        tree.file("sys/bus/pci/drivers/uio_pci_generic/bind", "");
        assert!(hints(&tree)[0].is_empty());
    }

    #[test]
    fn both_versions_of_dpdk_are_shown_where_they_differ() {
        let tree = Tree::new();
        tree.dpdk();
        for (running, status) in [("DPDK 22.11.4", Status::Ok), ("DPDK 25.11.0", Status::Fail)] {
            let item = dpdk(&tree.host(), "DPDK 22.11.11", running);
            let both = format!("compiled for DPDK 22.11.11, runs {running}");
            assert!(item.status == status && item.found.ends_with(&both), "{item:?}");
        }
    }

    #[test]
    fn nics_are_counted_by_what_drives_them() {
        let tree = Tree::new();
        assert_eq!(nics(&tree.host()).status, Status::Warn);
        let device = |address: &str, class: &str, driver: Option<&str>| {
            let folder = format!("sys/bus/pci/devices/{address}");
            tree.file(&format!("{folder}/class"), class).file(&format!("{folder}/numa_node"), "-1\n");
            if let Some(driver) = driver {
                tree.link(&format!("{folder}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
            }
        };
        device("0000:00:01.0", "0x010802\n", Some("nvme"));
        device("0000:00:02.0", "0x020000\n", Some("ixgbe"));
        device("0000:00:03.0", "0x020000\n", None);
        let item = nics(&tree.host());
        assert_eq!(item.status, Status::Warn);
        assert_eq!(item.found, "0 of 2 for DPDK: 0000:00:02.0 (ixgbe), 0000:00:03.0 (no driver)");
        device("0000:00:04.0", "0x020000\n", Some("vfio-pci"));
        device("0000:00:05.0", "0x020700\n", Some("mlx5_core"));
        let item = nics(&tree.host());
        assert!(item.status == Status::Ok && item.found.starts_with("2 of 4"), "{item:?}");
    }

    #[test]
    fn iommu_drivers_and_gpu() {
        let tree = Tree::new();
        let absent = || Err(GpuError::NoDriver { tried: "libcuda.so".into() });
        let statuses = |tree: &Tree| {
            let host = tree.host();
            [iommu(&host).status, drivers(&host).status, gpu(&host, &absent()).status]
        };
        assert_eq!(statuses(&tree), [Status::Warn, Status::Warn, Status::Ok]);
        let item = gpu(&tree.host(), &absent());
        assert!(item.found.contains("gamt") && item.found.contains("no CUDA driver"), "{item:?}");
        tree.file("sys/kernel/iommu_groups/0/type", "DMA\n").file("sys/bus/pci/drivers/vfio-pci/bind", "");
        tree.file("dev/nvidia0", "").file("dev/nvidiactl", "");
        assert_eq!(statuses(&tree), [Status::Ok, Status::Ok, Status::Warn]);
        tree.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Kernel Module  550.54.14  Thu Feb 22\n",
        );
        let facts = Facts {
            index: 0,
            name: "NVIDIA H200".into(),
            capability: (9, 0),
            driver: DriverVersion(12_040),
            multiprocessors: 132,
            copy_engines: Some(3),
            clock_khz: None,
            memory_clock_khz: None,
            memory_bus_bits: None,
            memory_bytes: Some(150_000_000_000),
            l2_bytes: Some(62_914_560),
            l2_persisting_bytes_max: None,
            memory_pools: true,
            pci_address: Some("0000:8a:00.0".into()),
            numa_node: None,
            registers_read_only: Some(true),
        };
        let wanted =
            "NVIDIA H200, sm_90, 132 multiprocessors, 150.0 GB, L2 63 MB; driver 550.54.14 for CUDA 12.4";
        assert_eq!(gpu(&tree.host(), &Ok(vec![facts.clone()])), Finding::ok(wanted));
        let second =
            Facts { index: 1, name: "Another".into(), memory_bytes: None, l2_bytes: None, ..facts.clone() };
        let both = format!(
            "device=0: {wanted}; device=1: Another, sm_90, 132 multiprocessors; driver 550.54.14 for CUDA 12.4"
        );
        assert_eq!(gpu(&tree.host(), &Ok(vec![facts, second])), Finding::ok(both));
    }
}
