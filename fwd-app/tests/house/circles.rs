//! Circles: files of a crate that import each other can only be read together, so a circle has few files.

use crate::{IMPORTS, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Files in one circle. Two may be the two sides of one thing.
const FILES_MAX: usize = 2;

/// A path from the root of a crate, such as `["routes", "feeds"]`.
type ModulePath = Vec<String>;

fn module(krate: &str, file: &str) -> Option<ModulePath> {
    let path = file.strip_prefix(krate)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    let mut names: ModulePath = path.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| ["mod", "lib"].contains(&name.as_str())) {
        names.pop();
    }
    Some(names)
}

/// The code before a test module with a body. `mod x_test;` is in the head of a file, before its imports.
pub(crate) fn product(text: &str) -> &str {
    let mut tests = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let with_body = |at: &usize| {
        let item = text[*at..].lines().find(|line| !line.starts_with("#["));
        item.is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    &text[..tests.find(with_body).unwrap_or(text.len())]
}

fn code(text: &str) -> String {
    let lines = product(text).lines().map(|line| line.split("//").next().unwrap_or_default());
    // A visibility is no import.
    lines.collect::<Vec<_>>().join("\n").replace("(in crate::", "(")
}

/// The paths of a `use` tree: `a::{b, c::d}` has two.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let list = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut items) = (0_usize, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(c);
    }
    let items = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    items.flat_map(|item| paths(&format!("{}{item}", prefix.trim()))).collect()
}

#[derive(Default)]
struct Modules {
    imports: BTreeMap<ModulePath, Vec<ModulePath>>,
    exports: BTreeMap<ModulePath, BTreeMap<String, ModulePath>>,
}

impl Modules {
    fn new(krate: &str, sources: &BTreeMap<String, String>) -> Self {
        let files = sources.iter().filter_map(|(file, text)| Some((module(krate, file)?, code(text))));
        let files: BTreeMap<_, _> = files.collect();
        let mut modules = Self::default();
        for (own, code) in &files {
            let (mut imports, mut exports) = (Vec::new(), BTreeMap::new());
            let mut rest = String::new();
            for statement in code.split_inclusive(';') {
                let Some((before, tree)) = statement.trim_end_matches(';').rsplit_once("use ") else {
                    rest.push_str(statement);
                    continue;
                };
                let is_public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
                for path in paths(tree) {
                    let Some(path) = absolute(own, &path, &files) else { continue };
                    match path.split_last() {
                        Some((name, from)) if is_public => drop(exports.insert(name.clone(), from.to_vec())),
                        _ => imports.push(path),
                    }
                }
                rest.push_str(before);
            }
            let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let words: Vec<_> = rest.split(|c| !is_name(c)).collect();
            // A module calls its submodules by their names alone, as the head of its folder.
            let inline = words
                .iter()
                .filter(|word| ["crate::", "super::", "self::"].iter().any(|root| word.starts_with(root)));
            imports.extend(inline.filter_map(|word| absolute(own, word, &files)));
            // A name that a module only hands on is not its own import.
            imports.extend(
                exports
                    .iter()
                    .filter(|(name, _)| words.contains(&name.as_str()))
                    .map(|(_, from)| from.clone()),
            );
            modules.imports.insert(own.clone(), imports);
            modules.exports.insert(own.clone(), exports);
        }
        assert!(!modules.imports.is_empty(), "{krate}: no sources");
        modules
    }

    fn declares(&self, path: &[String]) -> Option<&ModulePath> {
        let at = (0..=path.len()).rev().find(|&at| self.imports.contains_key(&path[..at]))?;
        let (own, _) = self.imports.get_key_value(&path[..at])?;
        match path.get(at).and_then(|name| self.exports[own].get(name)) {
            Some(from) if from != own => self.declares(&[from, &path[at..]].concat()),
            _ => Some(own),
        }
    }

    fn reached(&self, from: &ModulePath) -> BTreeSet<&ModulePath> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            for path in &self.imports[next] {
                if let Some(to) = self.declares(path)
                    && to != next
                    && reached.insert(to)
                {
                    open.push(to);
                }
            }
        }
        reached
    }

    fn circles(&self) -> BTreeSet<Vec<String>> {
        let reached: BTreeMap<_, _> = self.imports.keys().map(|own| (own, self.reached(own))).collect();
        let circle = |own| {
            reached[own].iter().filter(|other| reached[**other].contains(own)).map(|path| path.join("/"))
        };
        self.imports
            .keys()
            .map(|own| circle(own).collect())
            .filter(|circle: &Vec<_>| circle.len() > 1)
            .collect()
    }
}

/// A path of a `use` or in code, from the root of the crate; `None` for other crates.
fn absolute(own: &[String], path: &str, files: &BTreeMap<ModulePath, String>) -> Option<ModulePath> {
    let mut names = path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).peekable();
    let mut base = own.to_vec();
    match names.peek()?.as_str() {
        "crate" => {
            base.clear();
            names.next();
        }
        "self" => drop(names.next()),
        "super" => {
            while names.next_if_eq("super").is_some() {
                base.pop()?;
            }
        }
        name if files.contains_key(&[own, &[name.to_owned()]].concat()) => {}
        _ => return None,
    }
    base.extend(names);
    Some(base)
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let sources = sources();
    // The mock's state, streams and threads of a grid are one circle: a launch runs in a stream, and a trap ends in the state.
    let crates = IMPORTS.iter().map(|(krate, _)| *krate).filter(|krate| *krate != "mockcuda");
    for krate in crates {
        let circles = Modules::new(krate, &sources).circles();
        let large: Vec<_> = circles.iter().filter(|circle| circle.len() > FILES_MAX).collect();
        assert!(large.is_empty(), "{krate}: circles of files: {large:#?}");
    }
}

#[test]
fn a_circle_is_found() {
    let file = |name: &str, text: &str| (format!("x/src/{name}.rs"), text.to_owned());
    let sources = [
        file("lib", "pub mod a;\npub use a::{A, b::B};\n"),
        file("a/mod", "mod b;\nmod c;\npub use b::B;\npub struct A;\n"),
        file(
            "a/b",
            "use super::c::{C, D as E};\n// use crate::a::A;\npub struct B(C);\n#[cfg(test)]\n#[cfg(not(model))]\nmod tests {\n use super::super::A; }",
        ),
        file("a/c", "#[cfg(test)]\nmod c_test;\nuse crate::B;\npub struct C;\nfn f(_: B) {}\n"),
    ];
    let circles = Modules::new("x", &sources.into()).circles();
    assert_eq!(circles, [vec!["a/b".to_owned(), "a/c".to_owned()]].into());
}
