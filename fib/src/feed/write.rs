//! Writes a table as route text, in iproute2's dialect, as l3fwd rules or as JSON.
//!
//! JSON loses nothing. Text keeps the ids only. iproute2 and l3fwd have no bare ids: id N is written as a route by port (N - 1) mod P. In
//! iproute2 its gateway is 10.H.H.H or fd00::HH:HHHH (H = N's 24 bits), with the MAC 02:00:00:HH:HH:HH; a table with real gateways there
//! should be JSON. l3fwd has ports only: gateways are lost, and a route that drops or has a named port is refused.

use crate::{
    GroupPath, IpPrefix, Key, MacAddr, Neighbour, NextHop, NextHopId, NextHopTable, PortRef, Rib, RibTable,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

/// A format for writing tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteFormat {
    /// `PREFIX ID`.
    Text,
    /// `PREFIX via GATEWAY dev PORT`, and neighbours.
    Iproute2,
    /// `R<prefix> <port>`, with IPv6 addresses uncompressed.
    L3fwd,
    /// An array in the form of `ip -j route`, with the keys `id` and `port` where iproute2 has no equivalent.
    Json,
}

super::format::format_names!(
    WriteFormat, "a format to write, wanted text, iproute2, l3fwd or json",
    Text "text", Iproute2 "iproute2", L3fwd "l3fwd", Json "json"
);

/// Options of [`write()`].
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// The number of ports, P, used to derive the port of an id.
    pub ports: NonZeroU16,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { ports: NonZeroU16::MIN }
    }
}

impl WriteOptions {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a u16")]
    fn port_of(&self, id: NextHopId) -> u16 {
        (id.get().wrapping_sub(1) % u32::from(self.ports.get())) as u16
    }
}

/// Why a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Writing failed, for example because of a broken pipe.
    #[error("writing failed: {0}")]
    Io(#[from] io::Error),
    /// The format cannot express the route.
    #[error("{prefix} {hop} cannot be written as {format}")]
    NotExpressible {
        /// The route.
        prefix: IpPrefix,
        /// Its next hop.
        hop: NextHop,
        /// The format.
        format: WriteFormat,
    },
}

/// A route in the form of route text, for [`parse_route`](super::parse_route); a bare id or own address is written for people only.
#[derive(Clone, Copy, Debug)]
pub struct RouteWords<'a> {
    /// Its prefix.
    pub prefix: IpPrefix,
    /// Its next hop.
    pub hop: &'a NextHop,
}

impl RouteWords<'_> {
    fn path(self, f: &mut fmt::Formatter<'_>, hop: &NextHop) -> fmt::Result {
        let NextHop::Gateway { gateway, port } = hop else { return write!(f, "{hop}") };
        match family_named(*gateway, self.prefix) {
            Some(family) => write!(f, "via {family} {gateway}")?,
            None => write!(f, "via {gateway}")?,
        }
        named(port).map_or(Ok(()), |port| write!(f, " dev {port}"))
    }
}

impl fmt::Display for RouteWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, hop } = self;
        match hop {
            NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit => write!(f, "{hop} {prefix}"),
            NextHop::Port { port } => write!(f, "R{prefix} {port}"),
            NextHop::Group(group) => {
                write!(f, "{prefix}")?;
                for GroupPath { hop, weight } in group.paths() {
                    f.write_str(" nexthop ")?;
                    self.path(f, hop)?;
                    write!(f, " weight {weight}")?;
                }
                Ok(())
            }
            hop => {
                write!(f, "{prefix} ")?;
                self.path(f, hop)
            }
        }
    }
}

fn family_named(gateway: IpAddr, prefix: IpPrefix) -> Option<&'static str> {
    match (gateway, prefix) {
        (IpAddr::V4(_), IpPrefix::V6(_)) => Some("inet"),
        (IpAddr::V6(_), IpPrefix::V4(_)) => Some("inet6"),
        _ => None,
    }
}

