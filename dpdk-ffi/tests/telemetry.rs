//! Our own commands, requested over DPDK's telemetry socket.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::io::{Read, Write};
use std::path::PathBuf;

use dpdk_ffi::{DpdkError, telemetry, testing};
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

/// The socket of this process's EAL; `testing.rs` chose its file prefix.
fn socket_path() -> Option<PathBuf> {
    let prefix = format!("fwd-test-{}", std::process::id());
    let runtime = std::env::var("XDG_RUNTIME_DIR").unwrap_or_default();
    ["/var/run/dpdk".into(), format!("{runtime}/dpdk"), "/tmp/dpdk".into()]
        .iter()
        .map(|folder| PathBuf::from(folder).join(&prefix).join("dpdk_telemetry.v2"))
        .find(|path| path.exists())
}

struct Client {
    socket: Socket,
}

impl Client {
    fn connect() -> Option<Client> {
        let Some(path) = socket_path() else {
            testing::skip("dpdk", "EAL opened no telemetry socket here");
            return None;
        };
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        socket.connect(&SockAddr::unix(path).unwrap()).unwrap();
        let mut client = Client { socket };
        assert!(client.receive()["version"].is_string(), "DPDK greets first");
        Some(client)
    }

    fn receive(&mut self) -> Value {
        let mut answer = vec![0; 1 << 16];
        let len = self.socket.read(&mut answer).unwrap();
        serde_json::from_slice(&answer[..len]).unwrap()
    }

    fn ask(&mut self, request: &str) -> Value {
        self.socket.write_all(request.as_bytes()).unwrap();
        let command = request.split(',').next().unwrap();
        self.receive()[command].take()
    }
}

#[test]
fn commands_answer_trees_texts_and_survive_their_handlers() {
    let Some(eal) = testing::eal_with(&[]) else { return };
    let stats = json!({
        "rx": 12_u64, "big": u64::MAX, "engine": "bloom", "rate": 1.5, "on": true,
        "drops": { "no_route": 3_u64, "malformed": 0_u64 }, "ports": [1_u64, 2_u64], "names": ["a", "b"],
    });
    let answer = stats.clone();
    let _stats = telemetry::register(eal, "/fwd/stats", "Counters.", move |_| answer.clone()).unwrap();
    let _echo =
        telemetry::register(eal, "/fwd/echo", "Gives back what it got.", |args| json!({ "args": args }))
            .unwrap();
    let _panics = telemetry::register(eal, "/fwd/panics", "Panics.", |_| panic!("on purpose")).unwrap();
    let wide: serde_json::Map<_, _> = (0..300).map(|i| (format!("field{i}"), json!(i))).collect();
    let wide = Value::Object(wide);
    let answer = wide.clone();
    let _wide =
        telemetry::register(eal, "/fwd/wide", "More fields than DPDK's tree holds.", move |_| answer.clone())
            .unwrap();

    let again = telemetry::register(eal, "/fwd/stats", "Counters.", |_| Value::Null).err();
    assert!(matches!(again, Some(DpdkError::NamedCall { errno: 17, .. })), "{again:?}");
    for wrong in ["no-slash", &format!("/{}", "x".repeat(80))] {
        let refused = telemetry::register(eal, wrong, "", |_| Value::Null).err();
        assert!(matches!(refused, Some(DpdkError::NamedCall { .. })), "{wrong}: {refused:?}");
    }

    let Some(mut client) = Client::connect() else { return };
    let listed = client.ask("/");
    assert!(listed.as_array().unwrap().contains(&json!("/fwd/stats")), "{listed}");
    let got = client.ask("/fwd/stats");
    for key in ["rx", "big", "engine", "drops", "ports", "names"] {
        assert_eq!(got[key], stats[key], "{key} of {got}");
    }
    assert_eq!(
        (&got["rate"], &got["on"]),
        (&json!("1.5"), &json!("true")),
        "a type that DPDK's tree lacks becomes a string"
    );
    assert_eq!(client.ask("/fwd/echo,one,two"), json!({ "args": "one,two" }));
    assert_eq!(client.ask("/fwd/echo"), json!({ "args": "" }));
    let panicked = client.ask("/fwd/panics");
    assert!(panicked["error"].as_str().unwrap().contains("panicked"), "{panicked}");
    let text = client.ask("/fwd/wide");
    let told: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(told, wide, "the whole answer as one text");

    let gone = telemetry::register(eal, "/fwd/brief", "Comes and goes.", |_| json!({ "n": 1_u64 })).unwrap();
    assert_eq!(client.ask("/fwd/brief"), json!({ "n": 1_u64 }));
    drop(gone);
    assert!(client.ask("/fwd/brief")["error"].is_string());
    let _back = telemetry::register(eal, "/fwd/brief", "Comes and goes.", |_| json!({ "n": 2_u64 })).unwrap();
    assert_eq!(client.ask("/fwd/brief"), json!({ "n": 2_u64 }));
}
