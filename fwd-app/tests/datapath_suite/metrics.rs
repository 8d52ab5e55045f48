//! `--metrics` of a running forwarder agrees with `ctl`.

use crate::forwarder::{Steered, endless_mix};
use crate::support::{fwd_app, number, stderr};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

fn sample(text: &str, name: &str) -> u64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in:\n{text}")).parse().unwrap()
}

fn until<T>(what: &str, ask: impl Fn() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = ask();
        if is_wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn metrics_and_page_have_what_ctl_shows() {
    let (scratch, address) = (tempfile::tempdir().unwrap(), free_address());
    let extra = ["--metrics", &address.to_string()];
    let Some(forwarder) = Steered::run_with(scratch.path(), "metrics", &endless_mix(), &extra) else {
        return;
    };
    let metrics = || get(address, "/metrics");
    let first = until("packets", metrics, |text| {
        text.contains("fwd_rx_packets_total") && sample(text, "fwd_rx_packets_total") > 0
    });
    assert!(first.contains("fwd_build_info{version=\"") && first.contains("fwd_engine_info{vrf=\"default\""));

    forwarder.ask("stop");
    forwarder.ask_until("show rates", |rates| rates["ports"][0]["rx_pps_1s"].as_f64() == Some(0.0));
    let stats = forwarder.ask("show stats");
    let rx = number(&stats, "/packets/rx");
    let text = until("the last packet", metrics, |text| sample(text, "fwd_rx_packets_total") == rx);
    for (name, path) in [
        ("fwd_tx_packets_total", "/packets/tx"),
        ("fwd_rx_bytes_total", "/packets/rx_bytes"),
        ("fwd_drops_total{reason=\"no_route\"}", "/packets/drops/no_route"),
        ("fwd_drops_total{reason=\"ttl_expired\"}", "/packets/drops/ttl_expired"),
        ("fwd_port_rx_packets_total{port=\"0\",name=\"net_pcap0\"}", "/ports/0/rx"),
        ("fwd_port_tx_bytes_total{port=\"1\",name=\"net_null1\"}", "/ports/1/tx_bytes"),
        ("fwd_engine_table_bytes{vrf=\"default\"}", "/engine/table_bytes"),
        ("fwd_engine_generation{vrf=\"default\"}", "/engine/generation"),
    ] {
        assert_eq!(sample(&text, name), number(&stats, path), "{name}");
    }
    assert_eq!(
        (sample(&text, "fwd_paused"), sample(&text, "fwd_port_up{port=\"0\",name=\"net_pcap0\"}")),
        (1, 1)
    );

    // Latencies are collected from the lcores every few seconds, independently of `ctl`.
    let sent = number(&forwarder.ask("show latency"), "/count");
    let text = until("latencies", metrics, |text| {
        text.contains("fwd_latency_seconds") && sample(text, "fwd_latency_seconds_count") == sent
    });
    assert!(sent > 0 && sample(&text, "fwd_latency_seconds_bucket{le=\"+Inf\"}") == sent, "{text}");

    let json: Value = serde_json::from_str(&get(address, "/snapshot.json")).unwrap();
    let stats = forwarder.ask("show stats");
    assert_eq!((&json["packets"], &json["engine"]["name"]), (&stats["packets"], &stats["engine"]["name"]));
    assert_eq!((&json["latency_ns"], &json["vrfs"]), (&stats["latency_ns"], &forwarder.ask("show vrfs")));
    let (rates, shown) = (&json["rates"]["ports"], forwarder.ask("show rates"));
    assert_eq!((&rates[0]["rx"], &rates[0]["name"]), (&shown["ports"][0]["rx"], &shown["ports"][0]["name"]));
    assert!(get(address, "/").starts_with("<!doctype html>"));

    let taken = fwd_app(&["run", "--fib", "/dev/null", "--metrics", &address.to_string()]).output().unwrap();
    assert_eq!(taken.status.code(), Some(2), "{}", stderr(&taken));
    assert!(
        stderr(&taken).contains(&format!("--metrics: cannot listen on {address}: ")),
        "{}",
        stderr(&taken)
    );
    let (summary, text) = forwarder.end();
    assert_eq!(number(&summary, "/latency_ns/count"), number(&summary, "/packets/tx"), "none is lost");
    assert!(text.contains(&format!("metrics  http://{address}/\n")), "{text}");
    assert!(TcpStream::connect(address).is_err(), "it has ended");
}
