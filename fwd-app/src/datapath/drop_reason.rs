//! Drop reasons, and classes of punts: one enum each, with one counter and one name per value in every output.

use std::fmt;

/// Why a packet was dropped. A packet that is not sent is counted under exactly one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum DropReason {
    /// Neither IPv4 nor IPv6, or with more than two VLAN tags.
    NotIp,
    /// Truncated, or a version or length that contradicts the frame (RFC 1812 5.2.2, RFC 8200 3).
    Malformed,
    BadChecksum,
    /// A TTL or hop limit of 1 or 0 (RFC 1812 5.3.1, RFC 8200 3).
    TtlExpired,
    /// An address that must not be forwarded (RFC 1812 5.3.7, RFC 4291 2.5).
    Martian,
    Multicast,
    NoRoute,
    Blackhole,
    Unreachable,
    Prohibited,
    NoNeighbour,
    /// The IP packet is longer than the egress port's MTU.
    MtuExceeded,
    TxFull,
    /// The engine failed or did not answer in time.
    EngineStall,
    /// A frame to another MAC, or a packet to this router that is not accepted.
    NotForUs,
    /// An ARP or neighbour discovery message that is invalid or carries nothing new.
    ArpIgnored,
    /// For this router, but over quota.
    PuntFull,
    /// The gateway's MAC is unknown, and too many packets wait for MACs.
    WaitingFull,
}

impl DropReason {
    pub(crate) const COUNT: usize = 18;

    /// In the order of the discriminants.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::NotIp,
        Self::Malformed,
        Self::BadChecksum,
        Self::TtlExpired,
        Self::Martian,
        Self::Multicast,
        Self::NoRoute,
        Self::Blackhole,
        Self::Unreachable,
        Self::Prohibited,
        Self::NoNeighbour,
        Self::MtuExceeded,
        Self::TxFull,
        Self::EngineStall,
        Self::NotForUs,
        Self::ArpIgnored,
        Self::PuntFull,
        Self::WaitingFull,
    ];

    pub(crate) const NAMES: [&'static str; Self::COUNT] = {
        let mut names = [""; Self::COUNT];
        let mut at = 0;
        while at < Self::COUNT {
            names[at] = Self::ALL[at].name();
            at += 1;
        }
        names
    };

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not_ip",
            Self::Malformed => "malformed",
            Self::BadChecksum => "bad_checksum",
            Self::TtlExpired => "ttl_expired",
            Self::Martian => "martian",
            Self::Multicast => "multicast",
            Self::NoRoute => "no_route",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibited => "prohibited",
            Self::NoNeighbour => "no_neighbour",
            Self::MtuExceeded => "mtu_exceeded",
            Self::TxFull => "tx_full",
            Self::EngineStall => "engine_stall",
            Self::NotForUs => "not_for_us",
            Self::ArpIgnored => "arp_ignored",
            Self::PuntFull => "punt_full",
            Self::WaitingFull => "waiting_full",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drops([u64; DropReason::COUNT]);

impl Drops {
    #[inline]
    pub(crate) fn add(&mut self, reason: DropReason, packets: u64) {
        self.0[reason as usize] += packets;
    }

    pub(crate) fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Includes zeros.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().zip(self.0)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut out = *self;
        for (now, before) in out.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(before);
        }
        out
    }
}

/// Class of a punt. Each has a ring; the router drains the rings in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntClass {
    Resolution,
    /// Link protocols, and packets for the kernel.
    Local,
    /// Packets that need a neighbour or an ICMP error.
    Errors,
}

impl PuntClass {
    /// In the order of the discriminants.
    pub(crate) const ALL: [Self; 3] = [Self::Resolution, Self::Local, Self::Errors];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Resolution => "resolution",
            Self::Local => "local",
            Self::Errors => "errors",
        }
    }
}

/// Punts that were dropped because their ring or their quota was full, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostPunts([u64; PuntClass::ALL.len()]);

impl LostPunts {
    pub(crate) fn add(&mut self, class: PuntClass, punts: u64) {
        self.0[class as usize] += punts;
    }

    pub(crate) fn get(&self, class: PuntClass) -> u64 {
        self.0[class as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PuntClass, u64)> {
        PuntClass::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_order_agree() {
        for (i, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
        }
        let names: Vec<_> = DropReason::ALL.iter().map(ToString::to_string).collect();
        let contract = "not_ip malformed bad_checksum ttl_expired martian multicast no_route blackhole \
                        unreachable prohibited no_neighbour mtu_exceeded tx_full engine_stall not_for_us \
                        arp_ignored punt_full waiting_full";
        assert_eq!(names.join(" "), contract);
    }

    #[test]
    fn counts_add_up() {
        let mut drops = Drops::default();
        drops.add(DropReason::Martian, 3);
        let before = drops;
        drops.add(DropReason::TxFull, 4);
        assert_eq!((drops.total(), drops.get(DropReason::TxFull)), (7, 4));
        assert_eq!(drops.since(&before).total(), 4);
        drops.merge(&before);
        assert_eq!(drops.get(DropReason::Martian), 6);
    }
}
