//! A binary trie with one bit per level: the last next hop on the path is the answer. It has its own parser of the text formats.

use fib::random::SplitMix64;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One family; addresses are aligned to the most significant bit.
struct BinaryTrie {
    children: Vec<[u32; 2]>,
    ids: Vec<u32>,
}

impl BinaryTrie {
    fn new() -> Self {
        Self { children: vec![[0; 2]], ids: vec![0] }
    }

    fn set(&mut self, bits: u128, len: u32, id: u32) {
        let mut at = 0;
        for depth in 0..len {
            let bit = (bits >> (127 - depth) & 1) as usize;
            if self.children[at][bit] == 0 {
                self.children[at][bit] = u32::try_from(self.ids.len()).unwrap();
                self.children.push([0; 2]);
                self.ids.push(0);
            }
            at = self.children[at][bit] as usize;
        }
        self.ids[at] = id;
    }

    fn lookup(&self, bits: u128) -> u32 {
        let (mut at, mut best) = (0, self.ids[0]);
        for depth in 0..128 {
            at = self.children[at][(bits >> (127 - depth) & 1) as usize] as usize;
            if at == 0 {
                break;
            }
            if self.ids[at] != 0 {
                best = self.ids[at];
            }
        }
        best
    }
}

pub(crate) type RouteKey = (IpAddr, u32);

pub(crate) struct RouteModel {
    v4: BinaryTrie,
    v6: BinaryTrie,
    pub(crate) routes: HashMap<RouteKey, u32>,
}

fn high_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn offset(first: IpAddr, offset: i128) -> IpAddr {
    match first {
        #[expect(clippy::cast_possible_truncation, reason = "wraps at the end of the address space")]
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().wrapping_add(offset as u32)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().wrapping_add(offset.cast_unsigned())).into(),
    }
}

pub(crate) fn route(text: &str) -> RouteKey {
    let (address, len) = text.split_once('/').unwrap();
    (address.parse().unwrap(), len.parse().unwrap())
}

/// Addresses at which an answer may change: the first and the last of the prefix, and their neighbours outside it.
pub(crate) fn edges((first, len): RouteKey) -> [IpAddr; 4] {
    let host_bits = width(first) - len;
    let last = if host_bits == 0 { 0 } else { (u128::MAX >> (128 - host_bits)).cast_signed() };
    let last = offset(first, last);
    [first, last, offset(first, -1), offset(last, 1)]
}

impl RouteModel {
    pub(crate) fn new() -> Self {
        Self { v4: BinaryTrie::new(), v6: BinaryTrie::new(), routes: HashMap::new() }
    }

    pub(crate) fn of_text(text: &str) -> Self {
        let mut model = Self::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (prefix, id) = line.split_once(' ').unwrap();
            model.set(route(prefix), id.parse().unwrap());
        }
        model
    }

    /// Sets a route; id 0 withdraws it.
    pub(crate) fn set(&mut self, route: RouteKey, id: u32) {
        let trie = if route.0.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        trie.set(high_bits(route.0), route.1, id);
        if id == 0 {
            self.routes.remove(&route);
        } else {
            self.routes.insert(route, id);
        }
    }

    pub(crate) fn update(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["a", prefix, id] => self.set(route(prefix), id.parse().unwrap()),
            ["w", prefix] => self.set(route(prefix), 0),
            _ => panic!("no update: {line}"),
        }
    }

    pub(crate) fn lookup(&self, address: IpAddr) -> u32 {
        let trie = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        trie.lookup(high_bits(address))
    }

    pub(crate) fn probes(&self, step: usize) -> Vec<IpAddr> {
        self.routes.keys().step_by(step).flat_map(|route| edges(*route)).collect()
    }
}

/// A table with a nested route of each length in both families, and the largest next hop.
pub(crate) fn every_length() -> String {
    let mut text = String::new();
    for len in 0..=128_u32 {
        let bits = 0x2aaa_aaaa_aaaa_aaaa_aaaa_aaaa_aaaa_aaaa & u128::MAX.checked_shl(128 - len).unwrap_or(0);
        text += &format!("{}/{len} {}\n", Ipv6Addr::from_bits(bits), len + 100);
        if len <= 32 {
            let bits = 0xaaaa_aaaa & u32::MAX.checked_shl(32 - len).unwrap_or(0);
            text += &format!("{}/{len} {}\n", Ipv4Addr::from_bits(bits), 16_777_215 - len);
        }
    }
    text
}

/// Pseudo-random addresses of both families (SplitMix64); most IPv6 addresses are in 2000::/3.
pub(crate) fn random_addresses(count: usize, seed: u64) -> Vec<IpAddr> {
    let mut seed = SplitMix64(seed);
    let mut next = || seed.u64();
    let mut address = |i: usize| match i % 4 {
        0 | 1 => IpAddr::from(Ipv4Addr::from_bits(u32::try_from(next() >> 32).unwrap())),
        2 => IpAddr::from(Ipv6Addr::from_bits(1 << 125 | u128::from(next() >> 3) << 64 | u128::from(next()))),
        _ => IpAddr::from(Ipv6Addr::from_bits(u128::from(next()) << 64 | u128::from(next()))),
    };
    (0..count).map(&mut address).collect()
}

#[test]
fn the_trie_itself_is_right_on_a_case_done_by_hand() {
    let mut model =
        RouteModel::of_text("# x\n0.0.0.0/0 1\n10.0.0.0/8 2\n10.1.2.3/32 3\n::/0 4\n2001:db8::/32 5\n");
    let at = |model: &RouteModel, text: &str| model.lookup(text.parse().unwrap());
    assert_eq!(
        ["9.9.9.9", "10.1.2.2", "10.1.2.3", "::", "2001:db8::1"].map(|text| at(&model, text)),
        [1, 2, 3, 4, 5]
    );
    model.update("w 10.0.0.0/8");
    model.update("a 10.1.2.0/24 7");
    assert_eq!(["10.1.2.2", "10.1.2.3", "10.9.9.9"].map(|text| at(&model, text)), [7, 3, 1]);
    assert_eq!(
        edges(route("10.0.0.0/8")).map(|a| a.to_string()),
        ["10.0.0.0", "10.255.255.255", "9.255.255.255", "11.0.0.0"]
    );
    assert_eq!(edges(route("::/0"))[1], IpAddr::from([0xff; 16]));
    assert_eq!(edges(route("::1/128")).map(|a| a.to_string()), ["::1", "::1", "::", "::2"]);
}
