//! Parsers of option values. An error states the expected form and the given value; clap exits with code 2.

use crate::harness::interfaces::PortOf;
use crate::harness::{OfferedRate, RateUnit};
use crate::ports::address::PortAddress;
use crate::ports::dpdk::EthDest;
use crate::topology::queue_map::QueueMapError;
use crate::topology::queue_spec::{QueueEntry, QueueSpec};
use fib::{PortRef, units};
use nix::unistd::{Group, User};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

const CAPTURE_PACKETS: NonZeroU64 = NonZeroU64::new(10_000).unwrap();

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("'{tuple}' is not (port,queue,lcore) such as (0,0,1), nor (port,auto)")]
    Tuple { tuple: String },
    #[error("wanted at least one (port,queue,lcore) such as (0,0,1)")]
    NoTuple,
    /// The tuples are no valid map of queues.
    #[error(transparent)]
    Map(#[from] QueueMapError),
    #[error("'{text}' is not a number of bytes such as 4096, 64K, 512M or 2G")]
    Bytes { text: String },
    #[error("'{text}' is not a whole number such as 100, 10k or 2M")]
    NoCount { text: String },
    #[error("{text} is not in {min}..={max}")]
    Range { text: String, min: u64, max: u64 },
    #[error(
        "'{text}' is not a rate: wanted max, original, xF (F times the original rate), N% (of the lossless rate), N, Nk, NM or NG with pps or \
         bps such as 100kpps or 5Gbps, or a range such as 1Mpps..5Mpps"
    )]
    Rate { text: String },
    #[error("'{text}' is not a rate such as 100kpps or 5Gbps: N, Nk, NM or NG with pps or bps")]
    Load { text: String },
    #[error("'{text}' is not a fraction from 0 to less than 1, such as 0, 0.001 or 0.1%")]
    Part { text: String },
    #[error("'{text}' is not a number of seconds above 0, such as 1 or 0.5")]
    Seconds { text: String },
    #[error("'{text}' is not PORT or ADDRESS:PORT such as 9100, 0.0.0.0:9100 or [::1]:9100")]
    MetricsAddress { text: String },
    #[error("a port is a name, a PCI address or an index, such as 0000:03:00.0 or 1")]
    Port,
    #[error("'{text}' is not PORT,MAC such as 0,02:00:00:00:00:01")]
    EthDest { text: String },
    #[error("'{text}' is not FILE or FILE,N with N packets, 1 or more")]
    CaptureDrops { text: String },
    #[error("'{text}' is not PORT=IFNAME such as 0=eth1")]
    KernelInterface { text: String },
    #[error("'{text}' is not PORT=NAME such as 0=tap0")]
    Tap { text: String },
    #[error(
        "'{text}' is not PORT=NAME such as 0=uplink: a name has up to 32 letters, digits, '-' and '_', and is neither a number nor 'all'"
    )]
    PortName { text: String },
    #[error("'{text}' is not IFACE=PORT such as eth1=1, with the index of a port")]
    PortOf { text: String },
    #[error("'{text}' is not PORT=BYTES such as 0=1400, with 68 to 65535 bytes")]
    PortMtu { text: String },
    #[error("'{text}' is not PORT=ADDRESS/LENGTH such as 0=192.0.2.1/24")]
    PortAddress { text: String },
    #[error("'{text}' is neither the name of a user of this host nor a number")]
    User { text: String },
    #[error("'{text}' is neither the name of a group of this host nor a number")]
    Group { text: String },
    #[error("'{text}' is not NAME=VALUE")]
    EngineArg { text: String },
}

/// The value of `--config`, l3fwd's `(port,queue,lcore),(port,queue,lcore),..`, and `(port,auto)`; blanks are skipped.
pub(crate) fn queue_spec(text: &str) -> Result<QueueSpec, ValueError> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if text.is_empty() {
        return Err(ValueError::NoTuple);
    }
    let mut tuples = Vec::new();
    let mut rest = text.as_str();
    loop {
        let end = rest.find(')').map_or(rest.len(), |at| at + 1);
        let (tuple, behind) = rest.split_at(end);
        tuples.push(queue_tuple(tuple)?);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None if behind.is_empty() => break,
            None => return Err(ValueError::Tuple { tuple: behind.to_owned() }),
        }
    }
    Ok(QueueSpec::new(tuples)?)
}

