//! The contenders named on the command line: engines with their instruction sets, peers with their variants.
//!
//! A bare name selects every variant for this host, `all` all contenders, `best` each in its last and fastest instruction set. If a variant is
//! named exactly (`bloom:avx512f`, `rte_fib-2b`), its absence or refusal is an error instead of a note.

use crate::fault::Fault;
use fib::{Family, Isa, Registry};
use lpm_phi::coop::CoopEngine;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerLibrary {
    RteFib,
    RteFib6,
    RteLpm,
    RteLpm6,
}

impl PeerLibrary {
    const ALL: [Self; 4] = [Self::RteFib, Self::RteFib6, Self::RteLpm, Self::RteLpm6];

    /// Its name, its family, and whether entry size and lookup function can be chosen.
    const fn facts(self) -> (&'static str, Family, bool) {
        match self {
            Self::RteFib => ("rte_fib", Family::V4, true),
            Self::RteFib6 => ("rte_fib6", Family::V6, true),
            Self::RteLpm => ("rte_lpm", Family::V4, false),
            Self::RteLpm6 => ("rte_lpm6", Family::V6, false),
        }
    }

    fn base(self) -> &'static str {
        self.facts().0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    Engine(&'static str),
    /// A peer and its bytes an entry.
    Peer(PeerLibrary, u8),
}

impl Contender {
    pub(crate) fn is_on_device(self) -> bool {
        matches!(self, Self::Engine(name) if ENGINES.is_device(name))
    }

    /// The `isa` of a row: the instruction set on the CPU, or `ptx` on a device.
    pub(crate) fn isa_name(self, isa: Isa) -> String {
        if self.is_on_device() { "ptx".to_owned() } else { isa.to_string() }
    }

    /// Whether a device or other threads do the work: then a rate is by wall time, with many batches in flight.
    pub(crate) fn works_elsewhere(self) -> bool {
        self.is_on_device() || self == Self::Engine(CoopEngine::NAME)
    }

    pub(crate) fn has_family(self, family: Family) -> bool {
        match self {
            Self::Engine(name) => ENGINES.find(name).is_ok_and(|engine| engine.families.contains(&family)),
            Self::Peer(peer, _) => peer.facts().1 == family,
        }
    }
}

impl fmt::Display for Contender {
    /// The `engine` of a row: 4-byte entries have no suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(name) => f.write_str(name),
            Self::Peer(peer, 2) => write!(f, "{}-2b", peer.base()),
            Self::Peer(peer, _) => f.write_str(peer.base()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedContender {
    pub(crate) contender: Contender,
    pub(crate) isa: Isa,
    /// Named exactly, so a refusal is an error.
    pub(crate) exact: bool,
    /// Selected by `all` alone, so the absence of its device is no error.
    pub(crate) optional: bool,
}

const PLAIN: &[Isa] = &[Isa::Scalar];
/// The two that the Bloomfwd paper compares, and that DPDK has.
const PLAIN_AND_AVX512: &[Isa] = &[Isa::Scalar, Isa::Avx512f];

pub(crate) const ENGINES: Registry =
    Registry::new(&[fib::ENGINES, lpm_cpu::ENGINES, lpm_phi::ENGINES, lpm_gpu::ENGINES]);

/// The contenders without duplicates, in the order of the names. Unknown or unavailable ones are [`Fault::Usage`].
pub(crate) fn expand(names: &[String]) -> Result<Vec<WantedContender>, Fault> {
    let mut all: Vec<WantedContender> = Vec::new();
    for name in names {
        for wanted in expand_one(name)? {
            match all.iter_mut().find(|old| (old.contender, old.isa) == (wanted.contender, wanted.isa)) {
                Some(old) => {
                    old.exact |= wanted.exact;
                    old.optional &= wanted.optional;
                }
                None => all.push(wanted),
            }
        }
    }
    Ok(all)
}

fn expand_one(name: &str) -> Result<Vec<WantedContender>, Fault> {
    if matches!(name, "all" | "best") {
        let peers = PeerLibrary::ALL.iter().filter(|_| cfg!(feature = "dpdk")).map(|peer| peer.base());
        let names = ENGINES.names().into_iter().chain(peers);
        let mut all = names.map(expand_one).collect::<Result<Vec<_>, _>>()?.concat();
        all.iter_mut().for_each(|wanted| wanted.optional = true);
        if name == "best" {
            // Variants of a contender stay together, in ascending order of instruction sets.
            all.reverse();
            all.sort_by_key(|wanted| wanted.contender.to_string());
            all.dedup_by_key(|wanted| wanted.contender);
        }
        return Ok(all);
    }
    let (base, isa) = match name.split_once(':') {
        Some((base, isa)) => (base, Some(isa.parse::<Isa>()?.checked()?.get())),
        None => (name, None),
    };
    if let Ok(engine) = ENGINES.find(base) {
        return Ok(variants(name, engine.isas, isa)?
            .map(|isa| (Contender::Engine(engine.name), isa))
            .collect())
        .map(|found| mark(found, isa.is_some()));
    }
    let (base, entry) = match base.rsplit_once('-') {
        Some((base, "2b")) => (base, Some(2)),
        Some((base, "4b")) => (base, Some(4)),
        _ => (base, None),
    };
    let Some(peer) = PeerLibrary::ALL.into_iter().find(|peer| peer.base() == base) else {
        return Err(Fault::Usage(format!("'{name}' is no engine; known are: {}", known())));
    };
    if !cfg!(feature = "dpdk") {
        return Err(Fault::Usage(format!("{name} needs DPDK: build lpm-bench with --features dpdk")));
    }
    let (_, _, has_variants) = peer.facts();
    if entry == Some(2) && !has_variants {
        return Err(Fault::Usage(format!("{} has 4-byte entries only", peer.base())));
    }
    let sizes = [4, 2].into_iter().filter(|size| match entry {
        Some(entry) => *size == entry,
        None => *size == 4 || has_variants,
    });
    let isas = if has_variants { PLAIN_AND_AVX512 } else { PLAIN };
    let isas: Vec<Isa> = variants(name, isas, isa)?.collect();
    let found =
        sizes.flat_map(|size| isas.iter().map(move |isa| (Contender::Peer(peer, size), *isa))).collect();
    Ok(mark(found, entry.is_some()))
}

fn mark(found: Vec<(Contender, Isa)>, exact: bool) -> Vec<WantedContender> {
    found
        .into_iter()
        .map(|(contender, isa)| WantedContender { contender, isa, exact, optional: false })
        .collect()
}

fn variants<'a>(
    name: &str,
    isas: &'a [Isa],
    asked: Option<Isa>,
) -> Result<impl Iterator<Item = Isa> + use<'a>, Fault> {
    if asked.is_some_and(|isa| !isas.contains(&isa)) {
        let known: Vec<_> = isas.iter().map(ToString::to_string).collect();
        return Err(Fault::Usage(format!("{name}: wanted {}", known.join(" or "))));
    }
    Ok(isas.iter().copied().filter(move |isa| asked.map_or(isa.is_available(), |asked| asked == *isa)))
}

fn known() -> String {
    let peers = PeerLibrary::ALL.iter().map(|peer| peer.base());
    let names: Vec<_> = ENGINES.names().into_iter().chain(peers).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        let list: Vec<_> = list.iter().map(|name| (*name).to_owned()).collect();
        expand(&list).unwrap().iter().map(|w| format!("{}:{}", w.contender, w.isa)).collect()
    }

