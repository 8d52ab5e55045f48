//! The analysis sentence of a row, from counts over keys and table and from measurements of the run. It names no cause that was not measured.

use crate::contenders::BuiltContender;
use crate::host::HostFacts;
use crate::profile::Profile;
use crate::report::UpdateRow;
use crate::wanted::{Contender, PeerLibrary};
use fib::{Family, Isa};

pub(crate) fn sentence(built: &BuiltContender, profile: &Profile, ns: f64, host: &HostFacts) -> String {
    let what = match built.contender {
        Contender::Peer(peer, entry_bytes) => peer_sentence(peer, entry_bytes, built.isa, profile),
        Contender::Engine("oracle") => {
            format!("{:.1} hash probes a key, from the longest length down", profile.oracle_probes)
        }
        Contender::Engine("bloom") => bloom_sentence(built, profile),
        Contender::Engine("bloom-naive" | "bloom-baseline") => variant_sentence(built, profile),
        Contender::Engine("miht") => miht_sentence(built, profile),
        Contender::Engine(_) => format!("mean matched length {:.1} bits", profile.len_mean),
    };
    if built.contender.is_on_device() {
        return format!(
            "{what}; {}; {ns:.3} ns a lookup from the caller's keys to its next hops",
            fits(built, profile, host)
        );
    }
    format!(
        "{what}; {}; about {:.0} cycles a lookup",
        fits(built, profile, host),
        ns * host.clock_ghz_estimated
    )
}

fn fits(built: &BuiltContender, profile: &Profile, host: &HostFacts) -> String {
    let (bytes, what) = match built.contender {
        // DPDK's tables are mostly empty: only touched memory counts. 2-byte entries need half the lines or more.
        Contender::Peer(_, 4) => (profile.touched_bytes, "touched"),
        Contender::Peer(..) => (profile.touched_bytes / 2, "touched at least"),
        Contender::Engine(_) if built.contender.is_on_device() => {
            return format!("{:.1} MB of table on the device", built.table_bytes as f64 / 1e6);
        }
        Contender::Engine(_) => (built.table_bytes, "of table"),
    };
    let place = match bytes / 1024 {
        kib if kib <= host.l2_kib => "in L2",
        kib if kib <= host.l3_kib => "past L2, in L3",
        _ if host.l3_kib == 0 => "against caches of unknown size",
        _ => "past L3, in memory",
    };
    format!("{:.1} MB {what} ({place})", bytes as f64 / 1e6)
}

fn peer_sentence(peer: PeerLibrary, entry_bytes: u8, isa: Isa, profile: &Profile) -> String {
    let loads = 1.0 + profile.group_loads;
    let how = kernel(Contender::Peer(peer, entry_bytes), isa);
    format!(
        "{loads:.2} dependent loads of {entry_bytes} bytes a key from 2^24 entries and groups of 256, {how}"
    )
}

/// How the lookup function of that instruction set takes its keys. Without kernels for it a contender runs its scalar ones.
fn kernel(contender: Contender, isa: Isa) -> &'static str {
    match (contender, isa) {
        (Contender::Peer(PeerLibrary::RteFib | PeerLibrary::RteFib6, _), Isa::Avx512f) => {
            "16 or 32 keys at once"
        }
        (Contender::Engine("bloom-naive"), Isa::Avx512f) => "16 keys at once",
        _ => "one key at a time",
    }
}

fn bloom_sentence(built: &BuiltContender, profile: &Profile) -> String {
    let (direct, below) = (profile.direct_bits, profile.below_direct * 100.0);
    match built.family {
        Family::V4 => format!(
            "one load answers {:.0} % of the keys; the other {below:.0} % have longer prefixes within their /{direct}",
            100.0 - below
        ),
        Family::V6 => format!(
            "two loads answer {:.0} % of the keys; the other {below:.0} % have longer prefixes within their /{direct} \
             (mean matched length {:.1} bits)",
            100.0 - below,
            profile.len_mean
        ),
    }
}

fn variant_sentence(built: &BuiltContender, profile: &Profile) -> String {
    let detail = |name: &str| built.details.get(name).unwrap_or(0.0);
    let levels = match built.family {
        Family::V4 => detail("v4_levels"),
        Family::V6 => detail("v6_levels"),
    };
    format!(
        "at most {levels:.0} filters, probed from the longest length down to the match (mean {:.1} bits), {}",
        profile.len_mean,
        kernel(built.contender, built.isa)
    )
}

fn miht_sentence(built: &BuiltContender, profile: &Profile) -> String {
    let detail = |name: &str| built.details.get(name).unwrap_or(0.0);
    let [levels, suffix, short] = match built.family {
        Family::V4 => ["v4_index_levels", "v4_suffix_levels_mean", "v4_short_levels_mean"],
        Family::V6 => ["v6_index_levels", "v6_suffix_levels_mean", "v6_short_levels_mean"],
    }
    .map(detail);
    format!(
        "{levels:.0} levels of the index tree, then a trie with routes on level {suffix:.1} on average, and the trie of shorter \
         routes where it has none (level {short:.1}); mean matched length {:.1} bits",
        profile.len_mean
    )
}

pub(crate) fn update_sentence(row: &UpdateRow) -> String {
    let kept = row.lookup_kept * 100.0;
    let delta_us = row.delta as f64 / row.updates_per_s * 1e6;
    format!(
        "during {:.0} updates/s lookups keep {kept:.0} % of their idle rate; alone, a delta of {} takes {delta_us:.1} us on average, \
         99 of 100 take less than {:.1} us, the slowest {:.1} us",
        row.updates_per_s_under, row.delta, row.apply_us_p99, row.apply_us_max
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanted::ENGINES;
    use fib::Engine;

    #[test]
    fn an_instruction_set_without_kernels_is_told_as_scalar_code() {
        for Engine { name, isas, .. } in ENGINES.engines() {
            let of = |isa| kernel(Contender::Engine(name), isa);
            for isa in Isa::ALL.into_iter().filter(|isa| !isas.contains(isa)) {
                assert_eq!(of(isa), of(Isa::Scalar), "{name} has no kernels for {isa}");
            }
        }
        for peer in [PeerLibrary::RteFib, PeerLibrary::RteFib6, PeerLibrary::RteLpm, PeerLibrary::RteLpm6] {
            let of = |isa| kernel(Contender::Peer(peer, 4), isa);
            assert_eq!(of(Isa::Avx2), of(Isa::Scalar), "{peer:?}");
        }
        assert_ne!(kernel(Contender::Engine("bloom-naive"), Isa::Avx512f), "one key at a time");
    }
}
