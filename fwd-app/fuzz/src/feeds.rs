//! Route files in text: an error names an existing line and leaves the tables unchanged; a written table is read back unchanged.

use crate::scratch::with_file;
use fib::feed::{self, FeedError, FeedErrorKind, Format, LoadOptions, Loaded, WriteFormat, WriteOptions};
use fib::{IpPrefix, Neighbour, NextHop, NextHopTable, PortRef, Rib};
use std::collections::BTreeMap;
use std::num::NonZeroU16;

const PORTS: NonZeroU16 = NonZeroU16::new(3).unwrap();
const BEFORE: &[u8] =
    b"10.0.0.0/8 7\n192.0.2.0/24 via 198.51.100.1 dev 1\nneigh 198.51.100.1 lladdr 02:00:00:00:00:01 dev 1\n";

/// Route text: `PREFIX ID`, iproute2's dialect, rules, neighbours.
pub fn route_text(data: &[u8]) {
    of_format(data, Format::Text);
}

/// The JSON of `ip -j route` and `ip -j neigh`.
pub fn route_json(data: &[u8]) {
    of_format(data, Format::Json);
}

/// l3fwd's rules: every line of the input is one.
pub fn l3fwd(data: &[u8]) {
    let mut text = Vec::with_capacity(data.len() + 16);
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        text.push(b'R');
        text.extend_from_slice(line);
    }
    of_format(&text, Format::Text);
}

fn of_format(data: &[u8], format: Format) {
    holds_or_refuses(data, Some(format));
    if let Ok((table, _)) = load(data, Some(format)) {
        round_trips(&table);
    }
}

/// A RIB with its next-hop table.
#[derive(Debug, Default)]
pub struct LoadedTable {
    rib: Rib,
    hops: NextHopTable,
}

/// The meaning of a route's next hop, independent of assigned ids. A bare id means itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// A bare id.
    Id(u32),
    /// Any other next hop.
    Hop(NextHop),
}

impl LoadedTable {
    /// Every route.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<IpPrefix, Meaning> {
        let v4 = self.rib.v4.iter().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
        let v6 = self.rib.v6.iter().map(|(prefix, id)| (IpPrefix::V6(prefix), id));
        v4.chain(v6)
            .map(|(prefix, id)| match self.hops.get(id) {
                Some(NextHop::Bare | NextHop::Moved(_)) => {
                    (prefix, Meaning::Id(self.hops.announced_id(id).get()))
                }
                Some(hop) => (prefix, Meaning::Hop(hop.clone())),
                None => panic!("{prefix}: next hop {id} is not in the table"),
            })
            .collect()
    }

    fn neighbours(&self) -> Vec<Neighbour> {
        self.hops.neighbours().cloned().collect()
    }

    fn load(&mut self, data: &[u8], format: Option<Format>) -> Result<Loaded, FeedError> {
        let options = LoadOptions { format, ..LoadOptions::default() };
        with_file(data, |path| feed::load(&[path], &mut self.rib, &mut self.hops, options))
            .map(|mut loaded| loaded.remove(0))
    }

    fn write(&self, format: WriteFormat) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let written =
            feed::write(&mut text, format, &self.rib, &self.hops, &WriteOptions { ports: PORTS }).ok()?;
        assert_eq!(written, self.rib.len() as u64);
        Some(text)
    }
}

/// # Errors
/// As [`feed::load`].
pub fn load(data: &[u8], format: Option<Format>) -> Result<(LoadedTable, Loaded), FeedError> {
    let mut table = LoadedTable::default();
    let loaded = table.load(data, format)?;
    Ok((table, loaded))
}

