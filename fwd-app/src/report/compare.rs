//! Compares two summaries: an older one from a file, and the current one.
//!
//! Only numbers of the same work are compared: the same routes and packets, offered the same way. Other differences, such as engine, batch
//! or host, are the subject of the comparison and are listed.

use super::columns::Columns;
use super::output::SCHEMA;
use anyhow::{Context as _, bail};
use fib::units::time_text;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

const WORK: &str = "/ran/work";
const HASHES: [&str; 2] = ["table_hash", "trace_hash"];
/// Settings that may differ between runs of the same work, and are listed if they do; objects are compared key by key.
const SETTINGS: [&str; 10] = [
    "/version",
    "/ran/commit",
    "/ran/is_optimized",
    "/ran/seeds",
    "/engine/name",
    "/engine/isa",
    "/engine/routes_v4",
    "/engine/routes_v6",
    "/setup",
    "/ran/host",
];
const VOLATILE: [&str; 3] = ["clock_ghz_estimated", "huge_pages_free", "load_average"];
const RATES: [(&str, &str); 4] = [
    ("/rate/mpps", "Mpps"),
    ("/rate/gbps", "Gbit/s (L2)"),
    ("/rate/gbps_l1", "Gbit/s (L1)"),
    ("/rate/mpps_busy", "Mpps a busy lcore"),
];
const LATENCIES: [(&str, &str); 8] = [
    ("min", "min"),
    ("p50", "p50"),
    ("p90", "p90"),
    ("p99", "p99"),
    ("p99_9", "p99.9"),
    ("p99_99", "p99.99"),
    ("max", "max"),
    ("mean", "mean"),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is not comparable, its work is different: {differences}")]
pub(crate) struct DifferentWork {
    file: String,
    differences: String,
}

#[derive(Clone, Debug)]
pub(crate) struct ReportFile {
    file: String,
    value: Value,
}

impl ReportFile {
    /// Reads the report that `--json` wrote to `path`.
    ///
    /// # Errors
    /// When it cannot be read, or is not such a report.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read(path).with_context(|| format!("cannot read {file}"))?;
        let wanted = format!("wanted a report of run or replay, as --json writes it, of schema {SCHEMA}");
        let value: Value =
            serde_json::from_slice(&text).with_context(|| format!("{file}: {wanted}; it is not JSON"))?;
        let [kind, schema] = ["kind", "schema"].map(|key| &value[key]);
        if kind != "report" || *schema != SCHEMA {
            bail!("{file}: {wanted}; its kind is {kind} and its schema {schema}");
        }
        if value.pointer(WORK).is_none_or(|work| !work.is_object()) {
            let version = &value["version"];
            bail!("{file}: {wanted}, with {WORK}; version {version} wrote it without; run it again");
        }
        Ok(Self { file, value })
    }

    pub(crate) fn work(&self) -> &Value {
        self.value.pointer(WORK).unwrap_or(&Value::Null)
    }

    pub(crate) const fn value(&self) -> &Value {
        &self.value
    }

    /// Checks that its work equals `work`; null entries of `work` match anything.
    ///
    /// # Errors
    /// [`DifferentWork`], with every difference.
    pub(crate) fn check(&self, work: &Value) -> Result<(), DifferentWork> {
        let differences = differences("", self.work(), work);
        let is_unknown = |key: &str| work.get(key).is_some_and(Value::is_null);
        let known = differences.iter().filter(|difference| !is_unknown(&difference.what));
        let one = |Difference { what, old, new }: &Difference| format!("{what} was {old}, now {new}");
        let differences: Vec<_> = known.map(one).collect();
        if differences.is_empty() {
            return Ok(());
        }
        Err(DifferentWork { file: self.file.clone(), differences: differences.join("; ") })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    what: String,
    /// In the older report; `null` if absent.
    old: Value,
    new: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ComparedNumber {
    name: String,
    unit: &'static str,
    /// In the older report; `null` if absent.
    old: Option<f64>,
    new: Option<f64>,
    ratio: Option<f64>,
    /// Both were measured several times and their ranges do not overlap; `None` for single runs.
    beyond_spread: Option<bool>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    with: String,
    started: Value,
    /// Hashes that one report lacks, so that this part of the work cannot be compared.
    not_known: Vec<&'static str>,
    differences: Vec<Difference>,
    numbers: Vec<ComparedNumber>,
}

impl Comparison {
    pub(crate) fn new(old: &ReportFile, new: &Value) -> Self {
        let (file, old) = (&old.file, &old.value);
        let setting = |pointer: &&str| {
            let of = |report: &Value| report.pointer(pointer).cloned().unwrap_or_default();
            differences(pointer.trim_start_matches('/'), &of(old), &of(new))
        };
        let mut differences: Vec<_> = SETTINGS.iter().flat_map(setting).collect();
        differences.retain(|difference| !VOLATILE.iter().any(|key| difference.what.ends_with(key)));
        let started = old.pointer("/ran/started").cloned().unwrap_or_default();
        let is_known = |key: &&str| {
            let has = |report: &Value| report.pointer(WORK).is_some_and(|work| work[key].is_string());
            has(old) && has(new)
        };
        let not_known = HASHES.into_iter().filter(|key| !is_known(key)).collect();
        Self { with: file.clone(), started, not_known, differences, numbers: numbers(old, new) }
    }
}

/// The differing keys of two objects, with the prefix `what`; for other values, the values if they differ.
fn differences(what: &str, old: &Value, new: &Value) -> Vec<Difference> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        let difference = || Difference { what: what.replace('/', "."), old: old.clone(), new: new.clone() };
        return (old != new).then(difference).into_iter().collect();
    };
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let one = |key: &String| {
        let of = |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or_default();
        let what = if what.is_empty() { key.clone() } else { format!("{what}.{key}") };
        differences(&what, &of(before), &of(after))
    };
    keys.into_iter().flat_map(one).collect()
}

