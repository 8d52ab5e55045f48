//! Finds libdpdk, compiles the shim of its inline functions, and writes the raw bindings.
//!
//! A fresh machine may lack libdpdk 22.11 or newer, libclang for bindgen, a C compiler; each has a message with the Debian packages.

use std::env;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const OLDEST_DPDK: &str = "22.11";

const PACKAGES: &str =
    "apt-get install --no-install-recommends libdpdk-dev dpdk-dev pkg-config gcc libclang-dev";

/// DPDK functions that Rust calls directly: real symbols only, inline functions are in the shim.
const FUNCTIONS: &str = "dffi_.*|rte_eal_init|rte_eal_cleanup|rte_eal_has_hugepages|rte_eal_get_physmem_size|rte_version|rte_strerror\
    |rte_pktmbuf_pool_create_by_ops|rte_mempool_avail_count|rte_pktmbuf_free_bulk\
    |rte_eal_alarm_set|rte_eal_hotplug_remove|rte_dev_name\
    |rte_eth_dev_(info_get|socket_id|start|stop|close|(get|set)_mtu|adjust_nb_rx_tx_desc)\
    |rte_eth_dev_reset|rte_eth_dev_(set|get)_vlan_offload|rte_eth_dev_vlan_filter|rte_eth_find_next|rte_eth_find_next_owned_by|rte_eth_tx_done_cleanup|rte_eth_macaddr_get|rte_eth_dev_default_mac_addr_set|rte_eth_promiscuous_(enable|disable|get)|rte_eth_allmulticast_enable|rte_eth_stats_(get|reset)\
    |rte_eth_xstats_(get|get_names|reset)|rte_eth_dev_set_link_(up|down)|rte_pdump_init\
    |rte_eth_from_rings|rte_ring_create|rte_ring_free|rte_ring_reset\
    |rte_eth_(add|remove)_(rx|tx)_callback|rte_free\
    |rte_get_tsc_hz|rte_get_main_lcore|rte_lcore_to_socket_id|rte_lcore_is_enabled\
    |rte_eal_remote_launch|rte_eal_wait_lcore\
    |rte_telemetry_register_cmd|rte_tel_data_.*\
    |rte_fib6?_(create|free|add|delete|lookup_bulk|select_lookup)|rte_lpm_(create|free|add|delete)|rte_lpm6_(create|free)\
    |rte_vect_get_max_simd_bitwidth";

/// Types that bindgen cannot lay out, or that stay opaque on purpose (the shim asserts the layout of `mbuf::Line0`).
const OPAQUE: &str = "rte_mbuf|rte_mempool|rte_ring|rte_device|rte_tel_data|rte_lpm|rte_arp_ipv4|rte_arp_hdr|rte_l2tpv2_common_hdr\
    |rte_l2tpv2_combined_msg_hdr|rte_gtp_psc_generic_hdr";

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/shim.c");
    println!("cargo:rerun-if-changed=src/shim.h");
    println!("cargo:rerun-if-changed=src/fib_shim.c");
    println!("cargo:rerun-if-changed=src/fib_shim.h");
    println!("cargo:rerun-if-env-changed=LIBCLANG_PATH");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs the whole build; the error is the complete message for the user.
fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    pkg_config::Config::new().atleast_version(OLDEST_DPDK).probe("libdpdk").map_err(|why| {
        format!("dpdk-ffi needs libdpdk {OLDEST_DPDK} or newer, and pkg-config did not find it.\nInstall: {PACKAGES}\n{why}")
    })?;
    // net_ring's constructor function is not in libdpdk.pc, because drivers are plugins; this driver is also a library.
    println!("cargo:rustc-link-lib=rte_net_ring");
    let flags = cflags()?;
    watch(&flags);
    compile_shim(&flags)?;
    write_bindings(&flags, &out)
}

