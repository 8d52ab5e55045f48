//! One sentence a row: why the figure is what it is. Built from what was counted and measured, never from a hope.

use crate::contenders::Built;
use crate::host::Host;
use crate::profile::Profile;
use crate::wanted::{Contender, Peer};
use fib::{Family, Isa};

/// Why `built` took `ns` nanoseconds a lookup on a traffic of `profile`.
pub(crate) fn sentence(built: &Built, profile: &Profile, ns: f64, host: &Host) -> String {
    let what = match built.contender {
        Contender::Peer(peer, entry_bytes) => peer_sentence(peer, entry_bytes, built.isa, profile),
        Contender::Engine("oracle") => format!(
            "{:.1} hash probes a key, from the longest length down, and a lock a call; it is here to be right",
            profile.oracle_probes
        ),
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

/// Where the memory that lookups read lies in the cache hierarchy.
fn fits(built: &Built, profile: &Profile, host: &Host) -> String {
    let (bytes, what) = match built.contender {
        // DPDK's tables are mostly empty space: what counts is what the traffic touches. Entries of 2 bytes need half
        // the lines where neighbours are touched, as many where they are not.
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

fn peer_sentence(peer: Peer, entry_bytes: u8, isa: Isa, profile: &Profile) -> String {
    let how = match (peer, isa) {
        (Peer::RteFib | Peer::RteFib6, Isa::Avx512f) => "gathers of 16 or 32 keys, 8-byte answers written",
        (Peer::RteFib | Peer::RteFib6, _) => "one key after the other, 8-byte answers written",
        (Peer::RteLpm, _) => "one key after the other with a branch on the second load",
        (Peer::RteLpm6, _) => "a loop of loads a key, the next key only after it",
    };
    format!(
        "{:.2} dependent loads of {entry_bytes} bytes a key from 2^24 entries and groups of 256, {how}",
        1.0 + profile.group_loads
    )
}

fn bloom_sentence(built: &Built, profile: &Profile) -> String {
    let (direct, below) = (profile.direct_bits, profile.below_direct * 100.0);
    match built.family {
        Family::V4 => format!(
            "one load answers {:.0} % of the keys; below the /{direct} of the other {below:.0} % something longer lies, \
             so they go on to a line of the hash table, by way of a filter word where their block is not dense",
            100.0 - below
        ),
        Family::V6 => format!(
            "two loads answer {:.0} % of the keys; below the /{direct} of the other {below:.0} % something longer lies, \
             so they ask the filter and the hash line of each level that their block has, deepest first \
             (mean matched length {:.1} bits)",
            100.0 - below,
            profile.len_mean
        ),
    }
}

fn variant_sentence(built: &Built, profile: &Profile) -> String {
    let detail = |name: &str| built.details.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, n)| *n);
    let levels = match built.family {
        Family::V4 => detail("v4_levels"),
        Family::V6 => detail("v6_levels"),
    };
    let how = match built.isa {
        Isa::Scalar => "one key after the other",
        Isa::Avx2 => "stage by stage, the slots of a line compared at once",
        Isa::Avx512f => "sixteen keys hashed and tested at once, lists followed one by one",
    };
    format!(
        "{levels:.0} filters, each a hash and the lines of its bits, are asked from the longest length down to the one that \
         matches (mean {:.1} bits), and a linked list for each that says yes, {how}",
        profile.len_mean
    )
}

fn miht_sentence(built: &Built, profile: &Profile) -> String {
    let detail = |name: &str| built.details.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, n)| *n);
    let [levels, suffix, short] = match built.family {
        Family::V4 => ["v4_index_levels", "v4_suffix_levels_mean", "v4_short_levels_mean"],
        Family::V6 => ["v6_index_levels", "v6_suffix_levels_mean", "v6_short_levels_mean"],
    }
    .map(detail);
    format!(
        "a search in one node on each of {levels:.0} levels of the index tree, then the nodes of a trie one after the other \
         (a route lies on its level {suffix:.1} on average), and those of the trie of shorter routes where that has none \
         ({short:.1}); 64 keys go down together, so their loads overlap (mean matched length {:.1} bits)",
        profile.len_mean
    )
}

/// Why updates of `built` cost its lookups what they cost.
pub(crate) fn update_sentence(contender: Contender) -> &'static str {
    match contender {
        Contender::Engine("oracle") => {
            "a hash map is changed under a write lock that every call of the lookups takes too"
        }
        Contender::Engine("bloom") => {
            "a change writes the words of its own prefix in place, more of them where the prefix expands, and waits where \
             it must for the lookups to end the call they are in; lookups pay for the lines that move between the cores"
        }
        Contender::Engine("bloom-naive" | "bloom-baseline") => {
            "a change is written to a second copy of the table, and again to the first once no lookup reads it; lookups pay \
             for the lines that come fresh from the other core"
        }
        Contender::Engine("miht") => {
            "a change rewrites a few nodes of a copy that no lookup reads, which then changes places with the other; that one gets \
             the change with the next one"
        }
        Contender::Engine(_) if contender.is_on_device() => {
            "a change is worked out on the host and written by a small kernel beside those that look up"
        }
        Contender::Engine(_) => "changes are applied by the engine's own rules beside the lookups",
        Contender::Peer(Peer::RteFib | Peer::RteFib6, _) => {
            "a change walks the RIB beside the table and rewrites the range of entries that the prefix owns in place; a \
             lookup during a change may see a group that was freed and used again; its count of reserved groups drifts as \
             long prefixes come and go, so it may refuse one for want of room that is there"
        }
        Contender::Peer(Peer::RteLpm, _) => {
            "a change searches a sorted array of all rules of its length and rewrites the range of its prefix"
        }
        Contender::Peer(Peer::RteLpm6, _) => {
            "a change rewrites the range of its prefix; a delete rebuilds what it covered"
        }
    }
}
