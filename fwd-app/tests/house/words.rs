//! Words: comments and pages name their subject and use the field's nouns, so that no phrase has to be translated first.

use crate::{files, sources, top};
use std::collections::BTreeMap;

/// Phrases that stand for a noun or an order of words that the reader has to find, by cause. Few are wrong everywhere, so shares are limited.
const RIDDLES: [&str; 58] = [
    // A pronoun for a noun of an earlier clause.
    "that of",
    "those of",
    "the one that",
    "the one which",
    "the one with",
    "the ones that",
    "the ones which",
    "the ones with",
    "none of it",
    "none of them",
    "all of it",
    "some of it",
    "of its own",
    "of their own",
    "by itself",
    "by themselves",
    // A question for a noun.
    "what is",
    "what was",
    "what are",
    "what were",
    "what has",
    "what had",
    "what it",
    "what they",
    "what comes",
    "what came",
    "what goes",
    "what follows",
    // Persons for code.
    "tell",
    "tells",
    "told",
    "nobody",
    "somebody",
    "whoever",
    "whatever",
    // The verb before its subject, or one that says little.
    "is there",
    "are there",
    "comes to",
    "came to",
    "has it",
    "have it",
    "so is",
    "so are",
    "so does",
    "there is none",
    "there are none",
    "none is",
    "none has",
    // Pointers to another place, and words of another century.
    "as above",
    "see the module",
    "likewise",
    "but for",
    "save for",
    "in place of",
    "anew",
    "beside",
    "beneath",
    "at last",
];
/// Riddles in 100 lines.
const COMMENTS_MAX: f64 = 0.2;
const PAGES_MAX: f64 = 0.2;
/// Comment lines in 100 lines of Rust.
const SHARE_MAX: f64 = 8.5;

/// The riddles of a line. A phrase does not go on after punctuation.
fn riddles(line: &str) -> Vec<&'static str> {
    let letters = line.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != ' ', " | ");
    let words: Vec<_> = letters.split_whitespace().collect();
    let text = format!(" {} ", words.join(" "));
    RIDDLES.into_iter().filter(|phrase| text.contains(&format!(" {phrase} "))).collect()
}

fn assert_plain(files: &BTreeMap<String, String>, marks: &[&str], most: f64) -> usize {
    let (mut lines, mut found) = (0, Vec::new());
    for (name, text) in files {
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if !line.is_empty() && marks.iter().any(|mark| line.starts_with(mark)) {
                lines += 1;
                found.extend(
                    riddles(line).into_iter().map(|phrase| format!("{name}:{}: {phrase}: {line}", at + 1)),
                );
            }
        }
    }
    let share = 100.0 * found.len() as f64 / lines as f64;
    assert!(share <= most, "{share:.2} phrases in 100 lines, at most {most}:\n{}", found.join("\n"));
    lines
}

#[test]
fn comments_are_plain_and_few() {
    let sources = sources();
    let comments = assert_plain(&sources, &["//"], COMMENTS_MAX);
    let lines: usize = sources.values().map(|text| text.lines().count()).sum();
    let share = 100.0 * comments as f64 / lines as f64;
    assert!(share <= SHARE_MAX, "{share:.1} comment lines in 100 lines, at most {SHARE_MAX}");
    assert_plain(&files(vec![top().join("scripts")], &["py", "sh"]), &["#"], COMMENTS_MAX);
}

#[test]
fn pages_are_plain() {
    let folders = ["docs", "fwd-app", "lpm-gpu", "pcap"].map(|name| top().join(name));
    let mut pages = files(folders.to_vec(), &["md"]);
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        pages.insert(name.to_owned(), std::fs::read_to_string(top().join(name)).unwrap());
    }
    assert!(assert_plain(&pages, &[""], PAGES_MAX) > 1000, "the pages were not found");
}

#[test]
fn a_riddle_is_found() {
    assert_eq!(riddles("// The table, and That of its peer"), ["that of"]);
    assert_eq!(riddles("// found that, of two"), [""; 0]);
}
