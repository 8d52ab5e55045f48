//! Streams of route changes: MRT BGP4MP and BGP4MP_ET messages (RFC 6396 section 4.4), and three text forms.
//!
//! ```text
//! 1546300800 a 192.0.2.0/24 198.51.100.1 64496      SECONDS a|w PREFIX PEER ORIGIN
//! 1546300801.5 w 192.0.2.0/24 198.51.100.1 0
//! 1418774413 a 192.0.2.0/24 198.51.100.1            SECONDS a|w PREFIX NEXT-HOP, of one peer
//! 1418774414 w 192.0.2.0/24 0.0.0.0
//! a 192.0.2.0/24 17                                 a and a line of route text, or w PREFIX
//! w 192.0.2.0/24
//! ```
//!
//! With a peer and an origin there is no next hop: an announcement gets the bare id 1 + ORIGIN mod 255. Other next hops are gateways whose
//! port is derived from their id. The withdrawals of an UPDATE come before its announcements.

use super::lines::{LineWords, Lines};
use super::mrt::{Next, Records, Truncated, library};
use super::table_dump::truncating;
use super::text::{self, TextLine};
use super::{FeedError, FeedSource, Format, Hop, LineError, RecordError};
use crate::{IpPrefix, NextHop, NextHopError, NextHopId, NextHopTable, PortRef, Rib};
use bgpkit_parser::models::{
    Bgp4MpEnum, BgpMessage, BgpUpdateMessage, EntryType, MrtMessage, NetworkPrefix, Nlri, Safi,
};
use bgpkit_parser::parser::RawMrtRecord;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::Path;

/// Announcement or withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The route gets this next hop.
    Announce(Hop),
    /// The route is withdrawn.
    Withdraw,
}

/// A change of one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Time, in seconds since 1970; 0 if the feed has no times.
    pub time_s: f64,
    /// The route's prefix.
    pub prefix: IpPrefix,
    /// The change.
    pub action: Action,
    /// The peer that sent it, if the feed names it.
    pub peer: Option<IpAddr>,
}

impl Update {
    /// The id of the route's new next hop, added to `hops` if needed; [`NextHopId::NONE`] for a withdrawal.
    ///
    /// # Errors
    /// As [`Hop::intern`].
    pub fn next_hop(&self, hops: &mut NextHopTable) -> Result<NextHopId, NextHopError> {
        match &self.action {
            Action::Announce(hop) => hop.intern(hops),
            Action::Withdraw => Ok(NextHopId::NONE),
        }
    }

    /// Applies the change to `rib` and returns the previous next hop.
    ///
    /// # Errors
    /// As [`Hop::intern`]; nothing is changed then.
    pub fn apply(&self, rib: &mut Rib, hops: &mut NextHopTable) -> Result<NextHopId, NextHopError> {
        let id = self.next_hop(hops)?;
        Ok(rib.set(self.prefix, id))
    }
}

/// The updates of a feed, in order, as made by [`updates`]. The iterator ends after the first error.
pub struct Updates {
    input: UpdateInput,
    ready: VecDeque<Update>,
    truncated: Option<Truncated>,
    skipped_records: u64,
    done: bool,
}

enum UpdateInput {
    Text(Lines),
    Mrt(Records),
}

/// Opens an update stream. If `format` is `None`, it is guessed from the content.
///
/// # Errors
/// As [`super::open`], [`super::FeedErrorKind::UnknownFormat`] when the content is neither MRT nor text,
/// [`super::FeedErrorKind::Content`] for JSON, which has no updates. Errors in the content are returned by the iterator.
pub fn updates(path: &Path, format: Option<Format>) -> Result<Updates, FeedError> {
    let mut source = super::open(path)?;
    let format = match format {
        Some(format) => format,
        None => source.sniff()?,
    };
    let input = match format {
        Format::Text => UpdateInput::Text(Lines::new(source)),
        Format::Mrt => UpdateInput::Mrt(Records::new(source)),
        Format::Json => {
            return Err(source.holds(format, "routes", "updates"));
        }
    };
    Ok(Updates { input, ready: VecDeque::new(), truncated: None, skipped_records: 0, done: false })
}