/// Loads `data` into a filled table. An error must leave the table unchanged and name an existing place.
pub fn holds_or_refuses(data: &[u8], format: Option<Format>) {
    let (mut table, _) = load(BEFORE, None).unwrap();
    let routes_before = table.routes();
    match table.load(data, format) {
        Ok(loaded) => {
            assert!(loaded.duplicates <= loaded.routes());
            let routes = table.routes();
            assert_eq!(routes.len() as u64, routes_before.len() as u64 + loaded.routes() - loaded.duplicates);
        }
        Err(error) => {
            names_a_place(&error, data);
            assert_eq!((table.routes(), table.neighbours().len()), (routes_before, 1), "{error}");
            assert_eq!((table.rib.len(), table.hops.len()), (2, 2), "{error}");
        }
    }
}

/// The line or record of an error must exist in the input; compressed inputs are not checked.
pub fn names_a_place(error: &FeedError, data: &[u8]) {
    assert!(!error.to_string().is_empty());
    let is_compressed = matches!(data, [0x1f, 0x8b, ..] | [b'B', b'Z', b'h', ..] | [0xfd, b'7', ..]);
    match &error.kind {
        FeedErrorKind::Line { line, .. } | FeedErrorKind::Json { line, .. } if !is_compressed => {
            let lines = data.split(|byte| *byte == b'\n').count() as u64;
            assert!((1..=lines).contains(line), "{error}: there are {lines} lines");
        }
        FeedErrorKind::Record { record, offset_bytes, .. } if !is_compressed => {
            assert!(*record >= 1 && *offset_bytes < data.len() as u64, "{error}");
        }
        _ => {}
    }
}

/// Writes the table in every format that can express it, and reads it back.
pub fn round_trips(table: &LoadedTable) {
    let routes = table.routes();
    let again = |format, read| {
        let text = table.write(format)?;
        match load(&text, read) {
            Ok((again, _)) => Some(again),
            Err(error) => panic!("{format}: {error}\n{}", String::from_utf8_lossy(&text)),
        }
    };
    let json = again(WriteFormat::Json, Some(Format::Json)).unwrap();
    assert_eq!((json.routes(), json.neighbours()), (routes.clone(), table.neighbours()));
    let text = again(WriteFormat::Text, None).unwrap();
    let ids = table.rib.v4.iter().map(|(prefix, id)| (IpPrefix::V4(prefix), id));
    let ids = ids.chain(table.rib.v6.iter().map(|(prefix, id)| (IpPrefix::V6(prefix), id)));
    assert_eq!(text.routes(), ids.map(|(prefix, id)| (prefix, Meaning::Id(id.get()))).collect());
    if let Some(iproute2) = again(WriteFormat::Iproute2, None) {
        let found = iproute2.routes();
        assert_eq!(found.len(), routes.len());
        let has_own_words =
            |meaning: &Meaning| !matches!(meaning, Meaning::Id(_) | Meaning::Hop(NextHop::Port { .. }));
        for (prefix, meaning) in routes.iter().filter(|(_, meaning)| has_own_words(meaning)) {
            assert_eq!(found.get(prefix), Some(meaning), "{prefix} as iproute2");
        }
        if routes.values().all(has_own_words) {
            assert_eq!(iproute2.neighbours(), table.neighbours());
        }
    }
    if let Some(l3fwd) = again(WriteFormat::L3fwd, None) {
        let found = l3fwd.routes();
        assert_eq!(found.len(), routes.len());
        for (prefix, meaning) in &routes {
            let Some(Meaning::Hop(NextHop::Port { port })) = found.get(prefix) else {
                panic!("{prefix} as l3fwd")
            };
            let wanted = match meaning {
                Meaning::Id(id) => (id - 1) % u32::from(PORTS.get()),
                Meaning::Hop(
                    NextHop::Port { port: named }
                    | NextHop::Gateway { port: PortRef::Index(named), .. }
                    | NextHop::Connected { port: PortRef::Index(named) },
                ) => u32::from(*named),
                _ => continue, // depends on the id that the gateway was assigned
            };
            assert_eq!(u32::from(*port), wanted, "{prefix} as l3fwd");
        }
    }
}