    fn refused(name: &str) -> String {
        let why = expand(&[name.to_owned()]).unwrap_err();
        assert_eq!(why.exit_code(), crate::fault::BAD_USAGE);
        why.to_string()
    }

    #[test]
    fn names_expand_once_and_wrong_ones_say_what_there_is() {
        assert_eq!(names(&["oracle", "oracle:scalar"]), ["oracle:scalar"]);
        assert!(expand(&["oracle:scalar".into()]).unwrap()[0].exact);
        assert_eq!(names(&["bloom:scalar"]), ["bloom:scalar"]);
        let all = Isa::ALL.iter().filter(|isa| isa.is_available()).count();
        assert_eq!(names(&["bloom"]).len(), all);
        let best = names(&["best"]);
        assert!(
            best.contains(&format!("host:{}", Isa::detect())) && best.contains(&"oracle:scalar".to_owned())
        );
        let mut once: Vec<_> = best.iter().filter_map(|name| name.split(':').next()).collect();
        once.dedup();
        assert_eq!(once.len(), best.len(), "{best:?}");
        assert!(refused("orakel").contains("oracle, host, sail-b"));
        assert!(refused("oracle:sse9").contains("avx512f"));
        if Isa::Avx512f.is_available() {
            assert!(refused("oracle:avx512f").contains("wanted scalar"));
        }
        if Isa::Avx2.is_available() {
            assert!(refused("bloom-naive:avx2").contains("wanted scalar or avx512f"));
        }
    }

    #[test]
    #[cfg(not(feature = "dpdk"))]
    fn peers_need_dpdk() {
        assert!(refused("rte_fib").contains("--features dpdk"));
        assert!(names(&["all"]).iter().all(|name| !name.starts_with("rte")));
    }

    #[test]
    #[cfg(feature = "dpdk")]
    fn peers_come_in_entry_sizes() {
        assert_eq!(names(&["rte_lpm"]), ["rte_lpm:scalar"]);
        assert_eq!(names(&["rte_fib:scalar"]), ["rte_fib:scalar", "rte_fib-2b:scalar"]);
        assert_eq!(names(&["rte_fib6-4b:scalar"]), ["rte_fib6:scalar"]);
        assert!(refused("rte_lpm-2b").contains("4-byte"));
        let exact = expand(&["rte_fib-2b:scalar".into()]).unwrap();
        assert!(exact[0].exact && exact[0].contender.has_family(Family::V4));
    }
}
