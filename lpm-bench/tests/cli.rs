//! The program end to end: exit codes, the JSON file, and clear messages on standard error.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail as loudly as the test")]

use std::path::Path;
use std::process::{Command, Output};

fn lpm_bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lpm-bench")).args(line.split_whitespace()).output().unwrap()
}

/// Runs it over the mock driver, which it loads by preloading; cargo builds the mock next to the tests.
fn mocked(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lpm-bench"));
    command.args(line.split_whitespace()).env("LD_PRELOAD", lpm_gpu::cu::testing::library().unwrap());
    command
}

fn success(done: &Output) -> String {
    assert_eq!(done.status.code(), Some(0), "{}", stderr(done));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_lookup_run_prints_a_table_and_writes_json() {
    let folder = tempfile::tempdir().unwrap();
    let (routes, out) = (folder.path().join("routes.txt"), folder.path().join("out.json"));
    std::fs::write(&routes, "0.0.0.0/0 1\n10.0.0.0/8 2\n10.1.2.0/24 3\n10.1.2.128/25 4\n2001:db8::/32 5\n")
        .unwrap();
    let line = format!(
        "lookup --fib {} --engines oracle,bloom --keys 4K --check 1K --rounds 2 --json {}",
        routes.display(),
        out.display()
    );
    let text = success(&lpm_bench(&line));
    assert!(text.contains("Mlps") && text.contains("bloom") && text.contains("Why:"), "{text}");
    let document = json(&out);
    assert_eq!((&document["kind"], &document["routes_v4"]), (&"lookup".into(), &4.into()));
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["wrong"] == 0 && row["checked"] == 2048), "{rows:?}");
    let row = &rows[0];
    for name in ["traffic", "mlps_median", "mlps_best", "table_bytes", "build_s", "checked", "wrong"] {
        assert!(!row[name].is_null(), "{name}");
    }
    let words = ["engine", "isa", "family"].map(|name| row[name].as_str().unwrap());
    assert_eq!(words, ["oracle", "scalar", "ipv4"]);
    for name in ["/host/cpu_model", "/build/commit", "/seed", "/table_hash", "/arguments", "/refused"] {
        assert!(document.pointer(name).is_some_and(|value| !value.is_null()), "{name}");
    }
    let named = |name: &str| rows.iter().filter(|row| row["engine"] == name).count();
    assert!(named("oracle") == 6 && named("bloom") >= 6, "{rows:?}");
}

#[test]
fn threads_share_a_table_on_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let line = "lookup --generate v4=160000,v6=100000 --engines bloom:scalar,bloom-baseline,miht,coop:scalar --keys 32K --check 1K \
                --rounds 2 --threads 1,3 --table-node 0 --traffic table --json";
    let text = success(&lpm_bench(&format!("{line} {}", out.display())));
    assert!(text.contains("times the rate of 1 thread"), "{text}");
    let document = json(&out);
    let rows = document["rows"].as_array().unwrap();
    let of = |engine: &str, threads: u64| -> Vec<_> {
        let same = |row: &&serde_json::Value| row["engine"] == engine && row["threads"] == threads;
        rows.iter().filter(same).collect()
    };
    for engine in ["bloom", "bloom-baseline", "miht"] {
        let (one, three) = (of(engine, 1), of(engine, 3));
        assert_eq!((one.len(), three.len()), (2, 2), "{engine}: one per family");
        for (one, three) in one.iter().zip(three) {
            assert!(one["speedup"].is_null() && three["speedup"].as_f64() > Some(0.0), "{three}");
            assert_eq!(one["table_bytes"], three["table_bytes"]);
        }
    }
    assert_eq!((of("coop", 1).len(), of("coop", 3).len()), (2, 0), "it has threads of its own");
    for row in rows {
        assert!(row["wrong"] == 0 && row["checked"].as_u64() > Some(1000) && row["clock"] == "wall", "{row}");
        assert!(["2M", "thp", "4K"].iter().any(|pages| row["pages"] == *pages), "{row}");
    }
}

