//! DPDK's lookup libraries as contenders: sized for the table, filled route by route, driven through their native interfaces.
//!
//! EAL is started once, only for peers, with huge pages if enough are free. The report states the pages: our engines take huge ones without EAL.

use crate::args::EngineArgs;
use crate::fault::Fault;
use crate::host::HostFacts;
use crate::keys::KeySet;
use crate::profile::Blocks;
use crate::table::{Applied, Looker, Measurable, calls};
use crate::tables::RouteSet;
use crate::wanted::{Contender, PeerLibrary, WantedContender};
use dpdk_ffi::fib::{
    EntryBytes, Library, LookupKind, Reader, RteFib, RteFib6, RteLpm, RteLpm6, Selectable, TableConfig,
};
use dpdk_ffi::{DpdkError, Eal, SocketId};
use fib::{Details, Family, Isa, NextHopId, Prefix6, Route, Routes};
use serde::Serialize;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// A RIB node of `rte_fib` has 192 bytes in its mempool, padded over memory channels, and 8 in its ring; two a route are reserved.
const NODE_BYTES: u64 = 208;
const EAL_BYTES: u64 = 96 << 20;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
const TELL_EVERY: usize = 4096;

pub(crate) struct Peers {
    eal: Eal,
    made: u32,
    groups: [Groups; 2],
    huge_pages: bool,
}

impl Peers {
    /// Fails with [`Fault::Eal`]; EAL's log is on standard error.
    pub(crate) fn start(
        args: &EngineArgs,
        wanted: &[WantedContender],
        tables: &RouteSet,
    ) -> Result<Self, Fault> {
        let groups = [Family::V4, Family::V6].map(|family| Groups::count(tables, family));
        let bytes: u64 = wanted.iter().map(|wanted| memory_bytes(*wanted, tables, groups)).sum();
        let arguments = match &args.eal {
            Some(text) => text.split_whitespace().map(str::to_owned).collect(),
            None => arguments(args.cpu, EAL_BYTES + bytes, HostFacts::read().huge_pages_free),
        };
        let eal =
            Eal::init(&arguments).map_err(|source| Fault::Eal { arguments: arguments.join(" "), source })?;
        let huge_pages = eal.has_hugepages();
        if !huge_pages {
            eprintln!(
                "lpm-bench: warning: DPDK runs without huge pages, which slows its tables down; \
                 reserve {} of 2 MB: sysctl -w vm.nr_hugepages=N",
                (EAL_BYTES + bytes).div_ceil(HUGE_PAGE_BYTES)
            );
        }
        Ok(Self { eal, made: 0, groups, huge_pages })
    }

    /// An empty table of `peer` for `family`. [`Fault::PeerFull`] when its entries cannot number the groups; [`Fault::Peer`] when DPDK refuses.
    pub(crate) fn make(
        &mut self,
        contender: Contender,
        isa: Isa,
        family: Family,
        tables: &RouteSet,
    ) -> Result<Box<dyn Measurable>, Fault> {
        let Contender::Peer(peer, entry_bytes) = contender else {
            return Err(Fault::Usage(format!("{contender} is no peer")));
        };
        let config = self.config(contender, entry_bytes, family, tables)?;
        self.made += 1;
        let name = format!("bench{}", self.made);
        let kind = match isa {
            Isa::Scalar => LookupKind::Scalar,
            Isa::Avx2 => return Err(Fault::Usage(format!("{contender}: DPDK has no AVX2 lookup"))),
            Isa::Avx512f => LookupKind::Avx512,
        };
        let engine = contender.to_string();
        let made = match peer {
            PeerLibrary::RteFib => {
                selected::<RteFib>(&self.eal, &name, &config, kind).map(|t| boxed(t, &engine, self))
            }
            PeerLibrary::RteFib6 => {
                selected::<RteFib6>(&self.eal, &name, &config, kind).map(|t| boxed(t, &engine, self))
            }
            PeerLibrary::RteLpm => dpdk_ffi::fib::DpdkTable::<RteLpm>::new(&self.eal, &name, &config)
                .map(|t| boxed(t, &engine, self)),
            PeerLibrary::RteLpm6 => dpdk_ffi::fib::DpdkTable::<RteLpm6>::new(&self.eal, &name, &config)
                .map(|t| boxed(t, &engine, self)),
        };
        made.map_err(|source| Fault::Peer { engine, source })
    }

