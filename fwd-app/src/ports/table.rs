//! The ports, as routes need to know them.
//!
//! The table is replaced as a whole when a link or the VRF of a port changes. Every VRF reads the same one, so nothing has to be passed
//! on: an egress table that was made from another [`PortTable`] than the current one is made anew with the next commit.

use crate::datapath::EgressPort;
use crate::datapath::egress::learned::Learned;
use crate::datapath::vlans::PortVrfs;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The ports and what all VRFs share. Empty until the ports are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortTable {
    /// The ports; a port's index is its place in the list.
    pub(crate) ports: Vec<EgressPort>,
    /// The VRFs of each port.
    pub(crate) vrfs: Vec<PortVrfs>,
    /// Ports that groups avoid although their link is up: those that are down for the kernel.
    pub(crate) stopped: Vec<u16>,
    /// The seed of the hash that chooses the path of a flow.
    pub(crate) ecmp_seed: u64,
    /// The neighbours that the router and the kernel have learned.
    pub(crate) learned: Arc<Learned>,
}

/// The table that all VRFs read.
pub(crate) type SharedPorts = Arc<ArcSwap<PortTable>>;

impl PortTable {
    /// These ports, all of VRF 0.
    #[cfg(test)]
    pub(crate) fn of(ports: Vec<EgressPort>) -> Self {
        Self { vrfs: vec![PortVrfs::default(); ports.len()], ports, ..Self::default() }
    }

    /// Does `change` to the table that all VRFs read. Each has it in service after its next commit.
    pub(crate) fn change(shared: &SharedPorts, change: impl FnOnce(&mut Self)) {
        let before = shared.load_full();
        let mut after = Self::clone(&before);
        change(&mut after);
        if after != *before {
            shared.store(Arc::new(after));
        }
    }

    /// The ports that do not belong to VRF `number`: a gateway without a port is no neighbour there.
    pub(crate) fn foreign(&self, number: usize) -> Vec<u16> {
        (0..).zip(&self.vrfs).filter(|(_, vrfs)| vrfs.own != number).map(|(port, _)| port).collect()
    }

    /// Whether the link of a port is up.
    pub(crate) fn is_up(&self, port: u16) -> bool {
        self.ports.get(usize::from(port)).is_some_and(|port| port.is_up)
    }

    /// The VRF of a port.
    pub(crate) fn vrf_of(&self, port: u16) -> usize {
        self.vrfs.get(usize::from(port)).map_or(0, |vrfs| vrfs.own)
    }

    /// The ports of VRF `number` by name, and the VLANs of other ports as a name, a dot and an id.
    pub(crate) fn names_of(&self, number: usize) -> Vec<String> {
        let mut names = Vec::new();
        for (port, PortVrfs { own, vlans }) in self.ports.iter().zip(&self.vrfs) {
            names.extend((*own == number).then(|| port.name.clone()));
            let here = vlans.iter().filter(|(_, vrf)| **vrf == number);
            names.extend(here.map(|(id, _)| format!("{}.{id}", port.name)));
        }
        names
    }
}

/// The kernel interface that the EAL arguments give to the driver of a device: `--vdev DEVICE,iface=NAME`.
pub(crate) fn interface_of<'a>(device: &str, eal: &'a [String]) -> Option<&'a str> {
    eal.iter().find_map(|word| {
        let (name, parameters) = word.strip_prefix("--vdev=").unwrap_or(word).split_once(',')?;
        let mut parameters = parameters.split(',').filter(|_| name == device);
        parameters.find_map(|parameter| parameter.strip_prefix("iface="))
    })
}
