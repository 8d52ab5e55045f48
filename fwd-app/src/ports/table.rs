//! The table of ports: the only place for a port's name, MAC, MTU, link, addresses, VRF and TAP.
//!
//! Every VRF and the router share one table, which is replaced as a whole; a commit rebuilds an egress table made from another one.

use super::address::{InterfaceAddress, PortAddress};
use super::taps::TapSpec;
use super::{InterfaceId, PortRecord};
use crate::datapath::EgressPort;
use crate::datapath::egress::learned::Learned;
use crate::datapath::egress::{Named as _, find_port};
use crate::datapath::vlans::PortVrfs;
use crate::error::ConfigError;
use arc_swap::ArcSwap;
use fib::{NextHop, PortRef};
use std::net::IpAddr;
use std::sync::Arc;

/// Ports and shared settings. Empty until the ports are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortTable {
    pub(crate) ports: Vec<PortRecord>,
    pub(crate) ecmp_seed: u64,
    /// Neighbours learned by the router and the kernel.
    pub(crate) learned: Arc<Learned>,
}

pub(crate) type SharedPorts = Arc<ArcSwap<PortTable>>;

impl PortTable {
    pub(crate) fn new(ports: Vec<PortRecord>) -> Self {
        Self { ports, ..Self::default() }
    }

    pub(crate) fn with_vrfs(mut self, vrfs: Vec<PortVrfs>) -> Self {
        self.ports.iter_mut().zip(vrfs).for_each(|(port, vrfs)| port.vrfs = vrfs);
        self
    }

    /// Makes ports with `addresses` or a TAP interfaces of the router.
    ///
    /// # Errors
    /// [`ConfigError`] for a missing port, an address that no host may have, an address or link that two ports of a VRF share, and two TAPs
    /// of a port or name.
    pub(crate) fn with_interfaces(
        mut self,
        addresses: &[PortAddress],
        taps: &TapSpec,
    ) -> Result<Self, ConfigError> {
        for (port, name) in taps.of_ports(&self.ports)? {
            self.ports[usize::from(port)].tap = Some(name);
        }
        let by_port = self.by_port(addresses)?;
        for (port, addresses) in self.ports.iter_mut().zip(by_port) {
            if port.tap.is_some() || !addresses.is_empty() {
                let made = port.configure(addresses);
                made.map_err(|error| ConfigError::Invalid(format!("{}: {error}", port.title(port.id.0))))?;
            }
        }
        self.check_links()?;
        Ok(self)
    }

    /// Refuses an address or a link shared by two ports of a VRF, since packets for hosts of one port would leave by the other. Prefixes of
    /// a single address have no hosts; unnumbered ports may share them.
    fn check_links(&self) -> Result<(), ConfigError> {
        let is_link_local =
            |at: &InterfaceAddress| matches!(at.address(), IpAddr::V6(v6) if v6.is_unicast_link_local());
        let all = self.interfaces().flat_map(|port| port.configured().iter().map(move |at| (port, at)));
        let all: Vec<_> = all.filter(|(_, at)| !is_link_local(at)).collect();
        for (place, (port, at)) in all.iter().enumerate() {
            let others = all[..place]
                .iter()
                .filter(|(other, _)| other.id != port.id && other.vrfs.own == port.vrfs.own);
            let is_host =
                |at: &InterfaceAddress| at.prefix_len() == if at.address().is_ipv4() { 32 } else { 128 };
            for (other, there) in others.filter(|(_, there)| !(is_host(at) && is_host(there))) {
                let same = if at.address() == there.address() {
                    format!("the address {}", at.address())
                } else if at.prefix_len() == there.prefix_len() && there.contains(at.address()) {
                    format!("the link of {}/{}", at.address(), at.prefix_len())
                } else {
                    continue;
                };
                let [other, port] = [other, port].map(|port| port.title(port.id.0));
                let message = format!("--address: {other} and {port} both have {same}");
                return Err(ConfigError::Invalid(message));
            }
        }
        Ok(())
    }

