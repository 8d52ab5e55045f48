//! The addresses of TAPs: those that others give them become addresses of their ports, and go with them.
//!
//! They are seen by the feed of the kernel's links, which leaves out those that are not permanent: an address with a lifetime came from the
//! wire. What an option has configured stays, whatever happens to the TAP.

use crate::control::exceptions::asked::RouterHandle;
use crate::datapath::exception::Ours;
use crate::forwarder::Forwarder;
use crate::notice;
use crate::router::Interface;
use arc_swap::ArcSwap;
use lpm_core::retire::Retired;
use std::sync::Arc;

/// Keeps routes, datapath and router up with the addresses of the interfaces.
pub(crate) struct Follower {
    /// The interfaces with their configured addresses.
    configured: Vec<Interface>,
    /// The interfaces as they are.
    current: Vec<Interface>,
    /// What is for the router, by port.
    ours: Vec<Option<Arc<ArcSwap<Ours>>>>,
    /// What was for the router before.
    retired: Retired<Ours>,
    router: RouterHandle,
}

impl Follower {
    /// Of interfaces with `configured` addresses, whose changes go to `ours` and `router`.
    pub(crate) fn new(
        configured: Vec<Interface>,
        ours: Vec<Option<Arc<ArcSwap<Ours>>>>,
        router: RouterHandle,
    ) -> Self {
        Self { current: configured.clone(), configured, ours, retired: Retired::default(), router }
    }