pub(crate) fn queue_tuple(tuple: &str) -> Result<QueueEntry, ValueError> {
    let wrong = || ValueError::Tuple { tuple: tuple.to_owned() };
    let inner = tuple.strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(wrong)?;
    let words: Vec<&str> = inner.split(',').collect();
    let port =
        words.first().filter(|port| !port.is_empty() && !port.contains(['(', '+'])).ok_or_else(wrong)?;
    // A number that is no index is a mistake, not a name.
    if digits::<u16>(port).is_none() && port.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        return Err(wrong());
    }
    let port = PortRef::parse(port);
    match words[1..] {
        ["auto"] => Ok(QueueEntry::Auto { port }),
        [queue, lcore] => match (digits(queue), digits(lcore)) {
            (Some(queue), Some(lcore)) => Ok(QueueEntry::Queue { port, queue, lcore }),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

pub(crate) fn port(text: &str) -> Result<PortRef, ValueError> {
    let text = text.trim();
    if text.is_empty() { Err(ValueError::Port) } else { Ok(PortRef::parse(text)) }
}

/// A number of digits only; `u16::from_str` accepts a `+`.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

pub(crate) fn rate(text: &str) -> Result<OfferedRate, ValueError> {
    let lower = text.to_ascii_lowercase();
    let rate = match lower.as_str() {
        "max" => Some(OfferedRate::Max),
        "original" => Some(OfferedRate::Times(1.0)),
        _ => match (lower.strip_prefix('x'), lower.split_once("..")) {
            (Some(factor), _) if !factor.ends_with(['k', 'm', 'g']) => {
                units::rate(factor).map(OfferedRate::Times)
            }
            (_, Some((from, to))) => match (rate_and_unit(from), rate_and_unit(to)) {
                (Some((from, unit)), Some((to, same))) if unit == same => {
                    Some(OfferedRate::Between(from, to, unit))
                }
                _ => None,
            },
            _ => rate_and_unit(&lower).map(|(rate, unit)| match unit {
                RateUnit::Pps => OfferedRate::Pps(rate),
                RateUnit::Bps => OfferedRate::Bps(rate),
                RateUnit::Percent => OfferedRate::Percent(rate),
            }),
        },
    };
    rate.ok_or_else(|| ValueError::Rate { text: text.to_owned() })
}

fn rate_and_unit(text: &str) -> Option<(f64, RateUnit)> {
    let units = [("pps", RateUnit::Pps), ("bps", RateUnit::Bps), ("%", RateUnit::Percent)];
    let (number, unit) = units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    // A percentage takes no `k`, `m` or `g`.
    let is_plain = unit != RateUnit::Percent || !number.ends_with(['k', 'm', 'g']);
    units::rate(number).filter(|_| is_plain).map(|rate| (rate, unit))
}

pub(crate) fn load(text: &str) -> Result<OfferedRate, ValueError> {
    let load = rate(text).ok().filter(|rate| matches!(rate, OfferedRate::Pps(_) | OfferedRate::Bps(_)));
    load.ok_or_else(|| ValueError::Load { text: text.to_owned() })
}

/// A fraction from 0 to less than 1, or in percent.
pub(crate) fn part(text: &str) -> Result<f64, ValueError> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent, 100.0));
    let is_plain = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let part = number.parse::<f64>().ok().filter(|_| is_plain).map(|part| part / whole);
    part.filter(|part| *part < 1.0).ok_or_else(|| ValueError::Part { text: text.to_owned() })
}

pub(crate) fn loss_goal(text: &str) -> Result<f64, ValueError> {
    part(text.strip_prefix("loss=").unwrap_or(text))
}

/// A parser of whole numbers in a range, with an optional `k`, `M` or `G` (powers of 1000), in either case.
pub(crate) fn count<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, ValueError> + Clone {
    move |text| in_range(text, units::count(text), &range)
}