#[test]
fn json_goes_into_what_is_no_file_without_replacing_it() {
    let line =
        "lookup --generate v4=50 --engines oracle --keys 4K --check 64 --rounds 1 --traffic table --json";
    success(&lpm_bench(&format!("{line} /dev/null")));
    assert!(!Path::new("/dev/null").is_file() && !Path::new("/dev/null.part").exists());
}

#[test]
fn an_update_run_writes_json() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let line = "update --generate v4=500 --generate-updates 100 --engines bloom:scalar --rates 1k,max --seconds 0.05 \
                --keys 4K --check 512 --json";
    success(&lpm_bench(&format!("{line} {}", out.display())));
    let document = json(&out);
    let rates = [0, 1].map(|row| document["rows"][row]["rate"].clone());
    assert_eq!((&document["kind"], rates), (&"update".into(), [1000.0.into(), "max".into()]));
    assert_eq!(document["rows"][0]["wrong"], 0);
    for name in ["engine", "updates_per_s", "lookup_mlps_idle", "lookup_mlps_under"] {
        assert!(!document["rows"][0][name].is_null(), "{name}");
    }
}

#[test]
fn gpu_engines_run_over_the_mock_driver() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json");
    let sizes = "--keys 16K --check 2K --device-batch 1000 --device-slots 3 --device-threads 2 --json";
    for (line, kind) in [
        (
            "lookup --generate v4=2000,v6=1000 --engines gamt,gale,sail-gpu --rounds 1 --traffic table",
            "lookup",
        ),
        (
            "update --generate v4=2000,v6=1000 --generate-updates 300 --engines gamt,gale,sail-gpu --rates 1k --seconds 0.1",
            "update",
        ),
    ] {
        success(&mocked(&format!("{line} {sizes} {}", out.display())).output().unwrap());
        let document = json(&out);
        let rows = document["rows"].as_array().unwrap();
        assert_eq!((document["kind"].as_str(), rows.len()), (Some(kind), 6), "{rows:?}");
        for row in rows {
            assert!(
                row["wrong"] == 0 && row["checked"].as_u64() >= Some(2048) && row["clock"] == "wall",
                "{row}"
            );
        }
    }
}

#[test]
fn without_a_gpu_a_named_engine_is_3_and_all_goes_without() {
    let words = "lookup --generate v4=100 --keys 4K --check 64 --rounds 1 --traffic table --engines";
    let run = |engines: &str| mocked(words).arg(engines).env("MOCKCUDA_NO_DEVICE", "1").output().unwrap();
    for engines in ["gamt", "oracle,gale"] {
        let done = run(engines);
        assert_eq!(done.status.code(), Some(3), "{engines}: {}", stderr(&done));
        assert!(stderr(&done).contains("needs GPU"), "{}", stderr(&done));
    }
    if !cfg!(feature = "dpdk") {
        let text = success(&run("all"));
        assert!(text.contains("bloom") && text.contains("sail-gpu") && text.contains("needs GPU"), "{text}");
    }
}

#[test]
fn bad_usage_is_2_and_says_what_would_be_right() {
    for (line, words) in [
        ("", "Usage"),
        ("lookup", "--fib FILE or --generate"),
        (
            "lookup --generate v4=10 --engines blom",
            "known are: oracle, host, sail-b, sail-u, sail-l, sail-m, linear, bloom, bloom-baseline, bloom-naive",
        ),
        ("lookup --generate v4=10 --engines bloom:sse9", "no instruction set"),
        ("lookup --generate v4=10 --engines oracle --family v6", "no route of ipv6"),
        ("lookup --generate v6=10 --engines sail-l", "no engine has a table of ipv6"),
        ("lookup --generate v9=10", "v4=ROUTES"),
        ("lookup --generate v4=10 --traffic rnd", "rnd"),
        ("lookup --generate v4=10 --engines oracle --cpu 1000", "cannot pin"),
        ("lookup --generate v4=10 --cpu 99999", "not a CPU's number"),
        ("lookup --generate v4=10 --threads 0", "not a number of threads"),
        ("lookup --generate v4=10 --engines oracle --keys 4K --threads 2 --cpus 1000", "cannot pin"),
        ("lookup --generate v4=10 --cpus 0", "--threads"),
        ("lookup --generate v4=10 --engines miht --engine-arg k4=33", "1 to 32"),
        (
            "lookup --generate v4=10 --engines oracle --table-node 4000",
            "--table-node 4000: no such NUMA node",
        ),
        (
            "update --generate v4=10 --generate-updates 9 --engines miht --table-node 4000",
            "no such NUMA node",
        ),
        ("lookup --generate v4=10 --engines bloom --engine-arg nonsense=1", "nonsense"),
        ("update --generate v4=10 --engines oracle", "--updates FILE"),
    ] {
        let done = lpm_bench(line);
        assert_eq!(done.status.code(), Some(2), "{line}: {}", stderr(&done));
        assert!(stderr(&done).contains(words), "{line}: {}", stderr(&done));
    }
}