#[derive(Default)]
struct Pairs(Vec<ComparedNumber>);

impl Pairs {
    fn add(&mut self, name: impl Into<String>, unit: &'static str, old: Option<f64>, new: Option<f64>) {
        if old.is_some() || new.is_some() {
            let ratio = old.zip(new).filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old);
            self.0.push(ComparedNumber { name: name.into(), unit, old, new, ratio, beyond_spread: None });
        }
    }

    fn search(&mut self, loss: &str, old: &Value, new: &Value) {
        let of = |goal: &Value, key: &str| goal[key].as_f64().map(|pps| pps / 1e6);
        let [before, after] = [old, new].map(|goal| of(goal, "rate_pps"));
        let loss = loss.parse::<f64>().map_or_else(|_| loss.to_owned(), |loss| format!("{} %", loss * 100.0));
        self.add(format!("Mpps with a loss of {loss}"), "", before, after);
        let found = |goal: &Value| goal["conditional_throughput_pps"].as_array().map_or(0, Vec::len);
        let spread =
            |goal: &Value| of(goal, "rate_min_pps").zip(of(goal, "rate_max_pps")).filter(|_| found(goal) > 1);
        if let (Some(added), Some((old, new))) = (self.0.last_mut(), spread(old).zip(spread(new))) {
            added.beyond_spread = Some(old.1 < new.0 || new.1 < old.0);
        }
    }

    /// Adds latency percentiles if both reports measured the same; `of` completes their names.
    fn latencies(&mut self, keys: &[(&str, &str)], of: &str, old: &Value, new: &Value) {
        let there = |latency: &Value| latency["count"].as_u64().is_some_and(|count| count > 0);
        if !there(old) || !there(new) || old["measured"] != new["measured"] {
            return;
        }
        for (key, name) in keys {
            self.add(format!("{name}{of}"), "ns", old[key].as_f64(), new[key].as_f64());
        }
    }
}

