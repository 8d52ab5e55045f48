//! Parsers of option values. Each gives a message that says what was wanted and what was there; clap turns it into exit
//! code 2.

use fib::MacAddr;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Why a value was refused; the option's name is put before it by clap.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum ValueError {
    /// A tuple of `--config` is not three numbers.
    #[error("'{tuple}' is not (port,queue,lcore), three numbers such as (0,0,1)")]
    Tuple { tuple: String },
    /// There is no tuple at all.
    #[error("no (port,queue,lcore) in it, such as (0,0,1)")]
    NoTuple,
    /// One queue for two lcores: packets would be reordered, and DPDK forbids it.
    #[error(
        "queue {queue} of port {port} is given to lcore {first} and to lcore {second}; a queue has one lcore"
    )]
    TwoLcores { port: u16, queue: u16, first: u16, second: u16 },
    /// The same tuple twice.
    #[error("({port},{queue},{lcore}) is there twice")]
    Twice { port: u16, queue: u16, lcore: u16 },
    /// Queues of a port must be 0, 1, .. without a hole, because DPDK numbers them so.
    #[error("port {port} has queue {queue} but no queue {missing}; its queues must be 0, 1, ..")]
    Hole { port: u16, queue: u16, missing: u16 },
    /// Not a number of bytes.
    #[error("'{text}' is not a number of bytes such as 4096, 64K, 512M or 2G")]
    Bytes { text: String },
    /// Not a rate.
    #[error(
        "'{text}' is not a rate: max, original, xF (times the original, F above 0), or N, Nk or NM with pps, such as 100kpps"
    )]
    Rate { text: String },
    /// Not a time in seconds.
    #[error("'{text}' is not a number of seconds above 0, such as 1 or 0.5")]
    Seconds { text: String },
    /// Not `PORT,MAC`.
    #[error("'{text}' is not PORT,MAC such as 0,02:00:00:00:00:01")]
    EthDest { text: String },
    /// Not `NAME=VALUE`.
    #[error("'{text}' is not NAME=VALUE")]
    EngineArg { text: String },
}

/// One tuple of `--config`: a queue of a port and the lcore that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueLcore {
    /// The port's index.
    pub(crate) port: u16,
    /// The RX queue's index on that port.
    pub(crate) queue: u16,
    /// The lcore that polls the queue.
    pub(crate) lcore: u16,
}

/// The value of `--config`: which lcore serves which queue. No queue occurs twice and each port's queues are
/// `0..n` without a hole. In the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueMap(pub(crate) Vec<QueueLcore>);

impl FromStr for QueueMap {
    type Err = ValueError;

    /// Reads l3fwd's `(port,queue,lcore),(port,queue,lcore),..`; blanks are skipped.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        if text.is_empty() {
            return Err(ValueError::NoTuple);
        }
        let mut map: Vec<QueueLcore> = Vec::new();
        let mut rest = text.as_str();
        loop {
            let end = rest.find(')').map_or(rest.len(), |at| at + 1);
            let (tuple, behind) = rest.split_at(end);
            let entry = parse_tuple(tuple)?;
            if let Some(other) = map.iter().find(|o| (o.port, o.queue) == (entry.port, entry.queue)) {
                let QueueLcore { port, queue, lcore } = entry;
                return Err(if other.lcore == lcore {
                    ValueError::Twice { port, queue, lcore }
                } else {
                    ValueError::TwoLcores { port, queue, first: other.lcore, second: lcore }
                });
            }
            map.push(entry);
            match behind.strip_prefix(',') {
                Some(more) => rest = more,
                None if behind.is_empty() => break,
                None => return Err(ValueError::Tuple { tuple: behind.to_owned() }),
            }
        }
        check_holes(&map)?;
        Ok(Self(map))
    }
}

fn parse_tuple(tuple: &str) -> Result<QueueLcore, ValueError> {
    let wrong = || ValueError::Tuple { tuple: tuple.to_owned() };
    let inner = tuple.strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(wrong)?;
    let numbers: Vec<u16> = inner.split(',').map(digits).collect::<Option<_>>().ok_or_else(wrong)?;
    let &[port, queue, lcore] = numbers.as_slice() else { return Err(wrong()) };
    Ok(QueueLcore { port, queue, lcore })
}

/// A number of digits only: `u16::from_str` would take a `+`.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn check_holes(map: &[QueueLcore]) -> Result<(), ValueError> {
    for &QueueLcore { port, queue, .. } in map {
        let missing = (0..queue).find(|q| !map.iter().any(|o| (o.port, o.queue) == (port, *q)));
        if let Some(missing) = missing {
            return Err(ValueError::Hole { port, queue, missing });
        }
    }
    Ok(())
}

