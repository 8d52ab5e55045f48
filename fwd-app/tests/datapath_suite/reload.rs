//! Reload while packets flow: an MTU, and refused changes.

use crate::forwarder::Steered;
use crate::support::{number, sum_v4, v4_frame, write_pcap};
use serde_json::Value;
use std::path::Path;

fn configure(folder: &Path, mtu: Option<u16>) {
    let mtu = mtu.map_or(String::new(), |mtu| format!("mtu = {mtu}\n"));
    let port = |device: &str, more: &str| format!("[[port]]\ndevice = \"{device}\"\n{more}");
    let fib = format!("[sources]\nfib = \"{}\"\n", folder.join("routes.txt").display());
    let text = format!("{}{}{fib}", port("net_pcap0", ""), port("net_null1", &mtu));
    std::fs::write(folder.join("edge.toml"), text).unwrap();
}

/// From a reply to `show stats`: packets dropped as too long, packets sent, and fragments.
fn figures(stats: &Value) -> (u64, u64, u64) {
    let count = |name: &str| number(stats, &format!("/packets/{name}"));
    (count("drops/mtu_exceeded"), count("tx"), count("originated"))
}

/// Waits until more packets have been sent. Returns the packets dropped as too long meanwhile, and the fragments.
fn after_a_while(forwarder: &Steered) -> (u64, u64) {
    let before = figures(&forwarder.ask("show stats"));
    forwarder.ask_until("show stats", |stats| figures(stats).1 > before.1 + 100_000);
    let after = figures(&forwarder.ask("show stats"));
    (after.0 - before.0, after.2 - before.2)
}

fn reload(forwarder: &Steered, folder: &Path, mtu: Option<u16>) -> Value {
    configure(folder, mtu);
    let answer = forwarder.ask("reload");
    // Counters of earlier batches are published soon.
    std::thread::sleep(std::time::Duration::from_millis(200));
    answer
}

#[test]
fn an_mtu_is_lowered_and_raised_while_packets_flow() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    std::fs::write(folder.join("routes.txt"), "10.0.0.0/8 2\n").unwrap();
    let trace = folder.join("trace.pcap");
    // Two of 1,400 bytes, one of which may be fragmented, and one of 1,300 bytes.
    let frame = |bytes: usize, may_fragment: bool| {
        let mut frame = v4_frame(0xc000_0201, 10 << 24 | 9, bytes + 14, &[]);
        if !may_fragment {
            frame[20] |= 0x40;
            sum_v4(&mut frame[14..]);
        }
        frame
    };
    write_pcap(&trace, &[frame(1400, false), frame(1400, true), frame(1300, false)]);
    configure(folder, None);
    let vdevs = [
        format!("net_pcap0,rx_pcap={},infinite_rx=1,tx_pcap=/dev/null", trace.display()),
        "net_null1,no-rx=1".to_owned(),
    ];
    let file = folder.join("edge.toml");
    let Some(forwarder) =
        Steered::over(folder, "reload-mtu", &["--config-file", file.to_str().unwrap()], &vdevs)
    else {
        return;
    };
    let mtu = |forwarder: &Steered| number(&forwarder.ask("show port info 1")[0], "/mtu_bytes");
    assert_eq!((after_a_while(&forwarder), mtu(&forwarder)), ((0, 0), 1500));

    let answer = reload(&forwarder, folder, Some(1350));
    assert_eq!(
        (&answer["applied"], &answer["restart"]),
        (&serde_json::json!(["port.net_null1.mtu"]), &serde_json::json!([]))
    );
    let (too_long, fragments) = after_a_while(&forwarder);
    assert!(too_long > 1000 && fragments > 1000, "{too_long} {fragments}");
    assert_eq!(mtu(&forwarder), 1350);
    let shown = forwarder.ask("show config");
    assert_eq!(shown["values"]["port.net_null1.mtu"], 1350);
    assert!(shown["origins"]["port.net_null1.mtu"].as_str().unwrap().ends_with("edge.toml:5"), "{shown}");

    configure(folder, Some(9000));
    std::fs::write(folder.join("routes.txt"), "11.0.0.0/8 2\n").unwrap();
    let why = forwarder.refuses("reload");
    assert!(why.contains("port 1 (net_null1) can get at most 2022 bytes while it runs"), "{why}");
    assert_eq!(mtu(&forwarder), 1350);
    assert_eq!(forwarder.ask("show config")["values"]["port.net_null1.mtu"], 1350);
    std::fs::write(folder.join("routes.txt"), "10.0.0.0/8 2\n").unwrap();

    for raised in [Some(1400), None] {
        reload(&forwarder, folder, raised);
        assert_eq!(after_a_while(&forwarder), (0, 0), "{raised:?}");
        assert_eq!(mtu(&forwarder), u64::from(raised.unwrap_or(1500)));
    }
    assert!(forwarder.ask("show config")["values"].get("port.net_null1.mtu").is_none());
    forwarder.end();
}