    /// The size for the routes and a margin for updates, or why it is impossible.
    fn config(
        &self,
        contender: Contender,
        entry_bytes: u8,
        family: Family,
        tables: &RouteSet,
    ) -> Result<TableConfig, Fault> {
        let entry = if entry_bytes == 2 { EntryBytes::Two } else { EntryBytes::Four };
        let full = |what, used: usize, limit: u32| Fault::PeerFull {
            engine: contender.to_string(),
            what,
            used: used as u64,
            limit: u64::from(limit),
        };
        let next_hop = tables.next_hop_max(family);
        if next_hop > entry.limit() {
            return Err(full("the largest next hop", next_hop as usize, entry.limit()));
        }
        let has_default = tables.lens(family).first() == Some(&0);
        if has_default && matches!(contender, Contender::Peer(PeerLibrary::RteLpm | PeerLibrary::RteLpm6, _))
        {
            return Err(full("default routes", 1, 0));
        }
        let groups = self.groups[usize::from(family == Family::V6)];
        let needed = if contender == Contender::Peer(PeerLibrary::RteFib6, entry_bytes) {
            groups.reserved
        } else {
            groups.used
        };
        let limit = entry.limit();
        if needed >= limit as usize {
            return Err(full("second-level groups", needed, limit));
        }
        let routes = tables.routes(family);
        Ok(TableConfig {
            routes_max: u32::try_from(routes_max(routes)).unwrap_or(u32::MAX),
            groups: u32::try_from(with_spare(needed)).unwrap_or(u32::MAX).min(limit),
            entry,
            socket: SocketId::ANY,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Groups {
    used: usize,
    /// Groups that `rte_fib6` must be able to number before it takes the routes. For each route it counts the bytes by which the route is longer
    /// than the covering route, as if no two routes shared a group (`trie_modify`).
    reserved: usize,
}

impl Groups {
    fn count(tables: &RouteSet, family: Family) -> Self {
        let used = Blocks::from_routes(tables, family).count();
        let reserved = if family == Family::V6 { reserved(&tables.v6) } else { used };
        Self { used, reserved: reserved.max(used) }
    }
}

/// See [`Groups::reserved`]; `routes` are sorted, so a covering route comes first.
fn reserved(routes: &[(Prefix6, NextHopId)]) -> usize {
    let bytes_past_24 = |len: u8| usize::from(len.max(24).div_ceil(8)) - 3;
    let mut covers: Vec<Prefix6> = Vec::new();
    let mut all = 0;
    for (prefix, _) in routes {
        while covers.last().is_some_and(|cover| !cover.covers(*prefix)) {
            covers.pop();
        }
        let cover = covers.last().map_or(0, |cover| cover.len());
        all += bytes_past_24(prefix.len()) - bytes_past_24(cover);
        covers.push(*prefix);
    }
    all
}

fn routes_max(routes: usize) -> usize {
    routes + routes / 16 + 4096
}

/// A margin of a quarter, and more for small tables: the need of long prefixes varies more under updates.
fn with_spare(needed: usize) -> usize {
    needed + needed / 4 + 4096
}

fn memory_bytes(wanted: WantedContender, tables: &RouteSet, groups: [Groups; 2]) -> u64 {
    let Contender::Peer(peer, entry_bytes) = wanted.contender else { return 0 };
    let v6 = usize::from(wanted.contender.has_family(Family::V6));
    let family = if v6 == 1 { Family::V6 } else { Family::V4 };
    let groups = if peer == PeerLibrary::RteFib6 { groups[v6].reserved } else { groups[v6].used };
    let (routes, groups) = (routes_max(tables.routes(family)) as u64, with_spare(groups) as u64);
    let arrays = ((1 << 24) + groups * 256) * u64::from(entry_bytes);
    match peer {
        PeerLibrary::RteFib | PeerLibrary::RteFib6 => arrays + routes * 2 * NODE_BYTES,
        PeerLibrary::RteLpm | PeerLibrary::RteLpm6 => arrays + routes * 128,
    }
}

/// EAL's arguments: huge pages if enough are free, ordinary memory otherwise; no devices, no files, one lcore.
fn arguments(cpu: Option<usize>, bytes: u64, huge_pages_free: u64) -> Vec<String> {
    let huge = bytes.div_ceil(HUGE_PAGE_BYTES) <= huge_pages_free;
    let cpus = match cpu {
        Some(cpu) => cpu.to_string(),
        None => {
            let cores = core_affinity::get_core_ids().unwrap_or_default();
            cores.iter().map(|core| core.id.to_string()).collect::<Vec<_>>().join(",")
        }
    };
    let mut arguments: Vec<String> = if huge {
        ["--in-memory", "--iova-mode=va"].map(str::to_owned).into()
    } else {
        ["--no-huge", "--no-shconf"].map(str::to_owned).into()
    };
    arguments.extend(["--no-pci", "--no-telemetry", "--force-max-simd-bitwidth=512"].map(str::to_owned));
    arguments.extend(["-m".to_owned(), bytes.div_ceil(1 << 20).to_string()]);
    arguments.push(format!("--file-prefix=lpm-bench-{}", std::process::id()));
    arguments.push(format!("--lcores=0@({cpus})"));
    arguments.push("--log-level=error".to_owned());
    arguments
}

fn selected<L: Selectable>(
    eal: &Eal,
    name: &str,
    config: &TableConfig,
    kind: LookupKind,
) -> Result<dpdk_ffi::fib::DpdkTable<L>, DpdkError> {
    let mut table = dpdk_ffi::fib::DpdkTable::<L>::new(eal, name, config)?;
    table.select(kind)?;
    Ok(table)
}

fn boxed<L>(table: dpdk_ffi::fib::DpdkTable<L>, engine: &str, peers: &Peers) -> Box<dyn Measurable>
where
    L: Drive,
{
    let groups = peers.groups[usize::from(size_of::<L::Key>() == 16)];
    Box::new(PeerTable {
        table,
        engine: engine.to_owned(),
        groups: groups.used as u64,
        huge_pages: peers.huge_pages,
    })
}

trait Drive: Library<Key: Send, Answer: Send> + Send + 'static {
    fn keys(set: &KeySet) -> &[Self::Key];
    /// The changes of a delta in the library's family: address, length, next hop (0: withdraw).
    fn changes(delta: &Routes) -> impl Iterator<Item = (Self::Key, u8, u32)>;
    fn text(address: Self::Key) -> IpAddr;
}

fn of_v4(change: &Route<u32>) -> (u32, u8, u32) {
    (change.prefix.address(), change.prefix.len(), change.next_hop.get())
}

fn of_v6(change: &Route<u128>) -> ([u8; 16], u8, u32) {
    (change.prefix.address().to_be_bytes(), change.prefix.len(), change.next_hop.get())
}

macro_rules! drive {
    ($($library:ty: $key:ty, $keys:ident, $side:ident, $of:ident, $text:expr;)*) => {$(
        impl Drive for $library {
            fn keys(set: &KeySet) -> &[$key] {
                set.$keys()
            }
            fn changes(delta: &Routes) -> impl Iterator<Item = ($key, u8, u32)> {
                delta.$side.iter().map($of)
            }
            fn text(address: $key) -> IpAddr {
                $text(address).into()
            }
        }
    )*};
}
drive! {
    RteFib: u32, v4, v4, of_v4, Ipv4Addr::from_bits;
    RteLpm: u32, v4, v4, of_v4, Ipv4Addr::from_bits;
    RteFib6: [u8; 16], bytes, v6, of_v6, Ipv6Addr::from;
    RteLpm6: [u8; 16], bytes, v6, of_v6, Ipv6Addr::from;
}

struct PeerTable<L: Drive> {
    table: dpdk_ffi::fib::DpdkTable<L>,
    engine: String,
    groups: u64,
    huge_pages: bool,
}

impl<L: Drive> PeerTable<L> {
    fn change(&mut self, address: L::Key, len: u8, next_hop: u32) -> Result<(), DpdkError> {
        if next_hop == 0 {
            // Withdrawing a missing route is no error.
            return self.table.delete(address, len).map(|_| ());
        }
        self.table.add(address, len, next_hop)
    }
}

impl<L: Drive> Measurable for PeerTable<L> {
    fn apply(&mut self, delta: &Routes) -> Result<Applied, Fault> {
        self.fill(delta, &|_| ())
    }

    fn fill(&mut self, delta: &Routes, on_progress: &dyn Fn(u64)) -> Result<Applied, Fault> {
        let mut applied = Applied::default();
        for (at, (address, len, next_hop)) in L::changes(delta).enumerate() {
            match self.change(address, len, next_hop) {
                Ok(()) => applied.changes += 1,
                Err(why) => {
                    applied.refused += 1;
                    applied
                        .first_refusal
                        .get_or_insert_with(|| format!("{} /{len}: {why}", L::text(address)));
                }
            }
            if at % TELL_EVERY == TELL_EVERY - 1 {
                on_progress(at as u64 + 1);
            }
        }
        Ok(applied)
    }

    fn table_bytes(&self) -> u64 {
        // The largest next hop shows the size of an entry; rte_lpm's 24 and rte_lpm6's 21 bits are in 4 bytes.
        let entry_bytes = if self.table.next_hop_max() == EntryBytes::Two.limit() { 2 } else { 4 };
        ((1 << 24) + self.groups * 256) * entry_bytes
    }

    fn details(&self) -> Details {
        #[derive(Serialize)]
        struct PeerDetails {
            groups: u64,
            huge_pages: u8,
        }
        Details::new(&PeerDetails { groups: self.groups, huge_pages: self.huge_pages.into() })
    }

    fn looker(&mut self) -> Result<Box<dyn Looker>, Fault> {
        let (engine, reader) = (self.engine.clone(), self.table.reader());
        Ok(Box::new(PeerLooker::<L> { engine, reader, out: Vec::new() }))
    }
}

struct PeerLooker<L: Drive> {
    engine: String,
    reader: Reader<L>,
    out: Vec<L::Answer>,
}

impl<L: Drive> PeerLooker<L> {
    #[cold]
    fn refused(&self, source: DpdkError) -> Fault {
        Fault::Peer { engine: self.engine.clone(), source }
    }

    #[inline]
    fn each(
        &mut self,
        keys: &KeySet,
        range: Range<usize>,
        call: usize,
        mut take: impl FnMut(&[L::Answer]),
    ) -> Result<(), Fault> {
        let all = L::keys(keys);
        if range.end > all.len() {
            let (family, len) = (keys.family(), all.len());
            return Err(Fault::Measurement(format!("{} has {len} {family} keys in its form", self.engine)));
        }
        self.out.resize(call, L::Answer::default());
        for part in calls(range, call) {
            let out = &mut self.out[..part.len()];
            if let Err(source) = self.reader.lookup(&all[part], out) {
                return Err(self.refused(source));
            }
            take(out);
        }
        Ok(())
    }
}

impl<L: Drive> Looker for PeerLooker<L> {
    fn sweep(&mut self, keys: &KeySet, range: Range<usize>, call: usize) -> Result<(), Fault> {
        self.each(keys, range, call, |answers| {
            black_box(answers);
        })
    }

    fn answers(&mut self, keys: &KeySet, call: usize) -> Result<Vec<u32>, Fault> {
        let mut answers = Vec::with_capacity(keys.len());
        self.each(keys, 0..keys.len(), call, |part| {
            answers.extend(part.iter().map(|answer| dpdk_ffi::fib::DpdkTable::<L>::next_hop(*answer)));
        })?;
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli};
    use crate::lookup;
    use crate::wanted::expand;
    use clap::Parser;

    #[test]
    fn eal_gets_huge_pages_only_when_enough_are_free() {
        let with = arguments(Some(1), 100 << 20, 50);
        assert!(with.contains(&"--in-memory".into()) && with.contains(&"--lcores=0@(1)".into()), "{with:?}");
        let without = arguments(Some(1), 101 << 20, 50);
        assert!(without.contains(&"--no-huge".into()) && !without.contains(&"--in-memory".into()));
    }

    #[test]
    fn groups_are_reserved_as_rte_fib6_counts_them() {
        let routes = [
            "2001:d00::/24 1",
            "2001:db8::/32 2",
            "2001:db8:1::/48 3",
            "2001:db8:2::/48 4",
            "2001:db8::/29 5",
        ];
        let groups = Groups::count(&RouteSet::of_routes(&routes), Family::V6);
        // The /29 takes one byte past 24 bits, the /32 none, each /48 two more; in fact each level below 24, 32 and 40 bits shares one group.
        assert_eq!(groups, Groups { used: 3, reserved: 5 });
    }

    #[test]
    fn memory_is_asked_for_what_is_wanted() {
        let tables = RouteSet::of_routes(&["10.0.0.0/8 1"]);
        let none = [Groups { used: 0, reserved: 0 }; 2];
        let wanted = expand(&["rte_fib:scalar".into(), "oracle".into()]).unwrap();
        let bytes: Vec<_> = wanted.iter().map(|one| memory_bytes(*one, &tables, none)).collect();
        assert!(bytes[0] > 64 << 20 && bytes[1] > 32 << 20 && bytes[1] < bytes[0] && bytes[2] == 0);
    }

    /// One test, because EAL starts once a process.
    #[test]
    fn every_peer_answers_as_the_oracle_or_refuses() {
        let line = "lpm-bench lookup --generate v4=3000,v6=2000 --keys 4K --check 1K --rounds 2 \
                    --engines oracle,rte_fib,rte_fib6,rte_lpm,rte_lpm6";
        let BenchCommand::Lookup(args) = Cli::parse_from(line.split_whitespace()).command else {
            panic!("{line}")
        };
        let report = match lookup::run(&args) {
            Ok(report) => report,
            Err(why @ (Fault::Eal { .. } | Fault::Peer { source: DpdkError::SimdWidth { .. }, .. })) => {
                return fib::testing::skip("dpdk", why);
            }
            Err(why) => panic!("{why}"),
        };
        let vector = usize::from(Isa::Avx512f.is_available());
        let fib = 2 * (1 + vector);
        assert_eq!(report.rows.len() + report.refused.len() * 3, (2 + fib + fib + 2) * 3);
        for row in &report.rows {
            assert_eq!((row.checked, row.wrong), (2048, 0), "{row:?}");
            assert!(row.ratio.is_some() && row.ratio_best.is_some_and(|ratio| ratio > 0.0), "{row:?}");
            assert!(row.ratio_to.as_deref().is_some_and(|to| to.starts_with("rte_")), "{row:?}");
        }
    }
}
