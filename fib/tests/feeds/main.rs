//! Feeds, from files in and to files out: text, JSON, MRT, update streams, real tables.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails loudly")]

mod data;
mod files;
mod mrt;
mod mrt_writer;
mod round_trip;
mod updates;

use fib::feed::{self, FeedError, Format, LoadOptions, Loaded, Updates};
use fib::{IpPrefix, NextHop, NextHopId, NextHopTable, Rib};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

#[derive(Default)]
struct LoadedTables {
    rib: Rib,
    hops: NextHopTable,
}

impl LoadedTables {
    fn load<P: AsRef<Path>>(&mut self, paths: &[P]) -> Result<Vec<Loaded>, FeedError> {
        self.load_as(paths, None)
    }

    /// Loads files. Checks that empty tables stay empty when one of them is refused.
    fn load_as<P: AsRef<Path>>(
        &mut self,
        paths: &[P],
        format: Option<Format>,
    ) -> Result<Vec<Loaded>, FeedError> {
        let was_empty = self.rib.is_empty() && self.hops.is_empty();
        let options = LoadOptions { format, ..LoadOptions::default() };
        let loaded = feed::load(paths, &mut self.rib, &mut self.hops, options);
        assert!(loaded.is_ok() || !was_empty || self.rib.is_empty() && self.hops.is_empty());
        loaded
    }

    fn routes(&self) -> impl Iterator<Item = (IpPrefix, NextHopId)> {
        let v4 = self.rib.v4.iter().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        v4.chain(self.rib.v6.iter().map(|(prefix, id)| (IpPrefix::V6(prefix), id)))
    }

    fn id(&self, prefix: &str) -> NextHopId {
        match prefix.parse().unwrap() {
            IpPrefix::V4(prefix) => self.rib.v4.get(prefix),
            IpPrefix::V6(prefix) => self.rib.v6.get(prefix),
        }
    }

    fn hop(&self, prefix: &str) -> &NextHop {
        self.hops.get(self.id(prefix)).unwrap_or_else(|| panic!("no route {prefix}"))
    }
}

fn load(path: &Path) -> Result<(Loaded, LoadedTables), FeedError> {
    let mut tables = LoadedTables::default();
    let mut loaded = tables.load(&[path])?;
    Ok((loaded.remove(0), tables))
}

fn load_bytes(content: &[u8], format: Option<Format>) -> Result<(Loaded, LoadedTables), FeedError> {
    let folder = Folder::new();
    let mut tables = LoadedTables::default();
    let mut loaded = tables.load_as(&[folder.file("table", content)], format)?;
    Ok((loaded.remove(0), tables))
}

/// The updates of a file with this content. The caller keeps the folder, which holds the file, while reading.
fn open_updates(content: &[u8], format: Option<Format>) -> (Folder, Result<Updates, FeedError>) {
    let folder = Folder::new();
    let updates = feed::updates(&folder.file("updates", content), format);
    (folder, updates)
}
