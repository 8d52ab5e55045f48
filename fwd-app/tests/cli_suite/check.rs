//! `check` on the host of the tests: text, JSON and exit code agree on any host.

use crate::support::fwd;
use serde_json::Value;

#[test]
fn text_json_and_exit_code_agree() {
    let out = fwd(&["check", "--json"]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap();
    let items = report["items"].as_array().unwrap();
    let fails = items.iter().filter(|item| item["status"] == "FAIL").count();
    assert_eq!(report["ready"], fails == 0);
    assert_eq!(out.code, i32::from(fails > 0), "{}", out.stderr);
    for item in items {
        assert_eq!(item["hint"].is_null(), item["status"] == "OK", "{item}");
    }
    let text = fwd(&["check"]).stdout;
    for item in items {
        let (status, name) = (item["status"].as_str().unwrap(), item["name"].as_str().unwrap());
        let has = |line: &str| line.starts_with(status) && line.contains(name);
        assert!(text.lines().any(has), "no {status} {name} in\n{text}");
    }
}

#[test]
fn a_table_beyond_all_memory_is_not_ready() {
    let out = fwd(&["check", "--routes", "1000000000000000"]).fails(1, &["not ready", "memory"]);
    assert!(out.stdout.lines().any(|line| line.starts_with("FAIL  memory")), "{}", out.stdout);
}
