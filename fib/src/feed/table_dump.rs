//! Tables from MRT: TABLE_DUMP_V2 (RFC 6396 section 4.3, with RFC 8050's ADD-PATH subtypes) and TABLE_DUMP (section 4.2).
//!
//! Of the entry of each peer (about thirty) only the next hop and the length of the AS path matter. So the library splits the file into
//! records, and this file reads these two attributes directly: decoding all takes many times as long.
//!
//! Among the entries of a prefix the shortest AS path wins (an AS set counts as one, a confederation segment as zero: RFC 4271 section
//! 9.1.2.2, RFC 5065), then the lowest peer index (in TABLE_DUMP: peer address), then the first. They may be spread over consecutive records;
//! if the prefix appears again later, the later route wins. Multicast and generic records are counted and skipped.

use super::collect::{Collected, FeedPlace};
use super::loaded::LoadProgress;
use super::mrt::{Next, Records, Truncated, library};
use super::{FeedError, Format, Hop, RecordError};
use crate::{IpPrefix, NextHop, PortRef, Prefix4, Prefix6, PrefixError};
use bgpkit_parser::models::{EntryType, MrtMessage, TableDumpV2Message};
use bgpkit_parser::parser::RawMrtRecord;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Debug, Default)]
pub(super) struct DumpOutcome {
    pub(super) unusable: u64,
    pub(super) skipped_records: u64,
    pub(super) truncated: Option<Truncated>,
}

/// One peer's path to a prefix. The best entry is the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PeerEntry {
    path_len: u32,
    peer: u128,
    order: u32,
    gateway: IpAddr,
}

struct Open {
    prefix: IpPrefix,
    best: Option<PeerEntry>,
    place: FeedPlace,
}

pub(super) fn read(
    records: &mut Records,
    collected: &mut Collected,
    progress: &mut LoadProgress<'_>,
) -> Result<DumpOutcome, FeedError> {
    let mut outcome = DumpOutcome::default();
    let (mut tables, mut updates) = (0_u64, 0_u64);
    let mut peers = None;
    let mut open: Option<Open> = None;
    loop {
        let record = match records.next_record()? {
            Next::Record(record) => record,
            Next::End(truncated) => {
                outcome.truncated = truncated;
                break;
            }
        };
        if records.number.is_multiple_of(256) {
            progress.tick(&records.source);
        }
        let place = FeedPlace { position: records.number, offset_bytes: records.offset_bytes };
        let refuse = |error| records.error(error);
        let route = match (record.common_header.entry_type, record.common_header.entry_subtype) {
            (EntryType::TABLE_DUMP_V2, 1) => {
                tables += 1;
                peers = Some(peer_count(record).map_err(refuse)?);
                continue;
            }
            (EntryType::TABLE_DUMP_V2, kind @ (2 | 4 | 8 | 10)) => {
                let kind = RibKind { is_v6: matches!(kind, 4 | 10), has_path_id: kind > 7 };
                rib_record(&record.message_bytes, kind, peers).map_err(refuse)?
            }
            (EntryType::TABLE_DUMP, kind @ (1 | 2)) => {
                for (prefix, best) in table_dump_record(&record.message_bytes, kind == 2).map_err(refuse)? {
                    tables += 1;
                    merge(&mut open, Open { prefix, best, place }, collected, &mut outcome);
                }
                continue;
            }
            (EntryType::BGP4MP | EntryType::BGP4MP_ET, _) => {
                updates += 1;
                continue;
            }
            _ => {
                outcome.skipped_records += 1;
                continue;
            }
        };
        tables += 1;
        merge(&mut open, Open { prefix: route.0, best: route.1, place }, collected, &mut outcome);
    }
    if let Some(last) = open {
        finish(&last, collected, &mut outcome);
    }
    if tables == 0 && outcome.truncated.is_none() {
        let holds = if updates > 0 { "updates" } else { "no table" };
        return Err(records.source.holds(Format::Mrt, holds, "a table"));
    }
    outcome.skipped_records += updates;
    Ok(outcome)
}

fn merge(open: &mut Option<Open>, next: Open, collected: &mut Collected, outcome: &mut DumpOutcome) {
    match open {
        Some(open) if open.prefix == next.prefix => {
            open.best = [open.best, next.best].into_iter().flatten().min();
        }
        _ => {
            if let Some(finished) = open.replace(next) {
                finish(&finished, collected, outcome);
            }
        }
    }
}

fn finish(open: &Open, collected: &mut Collected, outcome: &mut DumpOutcome) {
    match open.best {
        Some(best) => {
            let hop = NextHop::Gateway { gateway: best.gateway, port: PortRef::ById };
            collected.add(open.prefix, Hop::Hop(hop), None, open.place);
        }
        None => outcome.unusable += 1,
    }
}

