//! Addresses and MTUs of ports, changed while packets flow.

use super::Forwarder;
use super::in_effect::ConfigValue;
use crate::datapath::egress::{Named as _, find_port};
use crate::notice;
use crate::ports::address::InterfaceAddress;
use crate::ports::own;
use crate::ports::taps::Taps;
use crate::ports::{PortRecord, PortTable};
use anyhow::Context as _;
use fib::PortRef;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Sets the MTU (bytes) of the device of a port, by index.
pub(super) type SetMtu<'a> = &'a mut dyn FnMut(u16, u16) -> anyhow::Result<()>;

impl Forwarder {
    pub(super) fn follow_addresses(&mut self) {
        let Some(feeds) = &mut self.feeds else { return };
        if !feeds.take_new_addresses() {
            return;
        }
        let found = feeds.interfaces().tap_addresses();
        // Skip addresses that no port may have.
        let of = |id| found.iter().filter(move |(port, _)| *port == id);
        let has_changed = PortTable::change(&self.ports, |table| {
            for port in table.ports.iter_mut().filter(|port| port.tap.is_some()) {
                port.learn(
                    of(port.id.0).filter_map(|(_, at)| InterfaceAddress::new(at.address, at.len).ok()),
                );
            }
        });
        if has_changed && let Err(error) = self.addresses_have_changed() {
            notice::warn(format_args!("{error:#}; the addresses of TAPs are not all in service"));
        }
    }

    /// Brings the configured addresses of `table`, made by [`PortTable::with_addresses`], into service. TAPs in `netns` get them, and the
    /// MTUs that differ from `before`.
    ///
    /// # Errors
    /// When a TAP or a VRF refuses one; all others are applied.
    pub(super) fn set_addresses(
        &mut self,
        before: &PortTable,
        table: &PortTable,
        netns: Option<&Path>,
    ) -> anyhow::Result<()> {
        let has_changed = PortTable::change(&self.ports, |now| now.ports.clone_from(&table.ports));
        let set = if has_changed { self.addresses_have_changed() } else { Ok(()) };
        set.and(Taps::follow(netns, before, table))
    }

    fn addresses_have_changed(&mut self) -> anyhow::Result<()> {
        let set = self.set_own_routes().map_err(anyhow::Error::from);
        let ports = self.ports();
        for (here, port) in self.punt_addresses.iter().zip(&ports.ports) {
            if let (Some(here), Some(ours)) = (here, own::punt_addresses(&ports, port)) {
                let bytes = here.load().bytes();
                self.retired.replace(here, Arc::new(ours), bytes);
            }
        }
        set.and_then(|()| self.commit())
    }

    /// Brings the MTUs of `table`, made by [`PortTable::with_mtus`], into service; `device` sets one in a device. A device never gets a
    /// packet above its limit: its MTU is raised before the egress tables, and lowered after them.
    ///
    /// # Errors
    /// When a device refuses its MTU, or a VRF its egress table. All MTUs are then restored, except of devices that refuse that.
    pub(super) fn set_mtus(&mut self, table: &PortTable, device: SetMtu<'_>) -> Result<(), ChangeRefused> {
        let before = self.ports();
        let changed = MtuChange::all(&before, table);
        let mut done = Vec::new();
        self.change_mtus(&changed, device, &mut done)
            .map_err(|why| ChangeRefused { why, kept: self.restore_mtus(&changed, &done, device) })
    }

    /// Undoes a failed [`Self::set_addresses`]. Returns why some devices keep their MTUs; another failure is a warning.
    pub(super) fn restore_ports(
        &mut self,
        before: &PortTable,
        table: &PortTable,
        netns: Option<&Path>,
        device: SetMtu<'_>,
    ) -> Vec<anyhow::Error> {
        // Addresses first: the commit of the MTUs must not fail because of them.
        let mut with_mtus = before.clone();
        for (port, new) in with_mtus.ports.iter_mut().zip(&table.ports) {
            port.mtu_bytes = new.mtu_bytes;
        }
        let addresses = self.set_addresses(table, &with_mtus, netns);
        let changed = MtuChange::all(before, table);
        let done: Vec<_> = changed.iter().map(|change| change.port).collect();
        let kept = self.restore_mtus(&changed, &done, device);
        // Their TAPs get the MTUs that the ports have now.
        let taps = Taps::follow(netns, &with_mtus, &self.ports());
        for error in [addresses, taps].into_iter().filter_map(Result::err) {
            notice::warn(format_args!("cannot restore the state from before: {error:#}"));
        }
        kept
    }

    fn change_mtus(
        &mut self,
        changes: &[MtuChange],
        device: SetMtu<'_>,
        done: &mut Vec<u16>,
    ) -> anyhow::Result<()> {
        let mut set = |is_raised: bool| {
            changes.iter().filter(|change| change.is_raised() == is_raised).try_for_each(|change| {
                device(change.port, change.after)?;
                done.push(change.port);
                anyhow::Ok(())
            })
        };
        set(true)?;
        self.set_egress_mtus(changes.iter())?;
        set(false)
    }

