//! GPU engines in the datapath, over the preloaded mock driver: correct results in both topologies, while routes change, and when the
//! device fails. The mock interprets the kernels, so batches and traces are small, and `--stall-us` is long where no stall is intended.

use crate::support::{
    bundled, changes, drops, mix_command, number, ran, read_pcap, replay as replay_on_cpu, replay_command,
    report, stderr, v4_frame, v6_frame, wait, write_pcap,
};
use lpm_gpu::cu::testing::library;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const ENGINES: [&str; 3] = ["gamt", "gale", "sail-gpu"];
/// Where a fault comes at a certain call or operation of the driver, and thus may not hit the measurement of `mode=auto`.
const COPY: [&str; 2] = ["--engine-arg", "mode=copy"];
/// Far longer than a batch takes on a busy host.
const PATIENT: [&str; 2] = ["--stall-us", "60000000"];

/// A replay over the mock driver with exit code 0. Returns its JSON and stderr; `None` where DPDK does not start.
fn replay(trace: &Path, routes: &Path, switches: &[(&str, &str)], extra: &[&str]) -> Option<(Value, String)> {
    replay_to(0, trace, routes, switches, extra)
}

fn replay_to(
    code: i32,
    trace: &Path,
    routes: &Path,
    switches: &[(&str, &str)],
    extra: &[&str],
) -> Option<(Value, String)> {
    let mut command = replay_command(trace, routes);
    command.env("LD_PRELOAD", library().unwrap()).envs(switches.iter().copied()).arg("--verify").args(extra);
    let (summary, said) = report(command, code)?;
    assert_eq!(number(&summary, "/packets/reordered"), 0);
    Some((summary, said))
}

/// Replays the mix; its 2000 packets must have the same results as with any other engine.
fn mix(switches: &[(&str, &str)], extra: &[&str]) -> Option<(Value, String)> {
    let (summary, said) = replay(&bundled("mix.pcap"), &bundled("routes.txt"), switches, extra)?;
    let loops = extra.iter().position(|word| *word == "--loops").map_or(1, |i| extra[i + 1].parse().unwrap());
    assert_eq!(number(&summary, "/packets/rx"), 2000 * loops);
    assert_eq!(drops(&summary), [("no_route".to_owned(), 125 * loops)], "{switches:?} {extra:?}: {said}");
    Some((summary, said))
}

#[test]
fn every_engine_answers_in_both_topologies() {
    for engine in ENGINES {
        for (extra, topology, batch) in [
            (&[][..], "run-to-completion", 1024),
            (&["--batch", "1"], "run-to-completion", 1),
            (&["--batch", "33", "--lcores", "4", "--spread"], "run-to-completion", 33),
            (&["--topology", "pipeline", "--batch", "256"], "pipeline", 256),
        ] {
            let common = ["--engine", engine];
            let Some((summary, _)) = mix(&[], &[&common[..], &PATIENT, extra].concat()) else { return };
            assert_eq!(summary["setup"]["topology"], topology);
            assert_eq!(summary["engine"]["name"], engine);
            assert_eq!(summary["engine"]["isa"], "ptx");
            assert_eq!(summary["engine"]["fallback"], Value::Null);
            assert_eq!(number(&summary, "/setup/batch"), batch);
        }
    }
}

#[test]
fn every_mode_of_the_device_and_a_latency_target() {
    for mode in ["copy", "mapped", "persistent"] {
        let mode = format!("mode={mode}");
        let extra = ["--engine", "gamt", "--batch", "64", "--engine-arg", &mode];
        if mix(&[], &[&extra[..], &PATIENT].concat()).is_none() {
            return;
        }
    }
    let extra = ["--engine", "gamt", "--latency-target-us", "1000"];
    let Some((summary, _)) = mix(&[], &[&extra[..], &PATIENT].concat()) else { return };
    assert!((1..=65_536).contains(&number(&summary, "/setup/batch")));
}

#[test]
fn routes_change_while_the_device_looks_up() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("updates.txt");
    std::fs::write(&file, changes(20)).unwrap();
    let file = file.to_str().unwrap();
    for (engine, more) in [
        ("gamt", &["--engine-arg", "next-hops=together"][..]),
        ("gamt", &["--engine-arg", "next-hops=apart"]),
        ("gale", &[]),
        ("sail-gpu", &["--fallback", "bloom"]),
    ] {
        let extra = ["--engine", engine, "--batch", "64", "--loops", "20", "--rate", "40kpps"];
        let updates = ["--updates", file, "--update-rate", "5000"];
        let extra = [&extra[..], &updates, &PATIENT, more].concat();
        let switches = [("MOCKCUDA_DELAY_US", "200"), ("MOCKCUDA_SEED", "7")];
        let Some((summary, said)) = replay(&bundled("mix.pcap"), &bundled("routes.txt"), &switches, &extra)
        else {
            return;
        };
        assert_eq!(number(&summary, "/packets/rx"), 40_000);
        assert!(number(&summary, "/engine/updates_applied") > 500, "{engine}: {said}");
        assert_eq!(summary["engine"]["name"], engine, "{said}");
    }
}

