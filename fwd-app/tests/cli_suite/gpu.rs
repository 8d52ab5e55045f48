//! The GPU engines from outside, over the mock driver: `libmockcuda.so` has the driver's SONAME, so preloading it makes it the driver of
//! the process. With `LPM_GPU=real` the answers come from the host's driver.

use crate::full_tables::text;
use crate::support::{ProgramOutput, ScratchFolder, check_answers, data, fwd, fwd_env, lines};
use crate::trie::{RouteModel, edges, every_length, random_addresses, route};
use std::fs;
use std::net::IpAddr;

const ENGINES: [&str; 3] = ["gamt", "gale", "sail-gpu"];

fn mock() -> String {
    let path = lpm_gpu::cu::testing::library().expect("mockcuda is a dependency of these tests");
    path.to_str().unwrap().to_owned()
}

/// Environment variables of the driver under test; `None`, with a message, if it is missing.
fn driver() -> Option<Vec<(&'static str, String)>> {
    if std::env::var("LPM_GPU").is_ok_and(|which| which == "real") {
        let found = fwd(&["check", "--json"]).stdout;
        if found.contains("multiprocessors") {
            return Some(Vec::new());
        }
        fib::testing::skip("gpu", format_args!("LPM_GPU=real, and no GPU is here: {found}"));
        return None;
    }
    Some(vec![("LD_PRELOAD", mock())])
}