/// A parser of bytes in a range, with an optional `K`, `M` or `G` (powers of 1024).
pub(crate) fn bytes_in<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, ValueError> + Clone {
    move |text| in_range(text, units::size(text), &range)
}

fn in_range<T: TryFrom<u64>>(
    text: &str,
    number: Option<u64>,
    range: &RangeInclusive<u64>,
) -> Result<T, ValueError> {
    let number = number.ok_or_else(|| ValueError::NoCount { text: text.to_owned() })?;
    let (min, max) = (*range.start(), *range.end());
    let fits = T::try_from(number).ok().filter(|_| range.contains(&number));
    fits.ok_or_else(|| ValueError::Range { text: text.to_owned(), min, max })
}

/// With an optional `K`, `M` or `G` (powers of 1024).
pub(crate) fn bytes(text: &str) -> Result<u64, ValueError> {
    units::size(text).ok_or_else(|| ValueError::Bytes { text: text.to_owned() })
}

/// The value of `--metrics`, `[ADDRESS:]PORT`; the default address is the loopback address.
pub(crate) fn metrics_address(text: &str) -> Result<SocketAddr, ValueError> {
    let port = |text: &str| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, digits(text)?)));
    let parsed = port(text.strip_prefix(':').unwrap_or(text)).or_else(|| text.parse().ok());
    parsed.ok_or_else(|| ValueError::MetricsAddress { text: text.to_owned() })
}

/// A time in seconds, fractions allowed, above 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, ValueError> {
    text.parse::<f64>()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| ValueError::Seconds { text: text.to_owned() })
}

pub(crate) fn eth_dest(text: &str) -> Result<EthDest, ValueError> {
    let parsed = text.split_once(',').and_then(|(port, mac)| {
        Some(EthDest { port: self::port(port).ok()?, mac: mac.trim().parse().ok()? })
    });
    parsed.ok_or_else(|| ValueError::EthDest { text: text.to_owned() })
}

/// The value of `--capture-drops`, `FILE[,N]`: the file and the number of packets.
pub(crate) fn capture_drops(text: &str) -> Result<(String, NonZeroU64), ValueError> {
    let wrong = || ValueError::CaptureDrops { text: text.to_owned() };
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let (file, packets) = match text.rsplit_once(',').filter(|(_, packets)| is_number(packets)) {
        Some((file, packets)) => (file, packets.parse().map_err(|_| wrong())?),
        None => (text, CAPTURE_PACKETS),
    };
    if file.is_empty() { Err(wrong()) } else { Ok((file.to_owned(), packets)) }
}

pub(crate) fn kernel_interface(text: &str) -> Result<(PortRef, String), ValueError> {
    port_and_name(text).ok_or_else(|| ValueError::KernelInterface { text: text.to_owned() })
}

pub(crate) fn tap(text: &str) -> Result<(PortRef, String), ValueError> {
    port_and_name(text).ok_or_else(|| ValueError::Tap { text: text.to_owned() })
}

/// The value of `--port-name`, `PORT=NAME`. A dot would begin the id of a VLAN.
pub(crate) fn port_name(text: &str) -> Result<(PortRef, String), ValueError> {
    let is_name = |name: &str| {
        let has_letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        has_letters && name.len() <= 32 && name.parse::<u64>().is_err() && name != "all"
    };
    let named = port_and_name(text).filter(|(_, name)| is_name(name));
    named.ok_or_else(|| ValueError::PortName { text: text.to_owned() })
}

fn port_and_name(text: &str) -> Option<(PortRef, String)> {
    let (port, name) = text.split_once('=').filter(|(port, name)| !port.is_empty() && !name.is_empty())?;
    Some((PortRef::parse(port), name.to_owned()))
}

pub(crate) fn port_of(text: &str) -> Result<PortOf, ValueError> {
    let parsed = text.rsplit_once('=').filter(|(interface, _)| !interface.is_empty());
    let parsed = parsed.and_then(|(interface, port)| Some((interface.to_owned(), digits(port)?)));
    parsed
        .map(|(interface, port)| PortOf { interface, port })
        .ok_or_else(|| ValueError::PortOf { text: text.to_owned() })
}

