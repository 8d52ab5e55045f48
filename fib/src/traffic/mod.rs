//! Lookup keys for measurements. The same seed and table give the same keys on every host.

mod capture;

pub use capture::{Destinations, capture_destinations};

use crate::capture::CaptureError;
use crate::random::{Seeded, WeightedRanks};
use crate::{Family, Key, NextHopId, Prefix};
use std::fmt;
use std::iter::repeat_with;
use std::path::PathBuf;

/// A kind of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Uniform addresses: all 32 bits of IPv4; IPv6 within 2000::/3, the global unicast space (RFC 4291).
    Random,
    /// Uniform over the prefixes of a table, with random host bits. All routes are equally likely, so caches help little.
    Table,
    /// Zipf(1.0) over flows, which are keys drawn as in [`Traffic::Table`]: 200,000 for IPv4, 100,000 for IPv6. The
    /// share of the k-th flow is proportional to 1/k.
    Zipf,
    /// The destination addresses of a capture (pcap or pcapng), in order, repeated as often as needed.
    Capture(PathBuf),
}

/// Why keys cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The name is unknown.
    #[error("'{text}' is no traffic; known are: random, table, zipf, capture:FILE")]
    Unknown {
        /// The name as given.
        text: String,
    },
    /// The traffic is drawn from a table, which is empty.
    #[error("{traffic} traffic is drawn from the table, and it has no {family} prefix")]
    NoPrefixes {
        /// The traffic.
        traffic: Traffic,
        /// The family of the keys.
        family: Family,
    },
    /// The capture has no packet of the family.
    #[error("{path}: no {family} packet in {frames} frames", path = path.display())]
    NoPackets {
        /// The capture.
        path: PathBuf,
        /// The number of frames read.
        frames: u64,
        /// The family of the keys.
        family: Family,
    },
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

impl Traffic {
    /// Parses `random` (or `uniform`), `table`, `zipf` or `capture:FILE`.
    ///
    /// # Errors
    /// [`TrafficError::Unknown`] for anything else.
    pub fn parse(text: &str) -> Result<Self, TrafficError> {
        match text {
            "random" | "uniform" => Ok(Self::Random),
            "table" => Ok(Self::Table),
            "zipf" => Ok(Self::Zipf),
            _ => match text.strip_prefix("capture:") {
                Some(file) if !file.is_empty() => Ok(Self::Capture(PathBuf::from(file))),
                _ => Err(TrafficError::Unknown { text: text.to_owned() }),
            },
        }
    }

    /// The first `count` keys of [`Self::stream`].
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub fn keys<K: Key>(
        &self,
        table: &[(Prefix<K>, NextHopId)],
        count: usize,
        seed: u64,
    ) -> Result<Vec<K>, TrafficError> {
        Ok(self.stream(table, seed)?.take(count).collect())
    }

    /// Keys without end. [`Traffic::Table`] and [`Traffic::Zipf`] draw from `table`; the other kinds ignore it.
    ///
    /// # Errors
    /// [`TrafficError::NoPrefixes`] for an empty table; as [`capture_destinations`]; [`TrafficError::NoPackets`] without a packet of the family.
    pub fn stream<'t, K: Key>(
        &self,
        table: &'t [(Prefix<K>, NextHopId)],
        seed: u64,
    ) -> Result<Box<dyn Iterator<Item = K> + 't>, TrafficError> {
        let uniform = |rng: &mut Seeded| match K::FAMILY {
            Family::V4 => K::from_high_bits(rng.u32().to_high_bits()),
            Family::V6 => K::from_high_bits(1 << 125 | rng.u128() >> 3),
        };
        let from_table = |rng: &mut Seeded| {
            let (prefix, _) = table[rng.below(table.len())];
            rng.inside(prefix)
        };
        if table.is_empty() && matches!(self, Self::Table | Self::Zipf) {
            return Err(TrafficError::NoPrefixes { traffic: self.clone(), family: K::FAMILY });
        }
        let mut rng = Seeded::new(seed, 0x6b65_7973 + u64::from(K::BITS));
        Ok(match self {
            Self::Random => Box::new(repeat_with(move || uniform(&mut rng))),
            Self::Table => Box::new(repeat_with(move || from_table(&mut rng))),
            Self::Zipf => {
                let flows: Vec<_> = (0..zipf_flows(K::FAMILY)).map(|_| from_table(&mut rng)).collect();
                let ranks = WeightedRanks::zipf(flows.len());
                Box::new(repeat_with(move || flows[ranks.draw(&mut rng)]))
            }
            Self::Capture(path) => {
                let Destinations { v4, v6, frames, .. } = capture_destinations(path)?;
                let found: Vec<K> = match K::FAMILY {
                    Family::V4 => v4.into_iter().map(|key| K::from_high_bits(key.to_high_bits())).collect(),
                    Family::V6 => v6.into_iter().map(K::from_high_bits).collect(),
                };
                if found.is_empty() {
                    return Err(TrafficError::NoPackets { path: path.clone(), frames, family: K::FAMILY });
                }
                Box::new(found.into_iter().cycle())
            }
        })
    }
}