    /// Takes in what has changed since.
    pub(crate) fn turn(&mut self, forwarder: &mut Forwarder) {
        self.retired.free();
        let Some(learned) = forwarder.take_tap_addresses() else { return };
        let with = |interface: &Interface| {
            let here = learned.iter().filter(|(port, _)| *port == interface.id().0);
            interface.with(here.map(|(_, address)| *address))
        };
        let wanted: Vec<Interface> = self.configured.iter().map(with).collect();
        let before = std::mem::replace(&mut self.current, wanted);
        if before == self.current {
            return;
        }
        // First those who take packets, then the routes that lead there.
        for interface in self.current.iter().filter(|interface| !before.contains(interface)) {
            self.router.set_interface(interface.clone());
        }
        let set = forwarder.set_interfaces(&self.current).map_err(anyhow::Error::from);
        let set = set.and_then(|ours| {
            for (here, ours) in self.ours.iter().zip(ours) {
                if let (Some(here), Some(ours)) = (here, ours) {
                    let bytes = here.load().bytes();
                    self.retired.replace(here, ours, bytes);
                }
            }
            forwarder.commit()
        });
        if let Err(error) = set {
            notice::warn(format_args!("{error:#}; the addresses of TAPs are not all in service"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::exceptions::asked::ToRouter;
    use crate::control::test_forwarder::forwarder;
    use crate::datapath::egress::tests::ports;
    use crate::ports::PortTable;
    use crate::ports::addresses::{PortAddress, interfaces, ours};
    use crate::routes::feeds::interfaces::Interfaces;
    use crate::routes::feeds::running::Feeds;
    use crate::routes::feeds::{ChangeSet, FeedEvent, FeedId, Link, LinkAddress};
    use crossbeam_channel::bounded;
    use fib::{PortRef, Prefix};
    use std::collections::BTreeMap;

    #[test]
    fn addresses_of_taps_come_and_go() {
        let ports = ports(2);
        let taps = BTreeMap::from([(0, "tap0".to_owned())]);
        let configured =
            PortAddress { port: PortRef::Index(0), address: [192, 0, 2, 1].into(), prefix_len: 24 };
        let configured = interfaces(&[configured], taps.keys().copied(), &ports).unwrap();
        let mut forwarder = forwarder();
        forwarder.set_ports(PortTable::of(ports.clone())).unwrap();
        let (events, receiver) = bounded(8);
        let named = Interfaces::of(&ports, &[], &[]).unwrap().with_taps(&taps);
        forwarder.set_feeds(Feeds::for_test(receiver, 0, named)).unwrap();
        forwarder.set_interfaces(&configured).unwrap();
        forwarder.commit().unwrap();
        let here = ours(&configured, 2).into_iter();
        let here: Vec<_> = here.map(|ours| ours.map(|ours| Arc::new(ArcSwap::new(ours)))).collect();
        let (router, changes) = RouterHandle::new();
        let mut follower = Follower::new(configured, here.clone(), router);
        let routes = forwarder.main().rib().len();
        // A file has a route of this prefix.
        let link_of_file = Prefix::truncating(0xc633_6400, 24);
        let id_of_file = forwarder.main().rib().v4.get(link_of_file);
        assert!(!id_of_file.is_none());

        let link = |ifindex, name: &str| {
            let name = name.to_owned();
            FeedEvent::Link(Link { ifindex, name, is_up: true, is_running: true, is_local: false })
        };
        let at = |ifindex, last| LinkAddress { ifindex, address: [198, 51, 100, last].into(), len: 24 };
        let mut tell = |forwarder: &mut Forwarder, told: Vec<FeedEvent>| {
            events.send(ChangeSet { feed: FeedId(0), events: told }).unwrap();
            forwarder.learn();
            follower.turn(forwarder);
        };
        // The second is on an interface that is no TAP, the third no address of a host.
        let others = [
            FeedEvent::Address(at(6, 9)),
            FeedEvent::Address(LinkAddress { address: [127, 0, 0, 1].into(), ..at(5, 0) }),
        ];
        let mut told = vec![link(5, "tap0"), link(6, "p1"), FeedEvent::Address(at(5, 1))];
        told.extend(others);
        tell(&mut forwarder, told);
        // The address and its broadcast address. The link has the place of the file's route.
        assert_eq!(forwarder.main().rib().len(), routes + 2);
        assert_ne!(forwarder.main().rib().v4.get(link_of_file), id_of_file);
        let is_ours = |last: u32| here[0].as_ref().unwrap().load().v4.contains(&(0xc633_6400 | last));
        assert!(is_ours(1) && is_ours(255) && !is_ours(9));
        let Ok(ToRouter::Interface(interface)) = changes.try_recv() else { panic!("no interface") };
        assert!(interface.has([198, 51, 100, 1].into()) && interface.has([192, 0, 2, 1].into()));

        tell(&mut forwarder, vec![FeedEvent::AddressGone(at(5, 1)), FeedEvent::Address(at(5, 2))]);
        assert!(is_ours(2) && !is_ours(1));
        // Those of a loopback interface lead here without a link.
        let lo = |is_local| {
            let name = "lo".to_owned();
            FeedEvent::Link(Link { ifindex: 1, name, is_up: true, is_running: true, is_local })
        };
        let router_id = FeedEvent::Address(at(1, 1));
        let own = ["127.0.0.1", "::1", "fe80::1"]
            .map(|address| FeedEvent::Address(LinkAddress { address: address.parse().unwrap(), ..at(1, 0) }));
        let count = changes.try_iter().count();
        tell(&mut forwarder, [vec![lo(true), router_id], own.to_vec()].concat());
        assert!(is_ours(1) && here[0].as_ref().unwrap().load().v4.len() == 6);
        let Ok(ToRouter::Interface(interface)) = changes.try_recv() else { panic!("no interface") };
        let wanted = [[192, 0, 2, 1], [198, 51, 100, 2], [198, 51, 100, 1]].map(std::net::Ipv4Addr::from);
        assert_eq!(interface.v4().collect::<Vec<_>>(), wanted, "the router sends from addresses of the link");
        assert_eq!(forwarder.main().rib().len(), routes + 3);
        tell(&mut forwarder, vec![lo(false)]);
        assert!(!is_ours(1) && count + changes.try_iter().count() == 2);
        tell(&mut forwarder, vec![FeedEvent::LinkGone(5)]);
        assert_eq!(
            (forwarder.main().rib().len(), forwarder.main().rib().v4.get(link_of_file)),
            (routes, id_of_file)
        );
        assert!(!is_ours(2));
        assert_eq!(changes.try_iter().count(), 1);
        assert!(changes.is_empty());
    }
}
