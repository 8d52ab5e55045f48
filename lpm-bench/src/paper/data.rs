//! The data sets: routes, and updates if the paper uses any.

use crate::args::{PaperArgs, TableArgs};
use crate::fault::{Fault, Result};
use crate::tables::RouteSet;
use crate::updates::{Deltas, read_file};
use fib::{Family, IpPrefix, NextHopId, Rib, generate};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Tables in the folder that `FWD_DATA` names, the closest in time to the paper first, each with the updates closest in time to it.
const KNOWN: [(&str, &str); 3] = [
    ("v4-201405.txt.xz", "updates-linx-201412.txt.xz"),
    ("v4-202401.txt.xz", "updates-ris-20190101.txt.xz"),
    ("v6-202401.txt.xz", "updates-ris-20190101.txt.xz"),
];
/// Generated updates at most. A quick run uses at most half as many of any stream.
const UPDATES: usize = 200_000;
/// Generated updates per second of their time stamps: about the mean of one collector in the paper (table 1, rrc12).
const UPDATES_A_STAMP: usize = 64;

#[derive(Clone, Copy, Debug)]
pub(super) struct TimedUpdate {
    pub(super) time_s: f64,
    pub(super) prefix: IpPrefix,
    /// The new next hop, taken from the origin of the route (as in the tables).
    by_origin: NextHopId,
    /// The new next hop, taken from the peer that sent the update.
    by_peer: NextHopId,
}

/// The choice of next hops. A collector gets each route from all its peers. By origin, most updates change nothing; by peer, each one changes
/// the next hop, as in a router that forwards to the latest peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HopSource {
    Origin,
    /// The peer; the origin if the feed does not name peers.
    Peer,
}

