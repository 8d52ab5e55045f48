//! The structural rules of this repository, as tests: imports of crates and modules, places of unsafe code, and the form of source files.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

mod circles;
mod words;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The imports that each crate may have, as in `ARCHITECTURE.md`.
const IMPORTS: [(&str, &[&str]); 10] = [
    ("fib", &[]),
    ("dpdk-ffi", &[]),
    ("lpm-core", &["fib"]),
    ("lpm-cpu", &["fib", "lpm-core"]),
    ("lpm-phi", &["fib", "lpm-core"]),
    ("lpm-gpu", &["fib", "lpm-core"]),
    ("mockcuda", &[]),
    ("models", &[]),
    ("fwd-app", &["dpdk-ffi", "fib", "lpm-core", "lpm-cpu", "lpm-gpu", "lpm-phi"]),
    ("lpm-bench", &["dpdk-ffi", "fib", "lpm-core", "lpm-cpu", "lpm-gpu", "lpm-phi"]),
];
/// The fuzz targets: a separate workspace that may import every crate, and that no crate imports.
const FUZZ: (&str, &str, &[&str]) = (
    "fwd-app-fuzz",
    "fwd-app/fuzz",
    &["dpdk-ffi", "fib", "fwd-app", "lpm-cpu", "lpm-gpu", "lpm-phi", "mockcuda"],
);
/// Crates that every crate may import in its tests: `fib` has the conformance suite of engines, `mockcuda` is the mock GPU driver.
const IN_TESTS: [&str; 3] = ["fib", "lpm-core", "mockcuda"];
const UNSAFE: [&str; 12] = [
    "dpdk-ffi/",
    "lpm-cpu/src/host/v4/kernel/",
    "lpm-cpu/src/host/v6/kernel/",
    "lpm-cpu/src/kernel/",
    "lpm-phi/src/kernel/",
    "lpm-core/src/lanes/",
    "lpm-core/src/lend.rs",
    "lpm-core/src/memory.rs",
    "lpm-core/src/prefetch.rs",
    "lpm-gpu/src/cu/",
    "lpm-gpu/src/mamt/kernel/",
    "lpm-gpu/mockcuda/",
];
const LINES_MAX: usize = 700;
const SAME_NAMES_MAX: usize = 2;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn metadata(workspace: &Path) -> Value {
    metadata_with(workspace, &["--no-deps"])
}

fn metadata_with(workspace: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1"])
        .args(arguments)
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The files below `folders` whose names have one of these endings, by their paths from the top.
fn files(mut folders: Vec<PathBuf>, endings: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // Builds of cargo-fuzz, which is run by hand, are inside its crate.
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| endings.iter().any(|ending| extension == *ending))
            {
                let name = path.strip_prefix(top()).unwrap().to_string_lossy().into_owned();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

fn sources() -> BTreeMap<String, String> {
    let folders = IMPORTS.iter().map(|(name, _)| top().join(name)).filter(|folder| folder.is_dir());
    let found = files(folders.collect(), &["rs"]);
    assert!(found.len() > 50, "the sources were not found");
    found
}

#[test]
fn crates_import_only_what_they_may() {
    let metadata = metadata(&top());
    let packages = metadata["packages"].as_array().unwrap();
    let mut ours: Vec<_> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let mut known: Vec<_> = IMPORTS.iter().map(|(name, _)| *name).collect();
    ours.sort_unstable();
    known.sort_unstable();
    assert_eq!(ours, known, "a new crate needs a row in ARCHITECTURE.md and here");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let (_, may) = IMPORTS.iter().find(|(known, _)| *known == name).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            // A dev-dependency may also enable features of the crate itself, or of the crates in `IN_TESTS`.
            let in_tests = dependency["kind"].as_str() == Some("dev");
            let allowed = may.contains(&on) || in_tests && (IN_TESTS.contains(&on) || on == name);
            assert!(!ours.contains(&on) || allowed, "{name} imports {on}");
            if name == "lpm-bench" && on == "dpdk-ffi" && !in_tests {
                assert_eq!(
                    dependency["optional"],
                    Value::Bool(true),
                    "lpm-bench builds where there is no DPDK"
                );
            }
        }
    }
}

#[test]
fn fuzz_targets_import_only_what_they_may() {
    let (name, folder, may) = FUZZ;
    let metadata = metadata(&top().join(folder));
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), 1, "one crate");
    assert_eq!(packages[0]["name"].as_str(), Some(name));
    let ours = packages[0]["dependencies"].as_array().unwrap().iter();
    let ours = ours.filter(|dependency| !dependency["path"].is_null()).map(|dependency| &dependency["name"]);
    for on in ours {
        assert!(may.contains(&on.as_str().unwrap()), "{name} imports {on}");
    }
}

