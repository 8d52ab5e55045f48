//! Learned neighbours: their MACs, and how each was learned.
//!
//! All VRFs share them, since a next hop may be behind any port. Neighbour entries of a next-hop table take precedence.

use fib::MacAddr;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Source of a MAC. At one address and port, the first source wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Learner {
    /// ARP or neighbour discovery of the router, in the VLANs with these ids; 0 is none.
    Router([u16; 2]),
    Kernel,
}

impl Learner {
    /// The VLANs of the MAC. `None` if it serves untagged packets, and VLANs without a MAC.
    pub(crate) fn vlans(self) -> Option<[u16; 2]> {
        match self {
            Self::Router(vlans) => Some(vlans).filter(|vlans| *vlans != [0; 2]),
            Self::Kernel => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LearnedKey {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) by: Learner,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Learned(BTreeMap<LearnedKey, MacAddr>);

impl Learned {
    pub(crate) fn set(&mut self, at: LearnedKey, mac: Option<MacAddr>) {
        match mac {
            Some(mac) => self.0.insert(at, mac),
            None => self.0.remove(&at),
        };
    }

    pub(crate) fn replace_kernel(&mut self, learned: impl Iterator<Item = (IpAddr, u16, MacAddr)>) {
        self.0.retain(|at, _| at.by != Learner::Kernel);
        let by = Learner::Kernel;
        self.0.extend(learned.map(|(address, port, mac)| (LearnedKey { address, port, by }, mac)));
    }

    /// Sorted by address and port; at one place the first wins.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LearnedKey, MacAddr)> {
        self.0.iter().map(|(at, mac)| (*at, *mac))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The MAC of an address on the first port accepted by `may_be`. MACs of VLANs come last.
    pub(crate) fn find(&self, address: IpAddr, may_be: impl Fn(u16) -> bool) -> Option<(u16, MacAddr)> {
        let first = LearnedKey { address, port: 0, by: Learner::Router([0; 2]) };
        let last = LearnedKey { address, port: u16::MAX, by: Learner::Kernel };
        let mut found = self.0.range(first..=last).filter(|(at, _)| may_be(at.port));
        let plain = found.clone().find(|(at, _)| at.by.vlans().is_none());
        plain.or_else(|| found.next()).map(|(at, mac)| (at.port, *mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_found_by_address_and_port() {
        let mut learned = Learned::default();
        let address: IpAddr = "fe80::1".parse().unwrap();
        let mac = |last| MacAddr([last; 6]);
        learned.replace_kernel([(address, 0, mac(1)), (address, 1, mac(2))].into_iter());
        let on = |learned: &Learned, port| learned.find(address, |at| at == port);
        assert_eq!([0, 1, 2].map(|port| on(&learned, port)), [Some((0, mac(1))), Some((1, mac(2))), None]);
        let [plain, tagged] =
            [0, 7].map(|vlan| LearnedKey { address, port: 1, by: Learner::Router([vlan, 0]) });
        learned.set(tagged, Some(mac(3)));
        assert_eq!(on(&learned, 1), Some((1, mac(2))), "that of a VLAN comes last");
        learned.set(plain, Some(mac(4)));
        assert_eq!((on(&learned, 1), learned.len()), (Some((1, mac(4))), 4), "the router's comes first");
        learned.replace_kernel(std::iter::empty());
        learned.set(plain, None);
        assert_eq!((learned.find(address, |_| true), learned.iter().count()), (Some((1, mac(3))), 1));
        learned.set(tagged, None);
        assert_eq!(learned, Learned::default());
    }
}