    /// # Errors
    /// As [`Self::with_interfaces`], and for a port that would become an interface.
    pub(crate) fn with_addresses(&self, addresses: &[PortAddress]) -> Result<Self, ConfigError> {
        let (mut table, by_port) = (self.clone(), self.by_port(addresses)?);
        for (port, addresses) in table.ports.iter_mut().zip(by_port) {
            if port.is_interface() {
                let set = port.reconfigure(addresses);
                set.map_err(|error| ConfigError::Invalid(format!("{}: {error}", port.title(port.id.0))))?;
            } else if !addresses.is_empty() {
                let title = port.title(port.id.0);
                let message =
                    format!("--address: {title} had no address at start; its first one needs a restart");
                return Err(ConfigError::Invalid(message));
            }
        }
        table.check_links()?;
        Ok(table)
    }

    /// Sets the MTUs of ports; unlisted ports get their default.
    ///
    /// # Errors
    /// [`ConfigError`] for a missing port, and for an MTU that a running port cannot have.
    pub(crate) fn with_mtus(mut self, mtus: &[(PortRef, u16)]) -> Result<Self, ConfigError> {
        self.ports.iter_mut().for_each(|port| port.mtu_bytes = port.mtu_range.default);
        for (named, mtu_bytes) in mtus {
            let found = find_port(named, &self.ports, || format!("--mtu {named}={mtu_bytes}"));
            let found = found.map_err(|error| ConfigError::NoDevice(error.to_string()))?;
            let Some(port) = found.and_then(|index| self.ports.get_mut(usize::from(index))) else { continue };
            let (max, title) = (port.mtu_range.max, port.title(port.id.0));
            if *mtu_bytes > max {
                return Err(ConfigError::Invalid(format!(
                    "--mtu {named}={mtu_bytes}: {title} can get at most {max} bytes while it runs, by the size of its mbufs; a larger MTU needs a restart"
                )));
            }
            port.mtu_bytes = *mtu_bytes;
        }
        Ok(self)
    }

    fn by_port(&self, addresses: &[PortAddress]) -> Result<Vec<Vec<InterfaceAddress>>, ConfigError> {
        let mut by_port = vec![Vec::new(); self.ports.len()];
        for PortAddress { port, address, prefix_len } in addresses {
            let found = find_port(port, &self.ports, || format!("--address {port}={address}/{prefix_len}"));
            let found = found.map_err(|error| ConfigError::NoDevice(error.to_string()))?;
            let address = InterfaceAddress::new(*address, *prefix_len)
                .map_err(|error| ConfigError::Invalid(format!("--address {port}: {error}")))?;
            if let Some(there) = found.and_then(|index| by_port.get_mut(usize::from(index))) {
                there.push(address);
            }
        }
        Ok(by_port)
    }

    /// Adds kernel interfaces that lead to ports; a later entry replaces an earlier one of the same name.
    ///
    /// # Errors
    /// [`ConfigError::NoDevice`] for a missing port.
    pub(crate) fn with_kernel_interfaces(mut self, named: &[(PortRef, String)]) -> Result<Self, ConfigError> {
        for (port, name) in named {
            let found = find_port(port, &self.ports, || format!("--kernel-interface {name}"));
            let index = found.map_err(|error| ConfigError::NoDevice(error.to_string()))?;
            for port in &mut self.ports {
                port.kernel_interfaces.retain(|other| other != name);
                if Some(port.id.0) == index {
                    port.kernel_interfaces.push(name.clone());
                }
            }
        }
        Ok(self)
    }

    /// Applies `change` to the shared table, effective in each VRF after its next commit. Returns whether the table changed.
    pub(crate) fn change(shared: &SharedPorts, change: impl FnOnce(&mut Self)) -> bool {
        let before = shared.load_full();
        let mut after = Self::clone(&before);
        change(&mut after);
        let has_changed = after != *before;
        if has_changed {
            shared.store(Arc::new(after));
        }
        has_changed
    }

    /// Whether everything except the learned neighbours equals `other`.
    pub(crate) fn has_ports_of(&self, other: &Self) -> bool {
        (&self.ports, self.ecmp_seed) == (&other.ports, other.ecmp_seed)
    }

    pub(crate) fn interface(&self, id: InterfaceId) -> Option<&PortRecord> {
        self.ports.get(usize::from(id.0)).filter(|port| port.is_interface())
    }

    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &PortRecord> {
        self.ports.iter().filter(|port| port.is_interface())
    }

    pub(crate) fn egress(&self) -> Vec<EgressPort> {
        self.ports.iter().map(PortRecord::egress).collect()
    }

    pub(crate) fn stopped(&self) -> Vec<u16> {
        self.ports.iter().filter(|port| port.is_stopped).map(|port| port.id.0).collect()
    }

