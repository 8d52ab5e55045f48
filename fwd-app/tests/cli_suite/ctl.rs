//! `ctl` with a socket of the test or without a forwarder: exit codes, output, scripts, the prompt. `completions`.

use crate::support::{ScratchFolder, fwd, fwd_stdin};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

fn forwarder(path: &str, replies: &'static [&'static str]) -> thread::JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let answer = |reply: &&str| {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(format!("{reply}\n").as_bytes()).unwrap();
            line
        };
        replies.iter().map(answer).collect()
    })
}

#[test]
fn wrong_words_are_usage_and_no_forwarder_is_an_absent_device() {
    let socket = ScratchFolder::new().path("absent.sock");
    fwd(&["ctl", "--socket", &socket, "show", "dropz"])
        .fails(2, &["'dropz' is not understood here, wanted port"]);
    fwd(&["ctl", "--socket", &socket, "--timeout", "0", "start"]).fails(2, &["--timeout"]);
    fwd(&["ctl", "--socket", &socket, "show", "drops"]).fails(3, &["no forwarder listens at", "absent.sock"]);
    fwd(&["ctl", "--socket", &socket, "stop", "--drain"]).fails(3, &["no forwarder listens at"]);
    fwd_stdin(&["ctl", "--socket", &socket], "# nothing\n\nshow drops\n")
        .fails(3, &["stdin:3: no forwarder"]);
    fwd_stdin(&["ctl", "--socket", &socket], "start now\n").fails(1, &["stdin:1: 'now' is not understood"]);
    assert_eq!(fwd_stdin(&["ctl", "--socket", &socket], "# nothing\nquit\nstart\n").ok(), "");
}

