//! The rules for headers, each as a branch-free function of header fields in host order unless a function says otherwise.
//! [`surely_unicast_v6`] reads half an address: callers must check the addresses that this half does not decide.

/// RFC 1812 5.2.2: "(5) The IP total length field must be large enough to hold the IP datagram header". The frame must also hold the
/// datagram; `there` is the frame's length from the header on.
#[inline(always)]
#[must_use]
pub const fn lengths_agree_v4(header_bytes: u32, total_bytes: u32, there: u32) -> bool {
    (total_bytes >= header_bytes) & (total_bytes <= there)
}

/// The frame must hold the datagram.
#[inline(always)]
#[must_use]
pub const fn lengths_agree_v6(ip_bytes: u32, there: u32) -> bool {
    ip_bytes <= there
}

/// RFC 1812 5.2.2: "(2) The IP checksum must be correct". `sum` is the sum of the header's 16-bit words, checksum included, in either
/// byte order (RFC 1071 2 B); folded, it must be all ones.
#[inline(always)]
#[must_use]
pub const fn checksum_is_right(sum: u32) -> bool {
    // The longest header has 30 words: the sum is at most 0x1d_ffe2, the first fold leaves at most 0x1_001c, the second 0xffff.
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

/// RFC 1812 5.3.1, RFC 8200 3: the TTL or hop limit must be at least 1 after it is decremented.
#[inline(always)]
#[must_use]
pub const fn may_hop(ttl: u8) -> bool {
    ttl > 1
}

/// RFC 1812 5.3.7 and 4.2.2.11, RFC 1122 3.2.1.3, RFC 3927 7, RFC 1112 4: 1/8 to 223/8 without 127/8 and 169.254/16. Above are multicast
/// (224/4) and 240/4, which includes the limited broadcast address.
#[inline(always)]
#[must_use]
pub const fn unicast_v4(address: u32) -> bool {
    let first = address >> 24;
    (first.wrapping_sub(1) < 223) & (first != 127) & (address >> 16 != 0xa9fe)
}

/// Returns whether every IPv6 address with this first half may be forwarded (RFC 4291 2.5, 2.7): all except addresses that begin with 64
/// zero bits and those from `fe00::` on. Some of the excluded addresses are unicast too, but hardly any packet has one.
#[inline(always)]
#[must_use]
pub const fn surely_unicast_v6(first_half: u64) -> bool {
    first_half.wrapping_sub(1) < 0xfe00_0000_0000_0000 - 1
}

/// An IPv4 checksum after the TTL was decremented, both in network byte order. RFC 1624 equation 3, `HC' = ~(~HC + ~m + m')`, where `m` is
/// the word of TTL and protocol: decrementing the TTL makes `~m + m' = 0xfeff`, so the sum grows by 0x0100, with an end-around carry.
#[inline(always)]
#[must_use]
pub const fn checksum_after_hop(checksum: [u8; 2]) -> [u8; 2] {
    let old = u16::from_be_bytes(checksum);
    old.wrapping_add(0x0100).wrapping_add((old >= 0xfeff) as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_new_header_for_every_old_one() {
        // RFC 1624 4: adding instead of equation 3 fails where the sum is 0.
        for old in 0..=u16::MAX {
            // The rest of the header makes `old` correct; the new sum over all words must be all ones.
            let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
            for ttl in [2_u32, 64, 255] {
                let rest = 0xffff - fold((ttl << 8 | 17) + u32::from(old));
                let new = u16::from_be_bytes(checksum_after_hop(old.to_be_bytes()));
                let sum = fold(rest + ((ttl - 1) << 8 | 17) + u32::from(new));
                assert_eq!(sum & 0xffff, 0xffff, "old {old:x} ttl {ttl}");
            }
        }
    }
}
