//! The router follows the forwarder: it knows the ports, and keeps the gateways of routes resolved.

use super::{GATEWAY_PERIOD, RouterLoop};
use crate::datapath::EgressTable;
use crate::neighbours::entries::Key;
use crate::neighbours::frame::Tags;
use crate::ports::InterfaceId;
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

impl RouterLoop {
    /// The neighbour at an address on a port, or on the first interface in `vrf` whose link has that address; `None` when the link is down.
    pub(super) fn key(&self, vrf: usize, address: IpAddr, port: Option<u16>) -> Option<Key> {
        let ports = self.router.ports();
        let mut here = ports.interfaces().filter(|interface| interface.vrfs.own == vrf);
        let mut on_link = || here.find(|interface| interface.is_on_link(address));
        let id = port.map(InterfaceId).or_else(|| on_link().map(|interface| interface.id))?;
        ports.is_up(id.0).then_some(Key::untagged(id, address))
    }

    /// Takes the ports as they are now. A TAP that is new has a carrier.
    pub(super) fn take_ports(&mut self) {
        let (before, ports) = (Arc::clone(self.router.ports()), self.ports.load_full());
        if Arc::ptr_eq(&before, &ports) {
            return;
        }
        for port in &ports.ports {
            let was_up = before.ports.get(usize::from(port.id.0)).is_none_or(|port| port.is_up);
            if was_up != port.is_up {
                self.taps.set_carrier(port.id, port.is_up);
            }
        }
        self.router.set_ports(self.now(), ports, &mut self.actions);
    }

    /// Takes ports that have changed, and keeps gateways resolved when an egress table is a new one or time has passed.
    pub(super) fn follow(&mut self) {
        self.take_ports();
        let is_same = |(egress, followed): (&ArcSwap<EgressTable>, &Arc<EgressTable>)| {
            Arc::ptr_eq(&egress.load(), followed)
        };
        let mut both = self.egress.iter().map(Arc::as_ref).zip(&self.followed.0);
        let has_changed = self.followed.0.len() != self.egress.len() || !both.all(is_same);
        if !has_changed && self.followed.1.elapsed() < GATEWAY_PERIOD {
            return;
        }
        let tables: Vec<_> = self.egress.iter().map(|egress| egress.load_full()).collect();
        let now = self.now();
        let mut gateways = BTreeSet::<Key>::new();
        for (vrf, table) in tables.iter().enumerate() {
            let keys = table.gateways().filter_map(|(address, port)| self.key(vrf, address, port));
            gateways.extend(keys);
        }
        let Self { pinned, router, .. } = self;
        pinned.retain(|key| {
            let is_gateway = gateways.contains(&Key::untagged(key.interface, key.address));
            if !is_gateway {
                router.unpin(*key);
            }
            is_gateway
        });
        for key in gateways {
            if !self.pinned.contains(&key) && self.router.pin(now, key, Tags::NONE, &mut self.actions) {
                self.pinned.insert(key);
            }
        }
        self.followed = (tables, Instant::now());
    }
}