/// The number of flows of [`Traffic::Zipf`].
#[must_use]
pub const fn zipf_flows(family: Family) -> usize {
    match family {
        Family::V4 => 200_000,
        Family::V6 => 100_000,
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Table => f.write_str("table"),
            Self::Zipf => f.write_str("zipf"),
            Self::Capture(path) => write!(f, "capture:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{TableSpec, table};
    use crate::oracle::Oracle;
    use std::collections::HashMap;

    fn routes<K: Key>() -> Vec<(Prefix<K>, NextHopId)> {
        table(&TableSpec { family: K::FAMILY, routes: 500, seed: 1, next_hops: 9 }).unwrap()
    }

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for name in ["random", "table", "zipf", "capture:some dir/x.pcap"] {
            assert_eq!(Traffic::parse(name).unwrap().to_string(), name);
        }
        for name in ["", "Random", "capture:", "capture", "zipf2"] {
            assert!(Traffic::parse(name).unwrap_err().to_string().contains("capture:FILE"), "{name}");
        }
    }

    #[test]
    fn random_spans_the_space() {
        assert_eq!(Traffic::parse("uniform").unwrap(), Traffic::Random);
        let v4 = Traffic::Random.keys::<u32>(&[], 10_000, 1).unwrap();
        let firsts: std::collections::HashSet<_> = v4.iter().map(|key| key >> 24).collect();
        assert_eq!(firsts.len(), 256);
        let v6 = Traffic::Random.keys::<u128>(&[], 10_000, 1).unwrap();
        assert_eq!(v6.len(), 10_000);
        assert!(v6.iter().all(|key| key >> 125 == 1) && v6.iter().any(|key| key >> 124 == 3));
        assert_ne!(v4, Traffic::Random.keys::<u32>(&[], 10_000, 2).unwrap());
        assert_eq!(v4, Traffic::Random.keys::<u32>(&[], 10_000, 1).unwrap());
    }

    #[test]
    fn table_and_zipf_keys_lie_in_the_table() {
        let (t4, t6) = (routes::<u32>(), routes::<u128>());
        let (o4, o6): (Oracle<u32>, Oracle<u128>) =
            (t4.iter().copied().collect(), t6.iter().copied().collect());
        for traffic in [Traffic::Table, Traffic::Zipf] {
            let v4 = traffic.keys(&t4, 5000, 3).unwrap();
            assert!(v4.iter().all(|key| o4.longest_match(*key).is_some()));
            let v6 = traffic.keys(&t6, 5000, 3).unwrap();
            assert!(v6.iter().all(|key| o6.longest_match(*key).is_some()));
            let refused = traffic.keys::<u32>(&[], 1, 0).unwrap_err();
            assert!(matches!(refused, TrafficError::NoPrefixes { family: Family::V4, .. }));
        }
    }

    #[test]
    fn zipf_is_zipf() {
        let keys = Traffic::Zipf.keys::<u32>(&routes(), 200_000, 1).unwrap();
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for key in keys {
            *counts.entry(key).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // The harmonic number of 200,000 is 12.8: the first flow has a share of 1 / 12.8, the tenth a tenth of it.
        assert!((14_500..16_700).contains(&counts[0]), "{}", counts[0]);
        assert!((1300..1850).contains(&counts[9]), "{}", counts[9]);
    }
}
