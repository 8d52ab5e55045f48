//! Update streams from files: MRT BGP4MP, text, and files that are neither.

use crate::mrt_writer::{as_path, attribute, nlri, octets, origin, peer_index_table, record};
use crate::{Folder, open_updates};
use fib::NextHop;
use fib::feed::{Action, FeedError, FeedErrorKind, Format, Hop, Truncated, Update, Updates};

fn open(content: &[u8]) -> (Folder, Result<Updates, FeedError>) {
    open_updates(content, None)
}

fn all(content: &[u8]) -> (Vec<Update>, Option<Truncated>) {
    let (_folder, updates) = open(content);
    let mut updates = updates.unwrap();
    let all = (&mut updates).map(Result::unwrap).collect();
    (all, updates.truncated())
}

fn described(updates: &[Update]) -> Vec<String> {
    let action = |action: &Action| match action {
        Action::Withdraw => "w".to_owned(),
        Action::Announce(Hop::Id(id)) => format!("a {id}"),
        Action::Announce(Hop::Hop(NextHop::Gateway { gateway, .. })) => format!("a {gateway}"),
        Action::Announce(other) => panic!("{other:?}"),
    };
    let peer = |update: &Update| update.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
    updates
        .iter()
        .map(|update| {
            format!("{} {} {} by {}", update.time_s, update.prefix, action(&update.action), peer(update))
        })
        .collect()
}

fn bgp(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(19 + body.len()).unwrap().to_be_bytes();
    [&[0xff; 16][..], &length, &[kind], body].concat()
}

fn update(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    bgp(2, &[&length(withdrawn)[..], withdrawn, &length(attributes), attributes, announced].concat())
}

fn bgp4mp(subtype: u16, as_bytes: usize, peer: &str, message: &[u8]) -> Vec<u8> {
    let is_v6 = peer.contains(':');
    let asn = &64496_u32.to_be_bytes()[4 - as_bytes..];
    let local = octets(if is_v6 { "2001:db8::ff" } else { "192.0.2.255" });
    let afi = [0, 1 + u8::from(is_v6)];
    record(100, 16, subtype, &[asn, asn, &[0, 0], &afi, &octets(peer), &local, message].concat())
}

/// Converts a BGP4MP record to BGP4MP_ET, which has a time in microseconds.
fn extended_time(mut bgp4mp: Vec<u8>, time_us: u32) -> Vec<u8> {
    let body = bgp4mp.split_off(12);
    record(100, 17, u16::from_be_bytes([bgp4mp[6], bgp4mp[7]]), &[&time_us.to_be_bytes()[..], &body].concat())
}

fn v4_update(as_bytes: usize) -> Vec<u8> {
    let attributes =
        [origin(), as_path(&[64496, 64497], as_bytes), attribute(3, &octets("192.0.2.7"))].concat();
    update(&nlri("10.0.0.0/8"), &attributes, &[nlri("11.0.0.0/8"), nlri("12.34.0.0/15")].concat())
}

#[test]
fn bgp4mp_of_ipv4_and_ipv6() {
    let reach = [&[0, 2, 1, 16][..], &octets("2001:db8::7"), &[0], &nlri("2001:db8:1::/48")].concat();
    let unreach = [&[0, 2, 1][..], &nlri("2001:db8:2::/47")].concat();
    let attributes =
        [origin(), as_path(&[64496], 4), attribute(14, &reach), attribute(15, &unreach)].concat();
    let file = [
        bgp4mp(1, 2, "192.0.2.1", &v4_update(2)),
        bgp4mp(4, 4, "192.0.2.1", &bgp(4, &[])),
        extended_time(bgp4mp(4, 4, "2001:db8::1", &update(&[], &attributes, &[])), 250_000),
        record(100, 16, 5, &[&[0; 8][..], &[0, 0, 0, 1], &[192, 0, 2, 1, 192, 0, 2, 2, 0, 6, 0, 1]].concat()),
        bgp4mp(7, 4, "192.0.2.1", &v4_update(4)),
    ];
    let (updates, truncated) = all(&file.concat());
    assert_eq!(truncated, None);
    assert_eq!(
        described(&updates),
        [
            "100 10.0.0.0/8 w by 192.0.2.1",
            "100 11.0.0.0/8 a 192.0.2.7 by 192.0.2.1",
            "100 12.34.0.0/15 a 192.0.2.7 by 192.0.2.1",
            "100.25 2001:db8:2::/47 w by 2001:db8::1",
            "100.25 2001:db8:1::/48 a 2001:db8::7 by 2001:db8::1",
            "100 10.0.0.0/8 w by 192.0.2.1",
            "100 11.0.0.0/8 a 192.0.2.7 by 192.0.2.1",
            "100 12.34.0.0/15 a 192.0.2.7 by 192.0.2.1",
        ]
    );
}

