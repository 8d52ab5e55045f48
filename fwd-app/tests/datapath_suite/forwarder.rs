//! A running forwarder that tests control over its socket.

use crate::run::{eal, run_command};
use crate::signals::send;
use crate::support::{bundled, changes, fwd_app, json, mix_command, skip, stderr, wait};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Parameters of a `net_pcap` port that receives the mixed capture in a loop.
pub(crate) fn endless_mix() -> String {
    format!("rx_pcap={},infinite_rx=1", bundled("mix.pcap").display())
}

pub(crate) struct Steered {
    pub(crate) child: Option<Child>,
    pub(crate) socket: PathBuf,
    json: PathBuf,
}

impl Drop for Steered {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

impl Steered {
    /// Waits until the forwarder `child` answers; `None` if DPDK does not start here.
    pub(crate) fn wait_for(mut child: Child, folder: &Path) -> Option<Self> {
        let (socket, json) = (folder.join("ctl"), folder.join("summary.json"));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let asked =
                fwd_app(&["ctl", "--timeout", "30", "show", "config", "--socket"]).arg(&socket).output();
            if asked.unwrap().status.success() {
                return Some(Self { child: Some(child), socket, json });
            }
            if child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                assert!(skip(&stderr(&output)), "{}", stderr(&output));
                return None;
            }
            assert!(Instant::now() < end, "no answer");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A replay of hours under an update stream, at a rate that any CPU sustains.
    pub(crate) fn replay(folder: &Path, extra: &[&str]) -> Option<Self> {
        let updates = folder.join("updates.txt");
        std::fs::write(&updates, changes(3)).unwrap();
        let mut command = mix_command();
        command.args(["--rate", "100kpps", "--update-rate", "20000"]).args(extra);
        Self::churned(command, &updates, folder)
    }

    pub(crate) fn churned(mut command: Command, updates: &Path, folder: &Path) -> Option<Self> {
        command.args(["--verify", "--loops", "1000000000", "--update-loops", "1000000", "--updates"]);
        command.arg(updates).arg("--json").arg(folder.join("summary.json"));
        Self::wait_for(command.arg("--ctl").arg(folder.join("ctl")).spawn().unwrap(), folder)
    }

    pub(crate) fn run(folder: &Path, name: &str, text: &str) -> Option<Self> {
        let routes = folder.join("more.txt");
        std::fs::write(&routes, text).unwrap();
        Self::run_with(folder, name, &endless_mix(), &["--fib", routes.to_str().unwrap()])
    }

    /// `run` with the bundled routes and `extra` options over ports, the first of which receives `input`.
    pub(crate) fn run_with(folder: &Path, name: &str, input: &str, extra: &[&str]) -> Option<Self> {
        let vdevs: Vec<_> = [format!("net_pcap0,{input},tx_pcap=/dev/null")]
            .into_iter()
            .chain((1..4).map(|port| format!("net_null{port},no-rx=1")))
            .collect();
        let table = bundled("routes.txt");
        Self::over(folder, name, &[&["--fib", table.to_str().unwrap()], extra].concat(), &vdevs)
    }

    pub(crate) fn over(folder: &Path, name: &str, options: &[&str], vdevs: &[String]) -> Option<Self> {
        let mut eal = eal("(0-1)@(0-1)", name);
        eal.iter_mut().filter(|word| *word == "256").for_each(|word| *word = "512".to_owned());
        let ctl = folder.join("ctl");
        let options = [&["--ctl", ctl.to_str().unwrap()], options].concat();
        let mut command = run_command(&folder.join("summary.json"), &options, &eal, vdevs);
        // These tests mostly wait for answers, so idle lcores sleep. Lcores poll in the tests of `run` and in most smoke scripts.
        Self::wait_for(command.env("FWD_APP_IDLE_US", "1000").spawn().unwrap(), folder)
    }

    pub(crate) fn output(&self, words: &str) -> std::process::Output {
        let mut command = fwd_app(&["ctl", "--json", "--timeout", "60", "--socket"]);
        command.arg(&self.socket).args(words.split(' ')).output().unwrap()
    }

    pub(crate) fn ask(&self, words: &str) -> Value {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    pub(crate) fn ask_text(&self, words: &str) -> String {
        let mut command = fwd_app(&["ctl", "--timeout", "60", "--socket"]);
        let output = command.arg(&self.socket).args(words.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn refuses(&self, words: &str) -> String {
        let output = self.output(words);
        assert_eq!(output.status.code(), Some(1), "{words}: {}", stderr(&output));
        stderr(&output)
    }

    pub(crate) fn ask_until(&self, words: &str, wanted: impl Fn(&Value) -> bool) {
        self.ask_within(Duration::from_secs(30), words, wanted);
    }

    pub(crate) fn ask_within(&self, limit: Duration, words: &str, wanted: impl Fn(&Value) -> bool) {
        let end = Instant::now() + limit;
        loop {
            let answer = self.ask(words);
            if wanted(&answer) {
                return;
            }
            assert!(Instant::now() < end, "{words}: {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.as_ref().unwrap().id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn hang_up(&self) {
        send(self.child.as_ref().unwrap(), "-HUP");
    }

    pub(crate) fn end(mut self) -> (Value, String) {
        let child = self.child.take().unwrap();
        send(&child, "-TERM");
        let output = wait(child, Duration::from_secs(60));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let summary = json(&self.json);
        assert!(!self.socket.exists(), "the socket is removed");
        (summary, text)
    }
}
