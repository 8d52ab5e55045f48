//! Prefixes and keys: the destination of a route and the input of a lookup.
//!
//! Host bits of a [`Prefix`] are zero by construction, so equal routes are equal values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4, 32-bit keys.
    V4,
    /// IPv6, 128-bit keys.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Bits of an address: 32 or 128.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// A lookup key: an address in host order. Implemented for `u32` (IPv4) and `u128` (IPv6) only.
pub trait Key:
    Copy
    + Ord
    + std::hash::Hash
    + fmt::Debug
    + Send
    + Sync
    + std::ops::BitAnd<Output = Self>
    + sealed::SealedKey
    + 'static
{
    /// Bits of the key.
    const BITS: u8;
    /// The family of these keys.
    const FAMILY: Family;
    /// The key 0.
    const ZERO: Self;
    /// A key whose first `len` bits are one and the others zero. `len` is capped at [`Self::BITS`].
    fn mask(len: u8) -> Self;
    /// The key as an address, for printing.
    fn to_ip(self) -> IpAddr;
    /// The key widened to 128 bits, aligned to the most significant bit.
    fn to_high_bits(self) -> u128;
    /// The inverse of [`Self::to_high_bits`]: keeps the first [`Self::BITS`] bits.
    fn from_high_bits(bits: u128) -> Self;
    /// Wraps a prefix of this family.
    fn wrap(prefix: Prefix<Self>) -> IpPrefix;
    /// The part of this family: the changes of a [`FibDelta`](crate::FibDelta), the routes of a [`Rib`](crate::Rib).
    fn part<F: ByFamily>(both: &F) -> &F::Part<Self>;
}

/// A value with a part for each family.
pub trait ByFamily {
    /// The part of the family with keys `K`.
    type Part<K: Key>: ?Sized;
    /// The IPv4 part.
    fn v4(&self) -> &Self::Part<u32>;
    /// The IPv6 part.
    fn v6(&self) -> &Self::Part<u128>;
}

mod sealed {
    pub trait SealedKey {}
}

macro_rules! key {
    ($key:ty, $family:ident, $address:ident, $field:ident) => {
        impl sealed::SealedKey for $key {}

        impl Key for $key {
            const BITS: u8 = Family::$family.bits();
            const FAMILY: Family = Family::$family;
            const ZERO: Self = 0;
            fn mask(len: u8) -> Self {
                Self::MAX.checked_shl(Self::BITS - u32::from(len).min(Self::BITS)).unwrap_or(0)
            }
            fn to_ip(self) -> IpAddr {
                $address::from_bits(self).into()
            }
            fn to_high_bits(self) -> u128 {
                u128::from(self) << (u128::BITS - Self::BITS)
            }
            fn from_high_bits(bits: u128) -> Self {
                (bits >> (u128::BITS - Self::BITS)) as Self
            }
            fn wrap(prefix: Prefix<Self>) -> IpPrefix {
                IpPrefix::$family(prefix)
            }
            fn part<F: ByFamily>(both: &F) -> &F::Part<Self> {
                both.$field()
            }
        }
    };
}

key!(u32, V4, Ipv4Addr, v4);
key!(u128, V6, Ipv6Addr, v6);

/// Why a prefix was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The length exceeds the family's bits.
    #[error("prefix length {len} is above {max}")]
    Length {
        /// The length as given.
        len: u32,
        /// The family's bits.
        max: u8,
    },
    /// Bits beyond the length are set, so the text is an address within a prefix, not a prefix.
    #[error("{address}/{len} has host bits set; the prefix is {network}/{len}")]
    HostBits {
        /// The address as given.
        address: IpAddr,
        /// The length as given.
        len: u8,
        /// The address with its host bits cleared.
        network: IpAddr,
    },
    /// The text is not an address with an optional `/length`.
    #[error("'{text}' is not a prefix such as 192.0.2.0/24 or 2001:db8::/32")]
    Syntax {
        /// The text as given.
        text: String,
    },
}

/// The addresses with the same first `len` bits. Ordered by address, then by length: a covering prefix sorts before those within it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix<K: Key> {
    address: K,
    len: u8,
}

/// An IPv4 prefix.
pub type Prefix4 = Prefix<u32>;
/// An IPv6 prefix.
pub type Prefix6 = Prefix<u128>;

impl<K: Key> Prefix<K> {
    /// The default route: all addresses.
    pub const DEFAULT: Self = Self { address: K::ZERO, len: 0 };

    /// The prefix of `len` bits that starts at `address`.
    ///
    /// # Errors
    /// [`PrefixError::Length`] when `len` is above the key's bits, [`PrefixError::HostBits`] when `address` has bits set beyond `len`.
    pub fn new(address: K, len: u8) -> Result<Self, PrefixError> {
        let prefix = Self::covering(address, len)?;
        if prefix.address == address {
            Ok(prefix)
        } else {
            Err(PrefixError::HostBits { address: address.to_ip(), len, network: prefix.address.to_ip() })
        }
    }