fn peer_count(record: RawMrtRecord) -> Result<usize, RecordError> {
    match record.parse().map_err(|error| library(&error))?.message {
        MrtMessage::TableDumpV2Message(TableDumpV2Message::PeerIndexTable(table)) => {
            Ok(table.id_peer_map.len())
        }
        _ => Err(RecordError::Library { what: "no PEER_INDEX_TABLE".to_owned() }),
    }
}

#[derive(Clone, Copy)]
struct RibKind {
    is_v6: bool,
    has_path_id: bool,
}

/// The prefix and the best entry of a RIB record (RFC 6396 section 4.3.2, RFC 8050 section 4).
fn rib_record(
    bytes: &[u8],
    kind: RibKind,
    peers: Option<usize>,
) -> Result<(IpPrefix, Option<PeerEntry>), RecordError> {
    let mut fields = Fields(bytes);
    fields.take("the sequence number", 4)?;
    let prefix = fields.prefix(kind.is_v6)?;
    let entries = fields.u16("the entry count")?;
    let mut best: Option<PeerEntry> = None;
    for order in 0..u32::from(entries) {
        let index = fields.u16("the peer index")?;
        if let Some(peers) = peers
            && usize::from(index) >= peers
        {
            return Err(RecordError::Peer { index, peers });
        }
        fields.take("the originated time", 4)?;
        if kind.has_path_id {
            fields.take("the path identifier", 4)?;
        }
        let attributes_bytes = fields.u16("the attribute length")?;
        let attributes = fields.take("the attributes", usize::from(attributes_bytes))?;
        if let Some((path_len, gateway)) = attributes_of(attributes, 4, kind.is_v6)? {
            let entry = PeerEntry { path_len, peer: u128::from(index), order, gateway };
            best = Some(best.map_or(entry, |best| best.min(entry)));
        }
    }
    Ok((prefix, best))
}

/// The entries of a TABLE_DUMP record. The RFC allows one a record; early writers put several.
fn table_dump_record(bytes: &[u8], is_v6: bool) -> Result<Vec<(IpPrefix, Option<PeerEntry>)>, RecordError> {
    let mut fields = Fields(bytes);
    fields.take("the view and sequence numbers", 4)?;
    let mut entries = Vec::with_capacity(1);
    while !fields.0.is_empty() {
        let address = fields.address(is_v6)?;
        let len = fields.u8("the prefix length")?;
        let prefix = truncating(address, len)?;
        fields.take("status and originated time", 5)?;
        let peer = match fields.address(is_v6)? {
            IpAddr::V4(peer) => u128::from(peer.to_bits()),
            IpAddr::V6(peer) => peer.to_bits(),
        };
        fields.take("the peer AS", 2)?;
        let attributes_bytes = fields.u16("the attribute length")?;
        let attributes = fields.take("the attributes", usize::from(attributes_bytes))?;
        let best = attributes_of(attributes, 2, is_v6)?.map(|(path_len, gateway)| PeerEntry {
            path_len,
            peer,
            order: 0,
            gateway,
        });
        entries.push((prefix, best));
    }
    Ok(entries)
}

/// AS path length and next hop; `None` without a usable next hop (a collector's own route has 0.0.0.0). AS numbers have `as_bytes` bytes.
fn attributes_of(
    attributes: &[u8],
    as_bytes: usize,
    is_v6: bool,
) -> Result<Option<(u32, IpAddr)>, RecordError> {
    const NEXT_HOP: u8 = 3;
    const AS_PATH: u8 = 2;
    const MP_REACH_NLRI: u8 = 14;
    const EXTENDED_LENGTH: u8 = 0x10;
    // The AS path is mandatory, so an entry without one is invalid and ranks behind all others.
    let (mut path_len, mut next_hop, mut mp_next_hop) = (u32::MAX, None, None);
    let mut fields = Fields(attributes);
    while !fields.0.is_empty() {
        let flags = fields.u8("the attribute flags")?;
        let kind = fields.u8("the attribute type")?;
        let length = if flags & EXTENDED_LENGTH == 0 {
            usize::from(fields.u8("the attribute length")?)
        } else {
            usize::from(fields.u16("the attribute length")?)
        };
        let mut value = Fields(fields.take("an attribute", length)?);
        match kind {
            AS_PATH => path_len = as_path_len(value, as_bytes)?,
            NEXT_HOP if length == 4 => next_hop = Some(value.address(false)?),
            MP_REACH_NLRI => mp_next_hop = mp_reach_next_hop(value)?,
            _ => {}
        }
    }
    let gateway = if is_v6 { mp_next_hop } else { next_hop.or(mp_next_hop) };
    Ok(gateway.filter(|gateway| !gateway.is_unspecified()).map(|gateway| (path_len, gateway)))
}

