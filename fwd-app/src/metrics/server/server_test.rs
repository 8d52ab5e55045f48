//! The server over real sockets: its responses, and its limits on misbehaving clients.

use super::{HttpLimits, MetricsServer};
use crate::metrics::test_snapshot::snapshot;
use proptest::prelude::*;
use serde_json::Value;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(30);

fn server(limits: HttpLimits, has_started: bool) -> MetricsServer {
    let server = MetricsServer::start("127.0.0.1:0".parse().unwrap(), limits).unwrap();
    if has_started {
        server.snapshot.store(Some(Arc::new(snapshot(Instant::now()))));
    }
    server
}

fn connect(server: &MetricsServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn rest(mut stream: &TcpStream) -> String {
    let mut text = Vec::new();
    match stream.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8(text).unwrap()
}

fn ask(server: &MetricsServer, bytes: impl AsRef<[u8]>) -> String {
    let stream = connect(server);
    (&stream).write_all(bytes.as_ref()).unwrap();
    rest(&stream)
}

fn get(server: &MetricsServer, path: &str, headers: &str) -> (String, String) {
    let response = ask(server, format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"));
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    (head.to_owned(), body.to_owned())
}

#[test]
fn metrics_page_and_json_are_served() {
    let server = server(HttpLimits::default(), true);
    let (head, text) = get(&server, "/metrics", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
    assert!(text.contains("\nfwd_rx_packets_total 1000\n") && text.contains("\nfwd_snapshot_age_seconds "));
    let (head, open) = get(&server, "/metrics?x=1", "accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(head.contains("Content-Type: application/openmetrics-text; version=1.0.0;"), "{head}");
    assert!(open.ends_with("\n# EOF\n") && open.contains("# UNIT fwd_latency_seconds seconds\n"), "{open}");
    let (head, json) = get(&server, "/snapshot.json", "");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(head.contains("application/json"), "{head}");
    assert_eq!((&json["packets"]["rx"], &json["packets"]["drops"]["no_route"]), (&1000.into(), &7.into()));
    assert_eq!((&json["engine"]["name"], &json["latency_ns"]["p50"]), (&"host".into(), &900.into()));
    assert_eq!((&json["rates"]["ports"][1]["name"], &json["feeds"][0]["stale"]), (&"a\"b".into(), &3.into()));
    assert_eq!((&json["schema"], &json["kind"]), (&1.into(), &"snapshot".into()));
    assert!(json["age_s"].as_f64().unwrap() >= 0.0, "{json}");
}

#[test]
fn the_page_may_do_what_it_needs_and_no_more() {
    let server = server(HttpLimits::default(), true);
    let (head, page) = get(&server, "/", "");
    let (other, _) = get(&server, "/", "");
    let nonce = |head: &str| head.split_once("script-src 'nonce-").unwrap().1[..16].to_owned();
    assert!(head.contains("default-src 'none'") && nonce(&head) != nonce(&other), "{head}");
    assert_eq!(page.matches(&format!("nonce=\"{}\"", nonce(&head))).count(), 2, "a style and a script");
    for forbidden in ["http://", "https://", "innerHTML", " style=\"", " onclick=", "NONCE"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn there_is_an_answer_before_the_forwarder_has_started() {
    let server = server(HttpLimits::default(), false);
    let (head, text) = get(&server, "/metrics", "");
    assert!(head.contains("200 OK") && text.contains("fwd_build_info{version="), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    let (head, _) = get(&server, "/snapshot.json", "");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}

#[test]
fn other_requests_are_refused() {
    let server = server(HttpLimits::default(), true);
    let status = |bytes: &str| ask(&server, bytes).split("\r\n").next().unwrap().to_owned();
    assert_eq!(status("GET /x HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
    assert_eq!(
        status("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        "HTTP/1.1 405 Method Not Allowed"
    );
    assert_eq!(status("GET / HTTP/2.0\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    assert_eq!(status("\u{0}\u{1}garbage"), "HTTP/1.1 400 Bad Request");
    let large = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(8 << 10));
    assert_eq!(status(&large), "HTTP/1.1 431 Request Header Fields Too Large");
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(65));
    assert_eq!(status(&many), "HTTP/1.1 431 Request Header Fields Too Large");
    let head = ask(&server, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let stream = connect(&server);
    for piece in ["GE", "T /met", "rics HTTP/1.1\r", "\nHost: x\r\n\r", "\n"] {
        (&stream).write_all(piece.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(rest(&stream).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_request_that_does_not_come_is_not_waited_for() {
    let limits = HttpLimits { request: Duration::from_millis(50), ..HttpLimits::default() };
    let server = server(limits, true);
    let (silent, cut) = (connect(&server), connect(&server));
    (&cut).write_all(b"GET /metrics HTT").unwrap();
    assert_eq!((rest(&silent), rest(&cut)), (String::new(), String::new()));
}

#[test]
fn many_connections_do_not_keep_others_out() {
    let limits = HttpLimits { request: LONG, ..HttpLimits::default() };
    let server = server(limits, true);
    let connections: Vec<_> = (0..400).map(|_| connect(&server)).collect();
    for stream in connections.iter().step_by(3) {
        let _ = { stream }.write_all(b"GET /");
    }
    assert!(get(&server, "/metrics", "").0.contains("200 OK"), "served among 400 that say nothing");
    // The oldest were closed to make room; the newest are open.
    assert_eq!(rest(&connections[0]), "");
    let newest = connections.last().unwrap();
    let _ = { newest }.write_all(b"GET / HTTP/1.1\r\n\r\n");
    assert!(!rest(newest).is_empty());
}

#[test]
fn a_reader_that_stops_is_closed_and_holds_nobody_up() {
    let limits =
        HttpLimits { connections_max: 4, stalled: Duration::from_millis(100), ..HttpLimits::default() };
    let server = server(limits, false);
    let mut large = snapshot(Instant::now());
    // Some 16 MB, more than socket buffers hold.
    let queue = large.queues[0].clone();
    large.queues = vec![queue; 100_000];
    server.snapshot.store(Some(Arc::new(large)));
    let stopped: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    for stream in &stopped {
        { stream }.write_all(b"GET /snapshot.json HTTP/1.1\r\n\r\n").unwrap();
    }
    assert!(get(&server, "/", "").0.contains("200 OK"));
    std::thread::sleep(Duration::from_millis(400));
    for stream in &stopped {
        let came = rest(stream);
        let wanted = came.split_once("Content-Length: ").unwrap().1.split("\r\n").next().unwrap().to_owned();
        assert!(came.len() < wanted.parse().unwrap(), "it was cut");
    }
}

#[test]
fn a_port_that_is_taken_is_an_error_and_ended_servers_free_theirs() {
    let first = server(HttpLimits::default(), true);
    let address = first.address();
    let again = || MetricsServer::start(address, HttpLimits::default());
    assert_eq!(again().unwrap_err().kind(), ErrorKind::AddrInUse);
    drop(first);
    again().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_get_an_answer_or_are_closed(
        bytes in prop::collection::vec(any::<u8>(), 1..600),
        has_begun in any::<bool>(),
    ) {
        let limits = HttpLimits { request: Duration::from_millis(20), ..HttpLimits::default() };
        let server = server(limits, true);
        let begin: &[u8] = if has_begun { b"GET /metrics HTTP/1.1\r\n" } else { b"" };
        let answer = ask(&server, [begin, &bytes].concat());
        prop_assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{}", answer);
        prop_assert!(get(&server, "/metrics", "").0.contains("200 OK"));
    }
}
