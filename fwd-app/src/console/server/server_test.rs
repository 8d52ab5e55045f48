//! Tests of the server over real sockets, with a forwarder that echoes its requests.

use crate::console::client::{self, ClientError};
use crate::console::grammar::request::{RouteList, Show};
use crate::console::server::access::CtlGroups;
use crate::console::server::closer::WAITING_MAX;
use crate::console::server::wire::{Ask, Reply};
use crate::console::server::{FILES_MAX, Limits, ServerTally};
use crate::console::{Answer, Inbox, Refusal, Request, Server, Steer};
use crate::routes::feeds::test_peers::strangers;
use crate::threads::spawn;
use crossbeam_channel::bounded;
use proptest::prelude::*;
use rustix::cmsg_space;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(30);

/// Echoes requests; `show fib` is very long, `route list` has 5,000 lines in parts, and `start` is refused.
#[derive(Default)]
struct Parrot {
    asked: u64,
}

impl Steer for Parrot {
    fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        self.asked += 1;
        match request {
            Request::Show(Show::Fib) => Ok(Answer::new("x".repeat(3 << 20))),
            Request::Show(Show::Routes) => Ok(Answer::new("x".repeat(5 << 20))),
            Request::RouteList(list) => {
                let first = list.after.map_or(0, |after| u32::from(after.len()) * 1000);
                let lines = (first..first + 1000).collect();
                let after = format!("::/{}", first / 1000 + 1).parse().ok().filter(|_| first < 4000);
                let next = after.map(|after| Request::RouteList(RouteList { after: Some(after), ..list }));
                Ok(Answer::part::<u32>(lines, next))
            }
            Request::Start => Err(Refusal::Unavailable { what: "start".into(), why: "it runs".into() }),
            other => Ok(Answer::new(format!("{} {other}", self.asked))),
        }
    }
}

