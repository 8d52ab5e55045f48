//! Why the router discards a frame that was handed to it.

/// The reason; each has the name of the drop reason under which the frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// Neither ARP nor IP, or with more than two VLAN tags.
    NotIp,
    /// Truncated, or a version or length that contradicts the frame.
    Malformed,
    /// The checksum of an IPv4 header or of an ICMP message is wrong.
    BadChecksum,
    /// A source that no other host may have.
    Martian,
    /// A multicast group that is neither ours nor of the link's control protocols.
    Multicast,
    /// A MAC or an address that is not ours.
    NotForUs,
    /// An ARP or neighbour discovery message that is invalid, or that tells us nothing.
    ArpIgnored,
}

impl Reason {
    /// The name of the drop reason.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not_ip",
            Self::Malformed => "malformed",
            Self::BadChecksum => "bad_checksum",
            Self::Martian => "martian",
            Self::Multicast => "multicast",
            Self::NotForUs => "not_for_us",
            Self::ArpIgnored => "arp_ignored",
        }
    }
}
