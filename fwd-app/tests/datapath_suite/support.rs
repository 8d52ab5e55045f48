//! Starts the program, reads its output, writes captures. Captures are parsed and written by hand, so that no library checks itself.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Whether tests run long enough to find rare faults: `FWD_CONFORMANCE=full`.
pub(crate) fn is_full() -> bool {
    fib::conformance::Options::from_env().full
}

pub(crate) fn pcap_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcap")
}

pub(crate) fn bundled(name: &str) -> PathBuf {
    pcap_dir().join(name)
}

pub(crate) fn fwd_app<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fwd-app"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn ran(output: Output) -> Option<Output> {
    (!skip(&stderr(&output))).then_some(output)
}

/// Whether DPDK could not start, according to stderr: prints SKIPPED, or fails when `FWD_REQUIRE` names dpdk.
pub(crate) fn skip(text: &str) -> bool {
    if !text.contains("DPDK does not start") {
        return false;
    }
    fib::testing::skip("dpdk", format_args!("DPDK does not start here: {text}"));
    true
}

/// # Panics
/// If it still runs after `limit`; it is killed then.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Output {
    let end = Instant::now() + limit;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("still there after {limit:?}: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// An update stream over the bundled table that changes the id of every route, withdraws it and restores it, `rounds` times.
pub(crate) fn changes(rounds: usize) -> String {
    let routes = std::fs::read_to_string(bundled("routes.txt")).unwrap();
    let routes: Vec<_> =
        routes.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once(' ')).collect();
    let mut text = String::new();
    for round in 0..rounds {
        for (i, (prefix, id)) in routes.iter().enumerate() {
            let _ = match (i + round) % 3 {
                0 => writeln!(text, "a {prefix} {}", round * 7 + i + 1),
                1 => writeln!(text, "w {prefix}"),
                _ => writeln!(text, "a {prefix} {id}"),
            };
        }
    }
    text
}

pub(crate) fn replay_command(trace: &Path, routes: &Path) -> Command {
    let mut command = fwd_app(&["replay", "--no-huge"]);
    command.arg(trace).arg("--fib").arg(routes);
    command
}

pub(crate) fn mix_command() -> Command {
    replay_command(&bundled("mix.pcap"), &bundled("routes.txt"))
}

pub(crate) fn check_schema(summary: &Value) -> Result<(), String> {
    static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
        let schema = serde_json::from_str(include_str!("../../src/report/schema.json")).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    });
    SCHEMA.validate(summary).map_err(|error| format!("{}: {error}", error.instance_path()))
}

/// The JSON of a run. It follows the schema, every packet is accounted for, and every verified result matches the oracle.
pub(crate) fn json(path: &Path) -> Value {
    let summary = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    check_schema(&summary).unwrap_or_else(|error| panic!("{error}: {summary}"));
    let count = |name| number(&summary, &format!("/packets/{name}"));
    let gone = count("tx") + count("punted") + dropped(&summary);
    assert_eq!((count("rx") + count("originated"), count("held")), (gone, 0), "{summary}");
    assert_eq!(number(&summary, "/verify/mismatches"), 0, "{summary}");
    summary
}

/// Runs a replay that must exit with `code`. Returns its JSON and stderr, or `None` if DPDK does not start here.
pub(crate) fn report(mut command: Command, code: i32) -> Option<(Value, String)> {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("summary.json");
    let output = ran(command.arg("--json").arg(&path).output().unwrap())?;
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {said}");
    Some((json(&path), said))
}

pub(crate) fn replay_with_code(trace: &Path, routes: &Path, extra: &[&str], code: i32) -> Option<Value> {
    let mut command = replay_command(trace, routes);
    command.args(extra);
    report(command, code).map(|(summary, _)| summary)
}

pub(crate) fn replay(trace: &Path, routes: &Path, extra: &[&str]) -> Option<Value> {
    let summary = replay_with_code(trace, routes, extra, 0)?;
    assert!(matches!(summary["packets"]["reordered"].as_u64(), None | Some(0)), "{}", summary["packets"]);
    Some(summary)
}

