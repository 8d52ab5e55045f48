//! `--generate`: UDP packets to the routes of a table.
//!
//! Destinations come from [`fib::traffic`], as in `lpm-bench`, without the few non-unicast addresses. Sources lie in the benchmarking
//! networks, and ports are random (RFC 4814), so that hashes spread the flows.

use super::packet::{IpLayout, NOTHING, UDP};
use super::remap::destination_of;
use super::shares::Shares;
use super::{FrameChanges, forwardable};
use crate::datapath::check::is_unicast;
use crate::datapath::flow::Flow;
use crate::error::ConfigError;
use fib::random::{Seeded, WeightedRanks};
use fib::traffic::{Traffic, TrafficError, zipf_flows};
use fib::{Family, Key, MacAddr, NextHopId, Prefix, Rib};
use std::fmt;
use std::iter::repeat_with;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Default number of packets: at least a window of them, and enough for accurate shares.
const PACKETS: usize = 65_536;
/// Most packets or flows: some 90 GB at 64 bytes.
pub(crate) const PACKETS_MAX: usize = 1_000_000_000;
const FRAME_BYTES: usize = 60;
const UDP_V6_BYTES: usize = 62;
/// Source MAC, the same as for captures without an Ethernet header.
const SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
const GAP_NS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficKind {
    /// To random addresses of the families with routes.
    Uniform,
    /// To random addresses of random prefixes, one flow per packet.
    Table,
    /// [`zipf_flows`] flows; the share of the k-th is proportional to 1/k.
    Zipf,
    Flows(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no traffic; wanted uniform, table, zipf or flows=N with N of 1 to {PACKETS_MAX}, such as flows=10k"
)]
pub(crate) struct TrafficKindError {
    text: String,
}

impl FromStr for TrafficKind {
    type Err = TrafficKindError;