fn with(environment: &[(&'static str, String)], args: &[&str], input: &str) -> ProgramOutput {
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    fwd_env(args, input, &environment)
}

fn mocked(switches: &[(&'static str, &str)], args: &[&str], input: &str) -> ProgramOutput {
    let mut environment = vec![("LD_PRELOAD", mock())];
    environment.extend(switches.iter().map(|(name, value)| (*name, (*value).to_owned())));
    with(&environment, args, input)
}

fn check(fib: &[&str], more: &[&str], addresses: &[IpAddr], model: &RouteModel) {
    let Some(driver) = driver() else { return };
    let input = lines(addresses);
    for engine in ENGINES {
        let mut args = vec!["lookup", "--engine", engine];
        fib.iter().for_each(|file| args.extend(["--fib", file]));
        args.extend(more);
        let out = with(&driver, &args, &input);
        assert!(!out.stderr.contains("warning"), "{engine}: {}", out.stderr);
        check_answers(&out.ok(), addresses, model, engine);
    }
}

fn generated(scratch: &ScratchFolder, routes: &str, updates: &str) -> ([String; 2], RouteModel) {
    let files = scratch.generated(routes, updates);
    let mut model = RouteModel::of_text(&fs::read_to_string(&files[0]).unwrap());
    fs::read_to_string(&files[1]).unwrap().lines().for_each(|line| model.update(line));
    (files, model)
}

#[test]
fn generated_tables_before_and_after_updates() {
    let scratch = ScratchFolder::new();
    let ([fib, updates], after) = generated(&scratch, "20000", "10000");
    let before = RouteModel::of_text(&fs::read_to_string(&fib).unwrap());
    for (model, more) in [(before, vec![]), (after, vec!["--updates", updates.as_str()])] {
        let mut probes = model.probes(2);
        probes.extend(random_addresses(20_000, 3));
        check(&[&fib], &more, &probes, &model);
    }
}

#[test]
fn routes_of_every_length_and_every_mode_of_the_device() {
    let scratch = ScratchFolder::new();
    let text = every_length();
    let fib = scratch.file("routes.txt", &text);
    let model = RouteModel::of_text(&text);
    let mut probes = model.probes(1);
    probes.extend(random_addresses(500, 1));
    for mode in ["copy", "mapped"] {
        check(&[&fib], &["--engine-arg", &format!("mode={mode}")], &probes, &model);
    }
    check(&[&fib], &["--engine-arg", "streams=1", "--latency-target-us", "100"], &probes, &model);
}

#[test]
fn full_tables() {
    let (Some(v4), Some(v6)) = (data("v4-202401.txt.xz"), data("v6-202401.txt.xz")) else { return };
    let model = RouteModel::of_text(&(text(&v4) + &text(&v6)));
    // The edges of every twelfth route, and of all routes longer than /64: the device searches 64 bits, and the host the rest.
    let mut probes = model.probes(12);
    let deep = model.routes.keys().filter(|(first, len)| first.is_ipv6() && *len > 64);
    probes.extend(deep.flat_map(|route| edges(*route)));
    probes.extend(random_addresses(200_000, 7));
    check(&[&v4, &v6], &[], &probes, &model);
}

#[test]
fn without_a_gpu_there_is_one_clear_line_and_exit_code_3() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let no_driver = fwd(&["check"]).stdout.contains("no CUDA driver");
    for engine in ENGINES {
        let args = ["lookup", "--fib", &fib, "--engine", engine, "10.0.0.1"];
        let mut runs = vec![
            (mocked(&[("MOCKCUDA_NO_DEVICE", "1")], &args, ""), "GPU"),
            (mocked(&[("MOCKCUDA_DRIVER_VERSION", "11040")], &args, ""), "CUDA 11.4"),
        ];
        if no_driver {
            runs.push((fwd(&args), "no CUDA driver"));
        }
        for (out, reason) in runs {
            let out = out.fails(3, &[engine, reason]);
            assert_eq!((out.stderr.lines().count(), out.stdout.as_str()), (1, ""), "{}", out.stderr);
        }
    }
    if no_driver {
        // All commands make the engine before they read routes; `replay` looks for its trace even earlier.
        fwd(&["replay", "/absent.pcap", "--fib", "/absent", "--engine", "gamt"]).fails(1, &["/absent.pcap"]);
        fwd(&["lookup", "--fib", "/absent", "--engine", "gamt", "10.0.0.1"]).fails(3, &["no CUDA driver"]);
        fwd(&["run", "--fib", "/absent", "--engine", "gamt"]).fails(3, &["no CUDA driver"]);
    } else {
        eprintln!("SKIPPED: a host without libcuda: this one has it");
    }
}

#[test]
fn check_says_what_gpu_there_is_or_why_none() {
    let gpu = |out: ProgramOutput| {
        let line = out.stdout.lines().find(|line| line.contains("  gpu ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no line of the GPU in {}", out.stdout))
    };
    let found = gpu(mocked(&[], &["check"], ""));
    assert!(
        found.starts_with("OK") && found.contains("multiprocessors") && found.contains("for CUDA"),
        "{found}"
    );
    let two = gpu(mocked(&[("MOCKCUDA_DEVICES", "2")], &["check"], ""));
    assert!(two.contains("device=0: mock") && two.contains("device=1: mockcuda interpreter 1"), "{two}");
    let old = gpu(mocked(&[("MOCKCUDA_DRIVER_VERSION", "11040")], &["check"], ""));
    assert!(old.contains("CUDA 11.4") && old.contains("CUDA 12.0"), "{old}");
    let none = gpu(mocked(&[("MOCKCUDA_NO_DEVICE", "1")], &["check"], ""));
    assert!(none.contains("gamt") || none.contains("not usable"), "{none}");
}

#[test]
fn options_that_do_not_fit_are_bad_usage() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n");
    let lookup = |more: &[&str]| fwd(&[&["lookup", "--fib", &fib, "10.0.0.1"], more].concat());
    lookup(&["--engine", "bloom", "--fallback", "gamt"]).fails(2, &["--fallback gamt", "CPU engine"]);
    lookup(&["--engine", "bloom", "--fallback", "warp"]).fails(2, &["'warp' is no engine"]);
    lookup(&["--engine", "bloom", "--latency-target-us", "9"]).fails(2, &["--latency-target-us", "gamt"]);
    lookup(&["--engine", "gamt", "--latency-target-us", "0"]).fails(2, &["--latency-target-us"]);
    // A wrong parameter is a usage error, which no fallback hides.
    let args = ["lookup", "--fib", &fib, "--engine", "gamt", "--fallback", "bloom", "--engine-arg"];
    for wrong in ["levels=3", "colour=red"] {
        mocked(&[], &[&args[..], &[wrong, "10.0.0.1"]].concat(), "")
            .fails(2, &[wrong.split('=').next().unwrap()]);
    }
}

/// Whether the run switched to the fallback. It must warn at most once.
fn switched(out: &ProgramOutput) -> bool {
    let count = out.stderr.lines().filter(|line| line.contains("answers from now on")).count();
    assert!(count <= 1, "warned more than once: {}", out.stderr);
    count == 1
}

#[test]
fn a_fallback_answers_where_there_is_no_gpu() {
    let scratch = ScratchFolder::new();
    let fib = scratch.file("routes.txt", "10.0.0.0/8 1\n2001:db8::/32 2\n");
    for engine in ENGINES {
        let args =
            ["lookup", "--fib", &fib, "--engine", engine, "--fallback", "bloom", "10.0.0.1", "2001:db8::1"];
        for switches in [
            ("MOCKCUDA_NO_DEVICE", "1"),
            ("MOCKCUDA_DRIVER_VERSION", "11040"),
            ("MOCKCUDA_MEMORY_BYTES", "4096"),
        ] {
            let out = mocked(&[switches], &args, "");
            assert!(
                switched(&out) && out.stderr.contains(&format!("engine {engine} is out")),
                "{}",
                out.stderr
            );
            assert_eq!(out.ok(), "10.0.0.1\t1\n2001:db8::1\t2\n", "{switches:?}");
        }
        let out = mocked(&[], &args, "");
        assert!(!switched(&out), "{}", out.stderr);
        assert_eq!(out.ok(), "10.0.0.1\t1\n2001:db8::1\t2\n");
    }
}

#[test]
fn whichever_driver_call_fails_the_answers_are_right() {
    let scratch = ScratchFolder::new();
    let ([fib, updates], model) = generated(&scratch, "300", "200");
    let mut probes = model.probes(1);
    probes.extend([route("0.0.0.0/0").0, route("::/0").0]);
    let input = lines(&probes);
    let (mut moved, mut stayed) = (0, 0);
    // 700 is an illegal address, which ends the context; 2 is out of memory; 1 is a refused call (invalid value).
    for (i, at) in (0..40).chain((40..400).step_by(11)).chain([u32::MAX]).enumerate() {
        let fault = format!("{at}:{}", [700, 2, 1][i % 3]);
        let engine = ENGINES[i % 3];
        let copy = ["--engine-arg", "mode=copy"];
        let args = ["lookup", "--fib", &fib, "--updates", &updates, "--engine", engine];
        let args = [&args[..], &copy].concat();
        let with_fallback = [&args[..], &["--fallback", "bloom"]].concat();
        let out = mocked(&[("MOCKCUDA_FAIL_AT", &fault)], &with_fallback, &input);
        if switched(&out) {
            moved += 1;
        } else {
            stayed += 1;
        }
        check_answers(&out.ok(), &probes, &model, &format!("{engine}, call {fault} fails"));
        // Without a fallback: a typed error in one line, or correct answers if the fault had no effect.
        let out = mocked(&[("MOCKCUDA_FAIL_AT", &fault)], &args, &input);
        if out.code == 0 {
            check_answers(
                &out.stdout,
                &probes,
                &model,
                &format!("{engine}, call {fault} fails, no fallback"),
            );
        } else {
            assert!([1, 3].contains(&out.code), "{}", out.stderr);
            assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
        }
    }
    assert!(moved > 40 && stayed > 0, "{moved} runs moved to the fallback, {stayed} did not");
}

#[test]
fn a_device_that_is_too_slow_or_hangs_is_given_up() {
    let scratch = ScratchFolder::new();
    let text = "0.0.0.0/1 1\n128.0.0.0/2 2\n::/2 3\n8000::/1 4\n";
    let fib = scratch.file("routes.txt", text);
    let model = RouteModel::of_text(text);
    // Enough addresses that operation 60 falls into the lookups.
    let probes = random_addresses(200_000, 4);
    let input = lines(&probes);
    let args = ["lookup", "--fib", &fib, "--engine", "gamt", "--fallback", "oracle", "--stall-us", "1000"];
    let args = [&args[..], &["--engine-arg", "mode=copy"]].concat();
    for switch in [("MOCKCUDA_DELAY_US", "300000"), ("MOCKCUDA_STALL_AT", "60")] {
        let out = mocked(&[switch], &args, &input);
        assert!(
            switched(&out) && out.stderr.contains("took more than 1000 us"),
            "{switch:?}: {}",
            out.stderr
        );
        check_answers(&out.ok(), &probes, &model, switch.0);
    }
}