/// The value of `--mtu`, `PORT=BYTES`. Every IPv4 link forwards 68 bytes unfragmented (RFC 791 3.2).
pub(crate) fn port_mtu(text: &str) -> Result<(PortRef, u16), ValueError> {
    let parsed = text.split_once('=').and_then(|(port, bytes)| {
        let bytes = u16::try_from(units::size(bytes)?).ok().filter(|bytes| *bytes >= 68)?;
        Some((PortRef::parse(port), bytes)).filter(|_| !port.is_empty())
    });
    parsed.ok_or_else(|| ValueError::PortMtu { text: text.to_owned() })
}

pub(crate) fn port_address(text: &str) -> Result<PortAddress, ValueError> {
    let parsed = text.split_once('=').and_then(|(port, cidr)| {
        let (address, prefix_len) = cidr.trim().split_once('/')?;
        let (port, address) = (PortRef::parse(port.trim()), address.parse().ok()?);
        Some(PortAddress { port, address, prefix_len: digits(prefix_len)? })
    });
    let is_named = |at: &PortAddress| at.port != PortRef::Name(String::new());
    parsed.filter(is_named).ok_or_else(|| ValueError::PortAddress { text: text.to_owned() })
}

pub(crate) fn user(text: &str) -> Result<u32, ValueError> {
    let named = || User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
    // The highest number is reserved for no user.
    let number = digits(text).filter(|number| *number != u32::MAX);
    number.or_else(named).ok_or_else(|| ValueError::User { text: text.to_owned() })
}

pub(crate) fn group(text: &str) -> Result<u32, ValueError> {
    let named = || Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw());
    let number = digits(text).filter(|number| *number != u32::MAX);
    number.or_else(named).ok_or_else(|| ValueError::Group { text: text.to_owned() })
}