impl Updates {
    /// Where an MRT file was cut short; known once the iterator has ended.
    #[must_use]
    pub const fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }

    /// MRT records so far without an update for forwarding: state changes, keepalives, other families.
    #[must_use]
    pub const fn skipped_records(&self) -> u64 {
        self.skipped_records
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> Format {
        match self.input {
            UpdateInput::Text(_) => Format::Text,
            UpdateInput::Mrt(_) => Format::Mrt,
        }
    }

    /// The line or the record of the last update, from 1.
    #[must_use]
    pub const fn position(&self) -> u64 {
        match &self.input {
            UpdateInput::Text(lines) => lines.number,
            UpdateInput::Mrt(records) => records.number,
        }
    }

    /// Bytes read from the file so far, as stored (compressed).
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.source().bytes_done()
    }

    /// The file's length; 0 if it is unknown (a pipe).
    #[must_use]
    pub const fn bytes_total(&self) -> u64 {
        self.source().bytes_total()
    }

    const fn source(&self) -> &FeedSource {
        match &self.input {
            UpdateInput::Text(lines) => &lines.source,
            UpdateInput::Mrt(records) => &records.source,
        }
    }

    fn advance(&mut self) -> Result<Option<Update>, FeedError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(Some(update));
            }
            match &mut self.input {
                UpdateInput::Text(lines) => {
                    let Some(line) = lines.next_line()? else { return Ok(None) };
                    let update = parse(line).map_err(|error| lines.error_at(lines.number, error))?;
                    if update.is_some() {
                        return Ok(update);
                    }
                }
                UpdateInput::Mrt(records) => match records.next_record()? {
                    Next::Record(record) => {
                        let is_table = matches!(
                            record.common_header.entry_type,
                            EntryType::TABLE_DUMP | EntryType::TABLE_DUMP_V2
                        );
                        if is_table {
                            return Err(records.source.holds(Format::Mrt, "a table", "updates"));
                        }
                        unpack(record, &mut self.ready).map_err(|error| records.error(error))?;
                        self.skipped_records += u64::from(self.ready.is_empty());
                    }
                    Next::End(truncated) => {
                        self.truncated = truncated;
                        return Ok(None);
                    }
                },
            }
        }
    }
}