impl HopSource {
    pub(super) const ALL: [(Self, &'static str); 2] = [(Self::Origin, "by origin"), (Self::Peer, "by peer")];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The final state of the stream, which then changes only its peers' routes.
    OwnState,
    /// The data set's table, from another router: the stream also adds routes that this router lacked.
    Table,
}

impl Start {
    pub(super) const ALL: [(Self, &'static str); 2] =
        [(Self::OwnState, "own state"), (Self::Table, "the table")];
}

#[derive(Debug)]
pub(super) struct DataSet {
    pub(super) name: String,
    pub(super) tables: RouteSet,
    pub(super) updates: Vec<TimedUpdate>,
    pub(super) updates_source: String,
    pub(super) from: TableArgs,
}

impl TimedUpdate {
    const fn next_hop(&self, hops: HopSource) -> NextHopId {
        match hops {
            HopSource::Origin => self.by_origin,
            HopSource::Peer => self.by_peer,
        }
    }
}

impl DataSet {
    pub(super) fn summary(&self) -> Value {
        json!({
            "name": self.name,
            "routes": self.tables.source,
            "routes_v4": self.tables.v4.len(),
            "routes_v6": self.tables.v6.len(),
            "table_hash": self.tables.hash,
            "updates": self.updates_source,
            "updates_told": self.updates.len(),
        })
    }

    /// The first `count` updates of `family`, in the format of `lpm-bench update`.
    pub(super) fn update_lines(&self, family: Family, count: usize) -> String {
        let line = |update: &TimedUpdate| match update.by_origin {
            NextHopId::NONE => format!("w {}\n", update.prefix),
            id => format!("a {} {}\n", update.prefix, id.get()),
        };
        self.updates_of(family).take(count).map(line).collect()
    }

    pub(super) fn up_to_24(&self) -> Self {
        let mut rib = Rib::new();
        let routes = self.tables.v4.iter().filter(|(prefix, _)| prefix.len() <= 24);
        routes.for_each(|(prefix, next_hop)| _ = rib.set(IpPrefix::V4(*prefix), *next_hop));
        let is_short =
            |update: &&TimedUpdate| matches!(update.prefix, IpPrefix::V4(prefix) if prefix.len() <= 24);
        Self {
            name: format!("{}, up to /24", self.name),
            tables: RouteSet::of_rib(rib, self.tables.source.clone()),
            updates: self.updates.iter().filter(is_short).copied().collect(),
            updates_source: self.updates_source.clone(),
            from: self.from.clone(),
        }
    }

    pub(super) fn updates_of(&self, family: Family) -> impl Iterator<Item = &TimedUpdate> {
        self.updates.iter().filter(move |update| update.prefix.family() == family)
    }

    pub(super) fn start(&self, family: Family, hops: HopSource, start: Start) -> Rib {
        let mut rib = Rib::plain();
        match start {
            Start::Table => rib.announce(&self.tables.routes_of(family)),
            Start::OwnState => self.updates_of(family).for_each(|update| {
                rib.set(update.prefix, update.next_hop(hops));
            }),
        }
        rib.take_delta();
        rib
    }

    /// The updates of `family` that change something, in deltas of `size` updates, or of one time stamp each if `None`.
    pub(super) fn deltas(
        &self,
        family: Family,
        size: Option<usize>,
        hops: HopSource,
        start: Start,
    ) -> Deltas {
        let updates: Vec<&TimedUpdate> = self.updates_of(family).collect();
        let parts: Vec<&[&TimedUpdate]> = match size {
            Some(size) => updates.chunks(size.max(1)).collect(),
            None => updates.chunk_by(|a, b| a.time_s.floor().total_cmp(&b.time_s.floor()).is_eq()).collect(),
        };
        let parts = parts.iter().map(|part| part.iter().map(|update| (update.prefix, update.next_hop(hops))));
        Deltas::from_parts(&mut self.start(family, hops, start), parts, |_, _, _| {})
    }

    fn read_updates(&mut self, path: &Path) -> Result<()> {
        // Ids of origins are at most 255.
        const FIRST_PEER: usize = 256;
        let mut peers: BTreeMap<IpAddr, u32> = BTreeMap::new();
        read_file(path, &mut self.tables.hops, |update, by_origin| {
            let by_peer = match update.peer {
                Some(peer) if !by_origin.is_none() => {
                    let next = u32::try_from(FIRST_PEER + peers.len()).unwrap_or(u32::MAX);
                    NextHopId::from_answer(*peers.entry(peer).or_insert(next))
                }
                _ => by_origin,
            };
            self.updates.push(TimedUpdate {
                time_s: update.time_s,
                prefix: update.prefix,
                by_origin,
                by_peer,
            });
        })?;
        self.updates_source = path.display().to_string();
        Ok(())
    }

    fn generate_updates(&mut self, count: usize, seed: u64) {
        let updates = generate::Updates::of_rib(&self.tables.rib, seed).take(count);
        let stamp = |at: usize| f64::from(u32::try_from(at / UPDATES_A_STAMP).unwrap_or(u32::MAX));
        let timed =
            |(at, (prefix, id))| TimedUpdate { time_s: stamp(at), prefix, by_origin: id, by_peer: id };
        self.updates = updates.enumerate().map(timed).collect();
        self.updates_source = format!("generated {count} seed={seed}, {UPDATES_A_STAMP} a stamp");
    }
}

/// Each `--fib` file and the `--generate` table; without either, the files of `FWD_DATA`; without these, the `generated` ones.
pub(super) fn load(args: &PaperArgs, generated: &[(&str, &str)], has_updates: bool) -> Result<Vec<DataSet>> {
    let of = |fib, generate| TableArgs { fib, generate, ..args.table.clone() };
    let file = |path: &Path, updates: Option<PathBuf>| {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = name.split('.').next().unwrap_or_default().to_owned();
        (name, of(vec![path.to_owned()], None), args.updates.clone().or(updates))
    };
    let made = |name: &str, spec| (name.to_owned(), of(vec![], Some(spec)), args.updates.clone());
    let mut tables: Vec<_> = args.table.fib.iter().map(|path| file(path, None)).collect();
    if let Some(spec) = args.table.generate {
        tables.push(made("generated", spec));
    } else if let (true, Some(folder)) = (tables.is_empty(), std::env::var_os("FWD_DATA")) {
        let exists = |name: &str| Some(Path::new(&folder).join(name)).filter(|path| path.exists());
        let known = KNOWN.iter().filter_map(|(table, updates)| Some(file(&exists(table)?, exists(updates))));
        tables.extend(known);
    } else if tables.is_empty() {
        for (name, spec) in generated {
            tables.push(made(name, crate::args::generate(spec).map_err(Fault::Usage)?));
        }
    }
    if tables.is_empty() {
        return Err(Fault::Usage("no table: give --fib FILE or --generate v4=950000,v6=200000".into()));
    }
    let make = |(name, table, updates): (_, TableArgs, Option<PathBuf>)| {
        set(args, name, &table, has_updates.then_some(updates.as_deref()))
    };
    tables.into_iter().map(make).collect()
}

pub(super) fn generated(args: &PaperArgs, name: &str, spec: &str, seed: u64) -> Result<DataSet> {
    let spec = crate::args::generate(spec).map_err(Fault::Usage)?;
    let table = TableArgs { fib: vec![], generate: Some(spec), seed, ..args.table.clone() };
    set(args, name.to_owned(), &table, None)
}

/// A data set. `updates` is `None` if the paper uses no updates, else the optional file of updates.
fn set(args: &PaperArgs, name: String, table: &TableArgs, updates: Option<Option<&Path>>) -> Result<DataSet> {
    let tables = RouteSet::load(table)?;
    let mut set =
        DataSet { name, tables, updates: Vec::new(), updates_source: "none".into(), from: table.clone() };
    let Some(file) = updates else { return Ok(set) };
    if let Some(path) = file {
        set.read_updates(path)?;
    }
    // A file may have no updates of the families of this table.
    let has = |family| set.updates.iter().any(|update| update.prefix.family() == family);
    let lacks = |family| set.tables.routes(family) > 0 && !has(family);
    if lacks(Family::V4) || lacks(Family::V6) {
        let count = UPDATES.min(20 * (set.tables.v4.len() + set.tables.v6.len()).max(1));
        set.generate_updates(count, args.table.seed);
    }
    set.updates.truncate(if args.quick { UPDATES / 2 } else { usize::MAX });
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::super::gamt;
    use super::super::testing::{args, bench_of};
    use super::*;

    #[test]
    fn deltas_lead_there_and_back() {
        let sets = load(&args("--generate v4=500,v6=100"), &[], true).unwrap();
        let set = &sets[0];
        assert_eq!((sets.len(), set.name.as_str()), (1, "generated"));
        for (family, size) in [(Family::V4, None), (Family::V4, Some(1)), (Family::V6, Some(10))] {
            let deltas = set.deltas(family, size, HopSource::Origin, Start::Table);
            assert!(deltas.changes() > 100 && deltas.forward.len() == deltas.backward.len());
            assert_eq!(size == Some(1), deltas.changes() == deltas.forward.len());
            let mut rib = set.tables.oracle.clone();
            deltas.forward.iter().chain(&deltas.backward).for_each(|delta| rib.announce(delta));
            for (prefix, id) in &set.tables.v4 {
                assert_eq!(
                    rib.v4.longest_match(prefix.last_address()),
                    set.tables.oracle.v4.longest_match(prefix.last_address()),
                    "{prefix} {id}"
                );
            }
        }
        let kinds = set.deltas(Family::V4, Some(1), HopSource::Origin, Start::Table).kinds();
        assert!(kinds.iter().all(|kind| *kind > 0), "{kinds:?}");
    }

    #[test]
    fn own_state_is_what_the_stream_leads_to() {
        let lines = "1 a 10.1.0.0/16 192.0.2.1\n2 a 10.1.0.0/16 192.0.2.2\n2 a 10.2.0.0/16 192.0.2.1\n";
        let set = bench_of("10.0.0.0/8 1\n", lines, &gamt::PAPER).sets.remove(0);
        let deltas = |start| set.deltas(Family::V4, None, HopSource::Origin, start);
        assert_eq!(set.start(Family::V4, HopSource::Origin, Start::OwnState).len(), 2);
        assert_eq!((deltas(Start::OwnState).changes(), deltas(Start::OwnState).kinds()), (2, [0, 2, 0]));
        assert_eq!((deltas(Start::Table).changes(), deltas(Start::Table).kinds()), (3, [2, 1, 0]));
    }

    #[test]
    fn by_peer_each_peer_s_word_is_a_change() {
        // Two peers announce the same route with the same origin; then one of them announces it again, and withdraws it.
        let lines = "1.0 a 10.1.0.0/16 192.0.2.1 64500\n1.5 a 10.1.0.0/16 192.0.2.2 64500\n\
                     2.0 a 10.1.0.0/16 192.0.2.1 64500\n3.0 w 10.1.0.0/16 192.0.2.1 64500\n";
        let sets = bench_of("10.0.0.0/8 1\n", lines, &gamt::PAPER).sets;
        let deltas = |hops, start| sets[0].deltas(Family::V4, Some(1), hops, start);
        let changes = |hops, start| deltas(hops, start).changes();
        assert_eq!(
            (changes(HopSource::Origin, Start::Table), changes(HopSource::Peer, Start::Table)),
            (2, 4)
        );
        assert_eq!(deltas(HopSource::Peer, Start::Table).kinds(), [1, 2, 1]);
        let seconds = sets[0].deltas(Family::V4, None, HopSource::Peer, Start::Table);
        assert_eq!(seconds.forward.len(), 3, "one delta a second");
        // The stream ends with a withdrawal, so it begins without the route.
        assert!(sets[0].start(Family::V4, HopSource::Peer, Start::OwnState).is_empty());
        assert_eq!(
            (changes(HopSource::Origin, Start::OwnState), changes(HopSource::Peer, Start::OwnState)),
            (2, 4)
        );
    }
}
