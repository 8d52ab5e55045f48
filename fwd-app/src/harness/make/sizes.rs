//! Frame sizes: `--sizes` and `--imix`.
//!
//! Like testers, sizes include the checksum of 4 bytes, which frames in memory lack: size 64 means 60 bytes here.

use super::shares::Shares;
use std::fmt;
use std::str::FromStr;

const FCS_BYTES: usize = 4;
const SIZES: std::ops::RangeInclusive<usize> = 64..=65_535;
const WEIGHTS_MAX: u64 = 1_000_000;
/// The simple IMIX: 7 of 64 bytes, 4 of 594 and 1 of 1518; IP packets of at most 46, of 576 and of 1500 bytes.
const SIMPLE_IMIX: [(usize, u64); 3] = [(64, 7), (594, 4), (1518, 1)];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SizeMix {
    /// The sizes in the packets' headers: only truncated packets change.
    Original,
    /// Sizes with weights, in an order determined by the seed.
    Weighted(Vec<(usize, u64)>),
    /// An IMIX genome (RFC 6985): letters in order.
    Genome(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a list of sizes: wanted {} to {} bytes such as 64,128,1518, with weights such as 64:7,594:4,1518:1 (sum at most \
     {WEIGHTS_MAX}), letters a to j and z (RFC 6985) such as aaag, or original",
    SIZES.start(),
    SIZES.end()
)]
pub(crate) struct SizesError {
    text: String,
}

impl SizeMix {
    pub(crate) fn imix() -> Self {
        Self::Weighted(SIMPLE_IMIX.to_vec())
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "original" {
            return Some(Self::Original);
        }
        if !text.is_empty() && text.chars().all(|letter| size_of_letter(letter).is_some()) {
            return Some(Self::Genome(text.to_owned()));
        }
        let digits = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
        let part = |part: &str| {
            let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
            let size = usize::try_from(digits(size)?).ok().filter(|size| SIZES.contains(size))?;
            Some((size, digits(weight).filter(|weight| (1..=WEIGHTS_MAX).contains(weight))?))
        };
        let parts = text.split(',').map(part).collect::<Option<Vec<_>>>()?;
        (parts.iter().map(|(_, weight)| weight).sum::<u64>() <= WEIGHTS_MAX).then_some(Self::Weighted(parts))
    }
}

/// RFC 6985. `z` is the MTU of a replay's ports: frames of 1518 bytes.
const fn size_of_letter(letter: char) -> Option<usize> {
    Some(match letter {
        'a' => 64,
        'b' => 128,
        'c' => 256,
        'd' => 512,
        'e' => 1024,
        'f' => 1280,
        'g' | 'z' => 1518,
        'h' => 2112,
        'i' => 9000,
        'j' => 16_000,
        _ => return None,
    })
}

impl FromStr for SizeMix {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        Self::parse(text).ok_or_else(|| SizesError { text: text.to_owned() })
    }
}

impl fmt::Display for SizeMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Original => f.write_str("original"),
            Self::Genome(letters) => f.write_str(letters),
            Self::Weighted(parts) => {
                for (i, (size, weight)) in parts.iter().enumerate() {
                    write!(f, "{}{size}:{weight}", if i > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct SizeDealer {
    /// Bytes in memory of each choice; empty when frames keep the size in their headers.
    sizes: Vec<usize>,
    dealer: Shares,
}

impl SizeDealer {
    pub(super) fn new(mix: &SizeMix, seed: u64) -> Self {
        let (sizes, dealer): (Vec<_>, _) = match mix {
            SizeMix::Original => (Vec::new(), Shares::in_order(0)),
            SizeMix::Genome(letters) => {
                let sizes: Vec<_> = letters.chars().filter_map(size_of_letter).collect();
                let dealer = Shares::in_order(sizes.len());
                (sizes, dealer)
            }
            SizeMix::Weighted(parts) => {
                let (sizes, weights): (Vec<_>, Vec<_>) = parts.iter().copied().unzip();
                (sizes, Shares::weighted(&weights, seed, 0x7369_7a65))
            }
        };
        Self { sizes: sizes.into_iter().map(|size| size - FCS_BYTES).collect(), dealer }
    }

    pub(super) fn next(&mut self) -> Option<usize> {
        (!self.sizes.is_empty()).then(|| self.sizes[self.dealer.next()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn mixes_round_trip_and_others_are_refused() {
        for (text, shown) in [
            ("64", "64:1"),
            ("64,128,1518", "64:1,128:1,1518:1"),
            ("64:7,594:4,1518:1", "64:7,594:4,1518:1"),
            ("64:3,65535", "64:3,65535:1"),
            ("aaabz", "aaabz"),
            ("original", "original"),
        ] {
            let mix: SizeMix = text.parse().unwrap();
            assert_eq!(mix.to_string(), shown);
            assert_eq!(shown.parse(), Ok(mix));
        }
        assert_eq!("64:7,594:4,1518:1".parse(), Ok(SizeMix::imix()));
        for text in [
            "",
            ",",
            "63",
            "65536",
            "64:0",
            "64:",
            ":7",
            "64;128",
            "+64",
            "64:+7",
            "aak",
            "Original",
            "64:1000001",
            "64:600000,65:600000",
            "64:18446744073709551615,64:1",
        ] {
            let error = text.parse::<SizeMix>().unwrap_err().to_string();
            assert!(error.contains("64:7,594:4,1518:1"), "{text}: {error}");
        }
    }

    fn dealt(mix: &SizeMix, frames: usize) -> BTreeMap<usize, usize> {
        let (mut dealer, mut counts) = (SizeDealer::new(mix, 9), BTreeMap::new());
        for _ in 0..frames {
            *counts.entry(dealer.next().unwrap()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn an_imix_is_what_it_says() {
        for frames in [12_000, 65_536, 100_003] {
            let counts = dealt(&SizeMix::imix(), frames);
            for (size, weight) in [(60, 7), (590, 4), (1514, 1)] {
                let (wanted, dealt) = (weight * 1000 * frames / 12, counts[&size] * 1000);
                assert!(dealt.abs_diff(wanted) < frames, "{size}: {} of {frames}", counts[&size]);
            }
            let bytes: usize = counts.iter().map(|(size, count)| (size + 4) * count).sum();
            let wanted = frames * (64 * 7 + 594 * 4 + 1518) / 12;
            assert!(bytes.abs_diff(wanted) * 1000 < wanted, "{bytes} bytes, not {wanted}");
        }
    }

    #[test]
    fn a_genome_is_kept_in_order() {
        let mut dealer = SizeDealer::new(&"aacz".parse().unwrap(), 1);
        let sizes: Vec<_> = (0..9).map(|_| dealer.next().unwrap()).collect();
        assert_eq!(sizes, [60, 60, 252, 1514, 60, 60, 252, 1514, 60]);
        assert_eq!(SizeDealer::new(&SizeMix::Original, 1).next(), None);
    }
}