#[test]
fn failures_are_1_and_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.txt");
    std::fs::write(&bad, "10.0.0.0/8 1\n10.0.0.1/8 2\n").unwrap();
    let cases = [
        (format!("lookup --engines oracle --fib {}", bad.display()), "bad.txt:2"),
        (format!("lookup --engines oracle --fib {}", folder.path().display()), "directory"),
        ("lookup --engines oracle --fib /nowhere/routes".to_owned(), "/nowhere/routes"),
        (
            "lookup --generate v4=10 --engines oracle --keys 4K --rounds 1 --json /nowhere/out".to_owned(),
            "/nowhere/out",
        ),
    ];
    for (line, words) in cases {
        let done = lpm_bench(&line);
        assert_eq!(done.status.code(), Some(1), "{line}: {}", stderr(&done));
        assert!(stderr(&done).contains(words), "{line}: {}", stderr(&done));
    }
}

#[test]
fn help_has_examples_and_exit_codes() {
    for sub in ["lookup", "update"] {
        let text = success(&lpm_bench(&format!("{sub} --help")));
        assert!(text.contains(&format!("lpm-bench {sub} --")) && text.contains("Exit codes:"), "{text}");
    }
}

#[test]
fn a_paper_s_figures_are_whole_over_the_mock_driver() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        "paper gamt --quick --generate v4=1000,v6=300 --keys 1K --threads 2 --point-seconds 0.003 --out";
    success(&mocked(&format!("{line} {}", folder.path().display())).output().unwrap());
    for name in
        ["fig08", "fig09", "fig10", "fig11", "fig12", "fig15", "fig16", "fig17", "fig18", "kernels", "blocks"]
    {
        let document = json(&folder.path().join(format!("{name}.json")));
        assert!(document["skipped"].is_null() && document["wrong"] == 0, "{document}");
        let unchecked = ["fig08", "kernels", "blocks"].contains(&name);
        assert!(unchecked || document["checked"].as_u64() > Some(0), "{name}");
        for claim in document["claims"].as_array().unwrap() {
            assert!(!claim["ours"].as_array().unwrap().is_empty(), "{name}: {claim}");
        }
        assert!(
            document["own"].as_array().unwrap().iter().all(|own| own["unit"] != ""),
            "{name}: {document}"
        );
        for panel in document["panels"].as_array().unwrap() {
            let lines = panel["series"].as_array().unwrap();
            let points = lines.iter().flat_map(|line| line["points"].as_array().unwrap());
            assert!(lines.len() + points.clone().count() > 2, "{name}: {panel}");
            assert!(points.into_iter().all(|point| point[1].as_f64() > Some(0.0)), "{name}: {panel}");
        }
        assert!(folder.path().join(format!("{name}.svg")).exists(), "{name}");
    }
    // Each step of a batch ends where the next one begins, and each batch has all three.
    let timeline = json(&folder.path().join("fig08.json"));
    let steps = timeline["rows"].as_array().unwrap();
    assert_eq!(steps.len(), 2 * 8 * 3);
    for batch in steps.chunks(3) {
        let of = |step: usize, at: &str| batch[step][at].as_f64().unwrap();
        assert_eq!(
            ["copy in", "kernel", "copy out"],
            [0, 1, 2].map(|step| batch[step]["step"].as_str().unwrap())
        );
        assert!((0..3).all(|step| of(step, "begin_us") <= of(step, "end_us")), "{batch:?}");
        assert_eq!([of(0, "end_us"), of(1, "end_us")], [of(1, "begin_us"), of(2, "begin_us")]);
    }
    assert_eq!(steps.iter().filter(|step| step["stream"] == 4).count(), 2 * 3);
    numbers_are_those_of_the_rows(folder.path());
    let figure = json(&folder.path().join("fig16.json"));
    let asked = figure["rows"].as_array().unwrap().iter().find(|row| row["rate"] == 1e5).unwrap();
    assert!(asked["updates_per_s"]["median"].as_f64() > Some(0.0), "{asked}");
    for (name, ends) in
        [("fig09", [""; 3]), ("fig16", [""; 3]), ("kernels", [", ipv4, live"; 3]), ("blocks", [", ipv4"; 3])]
    {
        let figure = json(&folder.path().join(format!("{name}.json")));
        let lines = figure["panels"][0]["series"].as_array().unwrap();
        let forms = match name {
            "fig09" | "fig16" => {
                ["GAMT, IPv4, paper's layout", "GALE, one stage, up to /24", "SAIL_L, paper's layout"]
            }
            _ => ["GAMT, 6 levels, paper's layout", "GALE, one stage, up to /24", "SAIL_L, paper's layout"],
        };
        for (form, end) in forms.iter().zip(ends) {
            let wanted = format!("{form}{end}");
            assert!(lines.iter().any(|line| line["name"] == *wanted), "{name}: no line {wanted}: {figure}");
        }
    }
}