    /// The prefix of `len` bits that covers `address`; host bits are cleared. Fails with [`PrefixError::Length`] for too long a one.
    pub fn covering(address: K, len: u8) -> Result<Self, PrefixError> {
        if len > K::BITS {
            return Err(PrefixError::Length { len: u32::from(len), max: K::BITS });
        }
        Ok(Self { address: address & K::mask(len), len })
    }

    /// The prefix of `len` bits that covers `address`; `len` is capped at the key's bits.
    #[must_use]
    pub fn truncating(address: K, len: u8) -> Self {
        let len = len.min(K::BITS);
        Self { address: address & K::mask(len), len }
    }

    /// The first address of the prefix.
    #[must_use]
    pub const fn address(self) -> K {
        self.address
    }

    /// The number of fixed bits.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a prefix's length is a count of bits; no prefix is empty"
    )]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether `key` lies in the prefix.
    #[must_use]
    pub fn contains(self, key: K) -> bool {
        key & K::mask(self.len) == self.address
    }

    /// Whether every address of `other` lies in this prefix.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.address)
    }

    /// The last address of the prefix.
    #[must_use]
    pub fn last_address(self) -> K {
        let host = !K::mask(self.len).to_high_bits();
        K::from_high_bits(self.address.to_high_bits() | host)
    }
}

impl<K: Key> fmt::Display for Prefix<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.to_ip(), self.len)
    }
}

impl<K: Key> fmt::Debug for Prefix<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpPrefix {
    /// An IPv4 prefix.
    V4(Prefix4),
    /// An IPv6 prefix.
    V6(Prefix6),
}

impl IpPrefix {
    /// The family of the prefix.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }

    /// The number of fixed bits.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a prefix's length is a count of bits; no prefix is empty"
    )]
    pub const fn len(self) -> u8 {
        match self {
            Self::V4(p) => p.len(),
            Self::V6(p) => p.len(),
        }
    }

    /// As [`Prefix::covers`]; false for two families.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        match (self, other) {
            (Self::V4(prefix), Self::V4(other)) => prefix.covers(other),
            (Self::V6(prefix), Self::V6(other)) => prefix.covers(other),
            _ => false,
        }
    }

    /// As [`Prefix::new`].
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        match address {
            IpAddr::V4(a) => Prefix::new(a.to_bits(), len).map(Self::V4),
            IpAddr::V6(a) => Prefix::new(a.to_bits(), len).map(Self::V6),
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(p) => p.fmt(f),
            Self::V6(p) => p.fmt(f),
        }
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    /// Parses `ADDRESS/LENGTH`; an address without a length is a host route (/32 or /128).
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax { text: text.chars().take(64).collect() };
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address = IpAddr::from_str(address).map_err(|_| syntax())?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => max,
            Some(len) if !len.is_empty() && len.len() <= 9 && len.bytes().all(|b| b.is_ascii_digit()) => {
                let len: u32 = len.parse().map_err(|_| syntax())?;
                u8::try_from(len).map_err(|_| PrefixError::Length { len, max })?
            }
            Some(_) => return Err(syntax()),
        };
        Self::new(address, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_at_the_edges() {
        assert_eq!((u32::mask(0), u32::mask(1), u32::mask(32)), (0, 1 << 31, u32::MAX));
        assert_eq!((u128::mask(0), u128::mask(1), u128::mask(128)), (0, 1 << 127, u128::MAX));
    }

    #[test]
    fn text_round_trip() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32", "::/0", "2001:db8::/32", "::1/128"] {
            let prefix: IpPrefix = text.parse().unwrap();
            assert_eq!(prefix.to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<IpPrefix>().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn refusals_say_why() {
        let host = "10.0.0.1/8".parse::<IpPrefix>().unwrap_err();
        assert_eq!(host.to_string(), "10.0.0.1/8 has host bits set; the prefix is 10.0.0.0/8");
        let long = "10.0.0.0/33".parse::<IpPrefix>().unwrap_err();
        assert_eq!(long.to_string(), "prefix length 33 is above 32");
        assert_eq!(
            "10.0.0.0/300".parse::<IpPrefix>().unwrap_err(),
            PrefixError::Length { len: 300, max: 32 }
        );
        for text in
            ["", "/", "10.0.0.0/", "10.0.0/8", "10.0.0.0/+8", "10.0.0.0/ 8", "x/8", "1.2.3.4/9999999999"]
        {
            assert!(matches!(text.parse::<IpPrefix>(), Err(PrefixError::Syntax { .. })), "{text}");
        }
    }

    #[test]
    fn covering_order_and_bounds() {
        let wide = Prefix4::new(0x0a00_0000, 8).unwrap();
        let narrow = Prefix4::new(0x0a00_0000, 24).unwrap();
        assert!(wide < narrow && wide.covers(narrow) && !narrow.covers(wide) && wide.covers(wide));
        assert_eq!(wide.last_address(), 0x0aff_ffff);
        assert_eq!(Prefix6::DEFAULT.last_address(), u128::MAX);
    }
}