fn numbers(old: &Value, new: &Value) -> Vec<ComparedNumber> {
    let at = |report: &Value, pointer: &str| report.pointer(pointer).and_then(Value::as_f64);
    let mut pairs = Pairs::default();
    for (pointer, name) in RATES {
        pairs.add(name, "", at(old, pointer), at(new, pointer));
    }
    for (loss, old, new) in both(&old["search"], &new["search"], "goals", "loss") {
        pairs.search(&loss, old, new);
    }
    for (stage, old, new) in both(old, new, "stages", "name") {
        let cycles = |stage: &Value| stage["cycles_per_packet"].as_f64();
        pairs.add(format!("cycles {}", stage.trim_matches('"')), "", cycles(old), cycles(new));
    }
    for reason in reasons(old).union(&reasons(new)) {
        let share = |report: &Value| {
            let drops = at(report, &format!("/packets/drops/{reason}"))?;
            at(report, "/packets/rx").filter(|rx| *rx > 0.0).map(|rx| drops * 100.0 / rx)
        };
        pairs.add(format!("drop {reason}"), "%", share(old), share(new));
    }
    pairs.latencies(&LATENCIES, "", &old["latency_ns"], &new["latency_ns"]);
    let some = [LATENCIES[1], LATENCIES[3]];
    for (bytes, old, new) in both(old, new, "latency_by_size", "bytes_max") {
        let of = if bytes == "null" { ", longer frames".into() } else { format!(", frames to {bytes} B") };
        pairs.latencies(&some, &of, &old["latency_ns"], &new["latency_ns"]);
    }
    for (percent, old, new) in both(old, new, "curve", "percent") {
        let of = format!(" at {} %", percent.trim_end_matches(".0"));
        pairs.latencies(&some, &of, &old["latency_ns"], &new["latency_ns"]);
    }
    pairs.0
}

fn reasons(report: &Value) -> BTreeSet<&String> {
    let drops = report.pointer("/packets/drops").and_then(Value::as_object);
    let some = drops.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    some.map(|(reason, _)| reason).collect()
}