#[test]
fn a_full_table_under_a_real_update_stream() {
    let Some([table, updates]) = fib::testing::data(["v4-202401.txt.xz", "updates-ris-20190101.txt.xz"])
    else {
        return;
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut fib::feed::open(&table).unwrap(), &mut text).unwrap();
    let prefixes = text.lines().filter(|line| !line.starts_with('#')).step_by(50);
    let frames: Vec<_> = prefixes
        .map(|line| {
            let (prefix, _) = line.split_once(' ').unwrap();
            let (address, _) = prefix.split_once('/').unwrap();
            v4_frame(0xc000_0201, address.parse::<std::net::Ipv4Addr>().unwrap().to_bits() + 1, 60, &[])
        })
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace.pcap");
    write_pcap(&trace, &frames);
    for engine in ENGINES {
        let extra = ["--engine", engine, "--batch", "1024", "--loops", "3", "--rate", "30kpps"];
        let updates = ["--updates", updates.to_str().unwrap(), "--update-rate", "20000"];
        let extra = [&extra[..], &updates, &PATIENT].concat();
        let Some((summary, said)) = replay(&trace, &table, &[], &extra) else { return };
        assert_eq!(number(&summary, "/verify/checked"), number(&summary, "/packets/rx"), "{said}");
        assert!(
            number(&summary, "/packets/tx") > 40_000 && number(&summary, "/engine/updates_applied") > 10_000
        );
    }
}

/// A replay with `--fallback bloom` under a fault. Returns whether it switched, and the number of repeated lookups.
fn with_fault(switches: &[(&str, &str)], engine: &str, topology: &str) -> Option<(bool, u64)> {
    let extra =
        ["--engine", engine, "--fallback", "bloom", "--batch", "64", "--loops", "3", "--topology", topology];
    let (summary, said) = mix(switches, &[&extra[..], &COPY, &PATIENT].concat())?;
    let fallback = &summary["engine"]["fallback"];
    let in_service = fallback["in_service"].as_bool().unwrap();
    let times = said.matches("answers from now on").count();
    assert_eq!(times, usize::from(in_service), "{switches:?}: {said}");
    assert_eq!(summary["engine"]["name"], if in_service { "bloom" } else { engine });
    assert_eq!((fallback["reason"].is_string(), &summary["engine"]["error"]), (in_service, &Value::Null));
    Some((in_service, number(fallback, "/looked_up_again")))
}

#[test]
fn whichever_driver_call_fails_no_packet_is_lost() {
    let topologies = ["pipeline", "run-to-completion"];
    let mut moved = 0;
    for (i, at) in (0..60).step_by(6).chain((60..900).step_by(41)).enumerate() {
        // 700 is an illegal address, which ends the context; 2 is out of memory; 1 is a refused call (invalid value).
        let fault = format!("{at}:{}", [700, 2, 1][i % 3]);
        let found = with_fault(&[("MOCKCUDA_FAIL_AT", &fault)], ENGINES[i % 3], topologies[i / 3 % 2]);
        let Some((in_service, _)) = found else { return };
        moved += usize::from(in_service);
    }
    assert!(moved > 20, "{moved} runs moved to the fallback");
}

#[test]
fn a_fault_among_the_packets_costs_none_of_them() {
    for (i, engine) in ENGINES.into_iter().cycle().take(6).enumerate() {
        let topology = ["pipeline", "run-to-completion"][i / 3];
        // A refused launch, a copy back that ends the context, a kernel that fails asynchronously.
        for (switch, fault) in [
            ("MOCKCUDA_FAIL_CALL", "cuLaunchKernel:20:1"),
            ("MOCKCUDA_FAIL_CALL", "cuMemcpyDtoHAsync_v2:9:700"),
            ("MOCKCUDA_FAIL_OPERATION", "200:719"),
        ] {
            let Some((in_service, again)) = with_fault(&[(switch, fault)], engine, topology) else { return };
            assert!(in_service, "{engine} {topology} {switch}={fault}");
            // Where a lone lcore feeds and forwards, the driver may report the fault before another batch is in flight.
            let found_later = switch == "MOCKCUDA_FAIL_OPERATION" && topology == "pipeline";
            assert!(again > 0 || !found_later, "{engine}: nothing was in flight");
        }
    }
}

