//! Runs the program, and manages scratch files.

use crate::trie::RouteModel;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) struct ProgramOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProgramOutput {
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stdout
    }

    pub(crate) fn fails(self, code: i32, wanted: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        for part in wanted {
            assert!(self.stderr.contains(part), "no '{part}' in: {}", self.stderr);
        }
        self
    }
}

pub(crate) fn fwd(args: &[&str]) -> ProgramOutput {
    fwd_stdin(args, "")
}

pub(crate) fn fwd_stdin(args: &[&str], input: &str) -> ProgramOutput {
    fwd_env(args, input, &[])
}

/// Starts `fwd-app args..` with additional environment variables and a pipe at each of its streams.
pub(crate) fn start(args: &[&str], environment: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fwd-app"));
    command.args(args).envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(crate) fn fwd_env(args: &[&str], input: &str, environment: &[(&str, &str)]) -> ProgramOutput {
    let mut child = start(args, environment);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_bytes().to_vec();
    // A run that fails early leaves its input unread, which is no failure of the test.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    // The mock driver reports the faults that it injects.
    let own = |line: &&str| !line.starts_with("mockcuda: ");
    let stderr: String = stderr.split_inclusive('\n').filter(own).collect();
    let code = output.status.code().unwrap_or_else(|| panic!("{args:?} died: {}\n{stderr}", output.status));
    assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    assert!((0..=3).contains(&code), "{args:?}: exit code {code}\n{stderr}");
    if code != 0 {
        let last = stderr.lines().find(|line| !line.starts_with("fwd-app: warning:"));
        assert!(last.is_some_and(|line| line.starts_with("fwd-app: ")), "{args:?}: {stderr}");
    }
    ProgramOutput { code, stdout: String::from_utf8(output.stdout).unwrap(), stderr }
}

pub(crate) struct ScratchFolder(TempDir);

impl ScratchFolder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Generates a table of both families and an update stream for it. Returns their paths.
    pub(crate) fn generated(&self, routes: &str, updates: &str) -> [String; 2] {
        let [fib, stream] = ["routes.txt", "updates.txt"].map(|name| self.path(name));
        fwd(&["fib", "generate", "--family", "both", "--routes", routes, "--seed", "5", "-o", &fib]).ok();
        fwd(&["fib", "generate", "--updates", updates, "--fib", &fib, "--seed", "6", "-o", &stream]).ok();
        [fib, stream]
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

pub(crate) fn setups() -> Vec<[&'static str; 2]> {
    let mut setups = vec![
        ["oracle", "scalar"],
        ["bloom", "scalar"],
        ["bloom-baseline", "scalar"],
        ["bloom-naive", "scalar"],
        ["miht", "scalar"],
        ["mamt", "scalar"],
    ];
    if has_avx512f() {
        setups.extend([
            ["bloom", "avx512f"],
            ["bloom-naive", "avx512f"],
            ["coop", "avx512f"],
            ["mamt", "avx512f"],
        ]);
    } else {
        fib::testing::skip("avx512f", "bloom with avx512f: this CPU has none");
    }
    setups
}

pub(crate) fn has_avx512f() -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    ["avx512f", "avx512cd"].iter().all(|wanted| flags.split(' ').any(|flag| flag == *wanted))
}

pub(crate) fn check_answers(stdout: &str, addresses: &[IpAddr], model: &RouteModel, what: &str) {
    assert_eq!(stdout.lines().count(), addresses.len(), "{what}: lines");
    for (line, address) in stdout.lines().zip(addresses) {
        let (text, id) = line.split_once('\t').unwrap();
        assert_eq!(text, address.to_string(), "{what}: order of lines");
        assert_eq!(id, model.lookup(*address).to_string(), "{what}: next hop of {address}");
    }
}

pub(crate) fn lines(addresses: &[IpAddr]) -> String {
    addresses.iter().map(|address| format!("{address}\n")).collect()
}

pub(crate) fn check_engines(fib: &[&str], more: &[&str], addresses: &[IpAddr], model: &RouteModel) {
    let input = lines(addresses);
    for [engine, isa] in setups() {
        let mut args = vec!["lookup", "--engine", engine, "--isa", isa];
        for file in fib {
            args.extend(["--fib", file]);
        }
        args.extend(more);
        check_answers(&fwd_stdin(&args, &input).ok(), addresses, model, &format!("{engine} {isa}"));
    }
}

/// The path of a real table in the folder `FWD_DATA`; `None`, with a message, if it is missing.
pub(crate) fn data(name: &str) -> Option<String> {
    let [path] = fib::testing::data([name])?;
    Some(path.to_str().unwrap().to_owned())
}