    /// Undoes changes, which the devices of the ports in `done` have accepted. A port keeps its new MTU if its device refuses the old one.
    /// Returns the refusals.
    fn restore_mtus(
        &mut self,
        changes: &[MtuChange],
        done: &[u16],
        device: SetMtu<'_>,
    ) -> Vec<anyhow::Error> {
        let mut kept = Vec::new();
        let mut back: Vec<_> = changes.iter().copied().map(MtuChange::reversed).collect();
        let mut accepts = |change: &MtuChange| {
            let set = if done.contains(&change.port) { device(change.port, change.after) } else { Ok(()) };
            let set = set.map_err(|error| anyhow::anyhow!("{error:#}, and keeps {} bytes", change.before));
            set.map_err(|error| kept.push(error)).is_ok()
        };
        back.retain(|change| !change.is_raised() || accepts(change));
        if let Err(error) = self.set_egress_mtus(back.iter()) {
            // An egress table may still have the larger MTU, so no device is lowered.
            kept.push(error);
            let raised: Vec<_> =
                changes.iter().filter(|change| change.is_raised() && done.contains(&change.port)).collect();
            self.note_mtus(raised.iter().copied());
            let ports = self.ports();
            kept.extend(raised.iter().map(|MtuChange { port, after, .. }| {
                anyhow::anyhow!("{} keeps {after} bytes", ports.ports[usize::from(*port)].title(port))
            }));
            return kept;
        }
        let refusing: Vec<_> = back
            .iter()
            .filter(|change| !change.is_raised() && !accepts(change))
            .map(|change| change.reversed())
            .collect();
        let set_again = self.set_egress_mtus(refusing.iter());
        kept.extend(set_again.err());
        kept
    }

    /// Corrects the configuration in effect after a refused reload: devices have kept MTUs that differ from `before`.
    pub(super) fn note_kept_mtus(&mut self, before: &PortTable) {
        let ports = self.ports();
        let both = ports.ports.iter().zip(&before.ports);
        for (port, _) in both.filter(|(now, before)| now.mtu_bytes != before.mtu_bytes) {
            let name_of =
                |at: &ConfigValue| Some(at.path.strip_prefix("port.")?.rsplit_once('.')?.0.to_owned());
            let is_its = |name: &String| {
                find_port(&PortRef::parse(name), &ports.ports, String::new) == Ok(Some(port.id.0))
            };
            // Where ports are listed, each has a table, in the order of the ports, and an index there is the device's, not the port's.
            let is_listed = !self.config.iter().any(|at| at.path == "ports.ports");
            let tables = self.config.iter().filter(|at| is_listed && at.path.ends_with(".device"));
            let listed = tables.filter_map(name_of).nth(usize::from(port.id.0));
            let name = listed.or_else(|| self.config.iter().filter_map(name_of).find(is_its));
            let path = format!("port.{}.mtu", name.as_ref().unwrap_or(&port.device));
            self.config.retain(|at| at.path != path);
            let origin = "kept by the device".to_owned();
            self.config.push(ConfigValue { path, value: port.mtu_bytes.into(), origin });
        }
    }

    fn set_egress_mtus<'a>(&mut self, changes: impl Iterator<Item = &'a MtuChange>) -> anyhow::Result<()> {
        if self.note_mtus(changes) {
            self.commit().context("cannot bring the MTUs into service")
        } else {
            Ok(())
        }
    }

    fn note_mtus<'a>(&self, changes: impl Iterator<Item = &'a MtuChange>) -> bool {
        PortTable::change(&self.ports, |now| {
            for MtuChange { port, after, .. } in changes {
                if let Some(port) = now.ports.get_mut(usize::from(*port)) {
                    port.mtu_bytes = *after;
                }
            }
        })
    }
}

#[derive(Debug)]
pub(super) struct ChangeRefused {
    pub(super) why: anyhow::Error,
    /// Why some of the changes could not be undone.
    pub(super) kept: Vec<anyhow::Error>,
}

impl From<anyhow::Error> for ChangeRefused {
    fn from(why: anyhow::Error) -> Self {
        Self { why, kept: Vec::new() }
    }
}

impl fmt::Display for ChangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, kept } = self;
        write!(f, "{why:#}; ")?;
        if kept.is_empty() {
            return f.write_str("nothing was changed");
        }
        f.write_str("nothing else was changed, but ")?;
        let kept: Vec<_> = kept.iter().map(|error| format!("{error:#}")).collect();
        f.write_str(&kept.join("; "))
    }
}

#[derive(Clone, Copy)]
struct MtuChange {
    port: u16,
    before: u16,
    after: u16,
}

impl MtuChange {
    fn between((before, after): (&PortRecord, &PortRecord)) -> Option<Self> {
        let change = Self { port: before.id.0, before: before.mtu_bytes, after: after.mtu_bytes };
        (change.before != change.after).then_some(change)
    }

    fn all(before: &PortTable, after: &PortTable) -> Vec<Self> {
        before.ports.iter().zip(&after.ports).filter_map(Self::between).collect()
    }

    fn is_raised(&self) -> bool {
        self.after > self.before
    }

