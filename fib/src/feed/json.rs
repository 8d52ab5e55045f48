//! The JSON of `ip -j route`, `ip -j -6 route` and `ip -j neigh`: arrays of objects, one after another.
//!
//! ```text
//! [{"dst":"default","gateway":"198.51.100.1","dev":"eth0","protocol":"static"},
//!  {"type":"blackhole","dst":"192.0.2.0/24"},
//!  {"dst":"198.51.100.1","lladdr":"02:00:00:00:00:01","dev":"eth0"}]
//! ```
//!
//! Two keys are not iproute2's: `id`, a bare next-hop id, and `port`, an l3fwd port, so that a table can be read back unchanged. Keys that do
//! not affect forwarding are ignored; `encap` and `from` are refused as in text. Routes with a `tos` other than 0 apply to some packets only:
//! they are left out and counted. Entries are read one by one; an error names the line in which its entry ends.

use super::collect::{Collected, FeedPlace};
use super::format::excerpt;
use super::loaded::LoadProgress;
use super::text::{self, Destination, PathWords, Paths};
use super::{FeedError, FeedErrorKind, FeedSource, Hop, LineError};
use crate::{IpPrefix, Neighbour, NextHop};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, SeqAccess, Visitor};
use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Deserialize)]
struct JsonEntry {
    dst: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    nexthops: Option<Vec<NextHopEntry>>,
    pref: Option<IgnoredAny>,
    metric: Option<u32>,
    encap: Option<IgnoredAny>,
    from: Option<IgnoredAny>,
    tos: Option<String>,
    lladdr: Option<String>,
    id: Option<u64>,
    port: Option<u64>,
}

#[derive(Deserialize)]
struct NextHopEntry {
    gateway: Option<String>,
    via: Option<Via>,
    dev: Option<String>,
    weight: Option<u64>,
    encap: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Via {
    host: String,
}

enum Parsed {
    /// With its metric; `None` for forms without metrics.
    Route(IpPrefix, Hop, Option<u32>),
    Neighbour(Neighbour),
}

impl JsonEntry {
    fn has_tos(&self) -> bool {
        self.tos.as_deref().is_some_and(|tos| !matches!(tos, "0" | "0x0" | "0x00" | "default"))
    }

    fn parsed(self) -> Result<Parsed, LineError> {
        let dst = self.dst.ok_or(LineError::Missing { name: "dst" })?;
        if let Some(mac) = self.lladdr {
            let port = text::port_of(&self.dev.ok_or(LineError::Missing { name: "dev" })?)?;
            return Ok(Parsed::Neighbour(Neighbour {
                address: text::address("dst", &dst)?,
                port,
                mac: mac.parse()?,
            }));
        }
        let destination = Destination::parse(&dst)?;
        refuse_if(self.encap.is_some(), "encap")?;
        refuse_if(self.from.is_some(), "from")?;
        let (has_pref, metric) = (self.pref.is_some(), self.metric);
        let own = PathWords { has_pref, metric, ..path(self.gateway, self.via, self.dev)? };
        let prefix = destination.resolve(&own);
        let own_metric = Some(text::metric_of(prefix, metric));
        let kind = self.kind.as_deref().filter(|kind| *kind != "unicast");
        let hop = match (kind, self.id, self.port) {
            (Some(kind), ..) => {
                let hop = NextHop::discarding(kind);
                Some((Hop::Hop(hop.ok_or_else(|| LineError::RouteType { text: excerpt(kind) })?), own_metric))
            }
            (None, Some(id), _) => Some((Hop::Id(text::bare_id(&id.to_string())?), None)),
            (None, None, Some(port)) => Some((text::l3fwd_port(&port.to_string())?, None)),
            (None, None, None) => None,
        };
        let mut paths = Paths::new(destination, own)?;
        if let Some((hop, metric)) = hop {
            return Ok(Parsed::Route(prefix, hop, metric));
        }
        for next in self.nexthops.into_iter().flatten() {
            refuse_if(next.encap.is_some(), "encap")?;
            let weight = next.weight.map(|weight| text::weight(&weight.to_string())).transpose()?;
            paths.add_nexthop(PathWords { weight, ..path(next.gateway, next.via, next.dev)? })?;
        }
        let (prefix, hop, metric) = paths.route()?;
        Ok(Parsed::Route(prefix, hop, Some(metric)))
    }
}

fn refuse_if(is_present: bool, name: &'static str) -> Result<(), LineError> {
    if is_present {
        return Err(LineError::Word { text: name.to_owned(), wanted: "a route without this key" });
    }
    Ok(())
}

fn path(gateway: Option<String>, via: Option<Via>, dev: Option<String>) -> Result<PathWords, LineError> {
    let gateway_family_named = via.is_some();
    let gateway = via.map(|via| via.host).or(gateway);
    Ok(PathWords {
        gateway: gateway.map(|text| text::address("gateway", &text)).transpose()?,
        gateway_family_named,
        port: dev.map(|dev| text::port_of(&dev)).transpose()?,
        ..PathWords::default()
    })
}

/// Counts the line ends that the JSON parser has passed. The parser reads byte by byte and never beyond the current entry.
struct LineCounter<'a, 'p> {
    source: &'a mut FeedSource,
    lines: &'a AtomicU64,
    progress: &'a mut LoadProgress<'p>,
    reads: u16,
}

impl Read for LineCounter<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads = self.reads.wrapping_add(1);
        if self.reads == 0 {
            self.progress.tick(self.source);
        }
        let read = self.source.read(buffer)?;
        let ends = buffer[..read].iter().filter(|&&byte| byte == b'\n').count();
        self.lines.fetch_add(ends as u64, Relaxed);
        Ok(read)
    }
}