/// Pairs the entries of `list` in two reports by `key`, in the order of the newer one, with the key as text. A missing entry is null.
fn both<'a>(old: &'a Value, new: &'a Value, list: &str, key: &str) -> Vec<(String, &'a Value, &'a Value)> {
    let entries = |report: &'a Value| report[list].as_array().map_or(&[][..], Vec::as_slice);
    let find = |entries: &'a [Value], wanted: &Value| entries.iter().find(|entry| entry[key] == *wanted);
    let gone = entries(old).iter().filter(|entry| find(entries(new), &entry[key]).is_none());
    let all = entries(new).iter().chain(gone);
    all.map(|entry| {
        let of = |report| find(entries(report), &entry[key]).unwrap_or(&Value::Null);
        (entry[key].to_string(), of(old), of(new))
    })
    .collect()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started = self.started.as_str().unwrap_or("an unknown time");
        writeln!(f, "compared with {}, of {started}", self.with)?;
        for key in &self.not_known {
            writeln!(f, "  {key} is missing in one report: this part of the work was not compared")?;
        }
        for Difference { what, old, new } in &self.differences {
            writeln!(f, "  other  {what}: {old}, now {new}")?;
        }
        let mut rows = Columns::new(["", "old", "new", "new/old", ""]);
        for ComparedNumber { name, unit, old, new, ratio, beyond_spread } in &self.numbers {
            let number =
                |value: &Option<f64>| value.map_or_else(|| "-".to_owned(), |value| text(value, unit));
            let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            let name =
                if unit.is_empty() || *unit == "ns" { name.clone() } else { format!("{name}, {unit}") };
            let spread = match beyond_spread {
                Some(true) => "beyond the spread of both",
                Some(false) => "within the spread",
                None => "",
            };
            rows.row([name, number(old), number(new), ratio, spread.to_owned()]);
        }
        rows.fmt(f)?;
        let is_once = self.numbers.iter().all(|number| number.beyond_spread.is_none());
        let which = if is_once { "Each column" } else { "Each number without a spread" };
        writeln!(
            f,
            "{which} is from one run: a small difference may be noise. Run both several times, in turn."
        )
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a latency is not negative")]
fn text(value: f64, unit: &str) -> String {
    if unit == "ns" { time_text(value.round() as u64) } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(mpps: f64, more: &Value) -> Value {
        let mut report = json!({
            "schema": SCHEMA, "kind": "report", "version": "0.1.0",
            "ran": { "work": { "table_hash": "aa", "trace_hash": "bb", "rate": "max" }, "started": "2026-01-01T00:00:00Z" },
            "rate": { "mpps": mpps, "gbps": 1.0 },
            "packets": { "rx": 1000, "drops": { "no_route": 10, "martian": 0 } },
            "stages": [{ "name": "parse", "cycles_per_packet": 10.0 }, { "name": "rx", "cycles_per_packet": 5.0 }],
            "latency_ns": { "p50": 1000, "p99": 2000, "count": 9, "measured": "rx to tx" },
            "engine": { "name": "host" },
        });
        let more = more.as_object().unwrap().clone();
        report.as_object_mut().unwrap().extend(more);
        report
    }

    fn file(value: Value) -> ReportFile {
        ReportFile { file: "old.json".into(), value }
    }

    fn number<'a>(comparison: &'a Comparison, name: &str) -> &'a ComparedNumber {
        comparison.numbers.iter().find(|number| number.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn numbers_stand_beside_each_other_with_their_ratio() {
        let new = json!({
            "engine": { "name": "bloom" },
            "packets": { "rx": 2000, "drops": { "no_route": 10, "martian": 40 } },
            "stages": [{ "name": "parse", "cycles_per_packet": 15.0 }, { "name": "tx", "cycles_per_packet": 1.0 }],
        });
        let comparison = Comparison::new(&file(report(2.0, &json!({}))), &report(3.0, &new));
        let ratio = |name| number(&comparison, name).ratio;
        assert_eq!((ratio("Mpps"), ratio("cycles parse"), ratio("p99")), (Some(1.5), Some(1.5), Some(1.0)));
        assert_eq!((ratio("drop no_route"), ratio("drop martian")), (Some(0.5), None));
        let (rx, tx) = (number(&comparison, "cycles rx"), number(&comparison, "cycles tx"));
        assert_eq!((rx.old, rx.new, tx.old, tx.new), (Some(5.0), None, None, Some(1.0)));
        let other = Difference { what: "engine.name".into(), old: json!("host"), new: json!("bloom") };
        assert_eq!(comparison.differences, [other]);
        assert_eq!(comparison.not_known, [""; 0]);
        let streamed = json!({ "ran": { "work": { "table_hash": "aa", "trace_hash": null } } });
        let comparison = Comparison::new(&file(report(2.0, &json!({}))), &report(3.0, &streamed));
        assert_eq!(comparison.not_known, ["trace_hash"]);
        assert!(comparison.to_string().contains("trace_hash is missing in one report"));
        let comparison = Comparison::new(&file(report(2.0, &json!({}))), &report(3.0, &new));
        let text = comparison.to_string();
        for part in
            ["old.json", "engine.name: \"host\", now \"bloom\"", "new/old", "2.000", "is from one run"]
        {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn latencies_are_compared_by_size_and_load_where_both_measured_the_same() {
        let of = |p50: u64, measured: &str| json!({ "p50": p50, "p99": 2 * p50, "count": 1, "measured": measured });
        let lists = |p50: u64| {
            json!({
                "latency_by_size": [
                    { "bytes_max": 64, "latency_ns": of(p50, "x") }, { "bytes_max": null, "latency_ns": of(p50, "x") },
                ],
                "curve": [{ "percent": 10.0, "latency_ns": of(p50, "x") }],
                "latency_ns": of(p50, if p50 == 1 { "x" } else { "y" }),
            })
        };
        let comparison = Comparison::new(&file(report(1.0, &lists(1))), &report(1.0, &lists(3)));
        for name in ["p50, frames to 64 B", "p99, longer frames", "p99 at 10 %"] {
            assert_eq!(number(&comparison, name).ratio, Some(3.0), "{name}");
        }
        assert!(comparison.numbers.iter().all(|number| number.name != "p50"), "they measured other times");
    }

    #[test]
    fn rates_that_were_found_several_times_have_a_spread() {
        let goal = |loss: f64, pps: [f64; 3]| {
            json!({
                "loss": loss, "rate_min_pps": pps[0], "rate_pps": pps[1], "rate_max_pps": pps[2], "conditional_throughput_pps": pps,
            })
        };
        let once = json!({ "loss": 0.5, "rate_pps": 1e6, "rate_min_pps": 1e6, "rate_max_pps": 1e6, "conditional_throughput_pps": [1e6] });
        let search =
            |strict, loose| json!({ "search": { "goals": [goal(0.0, strict), goal(0.01, loose), once] } });
        let old = report(1.0, &search([1e6, 1.1e6, 1.2e6], [2e6, 2.1e6, 2.3e6]));
        let new = report(1.0, &search([1.3e6, 1.4e6, 1.5e6], [2.2e6, 2.3e6, 2.4e6]));
        let comparison = Comparison::new(&file(old), &new);
        let spread = |loss| number(&comparison, &format!("Mpps with a loss of {loss} %")).beyond_spread;
        assert_eq!([spread("0"), spread("1"), spread("50")], [Some(true), Some(false), None]);
        assert_eq!(number(&comparison, "p99").beyond_spread, None);
        let text = comparison.to_string();
        assert!(
            text.contains("beyond the spread of both") && text.contains("Each number without a spread"),
            "{text}"
        );
    }

    #[test]
    fn other_work_is_refused_with_all_that_differs() {
        let old = file(report(1.0, &json!({})));
        assert_eq!(old.check(&json!({ "table_hash": "aa", "trace_hash": "bb", "rate": "max" })), Ok(()));
        // Values unknown before the end may match.
        assert_eq!(old.check(&json!({ "table_hash": "aa", "trace_hash": null, "rate": "max" })), Ok(()));
        let error =
            old.check(&json!({ "table_hash": "cc", "trace_hash": "bb", "rate": "max", "sizes": [64] }));
        assert_eq!(
            error.unwrap_err().to_string(),
            "old.json is not comparable, its work is different: sizes was null, now [64]; table_hash was \"aa\", \
             now \"cc\""
        );
    }

    #[test]
    fn what_is_no_report_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.json");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", ReportFile::read(&path).unwrap_err())
        };
        let without_work = json!({ "schema": SCHEMA, "kind": "report", "version": "0.0.9" }).to_string();
        for (text, part) in [
            ("x", "it is not JSON"),
            ("{}", "its kind is null"),
            (r#"{"schema":99,"kind":"report"}"#, "its schema 99"),
            (r#"{"schema":1,"kind":"snapshot"}"#, "its kind is \"snapshot\""),
            (&without_work, "version \"0.0.9\" wrote it without"),
        ] {
            let error = error(text);
            assert!(error.contains(part) && error.contains("old.json"), "{text}: {error}");
            assert!(error.contains("wanted a report of run or replay"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(format!("{:#}", ReportFile::read(&path).unwrap_err()).starts_with("cannot read "));
        std::fs::write(&path, report(1.0, &json!({})).to_string()).unwrap();
        assert_eq!(ReportFile::read(&path).unwrap().work()["rate"], "max");
    }
}