/// The next hop of an MP_REACH_NLRI attribute. In a RIB the attribute holds the next hop alone (RFC 6396 section 4.3.4). Some
/// writers keep the whole attribute; it starts with the zero byte of the AFI, whereas the length of a next hop is never zero.
fn mp_reach_next_hop(mut value: Fields<'_>) -> Result<Option<IpAddr>, RecordError> {
    if value.0.first() == Some(&0) {
        value.take("AFI and SAFI", 3)?;
    }
    let length = value.u8("the next hop's length")?;
    let mut next_hop = Fields(value.take("the next hop", usize::from(length))?);
    Ok(match length {
        4 => Some(next_hop.address(false)?),
        // A global address, optionally followed by a link-local one (RFC 2545 section 3).
        16 | 32 => Some(next_hop.address(true)?),
        _ => None,
    })
}

fn as_path_len(mut segments: Fields<'_>, as_bytes: usize) -> Result<u32, RecordError> {
    let mut path_len = 0;
    while !segments.0.is_empty() {
        let kind = segments.u8("the AS path segment's type")?;
        let count = segments.u8("the AS path segment's length")?;
        segments.take("an AS path segment", usize::from(count) * as_bytes)?;
        path_len += match kind {
            1 => u32::from(count > 0),
            2 => u32::from(count),
            _ => 0, // confederation segments: 3 and 4
        };
    }
    Ok(path_len)
}

/// Reads fields in network byte order. Reading past the end is an error that names the field.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, what: &'static str, wanted_bytes: usize) -> Result<&'a [u8], RecordError> {
        let short = RecordError::Short { what, wanted_bytes, left_bytes: self.0.len() };
        let (taken, rest) = self.0.split_at_checked(wanted_bytes).ok_or(short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Takes `wanted_bytes` bytes, padded with zeros at the end to `N`.
    fn array<const N: usize>(
        &mut self,
        what: &'static str,
        wanted_bytes: usize,
    ) -> Result<[u8; N], RecordError> {
        let mut array = [0; N];
        for (to, from) in array.iter_mut().zip(self.take(what, wanted_bytes)?) {
            *to = *from;
        }
        Ok(array)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, RecordError> {
        self.array(what, 1).map(u8::from_be_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, RecordError> {
        self.array(what, 2).map(u16::from_be_bytes)
    }

    fn address(&mut self, is_v6: bool) -> Result<IpAddr, RecordError> {
        Ok(if is_v6 {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.array("an IPv6 address", 16)?)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(u32::from_be_bytes(self.array("an IPv4 address", 4)?)))
        })
    }

    /// A prefix in NLRI encoding: its length in bits, then as many bytes as needed (RFC 4271 section 4.3).
    fn prefix(&mut self, is_v6: bool) -> Result<IpPrefix, RecordError> {
        let len = self.u8("the prefix length")?;
        let max = if is_v6 { 128 } else { 32 };
        if len > max {
            return Err(PrefixError::Length { len: u32::from(len), max }.into());
        }
        let wanted_bytes = usize::from(len.div_ceil(8));
        let address = if is_v6 {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(self.array("the prefix", wanted_bytes)?)))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(u32::from_be_bytes(self.array("the prefix", wanted_bytes)?)))
        };
        truncating(address, len)
    }
}

/// The prefix of length `len` that covers `address`. Bits beyond the length are irrelevant in BGP (RFC 4271 section 4.3).
pub(super) fn truncating(address: IpAddr, len: u8) -> Result<IpPrefix, RecordError> {
    Ok(match address {
        IpAddr::V4(address) => IpPrefix::V4(Prefix4::covering(address.to_bits(), len)?),
        IpAddr::V6(address) => IpPrefix::V6(Prefix6::covering(address.to_bits(), len)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_short_say_which() {
        let mut fields = Fields(&[1, 2, 3]);
        assert_eq!(fields.u16("a"), Ok(0x0102));
        assert_eq!(fields.u16("b"), Err(RecordError::Short { what: "b", wanted_bytes: 2, left_bytes: 1 }));
        assert_eq!((fields.u8("c"), fields.0.len()), (Ok(3), 0));
    }

    #[test]
    fn paths_are_counted_as_route_selection_counts_them() {
        let sequence = [2, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let set = [1, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let confederation = [3, 1, 0, 0, 0, 1];
        assert_eq!(as_path_len(Fields(&[]), 4), Ok(0));
        assert_eq!(as_path_len(Fields(&[&sequence[..], &set, &confederation].concat()), 4), Ok(3));
        assert_eq!(as_path_len(Fields(&[2, 2, 0, 1, 0, 2]), 2), Ok(2));
        assert!(as_path_len(Fields(&sequence[..9]), 4).is_err());
    }

    #[test]
    fn the_order_of_entries_is_path_then_peer_then_place() {
        let entry =
            |path_len, peer, order| PeerEntry { path_len, peer, order, gateway: Ipv4Addr::LOCALHOST.into() };
        assert!(entry(1, 9, 9) < entry(2, 0, 0));
        assert!(entry(1, 1, 9) < entry(1, 2, 0));
        assert!(entry(1, 1, 0) < entry(1, 1, 1));
    }
}