#[test]
fn help_needs_no_forwarder() {
    let help = fwd(&["ctl", "help"]).ok();
    assert!(help.lines().count() > 30 && help.starts_with("show port stats [PORT|all]"), "{help}");
    let help = fwd(&["ctl", "help", "cap", "stop", "--json"]).ok();
    assert!(help.starts_with(r#"[{"usage":"capture stop","help":""#), "{help}");
}

#[test]
fn answers_go_to_stdout_and_refusals_are_failures() {
    let scratch = ScratchFolder::new();
    let replies = [
        r#"{"ok":true,"text":"no_route  7\n"}"#,
        r#"{"ok":true,"data":{"prefix":"10.0.0.0/8","id":7}}"#,
        r#"{"ok":false,"error":"there is no port 9"}"#,
        "hello",
    ];
    let replies: &'static [&'static str] = Vec::leak(replies.to_vec());
    let socket = scratch.path("x.sock");
    let forwarder = forwarder(&socket, replies);
    assert_eq!(fwd(&["ctl", "--socket", &socket, "show", "drops"]).ok(), "no_route  7\n");
    let data = fwd(&["ctl", "--socket", &socket, "route", "get", "10.0.0.1", "--json"]).ok();
    assert_eq!(data, "{\"id\":7,\"prefix\":\"10.0.0.0/8\"}\n");
    let out = fwd(&["ctl", "--socket", &socket, "set", "link", "9", "up"])
        .fails(1, &["fwd-app: there is no port 9"]);
    assert_eq!(out.stdout, "");
    fwd(&["ctl", "--socket", &socket, "start"]).fails(1, &["not a reply of a forwarder"]);
    let asked = forwarder.join().unwrap();
    assert_eq!(asked[1], "{\"line\":\"route get 10.0.0.1\",\"json\":true}\n");
}

#[test]
fn a_list_is_asked_for_part_by_part_and_compared_with_a_file() {
    const PARTS: &[&str] = &[
        r#"{"ok":true,"part":"10.0.0.0/8 7\n# local 10.0.0.1/32\n","next":"route list after 10.0.0.1/32"}"#,
        r#"{"ok":true,"part":"","next":"route list after 11.0.0.0/8"}"#,
        r#"{"ok":true,"part":"2001:db8::/32 via fe80::1 dev 1\n"}"#,
    ];
    let scratch = ScratchFolder::new();
    let (socket, file) = (scratch.path("x.sock"), scratch.path("routes.txt"));
    let ports: &[&str] = &[
        r#"{"ok":true,"data":[{"port":0,"name":"a","dpdk_name":"net_null0"},{"port":1,"name":"uplink","dpdk_name":"net_null1"}]}"#,
    ];
    let replies: Vec<_> =
        [PARTS, ports, PARTS, ports, PARTS, PARTS, &PARTS[..1], &[r#"{"ok":false,"error":"no"}"#]].concat();
    let forwarder = forwarder(&socket, Vec::leak(replies));
    let listed = fwd(&["ctl", "--socket", &socket, "route", "list"]).ok();
    assert_eq!(listed, "10.0.0.0/8 7\n# local 10.0.0.1/32\n2001:db8::/32 via fe80::1 dev 1\n");
    std::fs::write(&file, &listed).unwrap();
    let diff = |file: &str| fwd(&["ctl", "--socket", &socket, "route", "diff", file]);
    assert_eq!(diff(&file).ok(), "");
    std::fs::write(&file, listed.replace("dev 1", "dev uplink")).unwrap();
    assert_eq!(diff(&file).ok(), "");
    std::fs::write(&file, "10.0.0.0/8 8\n").unwrap();
    let out = diff(&file).fails(1, &["1 of the file are not in service, 2 in service are not in the file"]);
    assert_eq!(out.stdout, "- 10.0.0.0/8 8\n+ 10.0.0.0/8 7\n+ 2001:db8::/32 via fe80::1 dev 1\n");
    // The forwarder refuses to continue: earlier lines have been printed.
    let out = fwd(&["ctl", "--socket", &socket, "route", "list"]).fails(1, &["fwd-app: no"]);
    assert_eq!(out.stdout, "10.0.0.0/8 7\n# local 10.0.0.1/32\n");
    let asked = forwarder.join().unwrap();
    assert_eq!(asked[1], "{\"line\":\"route list after 10.0.0.1/32\",\"json\":false}\n");
    assert_eq!(asked[3], "{\"line\":\"show port info all\",\"json\":true}\n");
    assert_eq!(asked[4], asked[0], "the diff asks for the list");
    diff(&scratch.path("absent.txt")).fails(1, &["absent.txt"]);
}

#[test]
fn a_script_stops_at_the_first_error() {
    let scratch = ScratchFolder::new();
    let socket = scratch.path("x.sock");
    let forwarder = forwarder(&socket, &[r#"{"ok":true,"text":"done"}"#, r#"{"ok":false,"error":"no"}"#]);
    let out = fwd_stdin(&["ctl", "--socket", &socket], "start # again\n\nstop\nstart\n")
        .fails(1, &["fwd-app: stdin:3: no"]);
    assert_eq!((out.stdout.as_str(), forwarder.join().unwrap().len()), ("done\n", 2));
}

struct Screen {
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Screen {
    fn until(&mut self, wanted: &str) {
        loop {
            if let Some(at) = self.text.find(wanted) {
                self.text.drain(..at + wanted.len());
                return;
            }
            let more = self.shown.recv_timeout(Duration::from_secs(30));
            let more = more.unwrap_or_else(|error| panic!("no '{wanted}' ({error}) in: {}", self.text));
            self.text.push_str(&String::from_utf8_lossy(&more));
        }
    }
}

fn on_terminal(scratch: &ScratchFolder, words: &[&str]) -> (Child, File, File, Screen) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let stream = || terminal.try_clone().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_fwd-app"))
        .args(["ctl", "--socket", &scratch.path("x.sock")])
        .args(words)
        .env("XDG_STATE_HOME", scratch.path("state"))
        .env("TERM", "xterm")
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .unwrap();
    let keys = File::from(master);
    let (mut output, (sender, shown)) = (keys.try_clone().unwrap(), channel());
    // Ends with the terminal, after the test.
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            let _ = sender.send(bytes[..count].to_vec());
        }
    });
    (child, terminal, keys, Screen { shown, text: String::new() })
}

#[test]
fn the_prompt_completes_words_shows_errors_and_keeps_a_history() {
    let scratch = ScratchFolder::new();
    let forwarder = forwarder(&scratch.path("x.sock"), &[r#"{"ok":true,"text":"7 dropped"}"#]);
    let (mut child, _terminal, mut keys, mut screen) = on_terminal(&scratch, &[]);
    screen.until("fwd-app> ");
    keys.write_all(b"sho\tdr\t\r").unwrap();
    screen.until("7 dropped");
    screen.until("fwd-app> ");
    keys.write_all(b"dance\r").unwrap();
    screen.until("fwd-app: 'dance' is not understood here");
    screen.until("fwd-app> ");
    keys.write_all(b"quit\r").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(forwarder.join().unwrap(), ["{\"line\":\"show drops \",\"json\":false}\n"]);
    let history = std::fs::read_to_string(scratch.path("state/fwd-app/ctl-history")).unwrap();
    assert!(history.contains("show drops \ndance\nquit\n"), "{history}");
}

#[test]
fn top_draws_over_itself_and_leaves_the_terminal_as_it_was() {
    for end in [b"q", b"\x03"] {
        let scratch = ScratchFolder::new();
        let replies: &[&str] = &[r#"{"ok":true,"text":"first\n"}"#, r#"{"ok":false,"error":"second"}"#];
        let forwarder = forwarder(&scratch.path("x.sock"), replies);
        let (mut child, terminal, mut keys, mut screen) = on_terminal(&scratch, &["top"]);
        screen.until("\x1b[?1049h");
        screen.until("first");
        // Neither line mode nor echo while it runs, and both afterwards.
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        assert!(!modes().intersects(LocalModes::ICANON | LocalModes::ECHO));
        // `ctl` asks again after a refusal or a failed connection.
        screen.until("\x1b[H");
        screen.until("second");
        assert!(child.try_wait().unwrap().is_none());
        keys.write_all(end).unwrap();
        screen.until("\x1b[?1049l");
        assert!(child.wait().unwrap().success());
        assert!(modes().contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        assert_eq!(forwarder.join().unwrap(), ["{\"line\":\"show rates\",\"json\":false}\n"; 2]);
    }
}

#[test]
fn a_signal_restores_the_terminal_of_top() {
    let scratch = ScratchFolder::new();
    let forwarder = forwarder(&scratch.path("x.sock"), &[r#"{"ok":true,"text":"first\n"}"#]);
    let (mut child, terminal, _keys, mut screen) = on_terminal(&scratch, &["top"]);
    screen.until("first");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    screen.until("\x1b[?1049l");
    assert!(child.wait().unwrap().success());
    assert!(tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    forwarder.join().unwrap();
}

#[test]
fn top_without_a_terminal_is_so_many_answers() {
    let scratch = ScratchFolder::new();
    let socket = scratch.path("x.sock");
    let two: &[&str] = &[r#"{"ok":true,"text":"one\n"}"#, r#"{"ok":true,"text":"two\n"}"#];
    let asked = forwarder(&socket, two);
    assert_eq!(fwd(&["ctl", "--socket", &socket, "top", "--count", "2"]).ok(), "one\n\ntwo\n");
    asked.join().unwrap();
    std::fs::remove_file(&socket).unwrap();
    let lines: &[&str] = &[r#"{"ok":true,"data":{"age_s":1}}"#, r#"{"ok":true,"data":{"age_s":2}}"#];
    let asked = forwarder(&socket, lines);
    let shown = fwd(&["ctl", "--socket", &socket, "top", "--count", "2", "--json"]).ok();
    assert_eq!(shown, "{\"age_s\":1}\n{\"age_s\":2}\n");
    asked.join().unwrap();
    std::fs::remove_file(&socket).unwrap();
    let asked = forwarder(&socket, &two[..1]);
    fwd(&["ctl", "--socket", &socket, "top"]).fails(3, &["no forwarder listens"]);
    asked.join().unwrap();
    fwd(&["ctl", "--socket", &socket, "top", "--count", "0"]).fails(2, &["--count"]);
    fwd(&["ctl", "--socket", &socket, "show", "drops", "--count", "1"]).fails(2, &["'--count'"]);
}

#[test]
fn completions_are_scripts_of_the_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = fwd(&["completions", shell]).ok();
        assert!(script.contains("fwd-app") && script.contains("FWD_APP_COMPLETE"), "{shell}: {script}");
    }
    fwd(&["completions", "cmd"]).fails(2, &["cmd", "bash"]);
}

fn bash_offers(line: &[&str]) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_fwd-app"));
    let folders = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    // The arguments that bash passes to the function of `complete -F`: command, word, previous word.
    let script = r#"
        source <(fwd-app completions bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
        _clap_complete_fwd_app fwd-app "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(line).env("PATH", folders);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_words_of_ctl_and_the_names_of_engines() {
    for (line, wanted) in [
        (&["fwd-app", "ctl", "show", "n"][..], &["neigh", "next-hops"][..]),
        (&["fwd-app", "ctl", "--json", "--socket", "/x", "sh", "port", ""], &["stats", "xstats", "info"]),
        (&["fwd-app", "ctl", "trace", "5", "port", "1", "reason", "mt"], &["mtu_exceeded"]),
        (&["fwd-app", "ctl", "vrf", "red", "set", "engine", "sail-l"], &["sail-l"]),
        (&["fwd-app", "ctl", "stop", "--d"], &["--drain"]),
        (&["fwd-app", "replay", "a.pcap", "--engine", "bloom-"], &["bloom-baseline", "bloom-naive"]),
        (&["fwd-app", "lookup", "--engine", "aut"], &["auto"]),
        (&["fwd-app", "run", "--fallb"], &["--fallback"]),
        (&["fwd-app", "compl"], &["completions"]),
    ] {
        let offers = bash_offers(line);
        assert!(wanted.iter().all(|word| offers.iter().any(|offer| offer == word)), "{line:?}: {offers:?}");
        let start = line.last().unwrap();
        assert!(offers.iter().all(|offer| offer.starts_with(start)), "{line:?}: {offers:?}");
    }
    let engines = bash_offers(&["fwd-app", "run", "--engine", ""]);
    assert!(engines.len() > 10 && engines.iter().any(|name| name == "host"), "{engines:?}");
    let after_a_wrong_word = bash_offers(&["fwd-app", "ctl", "show", "dropz", ""]);
    assert!(after_a_wrong_word.iter().all(|offer| offer.starts_with("--")), "{after_a_wrong_word:?}");
}