#[test]
fn add_path_messages_carry_path_identifiers() {
    let attributes = [origin(), as_path(&[64496], 4), attribute(3, &octets("192.0.2.7"))].concat();
    let with_id = |prefix: &str| [&[0, 0, 0, 5][..], &nlri(prefix)].concat();
    let message = update(&with_id("10.0.0.0/8"), &attributes, &with_id("11.0.0.0/8"));
    let (updates, _) = all(&bgp4mp(9, 4, "192.0.2.1", &message));
    let wanted = ["100 10.0.0.0/8 w by 192.0.2.1", "100 11.0.0.0/8 a 192.0.2.7 by 192.0.2.1"];
    assert_eq!(described(&updates), wanted);
}

#[test]
fn updates_cut_at_any_byte_keep_the_records_before() {
    let one = bgp4mp(4, 4, "192.0.2.1", &v4_update(4));
    let file = [one.clone(), one.clone()].concat();
    for cut in 6..file.len() {
        let (updates, truncated) = all(&file[..cut]);
        let whole = cut / one.len();
        assert_eq!(updates.len(), whole * 3, "cut at {cut}");
        let wanted = Truncated { record: whole as u64 + 1, offset_bytes: (whole * one.len()) as u64 };
        assert_eq!(truncated, (cut != one.len()).then_some(wanted), "cut at {cut}");
    }
}

#[test]
fn text_has_lines_and_positions() {
    let text = b"# stream\n1 a 10.0.0.0/8 192.0.2.1 254\r\n\na 2001:db8::/32 9\nw 10.0.0.0/8\n";
    let (_folder, updates) = open(text);
    let mut updates = updates.unwrap();
    let mut positions = Vec::new();
    let mut seen = Vec::new();
    while let Some(update) = updates.next() {
        seen.push(update.unwrap());
        positions.push(updates.position());
    }
    assert_eq!(
        described(&seen),
        ["1 10.0.0.0/8 a 255 by 192.0.2.1", "0 2001:db8::/32 a 9 by -", "0 10.0.0.0/8 w by -"]
    );
    assert_eq!(positions, [2, 4, 5]);
    assert_eq!((updates.format(), updates.truncated()), (Format::Text, None));
    assert_eq!((updates.bytes_done(), updates.bytes_total()), (text.len() as u64, text.len() as u64));
}

#[test]
fn the_first_wrong_line_ends_the_stream() {
    let (_folder, updates) = open(b"a 10.0.0.0/8 1\na 10.0.0.0/8 0\na 10.0.0.0/8 1\n");
    let results: Vec<_> = updates.unwrap().collect();
    assert_eq!(results.len(), 2);
    let error = results[1].as_ref().unwrap_err();
    assert_eq!(error.line(), Some(2));
    assert!(error.to_string().ends_with("updates:2: '0' is not a next-hop id in 1..=16777215"), "{error}");
}

#[test]
fn what_is_no_update_stream_is_refused() {
    let (_folder, json) = open(b"[]");
    assert!(json.err().unwrap().to_string().ends_with("json that holds routes, wanted updates"));
    let (_folder, table) = open(&peer_index_table(1));
    let error = table.unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().ends_with("mrt that holds a table, wanted updates"), "{error}");
    let (_folder, garbage) = open(b"\0\x01\x02\x03\x04\x05\x06");
    assert!(matches!(garbage.err().unwrap().kind, FeedErrorKind::UnknownFormat));
    let (_folder, empty) = open(b"");
    assert_eq!(empty.unwrap().count(), 0);
    let message = [&[0xff; 16][..], &[0, 40, 2, 0, 99]].concat();
    let (_folder, broken) = open(&bgp4mp(4, 4, "192.0.2.1", &message));
    let error = broken.unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error.kind, FeedErrorKind::Record { record: 1, offset_bytes: 0, .. }), "{error}");
}
