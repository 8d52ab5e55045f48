//! Hashes of tables and packets (XXH3, 64 bits): equal on every host for the same content, also from different files.

use crate::{NextHop, NextHopId, NextHopTable, Rib};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of the longest record of a route: an IPv6 address, version and length, a named next hop.
const ROUTE_BYTES_MAX: usize = 16 + 2 + 12;
const MACS_BYTES: usize = 12;

/// The hash of a table: all routes of `rib` in order with their next hops, and the neighbours. 16 hexadecimal digits. A bare id counts as its
/// number, any other next hop as its content; an id that `hops` does not know is bare.
#[must_use]
pub fn table_hash(rib: &Rib, hops: &NextHopTable) -> String {
    let named = hops.iter().filter(|(_, hop)| !matches!(hop, NextHop::Bare | NextHop::Moved(_)));
    let named: FxHashMap<NextHopId, u64> =
        named.map(|(id, hop)| (id, xxh3_64(hop.to_string().as_bytes()))).collect();
    let mut hash = Xxh3::new();
    let mut add = |address: &[u8], version_and_len: [u8; 2], id: NextHopId| {
        let mut record = [0; ROUTE_BYTES_MAX];
        let mut bytes = 0;
        let mut put = |part: &[u8]| {
            record[bytes..bytes + part.len()].copy_from_slice(part);
            bytes += part.len();
        };
        put(address);
        put(&version_and_len);
        match named.get(&id) {
            Some(name) => {
                put(&[0; 4]);
                put(&name.to_be_bytes());
            }
            None => put(&hops.announced_id(id).get().to_be_bytes()),
        }
        hash.update(&record[..bytes]);
    };
    rib.v4.iter().for_each(|(prefix, id)| add(&prefix.address().to_be_bytes(), [4, prefix.len()], id));
    rib.v6.iter().for_each(|(prefix, id)| add(&prefix.address().to_be_bytes(), [6, prefix.len()], id));
    for neighbour in hops.neighbours() {
        let crate::Neighbour { address, port, mac } = neighbour;
        hash.update(format!("neigh {address} lladdr {mac} dev {port}\n").as_bytes());
    }
    hex(hash.digest())
}

/// The hash of several tables by name; a single table keeps its own hash.
#[must_use]
pub fn tables_hash<'a>(tables: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut tables: Vec<_> = tables.into_iter().collect();
    if let [(_, only)] = tables.as_slice() {
        return only.clone();
    }
    tables.sort_unstable();
    let mut hash = Xxh3::new();
    for (name, table) in &tables {
        hash.update(format!("{name} {table}\n").as_bytes());
    }
    hex(hash.digest())
}

/// The hash of packets in order. Of MACs only the group bit counts, so that captures of links without MACs have the same hash.
#[derive(Clone, Default)]
pub struct PacketsHash(Xxh3);

impl PacketsHash {
    /// Adds an Ethernet frame.
    pub fn add(&mut self, frame: &[u8]) {
        let is_group = frame.first().is_some_and(|first| first & 1 == 1);
        let mut head = [0; 9];
        head[..8].copy_from_slice(&(frame.len() as u64).to_le_bytes());
        head[8] = u8::from(is_group);
        self.0.update(&head);
        self.0.update(frame.get(MACS_BYTES..).unwrap_or(frame));
    }

    /// The hash, 16 hexadecimal digits.
    #[must_use]
    pub fn finish(&self) -> String {
        hex(self.0.digest())
    }
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortRef;

    fn gateway(address: &str, port: u16) -> NextHop {
        NextHop::Gateway { gateway: address.parse().unwrap(), port: PortRef::Index(port) }
    }

    fn hash_of(routes: &[(&str, NextHop)], bare: &[(&str, u32)]) -> String {
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        hops.move_ids();
        for (prefix, hop) in routes {
            rib.set(prefix.parse().unwrap(), hops.intern(hop.clone()).unwrap());
        }
        for (prefix, number) in bare {
            rib.set(prefix.parse().unwrap(), hops.bare(*number).unwrap());
        }
        table_hash(&rib, &hops)
    }