    fn from_str(text: &str) -> Result<Self, TrafficKindError> {
        if let Some(flows) = text.strip_prefix("flows=").and_then(fib::units::count) {
            let flows = usize::try_from(flows).ok().filter(|flows| (1..=PACKETS_MAX).contains(flows));
            return flows.map(Self::Flows).ok_or_else(|| TrafficKindError { text: text.to_owned() });
        }
        match Traffic::parse(text) {
            Ok(Traffic::Random) => Ok(Self::Uniform),
            Ok(Traffic::Table) => Ok(Self::Table),
            Ok(Traffic::Zipf) => Ok(Self::Zipf),
            _ => Err(TrafficKindError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for TrafficKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Table => f.write_str("table"),
            Self::Zipf => f.write_str("zipf"),
            Self::Flows(flows) => write!(f, "flows={flows}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GenerateSpec {
    pub(crate) kind: TrafficKind,
    pub(crate) packets: usize,
    /// Percent of the packets, or of the flows, that are IPv6.
    pub(crate) v6_share: u8,
    pub(crate) seed: u64,
}

type Tuple = (IpAddr, Flow);

impl GenerateSpec {
    /// `packets` defaults to 65,536 or one per flow, whichever is more; `v6_share` to one half if both families have routes.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for fewer packets than flows, and for a family without routes.
    pub(crate) fn new(
        kind: TrafficKind,
        packets: Option<usize>,
        v6_share: Option<u8>,
        seed: u64,
        rib: &Rib,
    ) -> Result<Self, ConfigError> {
        let invalid = |message: String| Err(ConfigError::Invalid(format!("--generate {kind}: {message}")));
        let flows = if let TrafficKind::Flows(flows) = kind { flows } else { 1 };
        let packets = packets.unwrap_or(PACKETS.max(flows));
        if packets < flows {
            return invalid(format!("--packets {packets} are fewer than the flows"));
        }
        let share = match (forwardable(&rib.v4).is_empty(), forwardable(&rib.v6).is_empty(), v6_share) {
            (true, true, _) => return invalid("there is no route to a unicast address".into()),
            (true, _, Some(0..100)) => {
                return invalid("there is no IPv4 route; use --v6-share 100".into());
            }
            (_, true, Some(1..)) => return invalid("there is no IPv6 route; use --v6-share 0".into()),
            (_, _, Some(share)) => share,
            (true, ..) => 100,
            (_, true, _) => 0,
            _ => 50,
        };
        Ok(Self { kind, packets, v6_share: share, seed })
    }

    /// `push` takes the frames in order, each with its time in nanoseconds. `changes` sets the sizes, by default 64 bytes.
    ///
    /// # Errors
    /// [`TrafficError`] when the table differs from the one given to [`Self::new`].
    pub(crate) fn frames(
        &self,
        rib: &Rib,
        router: MacAddr,
        changes: &mut FrameChanges,
        mut push: impl FnMut(&[u8], u64),
    ) -> Result<(), TrafficError> {
        let (v4, v6) = (forwardable(&rib.v4), forwardable(&rib.v6));
        // Counted in flows where there are any, so that all flows have equally many packets.
        let [of_v4, of_v6] = match self.kind {
            TrafficKind::Flows(flows) => {
                let of_v6 = (flows * usize::from(self.v6_share)).div_ceil(100);
                [flows - of_v6, of_v6]
            }
            _ => [100 - usize::from(self.v6_share), usize::from(self.v6_share)],
        };
        let mut v4 = (of_v4 > 0).then(|| self.packets_of(&v4, of_v4)).transpose()?;
        let mut v6 = (of_v6 > 0).then(|| self.packets_of(&v6, of_v6)).transpose()?;
        let mut families = Shares::weighted(&[of_v4 as u64, of_v6 as u64], self.seed, 0x6661_6d69);
        let mut frame = Vec::new();
        for number in 0..self.packets {
            let family = if families.next() == 0 { &mut v4 } else { &mut v6 };
            let Some(packet) = family.as_mut().and_then(Iterator::next) else { continue };
            write_frame(
                &packet,
                number,
                router,
                changes.next_frame_bytes().unwrap_or(FRAME_BYTES),
                &mut frame,
            );
            push(&frame, number as u64 * GAP_NS);
        }
        Ok(())
    }

    fn packets_of<'t, K: Key>(
        &self,
        table: &'t [(Prefix<K>, NextHopId)],
        flows: usize,
    ) -> Result<Box<dyn Iterator<Item = Tuple> + 't>, TrafficError> {
        let traffic = if self.kind == TrafficKind::Uniform { Traffic::Random } else { Traffic::Table };
        let keys = traffic.stream(table, self.seed)?.filter(|key| is_unicast(destination_of(*key)));
        let rng = |purpose: u64| Seeded::new(self.seed, purpose + u64::from(K::BITS));
        let mut sources = rng(0x736f_7572);
        let drawn = keys.map(move |key| (key.to_ip(), flow(K::FAMILY, &mut sources)));
        Ok(match self.kind {
            TrafficKind::Uniform | TrafficKind::Table => Box::new(drawn),
            TrafficKind::Zipf => {
                let flows: Vec<_> = drawn.take(zipf_flows(K::FAMILY)).collect();
                let (ranks, mut rng) = (WeightedRanks::zipf(flows.len()), rng(0x7261_6e6b));
                Box::new(repeat_with(move || flows[ranks.draw(&mut rng)]))
            }
            TrafficKind::Flows(_) => Box::new(drawn.take(flows).collect::<Vec<_>>().into_iter().cycle()),
        })
    }
}

/// A random source: a host of 198.18.0.0/15 (RFC 2544) or 2001:2::/48 (RFC 5180), with ports by RFC 4814.
fn flow(family: Family, rng: &mut Seeded) -> Flow {
    let source: IpAddr = match family {
        Family::V4 => Ipv4Addr::from_bits(0xc612_0000 | rng.u32() >> 15).into(),
        Family::V6 => Ipv6Addr::from_bits(0x2001_0002 << 96 | rng.u128() >> 48).into(),
    };
    let mut port = |first: u16, ports: usize| first + u16::try_from(rng.below(ports)).unwrap_or(0);
    let ports = [port(1024, 64_512), port(1, 49_151)];
    let label = if family == Family::V6 { rng.u32() & 0xf_ffff } else { 0 };
    Flow { source, protocol: UDP, ports, label }
}

/// Writes the frame of a packet. An IPv6 frame too short for UDP has no next header (RFC 8200 4.7).
fn write_frame((to, flow): &Tuple, number: usize, router: MacAddr, frame_bytes: usize, frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend(router.0);
    frame.extend(SENDER);
    let mut protocol = flow.protocol;
    match (flow.source, to) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            let [.., id0, id1] = number.to_be_bytes();
            frame.extend([8, 0, 0x45, 0, 0, 28, id0, id1, 0, 0, 64, protocol, 0, 0]);
            frame.extend(source.octets());
            frame.extend(to.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(to)) => {
            if frame_bytes < UDP_V6_BYTES {
                protocol = NOTHING;
            }
            frame.extend([0x86, 0xdd]);
            frame.extend((6 << 28 | flow.label).to_be_bytes());
            frame.extend([0, 8, protocol, 64]);
            frame.extend(source.octets());
            frame.extend(to.octets());
        }
        _ => return,
    }
    if protocol == UDP {
        frame.extend(flow.ports.map(u16::to_be_bytes).as_flattened());
        // Length and checksum are set by `resize`; a checksum of 0 would mean none and be kept.
        frame.extend([0, 0, 0xff, 0xff]);
    }
    if let Some(layout) = IpLayout::parse(frame) {
        layout.resize(frame, frame_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet_test::payload;
    use super::*;
    use crate::datapath::check::{Destination, IPV6_BYTES};
    use crate::harness::reference::checked;
    use fib::IpPrefix;
    use std::collections::HashMap;

    const ROUTER: MacAddr = MacAddr([2, 0xf0, 0, 0, 0, 0]);

    fn rib(prefixes: &[&str]) -> Rib {
        let mut rib = Rib::new();
        for prefix in prefixes {
            rib.set(prefix.parse::<IpPrefix>().unwrap(), NextHopId::new(7).unwrap());
        }
        rib
    }

    const BOTH: [&str; 6] =
        ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.7/32", "224.0.0.0/4", "2001:db8::/32", "fe80::/10"];

    fn frames(kind: &str, packets: usize, share: Option<u8>, rib: &Rib, sizes: &str) -> Vec<Vec<u8>> {
        let spec = GenerateSpec::new(kind.parse().unwrap(), Some(packets), share, 5, rib).unwrap();
        let mut changes = FrameChanges::new(Some(&sizes.parse().unwrap()), None, 5);
        let mut frames = Vec::new();
        spec.frames(rib, ROUTER, &mut changes, |frame, time_ns| {
            assert_eq!(time_ns, frames.len() as u64 * 1000);
            frames.push(frame.to_vec());
        })
        .unwrap();
        assert_eq!(frames.len(), packets);
        for frame in &frames {
            assert_eq!(frame[..6], ROUTER.0);
            payload(frame);
            checked(frame).unwrap();
        }
        frames
    }

    fn is_v6(frame: &[u8]) -> bool {
        frame[12] == 0x86
    }

    #[test]
    fn kinds_round_trip_and_others_are_refused() {
        for (text, shown) in [
            ("uniform", "uniform"),
            ("random", "uniform"),
            ("table", "table"),
            ("zipf", "zipf"),
            ("flows=2k", "flows=2000"),
        ] {
            let kind: TrafficKind = text.parse().unwrap();
            assert_eq!(kind.to_string(), shown);
            assert_eq!(shown.parse(), Ok(kind));
        }
        for text in
            ["", "flows", "flows=", "flows=0", "flows=-1", "flows=2G", "flows=x", "Table", "capture:x.pcap"]
        {
            let error = text.parse::<TrafficKind>().unwrap_err().to_string();
            assert!(error.contains("flows=N"), "{text}: {error}");
        }
    }

    #[test]
    fn each_kind_goes_where_it_says() {
        let rib = rib(&BOTH);
        let routed = |frame: &[u8]| match checked(frame).unwrap().destination {
            Destination::V4(address) => rib.longest(Ipv4Addr::from_bits(address).into()),
            Destination::V6(address) => rib.longest(Ipv6Addr::from_bits(address).into()),
        };
        for kind in ["table", "zipf", "flows=90"] {
            let made = frames(kind, 3000, None, &rib, "100");
            assert!(made.iter().all(|frame| routed(frame).is_some() && frame.len() == 96), "{kind}");
            assert!(made.iter().filter(|frame| is_v6(frame)).count().abs_diff(1500) <= 32, "{kind}");
            assert_eq!(made, frames(kind, 3000, None, &rib, "100"), "{kind}: the same each time");
        }
        let uniform = frames("uniform", 3000, Some(100), &rib, "100");
        assert!(uniform.iter().all(|frame| is_v6(frame)));
        assert!(uniform.iter().filter(|frame| routed(frame).is_some()).count() < 3);
        let v4 = frames("uniform", 3000, Some(0), &rib, "100");
        let firsts: std::collections::HashSet<_> = v4.iter().map(|frame| frame[30]).collect();
        assert!(v4.iter().all(|frame| !is_v6(frame)) && firsts.len() > 200);
    }

    #[test]
    fn flows_have_as_many_packets_each_and_zipf_has_popular_ones() {
        let rib = rib(&BOTH);
        let by_flow = |made: Vec<Vec<u8>>| {
            let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
            for frame in made {
                let at = if is_v6(&frame) { 14 + IPV6_BYTES } else { 34 };
                *counts.entry(frame[if is_v6(&frame) { 22 } else { 26 }..at + 4].to_vec()).or_default() += 1;
            }
            let mut counts: Vec<_> = counts.into_values().collect();
            counts.sort_unstable_by(|a, b| b.cmp(a));
            counts
        };
        for (flows, packets, share) in
            [(1, 100, None), (2, 100, None), (90, 9000, Some(30)), (500, 500, Some(1))]
        {
            let counts = by_flow(frames(&format!("flows={flows}"), packets, share, &rib, "64"));
            assert_eq!(counts.len(), flows);
            assert!(counts[0] - counts[flows - 1] <= 2, "{flows}: {counts:?}");
        }
        let counts = by_flow(frames("zipf", 20_000, Some(0), &rib, "64"));
        // Of 200,000 flows the first has a share of 1 in 12.8, and the tenth a tenth of that.
        assert!((1400..1750).contains(&counts[0]) && (110..220).contains(&counts[9]), "{:?}", &counts[..10]);
        assert_eq!(by_flow(frames("table", 3000, None, &rib, "100")).len(), 3000);
    }

    #[test]
    fn sizes_are_exact_in_both_families() {
        let rib = rib(&BOTH);
        for share in [0, 50, 100] {
            let made = frames("flows=100", 12_000, Some(share), &rib, "64:7,594:4,1518:1");
            for (bytes, wanted) in [(60, 7000), (590, 4000), (1514, 1000)] {
                let of_size = |frame: &&Vec<u8>| frame.len() == bytes;
                assert_eq!(made.iter().filter(of_size).count(), wanted, "{bytes} bytes");
                let v6 = made.iter().filter(of_size).filter(|frame| is_v6(frame)).count();
                assert!(
                    (v6 * 100).abs_diff(wanted * usize::from(share)) < wanted * 10,
                    "{v6} of {bytes} bytes"
                );
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |kind: &str, packets, share, prefixes: &[&str]| {
            let error =
                GenerateSpec::new(kind.parse().unwrap(), packets, share, 1, &rib(prefixes)).unwrap_err();
            error.to_string()
        };
        assert!(refused("flows=10", Some(9), None, &BOTH).contains("--packets 9"));
        assert!(refused("table", None, Some(1), &["10.0.0.0/8"]).contains("--v6-share 0"));
        assert!(refused("uniform", None, Some(99), &["2001:db8::/32"]).contains("--v6-share 100"));
        assert!(refused("table", None, None, &["224.0.0.0/4", "ff00::/8"]).contains("no route"));
        let spec = |packets, prefixes: &[&str]| {
            GenerateSpec::new(TrafficKind::Flows(100_000), packets, None, 1, &rib(prefixes)).unwrap()
        };
        assert_eq!((spec(None, &BOTH).packets, spec(None, &BOTH).v6_share), (100_000, 50));
        assert_eq!(spec(None, &["10.0.0.0/8"]).v6_share, 0);
        assert_eq!(spec(None, &["2001:db8::/32", "224.0.0.0/4"]).v6_share, 100);
    }
}
