//! Follows the control thread: applies changed ports and gateways to keep resolved, and answers its requests.

use super::asked::{KnownNeighbour, ToRouter};
use super::{GATEWAY_PERIOD, RouterLoop};
use crate::datapath::EgressTable;
use crate::neighbours::entries::{Key, NeighbourState};
use crate::neighbours::frame::Tags;
use crate::ports::InterfaceId;
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Gateways kept resolved in VLANs: an eighth of an interface's table.
const TAGGED_MAX: usize = 1024;

impl RouterLoop {
    /// The neighbour on the given port, or on the first interface of `vrf` on whose link the address is; `None` if the link is down.
    pub(super) fn key(&self, vrf: usize, address: IpAddr, port: Option<u16>) -> Option<Key> {
        let ports = self.router.ports();
        let mut here = ports.interfaces().filter(|interface| interface.vrfs.own == vrf);
        let mut on_link = || here.find(|interface| interface.is_on_link(address));
        let id = port.map(InterfaceId).or_else(|| on_link().map(|interface| interface.id))?;
        ports.is_up(id.0).then_some(Key::untagged(id, address))
    }

    /// Applies changed ports. A new TAP starts with a carrier.
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

    /// Applies changed ports, and updates the pinned gateways after a change of an egress table or periodically.
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
        let mut gateways = BTreeSet::<Key>::new();
        for (vrf, table) in tables.iter().enumerate() {
            let keys = table.gateways().filter_map(|(address, port)| self.key(vrf, address, port));
            gateways.extend(keys);
        }
        self.keep_resolved(gateways);
        self.followed = (tables, Instant::now());
    }

    /// Pins only the untagged entry of each gateway and its entry in every VLAN where it answers. Senders choose the tags of their frames,
    /// so without an answer an entry in a VLAN is limited and aged as any host's.
    fn keep_resolved(&mut self, gateways: BTreeSet<Key>) {
        let now = self.now();
        let Self { pinned, router, .. } = self;
        let answers = router.neighbours().filter(|(key, entry)| {
            let plain = Key::untagged(key.interface, key.address);
            let is_confirmed = entry.state == NeighbourState::Reachable || entry.is_pinned;
            *key != plain && entry.mac.is_some() && is_confirmed && gateways.contains(&plain)
        });
        let mut tagged: Vec<_> = answers.map(|(key, entry)| (!entry.is_pinned, key, entry.tags)).collect();
        // Pinned entries first, so that new entries displace none.
        tagged.sort_unstable_by_key(|(is_new, key, _)| (*is_new, *key));
        tagged.truncate(TAGGED_MAX);
        let plain = gateways.into_iter().map(|key| (key, Tags::NONE));
        let wanted: BTreeMap<_, _> =
            plain.chain(tagged.into_iter().map(|(_, key, tags)| (key, tags))).collect();
        pinned.retain(|key| {
            let is_wanted = wanted.contains_key(key);
            if !is_wanted {
                router.unpin(*key);
            }
            is_wanted
        });
        for (key, tags) in wanted {
            if !pinned.contains(&key) && router.pin(now, key, tags, &mut self.actions) {
                pinned.insert(key);
            }
        }
    }

    pub(super) fn answer(&mut self) {
        let now = self.now();
        for asked in self.asked.try_iter() {
            match asked {
                ToRouter::Neighbours(answer) => {
                    let known = self.router.neighbours().map(|(key, entry)| KnownNeighbour {
                        address: key.address,
                        port: key.interface.0,
                        mac: entry.mac,
                        state: entry.state.name(),
                        age: now.saturating_sub(entry.updated),
                    });
                    let _ = answer.send(known.collect());
                }
                ToRouter::Forget(address, answer) => {
                    let _ = answer.send(self.router.clear_neighbours(now, address, &mut self.actions));
                }
            }
        }
    }
}