    #[test]
    fn a_table_is_its_routes_in_whatever_order_they_came() {
        let (a, b) = (gateway("192.0.2.1", 0), gateway("192.0.2.2", 1));
        let base = hash_of(&[("10.0.0.0/8", a.clone()), ("2001:db8::/32", b.clone())], &[("10.1.0.0/16", 7)]);
        let same = hash_of(&[("2001:db8::/32", b.clone()), ("10.0.0.0/8", a.clone())], &[("10.1.0.0/16", 7)]);
        assert_eq!(base, same);
        for (routes, bare) in [
            ([("10.0.0.0/8", b.clone()), ("2001:db8::/32", b.clone())], ("10.1.0.0/16", 7)),
            ([("10.0.0.0/9", a.clone()), ("2001:db8::/32", b.clone())], ("10.1.0.0/16", 7)),
            ([("10.0.0.0/8", a.clone()), ("2001:db9::/32", b.clone())], ("10.1.0.0/16", 7)),
            ([("10.0.0.0/8", a.clone()), ("2001:db8::/32", b.clone())], ("10.1.0.0/16", 8)),
        ] {
            assert_ne!(base, hash_of(&routes, &[bare]));
        }
        let moved = hash_of(&[("10.0.0.0/8", a.clone())], &[("10.1.0.0/16", 1)]);
        assert_eq!(moved, hash_of(&[("10.0.0.0/8", gateway("192.0.2.1", 0))], &[("10.1.0.0/16", 1)]));
        assert_ne!(moved, hash_of(&[("10.0.0.0/8", a)], &[("10.1.0.0/16", 2)]));
    }

    #[test]
    fn an_unknown_id_is_a_bare_one_and_neighbours_count() {
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        rib.set("10.0.0.0/8".parse().unwrap(), NextHopId::new(5).unwrap());
        let unknown = table_hash(&rib, &hops);
        hops.bare(5).unwrap();
        assert_eq!(table_hash(&rib, &hops), unknown);
        let mac = crate::MacAddr([2, 0, 0, 0, 0, 1]);
        let address = "192.0.2.1".parse().unwrap();
        hops.set_neighbour(crate::Neighbour { address, port: PortRef::Index(0), mac });
        assert_ne!(table_hash(&rib, &hops), unknown);
    }

    #[test]
    fn several_tables_are_told_by_their_names() {
        let tables = |names: [&'static str; 2]| tables_hash([(names[0], "1".into()), (names[1], "2".into())]);
        assert_eq!(tables_hash([("default", "12ab".into())]), "12ab");
        assert_ne!(tables(["a", "b"]), tables(["b", "a"]));
        assert_eq!(tables(["a", "b"]), tables_hash([("b", "2".into()), ("a", "1".into())]));
    }

    #[test]
    fn packets_are_their_bytes_but_for_macs() {
        let hash = |frames: &[&[u8]]| {
            let mut hash = PacketsHash::default();
            frames.iter().for_each(|frame| hash.add(frame));
            hash.finish()
        };
        let frame = |mac: u8, byte: u8| [&[mac; 12][..], &[8, 0, 0x45, byte]].concat();
        let base = hash(&[&frame(2, 7), &frame(2, 8)]);
        assert_eq!(base, hash(&[&frame(4, 7), &frame(0, 8)]));
        for other in [
            [frame(2, 8), frame(2, 7)],
            [frame(2, 7), frame(3, 8)],
            [frame(2, 7), [frame(2, 8), vec![0]].concat()],
        ] {
            assert_ne!(base, hash(&[&other[0], &other[1]]));
        }
        assert_ne!(hash(&[&[1, 2], &[3]]), hash(&[&[1], &[2, 3]]));
        assert_eq!(base.len(), 16);
    }
}