/// Writes all routes, IPv4 before IPv6, sorted by address, then length; an id that is not in `hops` is bare. Returns the number of routes.
/// Makes many small writes, so pass an [`io::BufWriter`].
///
/// # Errors
/// [`WriteError::Io`], [`WriteError::NotExpressible`]; the output is incomplete then.
pub fn write(
    out: &mut dyn Write,
    format: WriteFormat,
    rib: &Rib,
    hops: &NextHopTable,
    options: &WriteOptions,
) -> Result<u64, WriteError> {
    let mut writer = TableWriter { out, format, hops, options, stand_ins: BTreeMap::new(), is_first: true };
    if format == WriteFormat::Json {
        writer.out.write_all(b"[")?;
    }
    writer.table(&rib.v4)?;
    writer.table(&rib.v6)?;
    writer.neighbours()?;
    if format == WriteFormat::Json {
        writer.out.write_all(b"]\n")?;
    }
    writer.out.flush()?;
    Ok(rib.len() as u64)
}

struct TableWriter<'a> {
    out: &'a mut dyn Write,
    format: WriteFormat,
    hops: &'a NextHopTable,
    options: &'a WriteOptions,
    stand_ins: BTreeMap<IpAddr, (u16, MacAddr)>,
    is_first: bool,
}

#[derive(Serialize, Default)]
struct WrittenEntry<'a> {
    #[serde(skip_serializing_if = "Option::is_none", rename = "type")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<PortText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nexthops: Vec<WrittenEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
}

#[derive(Serialize)]
struct Via {
    family: &'static str,
    host: IpAddr,
}

struct PortText<'a>(&'a PortRef);

impl Serialize for PortText<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

fn path_entry<'a>(entry: &mut WrittenEntry<'a>, prefix: IpPrefix, hop: &'a NextHop) {
    if let NextHop::Gateway { port, .. } | NextHop::Connected { port } = hop {
        entry.dev = named(port).map(PortText);
    }
    if let NextHop::Gateway { gateway, .. } = hop {
        match family_named(*gateway, prefix) {
            Some(family) => entry.via = Some(Via { family, host: *gateway }),
            None => entry.gateway = Some(*gateway),
        }
    }
}

fn named(port: &PortRef) -> Option<&PortRef> {
    Some(port).filter(|port| **port != PortRef::ById)
}

