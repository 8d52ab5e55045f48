//! The table and key of each option in a file: the table follows from its heading in `--help`, the key is its long name.

use clap::{Arg, Command};
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    pub(super) table: String,
    pub(super) key: String,
}

impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.key)
    }
}

const TABLES: [(&str, &str); 4] =
    [("Routes and engine", "engine"), ("Feeds", "sources"), ("VRFs", "vrfs"), ("DPDK", "eal")];

/// Options whose place does not follow from their heading: long name or id, table, key.
const PLACES: [(&str, &str, &str); 5] = [
    ("fib", "sources", "fib"),
    ("engine", "engine", "name"),
    ("eal", "eal", "arguments"),
    ("trace", "harness", "trace"),
    ("ctl", "ctl", "socket"),
];

/// Tables of options by name prefix: `--metrics ADDR` is `address` in `[metrics]`.
const OWN_TABLES: [&str; 2] = ["ctl", "metrics"];

pub(super) fn file_place(arg: &Arg) -> Option<FilePlace> {
    let name = arg.get_long().unwrap_or(arg.get_id().as_str());
    if let Some((_, table, key)) = PLACES.iter().find(|(known, ..)| *known == name) {
        return Some(FilePlace { table: (*table).to_owned(), key: (*key).to_owned() });
    }
    for table in OWN_TABLES {
        match name.strip_prefix(table).map(|rest| (rest, rest.strip_prefix('-'))) {
            Some(("", _)) => return Some(FilePlace { table: table.to_owned(), key: "address".to_owned() }),
            Some((_, Some(rest))) => {
                return Some(FilePlace { table: table.to_owned(), key: rest.to_owned() });
            }
            _ => {}
        }
    }
    let heading = arg.get_help_heading()?;
    let table = TABLES.iter().find(|(known, _)| *known == heading).map(|(_, table)| (*table).to_owned());
    let table = table.unwrap_or_else(|| heading.to_ascii_lowercase().replace(' ', "-"));
    Some(FilePlace { table, key: name.to_owned() })
}

pub(super) fn find<'c>(command: &'c Command, table: &str, key: &str) -> Option<&'c Arg> {
    let is_there = |arg: &&Arg| file_place(arg).is_some_and(|place| place.table == table && place.key == key);
    super::options(command).find(is_there)
}

pub(super) fn tables(command: &Command) -> Vec<String> {
    let mut tables = Vec::new();
    for FilePlace { table, .. } in super::options(command).filter_map(file_place) {
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    tables
}

pub(super) fn keys(command: &Command, table: &str) -> Vec<String> {
    let places = super::options(command).filter_map(file_place).filter(|place| place.table == table);
    places.map(|place| place.key).collect()
}
