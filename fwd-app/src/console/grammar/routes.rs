//! Arguments of `route get` and `route list`.

use crate::console::grammar::request::{RouteList, SOURCES};
use crate::console::grammar::words::{CommandWords, WordsError, or, pick, wrong};
use crate::datapath::flow::{Flow, has_ports};
use std::net::IpAddr;

const PROTOCOL: &str = "tcp, udp, icmp, icmp6, sctp or a number up to 255";
pub(super) const PROTOCOL_NAMES: [&str; 5] = ["tcp", "udp", "icmp", "icmp6", "sctp"];
/// IANA numbers of `PROTOCOL_NAMES`.
const PROTOCOL_NUMBERS: [u8; 5] = [6, 17, 1, 58, 132];
const TWO_PORTS: &str = "two ports such as 49152,443";
const LABEL: &str = "a flow label up to 1048575";

pub(super) fn flow(address: IpAddr, words: &mut CommandWords<'_>) -> Result<Option<Flow>, WordsError> {
    let Some(word) = words.next() else { return Ok(None) };
    pick(word, &["from"])?;
    let source = words.want_address()?;
    if source.is_ipv4() != address.is_ipv4() {
        return Err(wrong(&source.to_string(), &format!("an address of the family of {address}")));
    }
    let mut flow = Flow { source, protocol: 0, ports: [0; 2], label: 0 };
    while let Some(word) = words.next() {
        match pick(word, &["proto", "ports", "label"])? {
            "proto" => {
                let word = words.want(PROTOCOL)?;
                let named =
                    PROTOCOL_NAMES.iter().position(|name| *name == word).map(|at| PROTOCOL_NUMBERS[at]);
                flow.protocol = named.or_else(|| word.parse().ok()).ok_or_else(|| wrong(word, PROTOCOL))?;
                flow.ports = [0; 2];
            }
            "ports" if has_ports(flow.protocol) => {
                let word = words.want(TWO_PORTS)?;
                let both = word.split_once(',').and_then(|(a, b)| Some([a.parse().ok()?, b.parse().ok()?]));
                flow.ports = both.ok_or_else(|| wrong(word, TWO_PORTS))?;
            }
            "ports" => return Err(wrong(word, "a protocol with ports before it")),
            _ if address.is_ipv4() => return Err(wrong(word, "proto or ports: IPv4 has no flow labels")),
            _ => {
                let word = words.want(LABEL)?;
                let label = word.parse().ok().filter(|label| *label < 1 << 20);
                flow.label = label.ok_or_else(|| wrong(word, LABEL))?;
            }
        }
    }
    Ok(Some(flow))
}

pub(super) fn route_list(words: &mut CommandWords<'_>) -> Result<RouteList, WordsError> {
    let mut list = RouteList::default();
    let mut options = vec!["source", "stale", "after"];
    // A word that is no option is the prefix.
    if let Some(word) = words.clone().next()
        && matches!(pick(word, &options), Err(WordsError::Word { .. }))
    {
        list.prefix = Some(words.want_prefix()?);
        options.insert(0, "longer");
    }
    while let Some(word) = words.next() {
        match pick(word, &options)? {
            "longer" => list.longer = true,
            "source" => list.source = Some(words.want_source()?),
            "stale" => list.stale = true,
            _ => list.after = Some(words.want_prefix()?),
        }
    }
    Ok(list)
}

impl CommandWords<'_> {
    fn want_source(&mut self) -> Result<&'static str, WordsError> {
        pick(self.want(&or(SOURCES))?, SOURCES)
    }

    pub(super) fn source(&mut self) -> Result<Option<&'static str>, WordsError> {
        let Some(word) = self.next() else { return Ok(None) };
        pick(word, &["source"])?;
        self.want_source().map(Some)
    }
}