impl TableWriter<'_> {
    fn table<K: Key>(&mut self, table: &RibTable<K>) -> Result<(), WriteError> {
        for (prefix, id) in table.sorted() {
            let prefix = K::wrap(prefix);
            let (id, hop) = match self.hops.get(id) {
                None | Some(NextHop::Bare | NextHop::Moved(_)) => {
                    (self.hops.announced_id(id), &NextHop::Bare)
                }
                Some(hop) => (id, hop),
            };
            match self.format {
                WriteFormat::Text => writeln!(self.out, "{prefix} {id}")?,
                WriteFormat::Iproute2 => self.iproute2(prefix, id, hop)?,
                WriteFormat::L3fwd => self.l3fwd(prefix, id, hop)?,
                WriteFormat::Json => self.json(prefix, id, hop)?,
            }
        }
        Ok(())
    }

    fn iproute2(&mut self, prefix: IpPrefix, id: NextHopId, hop: &NextHop) -> Result<(), WriteError> {
        match hop {
            NextHop::Bare | NextHop::Moved(_) => self.stand_in(prefix, id, self.options.port_of(id))?,
            NextHop::Port { port } => {
                let id = NextHopId::from_answer(u32::from(*port) + 1);
                self.stand_in(prefix, id, *port)?;
            }
            NextHop::Connected { port: PortRef::ById } | NextHop::Local => {
                return Err(self.refuse(prefix, hop));
            }
            hop => writeln!(self.out, "{}", RouteWords { prefix, hop })?,
        }
        Ok(())
    }

    fn stand_in(&mut self, prefix: IpPrefix, id: NextHopId, port: u16) -> Result<(), WriteError> {
        let gateway = match prefix {
            IpPrefix::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(10 << 24 | id.get())),
            IpPrefix::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(id.get()))),
        };
        writeln!(self.out, "{prefix} via {gateway} dev {port}")?;
        self.stand_ins.insert(gateway, (port, MacAddr::of_bare_id(id)));
        Ok(())
    }

    fn l3fwd(&mut self, prefix: IpPrefix, id: NextHopId, hop: &NextHop) -> Result<(), WriteError> {
        let port = match hop {
            NextHop::Bare | NextHop::Moved(_) | NextHop::Gateway { port: PortRef::ById, .. } => {
                self.options.port_of(id)
            }
            NextHop::Port { port }
            | NextHop::Gateway { port: PortRef::Index(port), .. }
            | NextHop::Connected { port: PortRef::Index(port) } => *port,
            _ => return Err(self.refuse(prefix, hop)),
        };
        match prefix {
            IpPrefix::V4(prefix) => writeln!(self.out, "R{prefix} {port}")?,
            // l3fwd's parser requires all eight groups, of four digits each.
            IpPrefix::V6(prefix) => {
                let groups =
                    Ipv6Addr::from_bits(prefix.address()).segments().map(|group| format!("{group:04x}"));
                writeln!(self.out, "R{}/{} {port}", groups.join(":"), prefix.len())?;
            }
        }
        Ok(())
    }

    fn json(&mut self, prefix: IpPrefix, id: NextHopId, hop: &NextHop) -> Result<(), WriteError> {
        let mut entry = WrittenEntry { dst: prefix.to_string(), ..WrittenEntry::default() };
        match hop {
            NextHop::Bare | NextHop::Moved(_) => entry.id = Some(id.get()),
            NextHop::Port { port } => entry.port = Some(*port),
            NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit => entry.kind = hop.discard_word(),
            NextHop::Connected { port: PortRef::ById } | NextHop::Local => {
                return Err(self.refuse(prefix, hop));
            }
            NextHop::Connected { .. } | NextHop::Gateway { .. } => path_entry(&mut entry, prefix, hop),
            NextHop::Group(group) => {
                for GroupPath { hop, weight } in group.paths() {
                    let mut path = WrittenEntry { weight: Some(*weight), ..WrittenEntry::default() };
                    path_entry(&mut path, prefix, hop);
                    entry.nexthops.push(path);
                }
            }
        }
        self.entry(&entry)
    }

    fn entry(&mut self, entry: &WrittenEntry<'_>) -> Result<(), WriteError> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, entry).map_err(|error| WriteError::Io(error.into()))
    }

    fn neighbours(&mut self) -> Result<(), WriteError> {
        match self.format {
            WriteFormat::Text | WriteFormat::L3fwd => {}
            WriteFormat::Iproute2 => {
                for (gateway, (port, mac)) in std::mem::take(&mut self.stand_ins) {
                    writeln!(self.out, "neigh {gateway} lladdr {mac} dev {port}")?;
                }
                for Neighbour { address, port, mac } in self.hops.neighbours() {
                    writeln!(self.out, "neigh {address} lladdr {mac} dev {port}")?;
                }
            }
            WriteFormat::Json => {
                for Neighbour { address, port, mac } in self.hops.neighbours() {
                    self.entry(&WrittenEntry {
                        dst: address.to_string(),
                        lladdr: Some(mac.to_string()),
                        dev: Some(PortText(port)),
                        ..WrittenEntry::default()
                    })?;
                }
            }
        }
        Ok(())
    }

    fn refuse(&self, prefix: IpPrefix, hop: &NextHop) -> WriteError {
        WriteError::NotExpressible { prefix, hop: hop.clone(), format: self.format }
    }
}
