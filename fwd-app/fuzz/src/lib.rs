//! Fuzz targets. A target is a function of bytes that panics if a property does not hold. libFuzzer calls it through `fuzz_targets/`. The
//! tests below, which fwd-app runs as its test `fuzz_seeds`, call it with every file under `seeds/TARGET/`: an input found by a campaign
//! becomes a test when its file is copied there (see `seeds/README.md`).
//!
//! | module | tests |
//! |---|---|
//! | [`feeds`] | route text, JSON, l3fwd rules: errors, round trips, all or nothing |
//! | [`mrt`] | MRT tables and update streams, against our own framing |
//! | [`captures`] | the two readers of captures, against each other |
//! | [`frames`] | frames through parse and through all passes, against the slow path and the reference |
//! | [`router`] | ARP, neighbour discovery and ICMP, read by a plain parser |
//! | [`deltas`] | the CPU engines, against a plain longest-prefix match after each delta |
//! | [`host_tables`] | the tables of the GPU engines on the host, searched by models of the kernels |
//! | [`ctl`] | words and clients of the control socket: whole replies for any cuts |
//! | [`config`] | configuration files: parsed options print as a file of the same meaning |
//! | [`netlink`] | FPM and rtnetlink: the same events for any cuts |
//! | [`ptx`] | the mock driver's PTX compiler |
//! | [`bytes`], [`changes`], [`scratch`] | helpers: decoding of inputs, changes of routes, files |

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fuzz target fails by panicking")]

pub mod bytes;
pub mod captures;
pub mod changes;
pub mod config;
pub mod ctl;
pub mod deltas;
pub mod feeds;
pub mod frames;
pub mod host_tables;
pub mod mrt;
pub mod netlink;
pub mod ptx;
pub mod router;
pub mod scratch;

/// Name and function of a target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets in the order of a campaign, most valuable first.
pub const TARGETS: [Target; 17] = [
    ("forward", frames::forward),
    ("parse", frames::parse),
    ("arp_ndp", router::arp_ndp),
    ("icmp", router::icmp),
    ("deltas", deltas::deltas),
    ("host_tables", host_tables::host_tables),
    ("fpm", netlink::fpm),
    ("netlink", netlink::netlink),
    ("mrt_table", mrt::table),
    ("mrt_updates", mrt::updates),
    ("route_text", feeds::route_text),
    ("captures", captures::captures),
    ("route_json", feeds::route_json),
    ("l3fwd", feeds::l3fwd),
    ("ctl", ctl::ctl),
    ("config", config::config),
    ("ptx", ptx::ptx),
];

/// Runs one input through a target.
///
/// # Panics
/// When the target does not exist, or when the input breaks a property.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    target(data);
}

#[cfg(test)]
mod tests {
    use super::TARGETS;
    use std::path::{Path, PathBuf};

    fn files(folder: &str) -> Vec<PathBuf> {
        // fwd-app includes this file in its tests, so the manifest may be another crate's.
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let fuzz = if here.ends_with("fuzz") { here.to_owned() } else { here.join("fuzz") };
        let entries = fuzz.join(folder).read_dir().unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn run(name: &str) {
        let seeds = files(&format!("seeds/{name}"));
        assert!(seeds.len() >= 5, "{name} has {} seeds", seeds.len());
        for seed in seeds {
            eprintln!("{name}: {}", seed.display()); // shown when it fails
            super::run(name, &std::fs::read(seed).unwrap());
        }
    }

    macro_rules! targets {
        ($($name:ident)*) => {
            $(#[test] fn $name() { run(stringify!($name)); })*

            #[test]
            fn every_target_is_tested_and_has_its_file() {
                let tested = [$(stringify!($name)),*];
                assert_eq!(TARGETS.map(|(name, _)| name), tested);
                assert_eq!(files("fuzz_targets").len(), tested.len());
            }
        };
    }
    targets!(
        forward parse arp_ndp icmp deltas host_tables fpm netlink mrt_table mrt_updates route_text captures route_json l3fwd ctl config ptx
    );
}
