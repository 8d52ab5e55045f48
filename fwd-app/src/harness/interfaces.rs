//! `--port-of`: maps interfaces of the capture to ports of the forwarder.

use fib::capture::Packet;
use std::fmt::Write as _;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortOf {
    /// Name or number of the interface in the capture.
    pub(crate) interface: String,
    pub(crate) port: u16,
}

/// Maps interfaces to ports, and records which interfaces the capture has.
#[derive(Clone, Debug, Default)]
pub(crate) struct InterfacePorts {
    of: Vec<PortOf>,
    /// By entry of `of`: whether a packet of that interface was seen.
    met: Vec<bool>,
    there: Vec<(usize, Option<String>)>,
}

impl InterfacePorts {
    /// Interfaces that `of` does not name map to port 0.
    pub(crate) fn new(of: &[PortOf]) -> Self {
        Self { of: of.to_vec(), met: vec![false; of.len()], there: Vec::new() }
    }

    /// The arrival port of a packet. A match by name takes precedence over one by number.
    pub(crate) fn port(&mut self, packet: &Packet<'_>) -> u16 {
        if self.of.is_empty() {
            return 0;
        }
        let (number, name) = (packet.interface, packet.interface_name);
        if !self.there.iter().any(|there| there.0 == number && there.1.as_deref() == name) {
            self.there.push((number, name.map(str::to_owned)));
        }
        let by_name = self.of.iter().position(|of| Some(of.interface.as_str()) == name);
        let by_number = || self.of.iter().position(|of| of.interface.parse() == Ok(number));
        let Some(entry) = by_name.or_else(by_number) else { return 0 };
        self.met[entry] = true;
        self.of[entry].port
    }

    /// The first named interface without a packet, with a list of the interfaces seen.
    pub(crate) fn unmet(&self) -> Option<(String, String)> {
        let (of, _) = self.of.iter().zip(&self.met).find(|(_, met)| !**met)?;
        let mut there = String::new();
        for (number, name) in &self.there {
            let comma = if there.is_empty() { "" } else { ", " };
            let _ = match name {
                Some(name) => write!(there, "{comma}{name} ({number})"),
                None => write!(there, "{comma}{number}"),
            };
        }
        Some((of.interface.clone(), there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_go_by_name_then_by_number_and_others_to_port_0() {
        let of = |interface: &str, port| PortOf { interface: interface.to_owned(), port };
        let mut ports = InterfacePorts::new(&[of("1", 3), of("eth1", 2), of("eth7", 1)]);
        let mut port = |interface, interface_name| {
            ports.port(&Packet {
                number: 1,
                link: 1,
                interface,
                interface_name,
                time_ns: 0,
                bytes: &[],
                wire_bytes: 0,
            })
        };
        assert_eq!([port(0, Some("eth0")), port(1, Some("eth1")), port(1, None)], [0, 2, 3]);
        let (wanted, there) = ports.unmet().unwrap();
        assert_eq!((wanted.as_str(), there.as_str()), ("eth7", "eth0 (0), eth1 (1), 1"));
        assert!(InterfacePorts::default().unmet().is_none());
    }
}