fn numbers_are_those_of_the_rows(folder: &Path) {
    let mlps = |figure: &serde_json::Value, is_it: &dyn Fn(&serde_json::Value) -> bool| {
        let rows = figure["rows"].as_array().unwrap().iter().filter(|row| is_it(row));
        rows.map(|row| row["mlps"]["median"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let most = |all: &[f64]| all.iter().copied().fold(f64::NAN, f64::max);
    let same = |figure: &serde_json::Value, what: &str, wanted: f64| {
        let claims = figure["claims"].as_array().unwrap();
        let claim = claims.iter().find(|claim| claim["what"] == what).unwrap();
        let ours = claim["ours"][0]["value"].as_f64().unwrap();
        assert!((ours - wanted).abs() < 1e-6 * wanted.abs().max(1.0), "{what}: {ours} {wanted}");
    };
    let of = |name: &str| json(&folder.join(format!("{name}.json")));
    let figure = of("fig10");
    let [[gamt_random, gale_random], [gamt_table, gale_table]] = ["random", "table"].map(|traffic| {
        ["GAMT, IPv4, paper's layout", "GALE, one stage, up to /24"]
            .map(|line| most(&mlps(&figure, &|row| row["line"] == line && row["traffic"] == traffic)))
    });
    same(&figure, "GAMT over GALE, random traffic, at most", gamt_random / gale_random);
    same(&figure, "GAMT over GALE, table traffic, at most", gamt_table / gale_table);
    let least = (gamt_random / gale_random).min(gamt_table / gale_table);
    same(&figure, "GAMT over GALE, each table and traffic, always better", least);
    same(&figure, "GAMT, lost from table to random traffic", 100.0 * (1.0 - gamt_random / gamt_table));
    same(
        &figure,
        "GALE, lost from table to random traffic (almost)",
        100.0 * (1.0 - gale_random / gale_table),
    );
    let figure = of("fig12");
    let [one, two] = [1, 2].map(|streams| mlps(&figure, &|row| row["streams"] == streams));
    same(&figure, "two streams, at most", most(&two));
    same(&figure, "two streams over one, at most", most(&two) / most(&one));
    let share = |speeds: &[f64], from: f64| {
        let inside = speeds.iter().map(|mlps| mlps / most(&two) * 522.0);
        100.0 * inside.filter(|mlps| (from..from + 100.0).contains(mlps)).count() as f64 / speeds.len() as f64
    };
    same(&figure, "one stream, share of configurations at 300 to 400 Mlps", share(&one, 300.0));
    same(&figure, "two streams, share of configurations at 400 to 500 Mlps", share(&two, 400.0));
    same(&figure, "two streams, share of configurations at 500 to 600 Mlps", share(&two, 500.0));
    let figure = of("fig16");
    for (line, what) in [
        ("GAMT, IPv4, paper's layout", "GAMT, IPv4, lost at 70,000 a second"),
        ("GAMT, IPv6", "GAMT, IPv6, lost at 70,000 a second"),
        ("GALE, one stage, up to /24", "GALE, lost at 70,000 a second, more than"),
    ] {
        let at = |rate: f64| mlps(&figure, &|row| row["line"] == line && row["rate"] == rate)[0];
        same(&figure, what, 100.0 * (1.0 - at(7e4) / at(0.0)));
    }
}

#[test]
fn a_paper_s_figures_become_files_and_those_that_take_a_gpu_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("figures");
    let line = "paper gamt --quick --generate v4=3000,v6=500 --keys 4K --point-seconds 0.005 --out";
    let done = lpm_bench(&format!("{line} {}", out.display()));
    success(&done);
    let names = [
        "table1", "table2", "fig06", "fig13", "fig14", "fig19", "stages", "fig09", "fig10", "fig11", "fig15",
    ];
    for name in names.into_iter().chain(["fig12", "fig16", "fig17", "fig18"]) {
        let document = json(&out.join(format!("{name}.json")));
        assert_eq!(document["quick"], true, "{name}");
        let made = names.contains(&name);
        assert!(!made || !document["rows"].as_array().unwrap().is_empty(), "{name}");
        let skipped = document["skipped"].as_str().is_some_and(|why| why.contains("needs a GPU"));
        assert!(made || skipped || !document["rows"].as_array().unwrap().is_empty(), "{name}");
        assert!(!skipped || stderr(&done).contains(&format!("SKIPPED: {name}")), "{name}");
    }
    let figure = json(&out.join("fig14.json"));
    let of = |table: &str| {
        let rows = figure["rows"].as_array().unwrap();
        rows.iter().find(|row| row["table"] == table).unwrap()["writes_an_update"].as_f64().unwrap()
    };
    assert!(of("GAMT_S") < of("GAMT_T") && of("GAMT_T") < of("GALE"), "{figure}");
    let stages = json(&out.join("stages.json"));
    for row in stages["rows"].as_array().unwrap() {
        let (loads, is_one) = (row["loads_a_lookup"]["max"].as_f64().unwrap(), row["stages"] == 1);
        assert!(if is_one { loads == 1.0 } else { (1.0..=2.0).contains(&loads) }, "{row}");
        assert!(row["bytes"][0] == f64::from(64 << 20) && (row["bytes"][1] == 0.0) == is_one, "{row}");
    }
    assert!(out.join("fig11.svg").exists() && figure["claims"][0]["paper"][0] == 94.7);
    let refused = lpm_bench(&format!("paper gamt --figures fig99 --out {}", out.display()));
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("fig09"), "{}", stderr(&refused));
}

#[test]
fn the_engines_of_all_papers_and_dpdk_s_tables_are_on_the_same_keys() {
    let folder = tempfile::tempdir().unwrap();
    let line = "paper engines --quick --generate v4=3000,v6=500 --keys 4K --point-seconds 0.005 --out";
    success(&lpm_bench(&format!("{line} {}", folder.path().display())));
    for (name, panels) in [("lookups", 4), ("updates", 2)] {
        let figure = json(&folder.path().join(format!("{name}.json")));
        assert!(figure["wrong"] == 0 && figure["checked"].as_u64() > Some(10_000), "{figure}");
        assert_eq!(figure["panels"].as_array().unwrap().len(), panels, "{name}");
        for panel in figure["panels"].as_array().unwrap() {
            let lines = panel["series"].as_array().unwrap();
            let of = |engine: &str| {
                let mut named =
                    lines.iter().filter(|line| line["name"].as_str().unwrap().starts_with(engine));
                (named.next(), named.next())
            };
            let peer = cfg!(feature = "dpdk").then_some("rte_fib");
            for engine in ["host, ", "bloom, ", "oracle, "].into_iter().chain(peer) {
                let (one, more) = of(engine);
                assert!(one.is_some() && (more.is_none() || engine == "rte_fib"), "{name} {engine}: {panel}");
                let points = one.unwrap()["points"].as_array().unwrap();
                assert!(points.len() == if name == "lookups" { 1 } else { 3 }, "{name} {engine}: {panel}");
                assert!(points.iter().all(|point| point[1].as_f64() > Some(0.0)), "{name} {engine}: {panel}");
            }
        }
    }
}

#[test]
fn a_report_is_one_page_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "report --quick --generate v4=500,v6=200 --keys 1K --threads 1 --point-seconds 0.001 --out {}",
        folder.path().display()
    );
    success(&lpm_bench(&line));
    let report = json(&folder.path().join("report.json"));
    assert_eq!(
        (&report["kind"], &report["schema"], &report["wrong"]),
        (&"report".into(), &1.into(), &0.into())
    );
    let schema = jsonschema::validator_for(&json(&folder.path().join("report.schema.json"))).unwrap();
    let faults: Vec<_> =
        schema.iter_errors(&report).map(|why| format!("{}: {why}", why.instance_path())).collect();
    assert!(faults.is_empty(), "{faults:?}");
    for (place, value) in [
        ("/documents/1/claims/0/verdict", "perhaps"),
        ("/documents/1/figures/0/panels", "none"),
        ("/kind", "table"),
    ] {
        let mut other = report.clone();
        *other.pointer_mut(place).unwrap() = value.into();
        assert!(!schema.is_valid(&other), "{place}");
    }
    let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
    let mut claims = 0;
    for document in report["documents"].as_array().unwrap() {
        claims += document["claims"].as_array().unwrap().len();
        for figure in document["figures"].as_array().unwrap() {
            let id =
                format!("id=\"{}-{}\"", document["name"].as_str().unwrap(), figure["id"].as_str().unwrap());
            assert!(page.contains(&id), "{id}");
        }
        for claim in document["claims"].as_array().unwrap() {
            assert!(claim["verdict"].is_string() && claim["rule"].is_string(), "{claim}");
            assert!(claim["command"].is_string() || claim["reason"].is_string(), "{claim}");
        }
    }
    assert!(claims > 500, "{claims}");
    for link in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(page.contains(&format!("id=\"{link}\"")), "a link to {link}, which is not there");
    }
    for other_host in ["http://", "https://", "<script", "<link"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(other_host), "{other_host}");
    }
    // The missing figure alone is made again, and the older report's numbers are next to the new ones.
    let old = folder.path().join("old.json");
    std::fs::rename(folder.path().join("report.json"), &old).unwrap();
    std::fs::remove_file(folder.path().join("gamt/fig14.json")).unwrap();
    let text = success(&lpm_bench(&format!("{line} --resume --against {}", old.display())));
    assert!(
        text.contains("fig13: kept") && text.contains("fig14: On-line") && text.contains("fig10: kept"),
        "{text}"
    );
    let report = json(&folder.path().join("report.json"));
    let gamt =
        report["documents"].as_array().unwrap().iter().find(|document| document["name"] == "gamt").unwrap();
    let claims = gamt["claims"].as_array().unwrap();
    let bytes = claims.iter().find(|claim| claim["what"] == "GAMT, 6 levels").unwrap();
    assert!(bytes["before"].as_f64() > Some(0.0) && bytes["before"] == bytes["ours"][0]["value"], "{bytes}");
    let refused = lpm_bench(&format!("{line} --against {}", folder.path().join("gamt/fig14.json").display()));
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("wanted a report"),
        "{}",
        stderr(&refused)
    );
}