/// The pkg-config crate keeps only -I and -D, but `-include rte_config.h` and `-march` change structure layouts.
fn cflags() -> Result<Vec<String>, String> {
    let tool = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let asked = Command::new(&tool)
        .args(["--cflags", "libdpdk"])
        .output()
        .map_err(|why| format!("cannot run {tool}: {why}\nInstall: {PACKAGES}"))?;
    if !asked.status.success() {
        return Err(format!("{tool} --cflags libdpdk failed: {}", String::from_utf8_lossy(&asked.stderr)));
    }
    Ok(String::from_utf8_lossy(&asked.stdout).split_whitespace().map(str::to_owned).collect())
}

/// Makes Cargo rerun this script when DPDK is upgraded in place. Watches folders: packaged files keep the package's build time, which may
/// be before our last build, but a folder's time changes when a file in it is replaced.
fn watch(flags: &[String]) {
    let folders = flags.iter().filter_map(|flag| flag.strip_prefix("-I").map(Path::new));
    for folder in folders {
        if ["rte_version.h", "rte_build_config.h"].iter().any(|name| folder.join(name).exists()) {
            println!("cargo:rerun-if-changed={}", folder.display());
        }
    }
    let asked = pkg_config::get_variable("libdpdk", "pcfiledir");
    if let Some(file) =
        asked.ok().map(|folder| Path::new(&folder).join("libdpdk.pc")).filter(|file| file.exists())
    {
        println!("cargo:rerun-if-changed={}", file.display());
    }
}

/// Compiles the shim, optimised in every profile, because its inline functions are the hot path.
fn compile_shim(flags: &[String]) -> Result<(), String> {
    let mut compiler = cc::Build::new();
    compiler.file("src/shim.c").file("src/fib_shim.c").opt_level(3).warnings(true).extra_warnings(true);
    // DPDK's own headers are not clean under -Wextra.
    compiler.flag_if_supported("-Wno-unused-parameter");
    for flag in flags {
        // pkg-config gives `-include rte_config.h` as two words, which cc would deduplicate separately.
        match flag.strip_prefix("-I") {
            Some(folder) => compiler.flag("-isystem").flag(folder),
            None => compiler.flag(flag),
        };
    }
    compiler.try_compile("dffi_shim").map_err(|why| {
        format!("the C shim of dpdk-ffi did not compile against the installed libdpdk.\nInstall a C compiler: {PACKAGES}\n{why}")
    })
}

/// Writes OUT_DIR/bindings.rs. bindgen panics without libclang; the panic is caught and becomes our message.
fn write_bindings(flags: &[String], out: &Path) -> Result<(), String> {
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
        bindgen::Builder::default()
            .header("src/shim.h")
            .header("src/fib_shim.h")
            .clang_args(flags)
            // libclang finds its own headers. Headers of another version in PATH, which bindgen would add, crash it.
            .detect_include_paths(false)
            .allowlist_function(FUNCTIONS)
            .allowlist_var(
                "DFFI_.*|RTE_FIB6?_.*|RTE_MAX_ETHPORTS|RTE_ETH_NAME_MAX_LEN|RTE_PMD_RING_MAX_.X_RINGS",
            )
            .opaque_type(OPAQUE)
            .prepend_enum_name(false)
            .layout_tests(true)
            .derive_default(true)
            .generate_comments(false)
            .generate()
    }));
    let bindings = match made {
        Ok(Ok(bindings)) => bindings,
        Ok(Err(why)) => {
            return Err(format!(
                "bindgen could not read the headers of libdpdk (libclang without its own headers?).\nInstall: {PACKAGES}\n{why}"
            ));
        }
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map_or("no reason given", String::as_str);
            return Err(format!(
                "bindgen found no usable libclang (set LIBCLANG_PATH to the folder of libclang.so when it is elsewhere).\nInstall: {PACKAGES}\n{why}"
            ));
        }
    };
    bindings
        .write_to_file(out.join("bindings.rs"))
        .map_err(|why| format!("cannot write {}: {why}", out.join("bindings.rs").display()))
}