    /// Ports outside VRF `number`, where a gateway without a port is no neighbour.
    pub(crate) fn foreign(&self, number: usize) -> Vec<u16> {
        self.ports.iter().filter(|port| port.vrfs.own != number).map(|port| port.id.0).collect()
    }

    pub(crate) fn is_up(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_up)
    }

    pub(crate) fn vrf_of(&self, port: u16) -> usize {
        self.ports.get(usize::from(port)).map_or(0, |port| port.vrfs.own)
    }

    pub(crate) fn vrfs(&self) -> Vec<PortVrfs> {
        self.ports.iter().map(|port| port.vrfs.clone()).collect()
    }

    pub(crate) fn title(&self, port: u16) -> String {
        self.ports.get(usize::from(port)).map_or_else(|| format!("port {port}"), |record| record.title(port))
    }

    /// A next hop with its ports as printed ([`PortRecord::reference`]).
    pub(crate) fn shown(&self, hop: &NextHop) -> NextHop {
        hop.with_ports(&|port| {
            let found = find_port(port, &self.ports, String::new).ok().flatten();
            let found = found.and_then(|index| self.ports.get(usize::from(index)));
            found.map_or_else(|| port.clone(), PortRecord::reference)
        })
    }

    /// The ports of VRF `number` by name, and VLANs of other ports as `NAME.ID`.
    pub(crate) fn names_of(&self, number: usize) -> Vec<String> {
        let mut names = Vec::new();
        for PortRecord { name, vrfs: PortVrfs { own, vlans }, .. } in &self.ports {
            names.extend((*own == number).then(|| name.clone()));
            let here = vlans.iter().filter(|(_, vrf)| **vrf == number);
            names.extend(here.map(|(id, _)| format!("{name}.{id}")));
        }
        names
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::record::tests::port;
    use super::*;

    pub(crate) fn ports(count: u8) -> PortTable {
        PortTable::new((0..count).map(port).collect())
    }

    pub(crate) fn address(port: &str, address: &str, prefix_len: u8) -> PortAddress {
        PortAddress { port: PortRef::parse(port), address: address.parse().unwrap(), prefix_len }
    }

    fn taps(taps: &[(&str, &str)]) -> TapSpec {
        let taps = taps.iter().map(|(port, name)| (PortRef::parse(port), (*name).to_owned())).collect();
        TapSpec { taps, ..TapSpec::default() }
    }

    pub(crate) fn configured(
        count: u8,
        addresses: &[(&str, &str, u8)],
        tap_names: &[(&str, &str)],
    ) -> Result<PortTable, ConfigError> {
        let addresses: Vec<_> = addresses.iter().map(|(port, text, len)| address(port, text, *len)).collect();
        ports(count).with_interfaces(&addresses, &taps(tap_names))
    }

    #[test]
    fn addresses_and_taps_make_interfaces() {
        let table = configured(3, &[("p2", "192.0.2.1", 24)], &[("1", "b")]).unwrap();
        let shown = table.ports.iter().map(|port| (port.is_interface(), port.tap.as_deref()));
        assert_eq!(shown.collect::<Vec<_>>(), [(false, None), (true, Some("b")), (true, None)]);
        assert_eq!(table.interfaces().map(|port| port.v4().count()).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn ports_that_are_not_there_wrong_addresses_and_taps_are_refused() {
        for addresses in [("p9", "198.18.1.1", 24), ("9", "198.18.1.1", 24)] {
            assert!(matches!(configured(3, &[addresses], &[]), Err(ConfigError::NoDevice(_))));
        }
        for addresses in [("0", "224.0.0.1", 24), ("0", "198.18.1.1", 33)] {
            assert!(matches!(configured(3, &[addresses], &[]), Err(ConfigError::Invalid(_))));
        }
        for taps in [[("0", "a"), ("p0", "b")], [("0", "a"), ("1", "a")]] {
            assert!(matches!(configured(2, &[], &taps), Err(ConfigError::Invalid(_))));
        }
        assert!(matches!(configured(2, &[], &[("2", "a")]), Err(ConfigError::NoDevice(_))));
    }

    #[test]
    fn two_ports_of_a_vrf_share_no_address_and_no_link() {
        let why = |addresses: &[(&str, &str, u8)]| {
            configured(2, addresses, &[]).map(drop).map_err(|error| error.to_string())
        };
        let both = |what: &str| Err(format!("--address: port 0 (p0) and port 1 (p1) both have {what}"));
        assert_eq!(why(&[("0", "192.0.2.1", 24), ("1", "192.0.2.1", 32)]), both("the address 192.0.2.1"));
        assert_eq!(why(&[("0", "192.0.2.1", 24), ("p1", "192.0.2.9", 24)]), both("the link of 192.0.2.9/24"));
        assert_eq!(
            why(&[("0", "2001:db8::1", 64), ("1", "2001:db8::2", 64)]),
            both("the link of 2001:db8::2/64")
        );
        assert_eq!(why(&[("0", "192.0.2.1", 32), ("1", "192.0.2.1", 32)]), Ok(()), "unnumbered ports");
        // A more specific link, two addresses of one port, link-local addresses.
        assert_eq!(why(&[("0", "10.0.0.1", 8), ("1", "10.1.0.1", 16), ("1", "10.1.0.2", 16)]), Ok(()));
        assert_eq!(why(&[("0", "fe80::1", 64), ("1", "fe80::1", 64)]), Ok(()));
        let vrfs = vec![PortVrfs::default(), PortVrfs { own: 1, ..PortVrfs::default() }];
        let same = [address("0", "192.0.2.1", 24), address("1", "192.0.2.1", 24)];
        let table = ports(2).with_vrfs(vrfs).with_interfaces(&same, &TapSpec::default()).unwrap();
        assert!(table.with_addresses(&same).is_ok(), "VRFs have links of their own");
        let table = configured(2, &[("0", "192.0.2.1", 24), ("1", "198.51.100.1", 24)], &[]).unwrap();
        assert!(table.with_addresses(&same).is_err(), "nor after a reload");
    }

    #[test]
    fn mtus_are_the_given_ones_or_the_default_up_to_what_mbufs_hold() {
        let mut table = ports(3);
        table.ports[0].mtu_bytes = 1400;
        table.ports[1].mtu_range.max = 2022;
        let with = |mtus: &[(&str, u16)]| {
            let mtus: Vec<_> = mtus.iter().map(|(port, mtu)| (PortRef::parse(port), *mtu)).collect();
            let made = table.clone().with_mtus(&mtus).map_err(|error| error.to_string())?;
            Ok(made.ports.iter().map(|port| port.mtu_bytes).collect::<Vec<_>>())
        };
        assert_eq!(with(&[]), Ok(vec![1500, 1500, 1500]));
        assert_eq!(with(&[("1", 2022), ("p2", 68), ("2", 1300)]), Ok(vec![1500, 2022, 1300]));
        let refused: Result<_, String> = with(&[("p1", 2023)]);
        assert!(
            refused.clone().unwrap_err().starts_with("--mtu p1=2023: port 1 (p1) can get at most 2022 bytes"),
            "{refused:?}"
        );
        assert!(with(&[("p9", 1400)]).unwrap_err().contains("p9"));
    }

    #[test]
    fn links_vrfs_and_names_are_found_by_index() {
        let other = PortVrfs { own: 1, vlans: [(7, 2)].into() };
        let vrfs = vec![PortVrfs::default(), other];
        let mut table = ports(2).with_vrfs(vrfs.clone());
        table.ports[1].is_up = false;
        let of = |port| (table.is_up(port), table.vrf_of(port));
        assert_eq!([0, 1, 2].map(of), [(true, 0), (false, 1), (false, 0)]);
        assert_eq!((table.vrfs(), table.foreign(1)), (vrfs, vec![0]));
        assert_eq!([0, 1, 2].map(|vrf| table.names_of(vrf).join(" ")), ["p0", "p1", "p1.7"]);
    }

    #[test]
    fn the_last_port_that_is_given_a_kernel_interface_has_it() {
        let named = [("0", "eth0"), ("0", "eth1"), ("1", "eth0")];
        let named = named.map(|(port, name)| (PortRef::parse(port), name.to_owned()));
        let table = ports(2).with_kernel_interfaces(&named).unwrap();
        let names: Vec<_> = table.ports.iter().map(|port| port.kernel_interfaces.join(" ")).collect();
        assert_eq!(names, ["eth1", "eth0"]);
        let error = ports(2).with_kernel_interfaces(&[(PortRef::parse("7"), "eth0".to_owned())]).unwrap_err();
        assert!(error.to_string().contains("--kernel-interface eth0"), "{error}");
    }
}