    fn reversed(self) -> Self {
        Self { before: self.after, after: self.before, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::test_forwarder::forwarder;
    use crate::ports::record::MtuRange;
    use crate::ports::table::tests::ports;
    use fib::NextHopId;

    fn with_ports() -> Forwarder {
        let mut forwarder = forwarder();
        let mut table = ports(3);
        table.ports.iter_mut().for_each(|port| port.mtu_range = MtuRange { default: 1500, max: 2000 });
        forwarder.set_ports(table).unwrap();
        forwarder.commit().unwrap();
        forwarder
    }

    fn with_mtus(forwarder: &Forwarder, mtus: [u16; 3]) -> PortTable {
        let mtus: Vec<_> = (0..).map(PortRef::Index).zip(mtus).collect();
        PortTable::clone(&forwarder.ports()).with_mtus(&mtus).unwrap()
    }

    /// Sets MTUs as far as `accepts` returns true. Returns each call with the port's MTU in the egress table then, and the refusal.
    fn set_if(
        forwarder: &mut Forwarder,
        mtus: [u16; 3],
        mut accepts: impl FnMut(u16, u16) -> bool,
    ) -> (Vec<(u16, u16, u16)>, Option<String>) {
        let table = with_mtus(forwarder, mtus);
        let egress = forwarder.main().egress.table().unwrap();
        let mut told = Vec::new();
        let set = forwarder.set_mtus(&table, &mut |port, mtu_bytes| {
            told.push((port, mtu_bytes, in_egress(&egress.load())[usize::from(port)]));
            anyhow::ensure!(accepts(port, mtu_bytes), "port {port} is busy");
            Ok(())
        });
        (told, set.err().map(|refused| refused.to_string()))
    }

    /// Sets MTUs; the device of `refusing` accepts only 1500. Returns the calls as [`set_if`] does, and whether all were accepted.
    fn set(forwarder: &mut Forwarder, mtus: [u16; 3], refusing: Option<u16>) -> (Vec<(u16, u16, u16)>, bool) {
        let (told, refusal) = set_if(forwarder, mtus, |port, mtu| refusing != Some(port) || mtu == 1500);
        (told, refusal.is_none())
    }

    fn in_egress(table: &crate::datapath::EgressTable) -> [u16; 3] {
        [1, 2, 3].map(|id| table.get(NextHopId::new(id).unwrap()).mtu_bytes)
    }

    fn mtus(forwarder: &Forwarder) -> [u16; 3] {
        let of = |at: usize| forwarder.ports().ports[at].mtu_bytes;
        assert_eq!([0, 1, 2].map(of), in_egress(&forwarder.main().egress.table().unwrap().load()));
        [0, 1, 2].map(of)
    }

    #[test]
    fn a_device_never_gets_longer_packets_than_it_takes() {
        let mut forwarder = with_ports();
        let (told, is_set) = set(&mut forwarder, [1400, 1600, 1500], None);
        assert_eq!((told, is_set), (vec![(1, 1600, 1500), (0, 1400, 1400)], true));
        assert_eq!(mtus(&forwarder), [1400, 1600, 1500]);
        assert_eq!(set(&mut forwarder, [1400, 1600, 1500], None), (vec![], true), "nothing has changed");
    }

    #[test]
    fn a_device_that_refuses_leaves_all_as_they_were() {
        for refusing in 0..3 {
            let mut forwarder = with_ports();
            let (told, is_set) = set(&mut forwarder, [1600, 1700, 1400], Some(refusing));
            assert!(!is_set);
            assert_eq!(mtus(&forwarder), [1500; 3], "{refusing}");
            for port in 0..3 {
                let last =
                    told.iter().rfind(|(of, mtu, _)| *of == port && (*mtu == 1500 || port != refusing));
                assert_eq!(last.map_or(1500, |(_, mtu, _)| *mtu), 1500, "port {port}");
            }
            // A rollback keeps the same order.
            assert!(told.iter().all(|(_, mtu, in_egress)| mtu >= in_egress), "{told:?}");
        }
    }

    /// The device of port 2 refuses its MTU, and by then another one, whose MTU has been changed, is busy.
    #[test]
    fn an_mtu_that_cannot_be_restored_stays_with_its_port_and_is_named() {
        for (busy, mtus) in [(0, [1600, 1500, 1400]), (1, [1500, 1300, 1400])] {
            let mut forwarder = with_ports();
            let mut calls = 0;
            let (told, refusal) = set_if(&mut forwarder, mtus, |port, _| {
                calls += usize::from(port == busy);
                port != 2 && calls < 2
            });
            let kept = mtus[usize::from(busy)];
            let mut wanted = [1500; 3];
            wanted[usize::from(busy)] = kept;
            assert_eq!(self::mtus(&forwarder), wanted, "the port has the MTU of its device");
            assert!(told.iter().all(|(_, mtu, in_egress)| mtu >= in_egress), "{told:?}");
            let refusal = refusal.unwrap();
            assert_eq!(
                refusal,
                format!(
                    "port 2 is busy; nothing else was changed, but port {busy} is busy, and keeps {kept} bytes"
                )
            );
        }
    }
}