#[test]
fn a_device_that_stalls_costs_no_packet() {
    for topology in ["pipeline", "run-to-completion"] {
        let extra =
            ["--engine", "gamt", "--fallback", "oracle", "--stall-us", "2000", "--topology", topology];
        let switches = [("MOCKCUDA_DELAY_US", "200000"), ("MOCKCUDA_SEED", "3")];
        let extra = [&extra[..], &COPY, &["--loops", "3", "--batch", "128"]].concat();
        let Some((summary, said)) = mix(&switches, &extra) else { return };
        assert_eq!(summary["engine"]["name"], "oracle", "{said}");
        assert!(said.contains("took more than 2000 us"), "{said}");
        assert!(number(&summary, "/engine/fallback/looked_up_again") > 0);
    }
}

#[test]
fn a_device_slower_than_the_stall_limit_costs_packets_and_nothing_else() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("summary.json");
    for (topology, mode) in [("pipeline", "mode=copy"), ("run-to-completion", "mode=mapped")] {
        let mut command = mix_command();
        // Every batch is abandoned long before its answer, so soon every slot belongs to an abandoned batch.
        command.env("LD_PRELOAD", library().unwrap()).env("MOCKCUDA_DELAY_US", "200000");
        command.args(["--engine", "gamt", "--topology", topology, "--engine-arg", mode]);
        command.args(["--stall-us", "1000", "--loops", "40", "--json"]).arg(&json);
        let Some(output) = ran(wait(command.spawn().unwrap(), Duration::from_secs(20))) else { return };
        let said = stderr(&output);
        let summary = crate::support::json(&json);
        assert_eq!(number(&summary, "/packets/rx"), 80_000);
        assert!(number(&summary, "/packets/drops/engine_stall") > 0, "{said}");
        assert!([Some(0), Some(1)].contains(&output.status.code()), "{said}");
    }
}

#[test]
fn without_a_fallback_a_lost_device_costs_packets_and_says_so() {
    let (trace, routes) = (bundled("mix.pcap"), bundled("routes.txt"));
    let switches = [("MOCKCUDA_FAIL_CALL", "cuLaunchKernel:20:700")];
    for topology in ["pipeline", "run-to-completion"] {
        let extra = ["--loops", "20", "--batch", "32", "--engine", "gamt", "--topology", topology];
        let extra = [&extra[..], &COPY].concat();
        // A packet dropped because of the device is no mismatch.
        let Some((summary, said)) = replay_to(1, &trace, &routes, &switches, &extra) else { return };
        assert!(number(&summary, "/packets/drops/engine_stall") > 0, "{said}");
        assert!(summary["engine"]["error"].as_str().unwrap().contains("700"), "{said}");
        assert_eq!(said.matches("dropped as engine_stall").count(), 1, "{said}");
    }
}

#[test]
fn what_leaves_is_byte_for_byte_what_leaves_with_a_cpu_engine() {
    let scratch = tempfile::tempdir().unwrap();
    let [cpu, gpu] = ["cpu", "gpu"].map(|name| scratch.path().join(name));
    let trace = scratch.path().join("trace.pcap");
    let frame = |i: u32| match i % 2 {
        0 => v4_frame(0xc000_0201, i.wrapping_mul(0x9e37_79b9), 60 + i as usize % 900, &[]),
        _ => {
            v6_frame(1 | 0x2001_0db8 << 96, u128::from(i.wrapping_mul(0x9e37_79b9)) << 92 | 1 << 125, 80, &[])
        }
    };
    write_pcap(&trace, &(0..3000).map(frame).collect::<Vec<_>>());
    let routes = scratch.path().join("routes.txt");
    std::fs::write(&routes, "0.0.0.0/1 1\n64.0.0.0/3 2\n128.0.0.0/2 3\n2000::/3 4\n2400::/8 5\n3000::/5 6\n")
        .unwrap();
    let out = ["--out", cpu.to_str().unwrap(), "--engine", "oracle", "--verify"];
    if replay_on_cpu(&trace, &routes, &out).is_none() {
        return;
    }
    let out = ["--out", gpu.to_str().unwrap(), "--engine", "gamt"];
    replay(&trace, &routes, &[], &[&out[..], &PATIENT].concat()).unwrap();
    let frames = |folder: &Path, port: usize| -> Vec<Vec<u8>> {
        read_pcap(&folder.join(format!("port{port}.pcap"))).into_iter().map(|(_, frame)| frame).collect()
    };
    let sent: usize = (0..4)
        .map(|port| {
            let sent = frames(&cpu, port);
            assert_eq!(sent, frames(&gpu, port), "port {port}");
            sent.len()
        })
        .sum();
    assert!(sent > 1000, "{sent}");
}