/// Whether a licence expression (SPDX; old crates write `/` for `OR`) has an alternative that is allowed as a whole.
fn allows(allowed: &[&str], license: &str) -> bool {
    let license = license.replace(['(', ')'], "").replace('/', " OR ");
    // No crate here joins more than one group of alternatives with `AND`.
    let every = license.split(" AND ");
    every.map(|part| part.split(" OR ")).all(|mut any| any.any(|name| allowed.contains(&name.trim())))
}

#[test]
fn libraries_come_from_crates_io_with_licenses_that_deny_toml_allows() {
    let text = std::fs::read_to_string(top().join("deny.toml")).unwrap();
    let rules: toml::Table = toml::from_str(&text).unwrap();
    let allowed = rules["licenses"]["allow"].as_array().unwrap();
    let allowed: Vec<_> = allowed.iter().map(|name| name.as_str().unwrap()).collect();
    let metadata =
        metadata_with(&top(), &["--all-features", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    let packages = metadata["packages"].as_array().unwrap();
    let libraries: Vec<_> = packages.iter().filter(|package| !package["source"].is_null()).collect();
    assert!(libraries.len() > 100, "the libraries were not found");
    for library in libraries {
        let (name, source) = (&library["name"], library["source"].as_str().unwrap());
        assert!(
            source.starts_with("registry+https://github.com/rust-lang/crates.io-index"),
            "{name} is from {source}"
        );
        let license = library["license"].as_str().unwrap_or_default();
        assert!(allows(&allowed, license), "{name}: the license {license:?} is not in deny.toml");
    }
    assert!(allows(&["MIT"], "MIT/Apache-2.0") && allows(&["MIT", "Zlib"], "(MIT OR ISC) AND Zlib"));
    assert!(!allows(&["MIT"], "MIT AND Zlib") && !allows(&["MIT"], "") && !allows(&["MIT"], "GPL-2.0"));
}

#[test]
fn unsafe_code_stays_where_it_may_live() {
    // Concatenated, so that this file does not contain the words.
    let words = [concat!("uns", "afe {"), concat!("uns", "afe fn"), concat!("uns", "afe impl")];
    for (name, text) in sources() {
        if UNSAFE.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            assert!(!words.iter().any(|word| code.contains(word)), "{name}:{}: {line}", number + 1);
        }
    }
    for root in [
        "fib/src/lib.rs",
        "fwd-app/src/lib.rs",
        "fwd-app/src/main.rs",
        "lpm-bench/src/lib.rs",
        "lpm-bench/src/main.rs",
    ] {
        let text = std::fs::read_to_string(top().join(root)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{root} does not forbid unsafe code");
    }
}

#[test]
fn a_file_says_what_it_is_for_and_is_one_room() {
    for (name, text) in sources() {
        assert!(text.starts_with("//!"), "{name} does not begin with a module doc comment");
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines");
    }
}

/// The modules of `fwd-app`, lowest first, and the modules that each may use, separated by spaces: `commands -> {console, harness, metrics,
/// report} -> forwarder -> routes -> neighbours -> ports -> topology -> datapath`. The harness drives a forwarder, a report describes one;
/// only the commands use `cli`.
const MODULES: [(&str, &str); 19] = [
    ("error", ""),
    ("notice", ""),
    ("threads", "notice"),
    ("datapath", ""),
    ("engines", "error notice"),
    ("topology", "datapath error threads"),
    ("ports", "datapath error notice threads topology"),
    ("neighbours", "datapath notice ports threads topology"),
    ("routes", "datapath engines error notice ports threads topology"),
    ("forwarder", "datapath engines error neighbours notice ports routes threads topology"),
    ("harness", "datapath error forwarder notice ports routes threads topology"),
    ("report", "datapath forwarder notice ports routes topology"),
    ("console", "datapath engines forwarder neighbours notice ports report routes threads topology"),
    ("metrics", "datapath forwarder ports report routes threads topology"),
    ("cli", "engines forwarder harness notice ports routes topology"),
    (
        "commands",
        "cli console datapath engines error forwarder harness metrics neighbours notice ports report routes threads topology",
    ),
    ("testing", "cli console datapath forwarder harness neighbours ports routes"),
    ("lib", "commands"),
    ("main", ""),
];

fn module_of(name: &str) -> Option<&str> {
    let path = name.strip_prefix("fwd-app/src/")?;
    path.split('/').next()?.trim_end_matches(".rs").into()
}

/// The `x` of each `crate::x` in a line of code. A list of modules (`crate::{x, y}`) yields the name "", which no module may use.
fn modules_named(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let paths = code.match_indices("crate::").filter(|(at, _)| !code[..*at].ends_with(is_name));
    paths
        .map(|(at, path)| &code[at + path.len()..])
        .map(|rest| rest.split(|c| !is_name(c)).next().unwrap())
        .collect()
}

fn wrong_direction<'a>(module: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let may = MODULES.iter().find(|(known, _)| *known == module).map_or("", |(_, may)| may);
    let allowed = |named: &str| named == module || may.split_whitespace().any(|used| used == named);
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| modules_named(line).into_iter().map(move |named| (at + 1, named)))
        .filter(|(_, named)| !allowed(named))
        .collect()
}