impl Iterator for Updates {
    type Item = Result<Update, FeedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.advance().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

fn parse(line: &[u8]) -> Result<Option<Update>, LineError> {
    const WANTED: &str = "'a', 'w' or a time";
    let mut words = LineWords::new(line)?;
    let Some(first) = words.next() else { return Ok(None) };
    match first {
        "a" => announcement(line),
        "w" => {
            let prefix = words.want("a prefix")?.parse()?;
            words.end()?;
            Ok(Some(Update { time_s: 0.0, prefix, action: Action::Withdraw, peer: None }))
        }
        _ if first.starts_with(|first: char| first.is_ascii_digit()) => timed(first, words).map(Some),
        _ => Err(LineError::word(first, WANTED)),
    }
}

fn announcement(line: &[u8]) -> Result<Option<Update>, LineError> {
    let start = line.iter().position(|&byte| byte == b'a').map_or(line.len(), |a| a + 1);
    match text::parse(&line[start..])? {
        TextLine::Nothing => Err(LineError::Ends { word: "a".to_owned(), wanted: "a route" }),
        parsed => {
            let text = String::from_utf8_lossy(line);
            let (prefix, hop) = text::only_route(parsed, &text, "a route after 'a'")?;
            Ok(Some(Update { time_s: 0.0, prefix, action: Action::Announce(hop), peer: None }))
        }
    }
}

/// Parses `SECONDS a|w PREFIX PEER ORIGIN` or `SECONDS a|w PREFIX NEXT-HOP`, after the seconds.
fn timed(seconds: &str, mut words: LineWords<'_>) -> Result<Update, LineError> {
    let time_s = seconds
        .parse()
        .ok()
        .filter(|time_s: &f64| time_s.is_finite())
        .ok_or_else(|| LineError::number(seconds, "a time in seconds"))?;
    let action = words.want("'a' or 'w'")?;
    let prefix = words.want("a prefix")?.parse()?;
    let address = text::address("the prefix", words.want("a peer or a next hop")?)?;
    let (hop, peer) = match words.next() {
        Some(origin) => {
            let origin: u32 = origin.parse().map_err(|_| LineError::number(origin, "an AS number"))?;
            words.end()?;
            (Hop::Id(NextHopId::new(1 + origin % 255)?), Some(address))
        }
        None => (Hop::Hop(NextHop::Gateway { gateway: address, port: PortRef::ById }), None),
    };
    let action = match action {
        "a" if peer.is_none() && address.is_unspecified() => {
            return Err(LineError::number(&address.to_string(), "a next hop"));
        }
        "a" => Action::Announce(hop),
        "w" => Action::Withdraw,
        _ => return Err(LineError::word(action, "'a' or 'w'")),
    };
    Ok(Update { time_s, prefix, action, peer })
}

fn unpack(record: RawMrtRecord, ready: &mut VecDeque<Update>) -> Result<(), RecordError> {
    let header = record.common_header;
    if !matches!(header.entry_type, EntryType::BGP4MP | EntryType::BGP4MP_ET) {
        return Ok(());
    }
    let time_s = f64::from(header.timestamp) + f64::from(header.microsecond_timestamp.unwrap_or(0)) / 1e6;
    let message = match record.parse().map_err(|error| library(&error))?.message {
        MrtMessage::Bgp4Mp(Bgp4MpEnum::Message(message)) => message,
        _ => return Ok(()),
    };
    let peer = Some(message.peer_ip);
    if let BgpMessage::Update(update) = message.bgp_message {
        for (prefix, action) in changes(&update) {
            let prefix = truncating(prefix.prefix.addr(), prefix.prefix.prefix_len())?;
            ready.push_back(Update { time_s, prefix, action, peer });
        }
    }
    Ok(())
}

/// The withdrawals, then the announcements with a usable next hop.
fn changes(update: &BgpUpdateMessage) -> Vec<(&NetworkPrefix, Action)> {
    fn unicast(nlri: Option<&Nlri>) -> Option<&Nlri> {
        nlri.filter(|nlri| nlri.safi == Safi::Unicast)
    }
    let withdrawn = update.withdrawn_prefixes.iter();
    let withdrawn = withdrawn
        .chain(unicast(update.attributes.get_unreachable_nlri()).into_iter().flat_map(|nlri| &nlri.prefixes));
    let mut changes: Vec<_> = withdrawn.map(|prefix| (prefix, Action::Withdraw)).collect();
    let mut groups = vec![(&update.announced_prefixes, update.attributes.next_hop())];
    if let Some(nlri) = unicast(update.attributes.get_reachable_nlri()) {
        groups.push((&nlri.prefixes, nlri.next_hop.map(|next_hop| next_hop.addr())));
    }
    for (prefixes, gateway) in groups {
        let Some(gateway) = gateway.filter(|gateway| !gateway.is_unspecified()) else { continue };
        for prefix in prefixes {
            let hop = NextHop::Gateway { gateway, port: PortRef::ById };
            changes.push((prefix, Action::Announce(Hop::Hop(hop))));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn lines_with_times() {
        let update = parse(b"1546300800.25 a 192.0.2.0/24 2001:db8::1 64496").unwrap().unwrap();
        let id = NextHopId::new(1 + 64496 % 255).unwrap();
        assert_eq!(update.action, Action::Announce(Hop::Id(id)));
        assert_eq!((update.time_s, update.prefix.to_string()), (1_546_300_800.25, "192.0.2.0/24".to_owned()));
        assert_eq!(update.peer, Some("2001:db8::1".parse().unwrap()));
        let update = parse(b"0 w 2001:db8::/32 192.0.2.1 0").unwrap().unwrap();
        assert_eq!((update.action, update.time_s), (Action::Withdraw, 0.0));
        let update = parse(b"5 a 192.0.2.0/24 198.51.100.1").unwrap().unwrap();
        let hop = NextHop::Gateway { gateway: "198.51.100.1".parse().unwrap(), port: PortRef::ById };
        assert_eq!((update.action, update.peer), (Action::Announce(Hop::Hop(hop)), None));
        let update = parse(b"5 w 192.0.2.0/24 0.0.0.0").unwrap().unwrap();
        assert_eq!((update.action, update.peer), (Action::Withdraw, None));
        assert!(parse(b"0 a ::/0 192.0.2.1 4294967295").unwrap().is_some());
    }

    #[test]
    fn lines_without_times() {
        let update = parse(b"a 192.0.2.0/24 7 # changed").unwrap().unwrap();
        assert_eq!(update.action, Action::Announce(Hop::Id(NextHopId::new(7).unwrap())));
        assert_eq!((update.time_s, update.peer), (0.0, None));
        let update = parse(b" a default via 192.0.2.1 dev 3").unwrap().unwrap();
        let hop = NextHop::Gateway { gateway: "192.0.2.1".parse().unwrap(), port: PortRef::Index(3) };
        assert_eq!(update.action, Action::Announce(Hop::Hop(hop)));
        assert_eq!(parse(b"w 2001:db8::/32").unwrap().unwrap().action, Action::Withdraw);
        assert_eq!((parse(b"").unwrap(), parse(b"# a 192.0.2.0/24 7").unwrap()), (None, None));
    }

    #[test]
    fn wrong_lines() {
        assert_eq!(message("x 10.0.0.0/8"), "'x' is not understood here, wanted 'a', 'w' or a time");
        assert_eq!(message("a"), "wanted a route after 'a'");
        assert_eq!(message("a 10.0.0.1/8 1"), "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8");
        assert_eq!(message("w 10.0.0.0/8 1"), "'1' is not understood here, wanted the end of the line");
        assert_eq!(message("1x a 10.0.0.0/8 192.0.2.1 1"), "'1x' is not a time in seconds");
        assert_eq!(message("1e999 a 10.0.0.0/8 192.0.2.1 1"), "'1e999' is not a time in seconds");
        assert_eq!(message("1 b 10.0.0.0/8 192.0.2.1 1"), "'b' is not understood here, wanted 'a' or 'w'");
        assert_eq!(message("1 a 10.0.0.0/8 x 1"), "'x' after 'the prefix' is not an IP address");
        assert_eq!(message("1 a 10.0.0.0/8 192.0.2.1 4294967296"), "'4294967296' is not an AS number");
        assert_eq!(message("1 a 10.0.0.0/8"), "wanted a peer or a next hop after '10.0.0.0/8'");
        assert_eq!(message("1 a 10.0.0.0/8 0.0.0.0"), "'0.0.0.0' is not a next hop");
        assert!(matches!(parse(b"a 10.0.0.0/8 proto static"), Err(LineError::NoNextHop)));
        for line in ["a neigh 192.0.2.1 lladdr 02:00:00:00:00:01 dev 1", "a nexthop dev 1"] {
            assert!(matches!(parse(line.as_bytes()), Err(LineError::Word { .. })), "{line}");
        }
    }

    #[test]
    fn updates_are_applied() {
        let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
        for (line, before, routes) in [
            ("a 10.0.0.0/8 7", 0, 1),
            ("a 10.0.0.0/8 9", 7, 1),
            ("w 10.0.0.0/8", 9, 0),
            ("w 10.0.0.0/8", 0, 0),
        ] {
            let update = parse(line.as_bytes()).unwrap().unwrap();
            assert_eq!(update.apply(&mut rib, &mut hops).unwrap().get(), before, "{line}");
            assert_eq!(rib.len(), routes, "{line}");
        }
        let gateway = parse(b"a 10.0.0.0/8 via 192.0.2.1").unwrap().unwrap();
        assert_eq!(gateway.next_hop(&mut hops).unwrap().get(), 1);
        let taken = parse(b"a 11.0.0.0/8 1").unwrap().unwrap();
        assert!(matches!(taken.apply(&mut rib, &mut hops), Err(NextHopError::InUse { .. })));
        assert!(rib.is_empty());
        hops.move_ids();
        let moved = taken.next_hop(&mut hops).unwrap();
        assert_eq!((moved.get(), hops.announced_id(moved).get()), (2, 1), "the gateway keeps its id");
    }
}
