//! `show rates` of a running forwarder agrees with its counters.

use crate::forwarder::{Steered, endless_mix};
use crate::support::{bundled, number};
use serde_json::Value;
use std::time::{Duration, Instant};

fn rate(rates: &Value, path: &str) -> f64 {
    rates.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no rate {path}: {rates}"))
}

fn two_in_a_row(forwarder: &Steered) -> [Value; 2] {
    let (end, mut before) = (Instant::now() + Duration::from_secs(60), Value::Null);
    while Instant::now() < end {
        let rates = forwarder.ask("show rates");
        let seconds = |of: &Value, key: &str| of[key].as_f64();
        if let (Some(then), Some(now), Some(last)) =
            (seconds(&before, "seconds_10s"), seconds(&rates, "seconds_10s"), seconds(&rates, "seconds_1s"))
            && (now - then - last).abs() < 1e-6
        {
            return [before, rates];
        }
        before = rates;
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no samples in a row: {before}");
}

/// Whether `rate` is `count` in this many seconds. Both are of the same samples, so the comparison is exact.
fn is_exact(rate: f64, count: u64, seconds: f64) -> bool {
    let count = f64::from(u32::try_from(count).unwrap());
    (rate * seconds - count).abs() <= 1e-6 * count.max(1.0)
}

#[test]
fn rates_are_what_the_counters_say_and_end_with_the_packets() {
    for (topology, name) in [("run-to-completion", "rates"), ("pipeline", "rates-pipeline")] {
        let scratch = tempfile::tempdir().unwrap();
        let table = bundled("routes.txt");
        let vrf_fib = format!("red={}", table.display());
        let extra = ["--topology", topology, "--vrf", "red=0", "--vrf-fib", &vrf_fib];
        let Some(forwarder) = Steered::run_with(scratch.path(), name, &endless_mix(), &extra) else { return };
        let [before, now] = two_in_a_row(&forwarder);
        let grown = |path: &str| number(&now, path) - number(&before, path);
        let seconds = rate(&now, "/seconds_1s");
        let of_port = rate(&now, "/ports/0/seconds_1s");
        let rx = rate(&now, "/ports/0/rx_pps_1s");
        assert!(rx > 0.0 && is_exact(rx, grown("/ports/0/rx"), of_port), "{before} {now}");
        let tx = rate(&now, "/ports/1/tx_pps_1s");
        let of_port = rate(&now, "/ports/1/seconds_1s");
        assert!(tx > 0.0 && is_exact(tx, grown("/ports/1/tx"), of_port), "{before} {now}");
        assert!(rate(&now, "/ports/0/rx_bps_1s") > rx * 8.0 * 60.0, "{now}");
        let lcore = rate(&now, "/lcores/0/rx_pps_1s");
        assert!(lcore > 0.0 && is_exact(lcore, grown("/lcores/0/rx"), seconds), "{before} {now}");
        assert!((0.01..=1.0).contains(&rate(&now, "/lcores/0/busy_1s")), "{now}");
        assert_eq!((&now["vrfs"][0]["name"], &now["vrfs"][1]["name"]), (&"default".into(), &"red".into()));
        let red = rate(&now, "/vrfs/1/rx_pps_1s");
        assert!(red > 0.0 && is_exact(red, grown("/vrfs/1/rx"), seconds), "{before} {now}");
        assert_eq!((number(&now, "/vrfs/0/rx"), rate(&now, "/vrfs/0/rx_pps_10s")), (0, 0.0));
        assert!(rate(&now, "/drops_1s/no_route") > 0.0, "{now}");

        forwarder.ask("stop");
        forwarder.ask_until("show rates", |rates| {
            [
                "/ports/0/rx_pps_1s",
                "/ports/1/tx_pps_1s",
                "/lcores/0/busy_1s",
                "/vrfs/1/rx_pps_1s",
                "/drops_1s/no_route",
            ]
            .iter()
            .all(|path| rate(rates, path) == 0.0)
        });
        let ended = forwarder.ask("show rates");
        assert!(rate(&ended, "/ports/0/rx_pps_10s") > 0.0, "{ended}");
        assert_eq!(number(&ended, "/vrfs/1/rx"), number(&ended, "/rx"));
        let stats = forwarder.ask("show stats");
        assert_eq!(number(&ended, "/vrfs/1/rx_bytes"), number(&stats, "/packets/rx_bytes"));
        forwarder.end();
    }
}

#[test]
fn a_paced_replay_has_the_rates_of_its_rings() {
    let scratch = tempfile::tempdir().unwrap();
    let Some(forwarder) = Steered::replay(scratch.path(), &[]) else { return };
    let [before, now] = two_in_a_row(&forwarder);
    let grown = number(&now, "/ports/0/rx") - number(&before, "/ports/0/rx");
    let seconds = rate(&now, "/ports/0/seconds_1s");
    assert!(is_exact(rate(&now, "/ports/0/rx_pps_1s"), grown, seconds) && grown > 0, "{before} {now}");
    let [port, vrf] = ["/ports/0/rx_pps_10s", "/vrfs/0/rx_pps_10s"].map(|path| rate(&now, path));
    assert!(port > 0.0 && vrf > 0.0, "{now}");
    // Cleared counters restart: no rate is computed from a counter that decreased.
    forwarder.ask("clear port stats 0");
    forwarder.ask_until("show rates", |rates| rates["ports"][0]["rx_pps_1s"].is_null());
    forwarder.ask_until("show rates", |rates| rates["ports"][0]["rx_pps_1s"].as_f64() > Some(0.0));
    forwarder.end();
}
