//! Neighbours: static, learned by the router, and learned by the kernel.
//!
//! The entries of the router are the same for all VRFs, since a next hop may use a port of another VRF.

use crate::console::desk::Steering;
use crate::console::{Answer, Refusal};
use crate::datapath::egress::find_port;
use crate::datapath::egress::learned::Learner;
use crate::neighbours::thread::asked::RouterHandle;
use crate::report::columns::Columns;
use fib::{MacAddr, Neighbour, PortRef};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

impl Steering<'_> {
    pub(in crate::console) fn neighbours(&self) -> Result<Answer, Refusal> {
        let mut known = self.known_neighbours()?;
        known.sort_by_key(|known| (known.port, known.address));
        Ok(Answer::new(NeighboursShown(known)))
    }

    pub(super) fn known_neighbours(&self) -> Result<Vec<NeighbourShown>, Refusal> {
        let ports = self.forwarder.ports();
        let of = |port: &PortRef, shown: NeighbourShown| {
            let found = find_port(port, &ports.ports, String::new).ok().flatten();
            let name = found.and_then(|port| ports.ports.get(usize::from(port)));
            let name = name.map_or_else(|| port.to_string(), |port| port.name.clone());
            NeighbourShown { port: found, name, ..shown }
        };
        let hops = self.vrf().hops();
        let told = hops.neighbours().map(|Neighbour { address, port, mac }| {
            let state = Some("PERMANENT");
            of(port, NeighbourShown { state, ..NeighbourShown::new(*address, Some(*mac), "static") })
        });
        let known = self.desk.router.as_ref().map(RouterHandle::neighbours).transpose();
        let known = known.map_err(anyhow::Error::from)?.unwrap_or_default().into_iter();
        let known = known.map(|known| {
            let (state, age_s) = (Some(known.state), Some(known.age.as_secs()));
            let shown = NeighbourShown::new(known.address, known.mac, "learned");
            of(&PortRef::Index(known.port), NeighbourShown { state, age_s, ..shown })
        });
        let of_kernel = ports.learned.iter().filter(|(at, _)| at.by == Learner::Kernel);
        let of_kernel = of_kernel.map(|(at, mac)| {
            of(&PortRef::Index(at.port), NeighbourShown::new(at.address, Some(mac), "kernel"))
        });
        Ok(told.chain(known).chain(of_kernel).collect())
    }

    pub(in crate::console) fn neighbour_add(
        &mut self,
        address: IpAddr,
        mac: MacAddr,
        port: PortRef,
    ) -> Result<Answer, Refusal> {
        self.vrf_mut().egress.add_neighbour(Neighbour { address, port, mac }).map_err(anyhow::Error::from)?;
        self.vrf_mut().commit()?;
        Ok(Answer::done())
    }

    pub(in crate::console) fn neighbour_del(&mut self, address: IpAddr) -> Result<Answer, Refusal> {
        if !self.vrf_mut().egress.remove_neighbour(address) {
            return Err(anyhow::anyhow!("there is no neighbour {address}").into());
        }
        self.vrf_mut().commit()?;
        Ok(Answer::done())
    }

    pub(in crate::console) fn clear_neighbours(
        &mut self,
        address: Option<IpAddr>,
    ) -> Result<Answer, Refusal> {
        let forgotten = self.desk.router.as_ref().map(|router| router.forget(address)).transpose();
        match (forgotten.map_err(anyhow::Error::from)?, address) {
            (None | Some(0), Some(address)) => {
                Err(anyhow::anyhow!("the router has not learned a neighbour {address}").into())
            }
            _ => Ok(Answer::done()),
        }
    }
}

#[derive(Serialize)]
pub(super) struct NeighbourShown {
    pub(super) address: IpAddr,
    mac: Option<String>,
    pub(super) port: Option<u16>,
    name: String,
    /// Where the entry is from: `static`, `learned` by the router, or the `kernel`.
    pub(super) origin: &'static str,
    /// Linux's name of the state; unknown for the kernel's entries.
    pub(super) state: Option<&'static str>,
    age_s: Option<u64>,
}

impl NeighbourShown {
    fn new(address: IpAddr, mac: Option<MacAddr>, origin: &'static str) -> Self {
        let mac = mac.map(|mac| mac.to_string());
        Self { address, mac, port: None, name: String::new(), origin, state: None, age_s: None }
    }
}

#[derive(Serialize)]
struct NeighboursShown(Vec<NeighbourShown>);

impl fmt::Display for NeighboursShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut columns = Columns::new(["port", "name", "address", "MAC", "origin", "state", "age"]);
        for NeighbourShown { address, mac, port, name, origin, state, age_s } in &self.0 {
            columns.row([
                or_none(port.map(|port| port.to_string())),
                name.clone(),
                address.to_string(),
                or_none(mac.clone()),
                (*origin).to_owned(),
                or_none(state.map(str::to_owned)),
                or_none(age_s.map(|seconds| format!("{seconds} s"))),
            ]);
        }
        columns.fmt(f)
    }
}
