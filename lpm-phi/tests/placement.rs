//! Every engine's table is on the requested node, in the best pages available. The process has no other test, and so no other table.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use fib::generate::{TableSpec, table};
use fib::host::Host;
use fib::{EngineError, EngineOptions, EngineWriter, Family, Registry, Rib};
use lpm_core::memory::{self, Mapped};
use lpm_phi::coop::CoopEngine;

const ENGINES: Registry = Registry::new(&[lpm_phi::ENGINES]);

fn make(name: &str, mut options: EngineOptions) -> Result<Box<dyn EngineWriter>, EngineError> {
    if name == CoopEngine::NAME {
        options.parameters =
            EngineOptions::with_parameters(&[("first", "bloom"), ("second", "miht")]).parameters;
    }
    ENGINES.make(name, &options)
}

fn routes() -> Rib {
    let mut rib = Rib::new();
    let spec = |family, routes| TableSpec { family, routes, seed: 5, next_hops: 40 };
    for (prefix, next_hop) in table::<u32>(&spec(Family::V4, 200_000)).unwrap() {
        rib.v4.set(prefix, next_hop);
    }
    for (prefix, next_hop) in table::<u128>(&spec(Family::V6, 30_000)).unwrap() {
        rib.v6.set(prefix, next_hop);
    }
    rib.take_delta();
    rib
}

/// Bytes of this process that are bound to node 0; `None` if the kernel has no `numa_maps`.
fn bound_bytes() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let number = |line: &str, name: &str| -> u64 {
        line.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap_or(0)
    };
    let bound = maps.lines().filter(|line| line.split(' ').nth(1) == Some("bind:0"));
    Some(bound.map(|line| number(line, "N0=") * number(line, "kernelpagesize_kB=") * 1024).sum())
}

#[test]
fn tables_lie_where_they_are_told() {
    if memory::check_node(4000).is_ok() {
        return eprintln!("SKIPPED: this kernel lists no NUMA nodes");
    }
    let transparent = Host::here().has_transparent_huge_pages();
    let rib = routes();
    for name in ENGINES.names() {
        let absent = make(name, EngineOptions { numa_node: Some(4000), ..EngineOptions::default() });
        assert!(matches!(absent, Err(EngineError::Parameter { .. })), "{name} on node 4000");
        for (numa_node, huge_pages) in [(None, true), (Some(0), true), (Some(0), false)] {
            let options = EngineOptions { numa_node, huge_pages, ..EngineOptions::default() };
            let mut engine = make(name, options).unwrap();
            rib.load(engine.as_mut()).unwrap();
            let (stats, mapped) = (engine.stats(), memory::mapped());
            let Mapped { huge_bytes, transparent_bytes, small_bytes } = mapped;
            if !huge_pages {
                assert_eq!((huge_bytes, transparent_bytes), (0, 0), "{name}");
            } else if transparent {
                assert_eq!(small_bytes, 0, "{name}");
            }
            let all = huge_bytes + transparent_bytes + small_bytes;
            assert!(all >= stats.table_bytes / 2, "{name}: {mapped:?} of {} bytes", stats.table_bytes);
            match bound_bytes() {
                None => eprintln!("SKIPPED: this kernel has no numa_maps"),
                Some(bytes) if numa_node.is_none() => assert_eq!(bytes, 0, "{name}"),
                // Part of the memory is spare room that has not been touched yet.
                Some(bytes) => {
                    assert!(bytes >= stats.table_bytes / 2, "{name}: {bytes} of {} bytes", stats.table_bytes);
                }
            }
        }
        assert_eq!(memory::mapped(), Mapped::default(), "{name}: all memory is unmapped");
    }
}