struct Scene {
    folder: TempDir,
    server: Server,
    stop: Arc<AtomicBool>,
    control: Option<JoinHandle<()>>,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        let (mut scene, inbox) = Self::without_session(limits);
        let stop = Arc::clone(&scene.stop);
        scene.control = Some(thread::spawn(move || {
            let mut parrot = Parrot::default();
            while !stop.load(Ordering::Relaxed) {
                if inbox.serve(&mut parrot, 4) == 0 {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        }));
        scene
    }

    fn without_session(limits: Limits) -> (Self, Inbox) {
        let folder = tempfile::tempdir().unwrap();
        let (server, inbox) = Server::start(&folder.path().join("x.sock"), limits).unwrap();
        (Self { folder, server, stop: Arc::default(), control: None }, inbox)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("x.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    fn ask(&self, line: &str) -> Result<Reply, ClientError> {
        client::ask(&self.path(), &Ask { line: line.to_owned(), json: false }, None, LONG)
    }

    fn until(&self, what: &str, reached: impl Fn(&ServerTally) -> bool) {
        let end = Instant::now() + LONG;
        while !reached(&self.server.tally()) {
            assert!(Instant::now() < end, "{what}: {:?}", self.server.tally());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(control) = self.control.take() {
            control.join().unwrap();
        }
    }
}

fn line(mut stream: &UnixStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte).unwrap() == 1 {
        if byte == *b"\n" {
            return String::from_utf8(line).unwrap();
        }
        line.extend(byte);
    }
    panic!("closed after {line:?}")
}

fn is_closed(mut stream: &UnixStream) -> bool {
    let mut rest = Vec::new();
    // A server that closes with unread bytes resets the connection.
    stream.read_to_end(&mut rest).is_err() || rest.is_empty()
}

#[test]
fn replies_come_in_the_order_of_the_requests() {
    let scene = Scene::new(Limits::default());
    assert_eq!(scene.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = scene.connect();
    let lines: String = (1..=500)
        .map(|n| format!("{{\"line\": \"trace {n}\"}}\n{{\"line\": \"tracy\"}}\n{{\"line\": \"start\"}}\n"))
        .collect();
    let reader = stream.try_clone().unwrap();
    let writer = thread::spawn(move || stream.write_all(lines.as_bytes()).unwrap());
    let mut replies = BufReader::new(reader).lines().map(Result::unwrap);
    for n in 1..=500 {
        let asked = 2 * n - 1;
        assert_eq!(replies.next().unwrap(), format!(r#"{{"ok":true,"text":"{asked} trace {n}"}}"#));
        assert!(replies.next().unwrap().starts_with(r#"{"ok":false,"error":"'tracy' is not understood"#));
        assert_eq!(replies.next().unwrap(), r#"{"ok":false,"error":"start: it runs"}"#);
    }
    writer.join().unwrap();
    let tally = scene.server.tally();
    assert_eq!((tally.clients, tally.requests, tally.errors), (1, 1000, 500));
}

#[test]
fn one_that_never_reads_and_one_that_never_writes_delay_nobody_and_have_to_go() {
    let stalled = Duration::from_secs(4);
    let scene = Scene::new(Limits { stalled, idle: stalled, ..Limits::default() });
    let mut never_reads = scene.connect();
    never_reads.write_all(b"{\"line\": \"show fib\"}\n{\"line\": \"show fib\"}\n").unwrap();
    let mut never_writes = scene.connect();
    never_writes.write_all(b"{\"line\": \"sho").unwrap();
    scene.until("asked", |tally| tally.requests == 1);
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    while start.elapsed() < stalled / 8 {
        let asked = Instant::now();
        assert!(scene.ask("show drops").unwrap().ok);
        slowest = slowest.max(asked.elapsed());
    }
    // A server that waited for one of them would reach the limit.
    assert!(slowest < stalled / 2, "{slowest:?}");
    scene.until("both timed out", |tally| tally.timed_out == 2);
    assert!(is_closed(&never_writes));
    assert!(scene.ask("show routes").unwrap().error.unwrap().contains("longer than"));
    assert_eq!(scene.ask("show fib").unwrap().text.unwrap().len(), 3 << 20);
}

#[test]
fn a_list_comes_in_parts_and_costs_nothing_between_them() {
    let scene = Scene::new(Limits::default());
    let (mut line, mut lines, mut parts) = ("route list source ctl".to_owned(), Vec::new(), 0_u64);
    loop {
        let Reply { ok, part, next, .. } = scene.ask(&line).unwrap();
        assert!(ok);
        lines.extend(part.unwrap().lines().map(|line| line.parse::<u32>().unwrap()));
        parts += 1;
        scene.until("all are gone", |tally| tally.requests == parts && tally.clients == parts);
        let Some(next) = next else { break };
        assert_eq!(next, format!("route list source ctl after ::/{parts}"));
        line = next;
    }
    assert_eq!((lines, parts), ((0..5000).collect(), 5));
    let ask = Ask { line: "route list after ::/4".to_owned(), json: true };
    let reply = client::ask(&scene.path(), &ask, None, LONG).unwrap();
    assert!(reply.part.unwrap().starts_with("4000\n4001\n") && reply.next.is_none() && reply.data.is_null());
    assert!(scene.ask("route diff x").unwrap().error.unwrap().contains("a command of fwd-app ctl"));
}

#[test]
fn an_open_file_comes_with_the_request_that_needs_it() {
    let (scene, inbox) = Scene::without_session(Limits::default());
    let ask = |file: Option<File>| {
        let (path, line) = (scene.path(), "capture drops x 1".to_owned());
        thread::spawn(move || client::ask(&path, &Ask { line, json: false }, file.as_ref(), LONG))
    };
    let asked = ask(None);
    let mut command = inbox.waiting().recv().unwrap();
    assert!(command.take_file().is_none());
    command.answer(Ok(Answer::done()));
    assert!(asked.join().unwrap().unwrap().ok);
    let path = scene.folder.path().join("capture");
    let asked = ask(Some(File::create(&path).unwrap()));
    let mut command = inbox.waiting().recv().unwrap();
    command.take_file().unwrap().write_all(b"packets").unwrap();
    command.answer(Ok(Answer::done()));
    assert!(asked.join().unwrap().unwrap().ok);
    assert_eq!(std::fs::read(&path).unwrap(), b"packets");
}

/// A connection whose last descriptor takes long to close: its peer reads nothing.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&ours, Some(LONG * 10)).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Sends a line with descriptors, of which it keeps none.
fn pass(stream: &UnixStream, line: &str, files: &[impl AsFd]) {
    pass_with(stream, line, files, SendFlags::empty()).unwrap();
}

fn pass_with(
    stream: &UnixStream,
    line: &str,
    files: &[impl AsFd],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(stream, &[IoSlice::new(line.as_bytes())], &mut control, flags)
}

#[test]
fn a_descriptor_that_comes_out_of_band_holds_up_nobody() {
    let (scene, _inbox) = Scene::without_session(Limits::default());
    let (mut client, (stuck, _reader)) = (scene.connect(), lingering());
    // A single byte: of more the descriptor would come with the first.
    if let Err(error) = pass_with(&client, " ", &[stuck], SendFlags::OOB) {
        eprintln!("SKIPPED: sockets here have no bytes out of band: {error}");
        return;
    }
    client.write_all(b"{\"line\": \"nonsense\"}\n").unwrap();
    let asked = Instant::now();
    assert!(scene.ask("nonsense").unwrap().error.is_some());
    assert!(asked.elapsed() < LONG / 2, "{:?}", asked.elapsed());
    assert!(line(&client).contains("nonsense"));
}

#[test]
fn a_descriptor_that_takes_long_to_close_holds_up_nobody() {
    let (scene, inbox) = Scene::without_session(Limits::default());
    let (one, _one) = lingering();
    let (two, _two) = lingering();
    let (three, _three) = lingering();
    let asks = || {
        let asked = Instant::now();
        assert!(scene.ask("nonsense").unwrap().error.is_some());
        assert!(asked.elapsed() < LONG / 2, "{:?}", asked.elapsed());
    };
    let mut client = scene.connect();
    for passed in [vec![one, two], vec![three]] {
        client.write_all(b"{\"line\": \"show drops\"}\n").unwrap();
        let command = inbox.waiting().recv().unwrap();
        // The server reads this after the answer, when it has the only descriptors.
        let is_last = passed.len() == 1;
        pass(&client, "{\"line\": \"nonsense\"}\n", &passed);
        drop(passed);
        if is_last {
            drop(std::mem::replace(&mut client, scene.connect()));
        } else {
            command.answer(Ok(Answer::done()));
            assert!(line(&client).contains("ok"));
            assert!(line(&client).contains("nonsense"));
        }
        asks();
    }
}

#[test]
fn root_gets_in_while_too_many_descriptors_wait_to_be_closed() {
    for all in [None, Some(4_000_000)] {
        let groups = CtlGroups { all, read: None };
        let scene = Scene::new(Limits { groups, ..Limits::default() });
        let mode = || scene.path().metadata().unwrap().permissions().mode() & 0o777;
        let open = if all.is_some() { 0o666 } else { 0o600 };
        let client = scene.connect();
        let (stuck, reader) = lingering();
        pass(&client, "{\"line\": \"help\"}\n", &[stuck]);
        line(&client);
        assert_eq!(mode(), open);
        // The server holds the last descriptor of a client. The next message replaces it.
        let others: Vec<_> = (0..=WAITING_MAX + 1).map(|_| File::open("/dev/null").unwrap()).collect();
        pass(&client, "{\"line\": \"help\"}\n", &others);
        line(&client);
        scene.until("other users cannot connect", |_| mode() == 0o600);
        for _ in 0..100 {
            assert!(scene.ask("show drops").unwrap().ok);
        }
        drop(reader);
        scene.until("they can again", |_| mode() == open);
        assert!(scene.ask("show drops").unwrap().ok);
    }
}

#[test]
fn one_client_too_many_is_told_so_and_a_place_is_free_again() {
    let scene = Scene::new(Limits { clients_max: 3, ..Limits::default() });
    let mut clients: Vec<_> = (0..3).map(|_| scene.connect()).collect();
    for client in &mut clients {
        client.write_all(b"{\"line\": \"show fib\"}\n{\"line\": \"show drops\"}\n").unwrap();
    }
    scene.until("all are connected", |tally| tally.clients == 3);
    let one_more = scene.connect();
    assert!(line(&one_more).contains("3 clients are connected, which is the limit"));
    assert!(is_closed(&one_more));
    let told = scene.ask("show drops").unwrap();
    assert!(!told.ok && told.error.unwrap().contains("the limit"));
    let read = |client: UnixStream| {
        let mut lines = BufReader::new(client).lines().map(Result::unwrap);
        (lines.next().unwrap().len(), lines.next().unwrap())
    };
    let readers: Vec<_> = clients.into_iter().map(|client| thread::spawn(move || read(client))).collect();
    for reader in readers {
        let (long, short) = reader.join().unwrap();
        assert!(long > 3 << 20 && short.ends_with("show drops\"}"), "{short}");
    }
    scene.until("a place is free", |_| scene.ask("show drops").unwrap().ok);
    assert_eq!(scene.server.tally().errors, 0);
}

#[test]
fn an_idle_client_gives_its_place_to_a_new_one() {
    let scene = Scene::new(Limits { clients_max: 3, ..Limits::default() });
    let idle: Vec<_> = (0..3).map(|_| scene.connect()).collect();
    scene.until("all are connected", |tally| tally.clients == 3);
    // The first one has been idle longest until it sends a request.
    scene.until("one asks again and again, and another one has a place", |_| {
        (&idle[0]).write_all(b"{\"line\": \"show drops\"}\n").unwrap();
        assert!(line(&idle[0]).contains("show drops"));
        scene.ask("show drops").unwrap().ok
    });
    assert!(line(&idle[1]).contains("was idle"));
    assert!(is_closed(&idle[1]));
    (&idle[2]).write_all(b"{\"line\": \"show drops\"}\n").unwrap();
    assert!(line(&idle[2]).contains("show drops"));
    assert_eq!(scene.server.tally().timed_out, 1);
}

#[test]
fn ten_thousand_connections_in_turn_and_then_a_request() {
    let scene = Scene::new(Limits::default());
    strangers(10_000, b"{\"line\":\"show drops\"}\n{\"line\":\"show drops\"}\n", |_| {
        loop {
            match crate::console::server::socket::connect(&scene.path()) {
                Ok(client) => break client,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    });
    scene.until("all came", |tally| tally.clients == 10_000);
    scene.until("a request is answered", |_| scene.ask("show drops").is_ok_and(|reply| reply.ok));
    let tally = scene.server.tally();
    assert!(tally.errors > 1000 && tally.requests > 500 && tally.timed_out == 0, "{tally:?}");
}

#[test]
fn a_line_that_is_too_long_is_an_error_and_the_end() {
    let scene = Scene::new(Limits::default());
    let mut client = scene.connect();
    // The server may close before the write ends.
    let _ = client.write_all(&vec![b'x'; 200_000]);
    assert!(line(&client).contains("longer than 65536 bytes"));
    assert!(is_closed(&client));
    assert_eq!(scene.server.tally().errors, 1);
}

#[test]
fn a_half_closed_client_gets_its_replies_and_quit_closes() {
    let scene = Scene::new(Limits::default());
    for last in ["", "{\"line\": \"quit\"}\n{\"line\": \"show drops\"}\n"] {
        let mut client = scene.connect();
        client
            .write_all(
                format!("{{\"line\": \"show drops\"}}\n{{\"line\": \"help quit\"}}\n{last}").as_bytes(),
            )
            .unwrap();
        if last.is_empty() {
            client.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert!(line(&client).ends_with("show drops\"}"));
        assert!(line(&client).contains("the forwarder keeps running"));
        if !last.is_empty() {
            assert_eq!(line(&client), r#"{"ok":true,"text":""}"#);
        }
        assert!(is_closed(&client));
    }
}

#[test]
fn a_session_that_is_busy_or_gone_is_told_of() {
    let (scene, inbox) = Scene::without_session(Limits::default());
    let mut waiting = scene.connect();
    waiting.write_all(b"{\"line\": \"show drops\"}\n").unwrap();
    scene.until("asked", |tally| tally.requests == 1);
    for n in 1..crate::console::server::inbox::WAITING_MAX as u64 {
        scene.connect().write_all(b"{\"line\": \"show drops\"}\n").unwrap();
        scene.until("asked and gone", |tally| tally.requests == 1 + n);
    }
    assert!(
        scene
            .ask("show drops")
            .unwrap()
            .error
            .unwrap()
            .starts_with("the forwarder is busy: 64 requests wait")
    );
    let late = client::ask(&scene.path(), &Ask { line: "help".to_owned(), json: true }, None, LONG).unwrap();
    assert!(late.data.as_array().is_some_and(|lines| lines.len() > 30), "help needs no forwarder");
    let command = inbox.waiting().recv().unwrap();
    assert_eq!(*command.request(), Request::Show(Show::Drops));
    drop(command);
    assert!(line(&waiting).contains("ended without an answer"));
    assert_eq!(inbox.serve(&mut Parrot::default(), 1000), 63);
    drop(inbox);
    assert!(scene.ask("show drops").unwrap().error.unwrap().contains("ended without an answer"));
}

#[test]
fn a_client_waits_as_long_as_it_was_told_and_names_who_else_is_there() {
    let (scene, _inbox) = Scene::without_session(Limits::default());
    let ask = Ask { line: "show drops".to_owned(), json: false };
    let late = client::ask(&scene.path(), &ask, None, Duration::from_millis(50)).unwrap_err().to_string();
    assert!(late.ends_with("x.sock: no reply within 0.05 s"), "{late}");
    let absent = client::ask(&scene.folder.path().join("y.sock"), &ask, None, LONG).unwrap_err().to_string();
    assert!(absent.contains("y.sock, but at ") && absent.contains("x.sock"), "{absent}");
    let folder = scene.folder.path().to_owned();
    assert_eq!(client::find(&folder).unwrap(), [scene.path()]);
    drop(scene);
    assert!(matches!(client::find(&folder), Err(ClientError::None { .. })));
}

#[test]
fn the_last_answer_is_sent_before_the_server_ends() {
    let (scene, inbox) = Scene::without_session(Limits::default());
    let mut client = scene.connect();
    client.write_all(b"{\"line\": \"stop\"}\n").unwrap();
    let command = inbox.waiting().recv().unwrap();
    command.answer(Ok(Answer::new("stopped")));
    let path = scene.path();
    drop(scene);
    assert_eq!(line(&client), r#"{"ok":true,"text":"stopped"}"#);
    assert!(!path.exists());
}

#[test]
fn a_thread_that_hangs_does_not_hold_up_the_end() {
    let (mut scene, _inbox) = Scene::without_session(Limits::default());
    let (hangs, released) = bounded::<()>(0);
    let hang = move || {
        let _ = released.recv();
    };
    let hung = spawn("hung", hang).unwrap();
    let serving = scene.server.thread.replace(hung).unwrap();
    let (ended, end) = bounded(1);
    let dropped = thread::spawn(move || {
        drop(scene);
        ended.send(()).unwrap();
    });
    assert_eq!(end.recv_timeout(LONG / 2), Ok(()));
    drop(hangs);
    for thread in [dropped, serving] {
        thread.join().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_the_server_as_it_was(chunks in proptest::collection::vec(
        prop_oneof![any::<Vec<u8>>(), "(\\{\"line\": ?\"[a-z ]{0,20}\"\\}?\n?){0,5}".prop_map(String::into_bytes)], 0..6)) {
        let scene = Scene::new(Limits::default());
        let mut client = scene.connect();
        for chunk in chunks {
            let _ = client.write_all(&chunk);
        }
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut replies = Vec::new();
        let _ = client.read_to_end(&mut replies);
        for reply in replies.split(|byte| *byte == b'\n').filter(|reply| !reply.is_empty()) {
            let reply: Reply = serde_json::from_slice(reply).unwrap();
            prop_assert_eq!(reply.ok, reply.error.is_none());
        }
        prop_assert!(scene.ask("show drops").unwrap().ok);
    }
}