impl fmt::Display for QueueMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, QueueLcore { port, queue, lcore }) in self.0.iter().enumerate() {
            write!(f, "{}({port},{queue},{lcore})", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// The value of `--rate`: how fast a replayed trace is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// As fast as the forwarder takes it.
    Max,
    /// So many packets a second, evenly spaced.
    Pps(f64),
    /// At this multiple of the speed that the capture's own timestamps say; 1.0 is `original`.
    Times(f64),
}

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let positive = |number: &str, unit: f64| {
            let starts = number.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            let value = number.parse::<f64>().ok().filter(|_| starts)? * unit;
            (value.is_finite() && value > 0.0).then_some(value)
        };
        let rate = match text {
            "max" => Some(Self::Max),
            "original" => Some(Self::Times(1.0)),
            _ => match (text.strip_prefix('x'), text.strip_suffix("pps")) {
                (Some(factor), _) => positive(factor, 1.0).map(Self::Times),
                (None, Some(number)) => match number.as_bytes().last() {
                    Some(b'k') => positive(&number[..number.len() - 1], 1e3),
                    Some(b'M') => positive(&number[..number.len() - 1], 1e6),
                    _ => positive(number, 1.0),
                }
                .map(Self::Pps),
                (None, None) => None,
            },
        };
        rate.ok_or_else(|| ValueError::Rate { text: text.to_owned() })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Pps(pps) => write!(f, "{pps}pps"),
            Self::Times(1.0) => f.write_str("original"),
            Self::Times(factor) => write!(f, "x{factor}"),
        }
    }
}

/// A number of bytes with an optional `K`, `M` or `G` (powers of 1024).
pub(crate) fn bytes(text: &str) -> Result<u64, ValueError> {
    let wrong = || ValueError::Bytes { text: text.to_owned() };
    let (number, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits::<u64>(number).and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0).ok_or_else(wrong)
}

/// A time in seconds, fractions allowed, above 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, ValueError> {
    text.parse::<f64>()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| !d.is_zero())
        .ok_or_else(|| ValueError::Seconds { text: text.to_owned() })
}

/// The value of `--eth-dest`: the destination MAC of everything that leaves by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EthDest {
    /// The port's index.
    pub(crate) port: u16,
    /// The MAC.
    pub(crate) mac: MacAddr,
}

impl FromStr for EthDest {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let parsed = text
            .split_once(',')
            .and_then(|(port, mac)| Some(Self { port: digits(port.trim())?, mac: mac.trim().parse().ok()? }));
        parsed.ok_or_else(|| ValueError::EthDest { text: text.to_owned() })
    }
}

/// `NAME=VALUE`, a parameter that an engine knows by name.
pub(crate) fn engine_arg(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(ValueError::EngineArg { text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_tuples() {
        let map: QueueMap = "(0,0,1), (0,1,2),(1,0,1)".parse().unwrap();
        assert_eq!(map.0.len(), 3);
        assert_eq!(map.0[1], QueueLcore { port: 0, queue: 1, lcore: 2 });
        assert_eq!(map.to_string(), "(0,0,1),(0,1,2),(1,0,1)");
        // Queue order within the text is free.
        assert!("(0,1,2),(0,0,1)".parse::<QueueMap>().is_ok());
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
        ] {
            assert!(text.parse::<QueueMap>().is_err(), "{text}");
        }
        let error = |text: &str| text.parse::<QueueMap>().unwrap_err();
        assert_eq!(
            error("(0,0,1),(0,0,2)"),
            ValueError::TwoLcores { port: 0, queue: 0, first: 1, second: 2 }
        );
        assert_eq!(error("(0,0,1),(0,0,1)"), ValueError::Twice { port: 0, queue: 0, lcore: 1 });
        assert_eq!(error("(0,0,1),(0,2,1)"), ValueError::Hole { port: 0, queue: 2, missing: 1 });
    }

    #[test]
    fn rates() {
        for (text, wanted) in [
            ("max", Rate::Max),
            ("original", Rate::Times(1.0)),
            ("x2.5", Rate::Times(2.5)),
            ("x.5", Rate::Times(0.5)),
            ("100kpps", Rate::Pps(100e3)),
            ("1.5Mpps", Rate::Pps(1.5e6)),
            ("250pps", Rate::Pps(250.0)),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
            assert_eq!(wanted.to_string().parse(), Ok(wanted), "{text}");
        }
        for text in [
            "", "x", "x0", "x-1", "xinf", "xnan", "pps", "kpps", "100", "100k", "0pps", "-5pps", "+5pps",
            "1Gpps", "infpps", "MAX",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn byte_sizes_and_seconds() {
        for (text, wanted) in [("1", 1), ("4K", 4096), ("512M", 512 << 20), ("2G", 2 << 30), ("3g", 3 << 30)]
        {
            assert_eq!(bytes(text), Ok(wanted));
        }
        for text in ["", "K", "0", "-1", "+1", "1.5G", "1T", "18446744073709551615K", "é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn eth_dest_and_engine_arguments() {
        let dest: EthDest = "3,02:00:00:00:00:07".parse().unwrap();
        assert_eq!((dest.port, dest.mac), (3, MacAddr([2, 0, 0, 0, 0, 7])));
        for text in ["", "3", "3,", "x,02:00:00:00:00:07", "3,02:00:00:00:00"] {
            assert!(text.parse::<EthDest>().is_err(), "{text}");
        }
        assert_eq!(engine_arg("hash=murmur"), Ok(("hash".into(), "murmur".into())));
        assert_eq!(engine_arg("x=a=b"), Ok(("x".into(), "a=b".into())));
        assert!(engine_arg("=1").is_err() && engine_arg("hash").is_err());
    }
}