pub(crate) fn engine_arg(text: &str) -> Result<(String, String), ValueError> {
    units::named_value(text).ok_or_else(|| ValueError::EngineArg { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fib::MacAddr;

    #[test]
    fn names_of_ports_are_words() {
        assert_eq!(port_name("0=uplink-1"), Ok((PortRef::Index(0), "uplink-1".into())));
        let long = format!("0={}", "a".repeat(33));
        for text in ["0", "0=", "=a", "0=7", "0=all", "0=a.7", "0=a b", "0=a,b", &long] {
            assert!(matches!(port_name(text), Err(ValueError::PortName { .. })), "{text}");
        }
    }

    #[test]
    fn mtus_of_ports() {
        assert_eq!(port_mtu("0=1400"), Ok((PortRef::Index(0), 1400)));
        assert_eq!(port_mtu("0=9K"), Ok((PortRef::Index(0), 9216)));
        assert_eq!(port_mtu("net_tap0=65535"), Ok((PortRef::Name("net_tap0".into()), 65_535)));
        for text in ["", "=1400", "0", "0=", "0=67", "0=65536", "0=+1400", "0=1400 "] {
            assert!(port_mtu(text).is_err(), "{text}");
        }
    }

    #[test]
    fn config_tuples() {
        let map = queue_spec("(0,0,1), (0,1,2),(net_null0,0,1), (0000:03:00.0,auto)").unwrap();
        assert_eq!(map.entries().len(), 4);
        assert_eq!(map.entries()[1], QueueEntry::Queue { port: PortRef::Index(0), queue: 1, lcore: 2 });
        assert_eq!(map.to_string(), "(0,0,1),(0,1,2),(net_null0,0,1),(0000:03:00.0,auto)");
        assert!(queue_spec("(0,1,2),(0,0,1)").is_ok());
    }

    #[test]
    fn config_refuses_what_it_must() {
        for text in [
            "",
            " ",
            "0,0,1",
            "(0,0)",
            "(0,0,1,2)",
            "(0,0,a)",
            "(0,0,-1)",
            "(0,0,+1)",
            "(0,0,70000)",
            "(0,0,1",
            "(0,0,1)(1,0,1)",
            "(0,0,1),",
            "(0,0,1);(1,0,1)",
            "(,,)",
            "((0,0,1))",
            "(70000,0,1)",
            "(,auto)",
            "(0,auto,1)",
            "(0,automatic)",
            "(0,auto),(0,0,1)",
        ] {
            assert!(queue_spec(text).is_err(), "{text}");
        }
        let error = |text: &str| match queue_spec(text) {
            Err(ValueError::Map(error)) => error,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            error("(0,0,1),(0,0,2)"),
            QueueMapError::TwoLcores { port: "0".into(), queue: 0, first: 1, second: 2 }
        );
        assert_eq!(error("(0,0,1),(0,0,1)"), QueueMapError::Twice { port: "0".into(), queue: 0, lcore: 1 });
        assert_eq!(error("(0,0,1),(0,2,1)"), QueueMapError::Hole { port: "0".into(), queue: 2, missing: 1 });
    }

    #[test]
    fn rates() {
        for (text, wanted) in [
            ("max", OfferedRate::Max),
            ("original", OfferedRate::Times(1.0)),
            ("x2.5", OfferedRate::Times(2.5)),
            ("x.5", OfferedRate::Times(0.5)),
            ("100kpps", OfferedRate::Pps(100e3)),
            ("1.5Mpps", OfferedRate::Pps(1.5e6)),
            ("250pps", OfferedRate::Pps(250.0)),
            ("1Kpps", OfferedRate::Pps(1e3)),
            ("2gPPS", OfferedRate::Pps(2e9)),
            ("5gbps", OfferedRate::Bps(5e9)),
            ("1.5Mbps", OfferedRate::Bps(1.5e6)),
            ("10%", OfferedRate::Percent(10.0)),
            ("2.5%", OfferedRate::Percent(2.5)),
            ("1Mpps..5mpps", OfferedRate::Between(1e6, 5e6, RateUnit::Pps)),
            ("5gbps..1Gbps", OfferedRate::Between(5e9, 1e9, RateUnit::Bps)),
            ("10%..100%", OfferedRate::Between(10.0, 100.0, RateUnit::Percent)),
            ("MAX", OfferedRate::Max),
        ] {
            assert_eq!(rate(text), Ok(wanted), "{text}");
            assert_eq!(rate(&wanted.to_string()), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "x",
            "x0",
            "x-1",
            "xinf",
            "xnan",
            "pps",
            "kpps",
            "100",
            "100k",
            "0pps",
            "-5pps",
            "+5pps",
            "1Tpps",
            "infpps",
            "x1k",
            "bps",
            "5g",
            "0bps",
            "%",
            "0%",
            "-1%",
            "5k%",
            "1mpps..",
            "..1mpps",
            "1..5mpps",
            "1mpps..5gbps",
            "1mpps..max",
            "x1..x2",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!((load("5kpps"), load("1gbps")), (Ok(OfferedRate::Pps(5e3)), Ok(OfferedRate::Bps(1e9))));
        for text in ["max", "5%", "x2", "1pps..2pps", "5", ""] {
            assert!(matches!(load(text), Err(ValueError::Load { .. })), "{text}");
        }
    }

    #[test]
    fn parts_and_goals() {
        for (text, wanted) in [("0", 0.0), ("0.001", 0.001), ("0.1%", 0.001), ("50%", 0.5), (".25", 0.25)] {
            assert_eq!(part(text), Ok(wanted), "{text}");
            assert_eq!(loss_goal(&format!("loss={text}")), Ok(wanted), "{text}");
        }
        for text in ["", "%", "1", "100%", "-0.1", "+0.1", "nan", "inf", "1e", "loss=0"] {
            assert!(matches!(part(text), Err(ValueError::Part { .. })), "{text}");
        }
    }

    #[test]
    fn counts_have_units_and_ranges() {
        let burst = count::<u16>(1..=4096);
        assert_eq!(["1", "4k", "4K", "4096"].map(|text| burst(text).ok()), [1, 4000, 4000, 4096].map(Some));
        assert_eq!(burst("5k").unwrap_err().to_string(), "5k is not in 1..=4096");
        assert_eq!(
            burst("1.5k").unwrap_err().to_string(),
            "'1.5k' is not a whole number such as 100, 10k or 2M"
        );
        assert_eq!(
            count::<u16>(0..=u64::MAX)("70k").unwrap_err().to_string(),
            "70k is not in 0..=18446744073709551615"
        );
        assert_eq!(bytes_in::<u32>(64..=65_535)("9k"), Ok(9216));
    }

    #[test]
    fn byte_sizes_and_seconds() {
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert!(matches!(bytes("1.5G"), Err(ValueError::Bytes { .. })));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn captures_of_drops() {
        let parsed = |text: &str| capture_drops(text).ok().map(|(file, packets)| (file, packets.get()));
        assert_eq!(parsed("d.pcapng,25"), Some(("d.pcapng".to_owned(), 25)));
        assert_eq!(parsed("d.pcapng"), Some(("d.pcapng".to_owned(), 10_000)));
        assert_eq!(parsed("a,b"), Some(("a,b".to_owned(), 10_000)));
        assert_eq!(parsed("a,b,7"), Some(("a,b".to_owned(), 7)));
        for text in ["", ",5", "x,0", "x,99999999999999999999"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn port_addresses() {
        let at = port_address("p1=2001:db8::1/64").unwrap();
        assert_eq!((at.port, at.prefix_len), (PortRef::Name("p1".into()), 64));
        assert_eq!(port_address("3=192.0.2.1/24").unwrap().port, PortRef::Index(3));
        for text in ["", "3", "3=", "=192.0.2.1/24", "3=192.0.2.1", "3=192.0.2.1/", "3=192.0.2/24"] {
            assert!(port_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_and_names_of_interfaces() {
        assert_eq!(tap("p1=tap1"), Ok((PortRef::Name("p1".into()), "tap1".into())));
        assert_eq!(kernel_interface("1=eth0"), Ok((PortRef::Index(1), "eth0".into())));
        for text in ["", "1", "1=", "=tap1"] {
            assert!(matches!(tap(text), Err(ValueError::Tap { .. })), "{text}");
            assert!(matches!(kernel_interface(text), Err(ValueError::KernelInterface { .. })), "{text}");
        }
    }

    #[test]
    fn addresses_of_metrics() {
        for (text, wanted) in [
            ("9100", "127.0.0.1:9100"),
            (":9100", "127.0.0.1:9100"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:9100", "0.0.0.0:9100"),
            ("[::1]:9100", "[::1]:9100"),
        ] {
            assert_eq!(metrics_address(text), Ok(wanted.parse().unwrap()), "{text}");
        }
        for text in
            ["", ":", "65536", "+1", "localhost:9100", "127.0.0.1", "::1:9100", "127.0.0.1:", "1.2.3.4:9100 "]
        {
            assert_eq!(
                metrics_address(text),
                Err(ValueError::MetricsAddress { text: text.to_owned() }),
                "{text}"
            );
        }
    }

    #[test]
    fn users_by_name_and_number() {
        assert_eq!((user("root"), user("0"), user("65534")), (Ok(0), Ok(0), Ok(65_534)));
        for text in ["", "none of this name", "-1", "4294967295", "4294967296", "+1"] {
            assert_eq!(user(text), Err(ValueError::User { text: text.to_owned() }), "{text}");
        }
    }

    #[test]
    fn groups_by_name_and_number() {
        assert_eq!((group("root"), group("7"), group("65534")), (Ok(0), Ok(7), Ok(65_534)));
        for text in ["", "none of this name", "-1", "4294967295"] {
            assert_eq!(group(text), Err(ValueError::Group { text: text.to_owned() }), "{text}");
        }
    }

    #[test]
    fn eth_dest_and_engine_arguments() {
        let dest = eth_dest("3,02:00:00:00:00:07").unwrap();
        assert_eq!((dest.port, dest.mac), (PortRef::Index(3), MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!(eth_dest("p1,02:00:00:00:00:07").unwrap().port, PortRef::Name("p1".into()));
        for text in ["", "3", "3,", ",02:00:00:00:00:07", "3,02:00:00:00:00"] {
            assert!(eth_dest(text).is_err(), "{text}");
        }
        assert_eq!(engine_arg("hash=murmur"), Ok(("hash".into(), "murmur".into())));
        assert!(engine_arg("=1").is_err() && engine_arg("hash").is_err());
    }
}