struct JsonEntries<'a, F> {
    each: &'a mut F,
}

impl<'de, F: FnMut(JsonEntry) -> Result<(), LineError>> DeserializeSeed<'de> for JsonEntries<'_, F> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(JsonEntry) -> Result<(), LineError>> Visitor<'de> for JsonEntries<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of routes as `ip -j route` writes it")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<JsonEntry>()? {
            (self.each)(entry).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Reads a JSON feed to its end. Returns how many routes were left out because of their TOS.
pub(super) fn read(
    source: &mut FeedSource,
    collected: &mut Collected,
    progress: &mut LoadProgress<'_>,
) -> Result<u64, FeedError> {
    let lines = AtomicU64::new(0);
    let mut with_tos = 0;
    source.skip_mark();
    while skip_space(source, &lines)? {
        with_tos += read_array(source, &lines, collected, progress)?;
    }
    Ok(with_tos)
}

/// Skips white space between arrays; false at the end of the file.
fn skip_space(source: &mut FeedSource, lines: &AtomicU64) -> Result<bool, FeedError> {
    loop {
        let byte = match source.fill_buf() {
            Ok(bytes) => bytes.first().copied(),
            Err(error) => return Err(source.error(error)),
        };
        match byte {
            Some(b'\n') => {
                lines.fetch_add(1, Relaxed);
            }
            Some(byte) if byte.is_ascii_whitespace() => {}
            Some(_) => return Ok(true),
            None => return Ok(false),
        }
        source.consume(1);
    }
}

fn read_array(
    source: &mut FeedSource,
    lines: &AtomicU64,
    collected: &mut Collected,
    progress: &mut LoadProgress<'_>,
) -> Result<u64, FeedError> {
    let lines_before = lines.load(Relaxed);
    let (mut refused, mut with_tos) = (None, 0);
    let mut each = |entry: JsonEntry| {
        let line = lines.load(Relaxed) + 1;
        let has_tos = entry.has_tos();
        match entry.parsed() {
            Ok(Parsed::Route(..)) if has_tos => with_tos += 1,
            Ok(Parsed::Route(prefix, hop, metric)) => {
                collected.add(prefix, hop, metric, FeedPlace::line(line))
            }
            Ok(Parsed::Neighbour(neighbour)) => collected.add_neighbour(neighbour),
            Err(error) => {
                refused = Some((line, error.clone()));
                return Err(error);
            }
        }
        Ok(())
    };
    let mut reader = serde_json::Deserializer::from_reader(LineCounter { source, lines, progress, reads: 0 });
    let result = JsonEntries { each: &mut each }.deserialize(&mut reader);
    drop(reader);
    let Err(error) = result else { return Ok(with_tos) };
    if error.is_io() {
        return Err(source.error(error.into()));
    }
    let kind = match refused {
        Some((line, source)) => FeedErrorKind::Line { line, source },
        None => FeedErrorKind::Json { line: lines_before + error.line() as u64, source: error },
    };
    Err(kind.with_path(source.path()))
}