pub(crate) fn replay_mix(extra: &[&str]) -> Option<Value> {
    replay(&bundled("mix.pcap"), &bundled("routes.txt"), extra)
}

pub(crate) fn number(summary: &Value, pointer: &str) -> u64 {
    summary.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {summary}"))
}

pub(crate) fn drops(summary: &Value) -> Vec<(String, u64)> {
    let all = summary.pointer("/packets/drops").unwrap().as_object().unwrap();
    assert_eq!(all.len(), 18, "every reason is there");
    let counts = all.iter().map(|(reason, count)| (reason.clone(), count.as_u64().unwrap()));
    counts.filter(|(_, count)| *count > 0).collect()
}

pub(crate) fn dropped(summary: &Value) -> u64 {
    drops(summary).iter().map(|(_, count)| count).sum()
}

/// Frames of a little-endian nanosecond or microsecond pcap, each with its time in nanoseconds.
pub(crate) fn read_pcap(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let records = read_records(path).into_iter();
    let whole = |(time_ns, bytes, wire_bytes): (u64, Vec<u8>, usize)| {
        assert_eq!(wire_bytes, bytes.len(), "nothing is cut");
        (time_ns, bytes)
    };
    records.map(whole).collect()
}

/// [`read_pcap`], with each frame's length on the wire.
pub(crate) fn read_records(path: &Path) -> Vec<(u64, Vec<u8>, usize)> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let unit = match word(0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        magic => panic!("magic {magic:x}"),
    };
    assert_eq!(word(20), 1, "link type Ethernet");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let bytes = word(at + 8) as usize;
        let time_ns = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        frames.push((time_ns, file[at + 16..at + 16 + bytes].to_vec(), word(at + 12) as usize));
        at += 16 + bytes;
    }
    frames
}

pub(crate) fn comments(path: &Path, comment: &str) -> usize {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    bytes.windows(comment.len()).filter(|window| *window == comment.as_bytes()).count()
}

/// Writes `frames` as a little-endian nanosecond pcap, 1 us apart.
pub(crate) fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    write_pcap_of(path, 1, frames);
}

pub(crate) fn write_pcap_of(path: &Path, link: u32, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 1 << 18, link] {
        file.extend(word.to_le_bytes());
    }
    for (i, frame) in (0_u32..).zip(frames) {
        let bytes = u32::try_from(frame.len()).unwrap();
        for word in [i / 1_000_000, i % 1_000_000 * 1000, bytes, bytes] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}

pub(crate) fn v4_frame(source: u32, destination: u32, frame_bytes: usize, tags: &[u16]) -> Vec<u8> {
    let mut frame = ethernet(tags, 0x0800);
    let total = frame_bytes.max(frame.len() + 28) - frame.len();
    let ip = frame.len();
    frame.extend([0x45, 0]);
    frame.extend(u16::try_from(total).unwrap().to_be_bytes());
    frame.extend([0x12, 0x34, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    sum_v4(&mut frame[ip..]);
    frame.extend((0..total - 20).map(|i| u8::try_from(i & 0xff).unwrap()));
    frame
}

pub(crate) fn v6_frame(source: u128, destination: u128, frame_bytes: usize, tags: &[u16]) -> Vec<u8> {
    let mut frame = ethernet(tags, 0x86dd);
    let payload = frame_bytes.max(frame.len() + 48) - frame.len() - 40;
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(u16::try_from(payload).unwrap().to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    frame.extend((0..payload).map(|i| u8::try_from(i & 0xff).unwrap()));
    frame
}

pub(crate) fn ip_at(frame: &[u8]) -> usize {
    let mut at = 12;
    while matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8] | [0x91, 0]) {
        at += 4;
    }
    at + 2
}

pub(crate) fn sum_v4(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header = &packet[..usize::from(packet[0] & 15) * 4];
    let mut sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = sum % 0x1_0000 + sum / 0x1_0000;
    }
    packet[10..12].copy_from_slice(&u16::try_from(0xffff - sum).unwrap().to_be_bytes());
}

fn ethernet(tags: &[u16], ethertype: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame
}
