//! Token buckets, overall and per source, for packets that the router sends in response to others.
//!
//! RFC 1812 4.3.2.8 and RFC 4443 2.4 (f) ask for a limit of ICMP errors, and prefer a token bucket. A source is an IPv4 address or the
//! first 64 bits of an IPv6 address. The table has a fixed size: a new source replaces the quietest of four. With many senders a source may
//! get a fresh bucket too early; the overall bucket still limits the sum. Only [`Limiter::new`] allocates; it and [`Pace::new`] divide.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

/// Slots per row; a source's hash selects the row.
const WAYS: usize = 4;
const NS_PER_SECOND: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitRate {
    /// 0 allows nothing.
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// A token bucket of the generic cell rate algorithm (ITU-T I.371), stored as the time when it will be full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    full_at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time per token; `None` at rate 0.
    token_ns: Option<u64>,
    /// Time for all tokens but one.
    burst_ns: u64,
}

impl Pace {
    pub(crate) fn new(rate: LimitRate) -> Self {
        let token_ns = NS_PER_SECOND.checked_div(u64::from(rate.per_second)).filter(|_| rate.burst > 0);
        let burst_ns = token_ns.unwrap_or(0) * u64::from(rate.burst.saturating_sub(1));
        Self { token_ns, burst_ns }
    }

    /// The bucket minus a token, `None` if it is empty.
    pub(crate) fn taken(self, bucket: Bucket, now: Duration) -> Option<Bucket> {
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let from_ns = bucket.full_at_ns.max(now_ns);
        let full_at_ns = from_ns.saturating_add(self.token_ns?);
        (from_ns - now_ns <= self.burst_ns).then_some(Bucket { full_at_ns })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterConfig {
    pub(crate) overall: LimitRate,
    pub(crate) by_source: LimitRate,
    /// Least number of sources that are tracked; rounded up to a power of two.
    pub(crate) sources: usize,
}

impl LimiterConfig {
    /// Enough for traceroute from many hosts. Linux allows 1000/s overall in bursts of 50.
    pub(crate) const ERRORS: Self = Self {
        overall: LimitRate { per_second: 1000, burst: 200 },
        by_source: LimitRate { per_second: 20, burst: 20 },
        sources: 4096,
    };
    /// Limits of MTU errors. Connections hang without them, so other errors caused by forged sources must not use up this limit;
    /// Linux has none here.
    pub(crate) const TOO_BIG: Self = Self {
        overall: LimitRate { per_second: 10_000, burst: 1000 },
        by_source: LimitRate { per_second: 100, burst: 100 },
        sources: 4096,
    };
    pub(crate) const ECHOES: Self = Self {
        overall: LimitRate { per_second: 10_000, burst: 1000 },
        by_source: LimitRate { per_second: 1000, burst: 200 },
        sources: 4096,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LimitedSource {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for LimitedSource {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

type Slot = Option<(LimitedSource, Bucket)>;

#[derive(Debug)]
pub(crate) struct Limiter {
    overall: (Pace, Bucket),
    by_source: Pace,
    /// The number of rows is a power of two.
    rows: Box<[[Slot; WAYS]]>,
}

impl Limiter {
    pub(crate) fn new(config: &LimiterConfig) -> Self {
        let rows = config.sources.div_ceil(WAYS).next_power_of_two();
        Self {
            overall: (Pace::new(config.overall), Bucket::default()),
            by_source: Pace::new(config.by_source),
            rows: vec![[None; WAYS]; rows].into_boxed_slice(),
        }
    }

    /// Takes a token for `source` if both buckets have one. A source above its limit takes nothing from the overall bucket.
    pub(crate) fn allows(&mut self, now: Duration, source: IpAddr) -> bool {
        let source = LimitedSource::from(source);
        #[expect(clippy::cast_possible_truncation, reason = "the lower bits select a row")]
        let at = rustc_hash::FxBuildHasher.hash_one(source) as usize & (self.rows.len() - 1);
        let row = &mut self.rows[at];
        let quietness = |slot: &Slot| slot.map_or(0, |(_, bucket)| bucket.full_at_ns);
        let way = row.iter().position(|slot| slot.is_some_and(|(known, _)| known == source));
        let way = way.or_else(|| (0..WAYS).min_by_key(|way| quietness(&row[*way]))).unwrap_or(0);
        let bucket = row[way].filter(|(known, _)| *known == source).map(|(_, bucket)| bucket);
        let Some(taken) = self.by_source.taken(bucket.unwrap_or_default(), now) else { return false };
        let (pace, overall) = &mut self.overall;
        let Some(rest) = pace.taken(*overall, now) else { return false };
        *overall = rest;
        row[way] = Some((source, taken));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const fn config(overall: (u32, u32), by_source: (u32, u32), sources: usize) -> LimiterConfig {
        LimiterConfig {
            overall: LimitRate { per_second: overall.0, burst: overall.1 },
            by_source: LimitRate { per_second: by_source.0, burst: by_source.1 },
            sources,
        }
    }

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0200 + number).into()
    }

    fn passed(limiter: &mut Limiter, now_ms: u64, of: u32, tries: u32) -> u32 {
        let now = Duration::from_millis(now_ms);
        (0..tries).map(|_| u32::from(limiter.allows(now, address(of)))).sum()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut limiter = Limiter::new(&config((1000, 1000), (10, 5), 16));
        assert_eq!(passed(&mut limiter, 0, 1, 100), 5);
        assert_eq!(passed(&mut limiter, 99, 1, 100), 0);
        assert_eq!(passed(&mut limiter, 100, 1, 100), 1);
        assert_eq!(passed(&mut limiter, 10_000, 1, 100), 5);
        // The rate over ten seconds, plus one burst.
        let sum: u32 = (10_100..20_100).map(|ms| passed(&mut limiter, ms, 1, 3)).sum();
        assert!((100..=105).contains(&sum), "{sum}");
    }

    #[test]
    fn a_source_that_floods_does_not_silence_another() {
        let mut limiter = Limiter::new(&config((100, 20), (10, 5), 16));
        assert_eq!(passed(&mut limiter, 0, 1, 1_000_000), 5);
        assert_eq!(passed(&mut limiter, 0, 2, 10), 5);
    }

    #[test]
    fn all_sources_together_are_limited() {
        let mut limiter = Limiter::new(&config((1000, 50), (10, 5), 16));
        let sum: u32 = (0..10_000).map(|of| passed(&mut limiter, 0, of, 1)).sum();
        assert_eq!(sum, 50);
        assert_eq!(limiter.rows.len() * WAYS, 16);
    }

    #[test]
    fn hosts_of_an_ipv6_network_are_one_source() {
        let mut limiter = Limiter::new(&config((1000, 1000), (1, 3), 16));
        let host = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!((0..100).filter(|last| limiter.allows(Duration::ZERO, host(*last))).count(), 3);
        assert!(limiter.allows(Duration::ZERO, IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1])));
    }

    #[test]
    fn no_rate_and_no_burst_send_nothing() {
        for (rate, burst) in [(0, 5), (5, 0), (0, 0)] {
            assert_eq!(passed(&mut Limiter::new(&config((1000, 1000), (rate, burst), 16)), 5, 1, 10), 0);
            assert_eq!(passed(&mut Limiter::new(&config((rate, burst), (1000, 1000), 16)), 5, 1, 10), 0);
        }
        let mut fastest = Limiter::new(&config((u32::MAX, u32::MAX), (u32::MAX, u32::MAX), 1));
        assert_eq!(passed(&mut fastest, u64::MAX / 2_000_000, 1, 10), 10);
    }
}
