//! The router follows the datapath: it keeps the gateways of routes resolved, and knows which links are up.

use super::{Exceptions, GATEWAY_PERIOD};
use crate::datapath::EgressTable;
use crate::router::entries::Key;
use crate::router::frame::Tags;
use crate::router::{Interface, InterfaceId};
use arc_swap::ArcSwap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

impl Exceptions {
    /// The neighbour at an address on a port, or on the first interface in `vrf` whose link has that address; `None` when the link is down.
    pub(super) fn key(&self, vrf: usize, address: IpAddr, port: Option<u16>) -> Option<Key> {
        let mut interfaces = self.router.interfaces().iter().filter(|interface| interface.vrf() == vrf);
        let mut on_link = || interfaces.find(|interface| interface.is_on_link(address));
        let id = port.map(InterfaceId).or_else(|| on_link().map(Interface::id))?;
        self.ports.load().is_up(id.0).then_some(Key::untagged(id, address))
    }

    /// Keeps gateways resolved, and follows the links, when an egress table is a new one or time has passed.
    pub(super) fn follow(&mut self) {
        let is_same = |(egress, followed): (&ArcSwap<EgressTable>, &Arc<EgressTable>)| {
            Arc::ptr_eq(&egress.load(), followed)
        };
        let mut both = self.egress.iter().map(Arc::as_ref).zip(&self.followed.0);
        let has_changed = self.followed.0.len() != self.egress.len() || !both.all(is_same);
        if !has_changed && self.followed.1.elapsed() < GATEWAY_PERIOD {
            return;
        }
        let tables: Vec<_> = self.egress.iter().map(|egress| egress.load_full()).collect();
        let (now, ports) = (self.now(), self.ports.load_full());
        for (id, was_up) in &mut self.links {
            let is_up = ports.is_up(id.0);
            if *was_up != is_up {
                self.taps.set_carrier(*id, is_up);
            }
            match (*was_up, is_up) {
                (true, false) => self.router.link_down(now, *id, &mut self.actions),
                (false, true) => self.router.announce(*id, &mut self.actions),
                _ => {}
            }
            *was_up = is_up;
        }
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