#[test]
fn modules_use_only_those_below_them() {
    for (at, (module, may)) in MODULES.iter().enumerate() {
        let below: Vec<_> = MODULES[..at].iter().map(|(name, _)| *name).collect();
        let is_right = may.split_whitespace().all(|used| below.contains(&used));
        assert!(is_right, "{module} may use what is above it: {may}");
    }
    for (name, text) in sources() {
        let Some(module) = module_of(&name) else { continue };
        assert!(MODULES.iter().any(|(known, _)| *known == module), "{name}: a new module needs a row here");
        assert_eq!(wrong_direction(module, &text), [], "{name}");
        // Top-level modules must be named with `crate::`, which this test checks: `super::` must not reach the top.
        let product = text.split("mod tests {").next().unwrap_or_default();
        let folders = name.trim_end_matches("/mod.rs").matches('/').count() - 1;
        let beyond = "super::".repeat(folders);
        assert!(!product.contains(&beyond), "{name} reaches the top with {beyond}");
    }
}

#[test]
fn a_module_that_uses_one_above_it_is_found() {
    for line in [
        "use crate::report::Summary;",
        "x(crate::datapath::Batch, crate::cli::y());",
        "use crate::{error, cli};",
    ] {
        let found = wrong_direction("topology", line);
        assert!(matches!(found[..], [(1, "report" | "cli" | "")]), "{line}: {found:?}");
    }
    for line in [
        "use crate::datapath::Batch;",
        "use crate::topology::plan::Plan; // crate::report",
        "dpdk_crate::report()",
    ] {
        assert_eq!(wrong_direction("topology", line), [], "{line}");
    }
    assert_eq!(module_of("fwd-app/src/forwarder/service.rs"), Some("forwarder"));
    assert_eq!((module_of("fwd-app/src/error.rs"), module_of("fib/src/rib.rs")), (Some("error"), None));
}

#[test]
fn a_module_with_submodules_is_a_folder() {
    let sources = sources();
    for name in sources.keys() {
        let folder = format!("{}/", name.trim_end_matches(".rs"));
        let twice = sources.keys().any(|other| other.starts_with(&folder));
        assert!(!twice, "{name} has submodules: it must be {folder}mod.rs");
    }
}

/// The type declared in a line of code, except associated types and aliases.
fn type_declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let kind = words.next()?;
    let name = words.next().filter(|_| ["struct", "enum", "trait", "union"].contains(&kind))?;
    // The name in a macro is a parameter.
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn the_name_of_a_type_says_which_one_it_is() {
    let (mut declared, sources) = (BTreeMap::<&str, Vec<&str>>::new(), sources());
    for (file, text) in &sources {
        for name in text.lines().filter_map(type_declared) {
            declared.entry(name).or_default().push(file);
        }
    }
    declared.retain(|_, files| files.len() > SAME_NAMES_MAX);
    assert!(declared.is_empty(), "names that say nothing, since too many types have them: {declared:#?}");
    assert_eq!(type_declared("    pub(crate) struct Thing<T>(T);"), Some("Thing"));
    assert_eq!((type_declared("    type Thing = u32;"), type_declared("// struct Thing {")), (None, None));
}

#[test]
fn the_forwarder_prints_in_one_way() {
    // `eprintln!` and similar macros panic when stderr is closed and block when its reader is slow; `report/console.rs` avoids both.
    let is_product = |name: &str| name.starts_with("fwd-app/src/") && !name.ends_with("_test.rs");
    for (name, text) in sources().into_iter().filter(|(name, _)| is_product(name)) {
        let product = circles::product(&text);
        for (number, line) in product.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let prints = ["println!", "print!"].iter().any(|word| code.contains(word));
            assert!(!prints, "{name}:{}: {line}", number + 1);
            let direct = code.contains("io::stderr()") && !code.contains("is_terminal()");
            assert!(!direct || name.ends_with("report/console.rs"), "{name}:{}: {line}", number + 1);
        }
    }
}
