//! Neighbours: static ones, and those that the router and the kernel have learned.
//!
//! What the router learns is the same for all VRFs, since a next hop may be behind a port of another one.

use crate::console::Steering;
use crate::console::{Answer, Refusal};
use crate::datapath::egress::learned::Learner;
use crate::neighbours::thread::asked::RouterHandle;
use crate::report::columns::Columns;
use fib::{MacAddr, Neighbour, PortRef};
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

impl Steering<'_> {
    pub(in crate::console) fn neighbours(&self) -> Result<Answer, Refusal> {
        let hops = self.vrf().hops();
        let told = hops.neighbours().map(|Neighbour { address, port, mac }| NeighbourShown {
            address: *address,
            mac: Some(mac.to_string()),
            port: port.to_string(),
            origin: "static",
            state: Some("PERMANENT"),
            age_s: None,
        });
        let known = self.desk.router.as_ref().map(RouterHandle::neighbours).transpose();
        let known = known.map_err(anyhow::Error::from)?.unwrap_or_default().into_iter();
        let known = known.map(|known| NeighbourShown {
            address: known.address,
            mac: known.mac.map(|mac| mac.to_string()),
            port: known.port.to_string(),
            origin: "learned",
            state: Some(known.state),
            age_s: Some(known.age.as_secs()),
        });
        let ports = self.forwarder.ports();
        let of_kernel = ports.learned.iter().filter(|((.., by), _)| *by == Learner::Kernel);
        let of_kernel = of_kernel.map(|((address, port, _), mac)| NeighbourShown {
            address,
            mac: Some(mac.to_string()),
            port: port.to_string(),
            origin: "kernel",
            state: None,
            age_s: None,
        });
        Ok(Answer::new(NeighboursShown(told.chain(known).chain(of_kernel).collect())))
    }

    pub(in crate::console) fn neighbour_add(
        &mut self,
        address: IpAddr,
        mac: MacAddr,
        port: PortRef,
    ) -> Result<Answer, Refusal> {
        self.vrf_mut().add_neighbour(Neighbour { address, port, mac }).map_err(anyhow::Error::from)?;
        self.vrf_mut().commit()?;
        Ok(Answer::done())
    }

    /// Removes a static neighbour.
    pub(in crate::console) fn neighbour_del(&mut self, address: IpAddr) -> Result<Answer, Refusal> {
        if !self.vrf_mut().remove_neighbour(address) {
            return Err(anyhow::anyhow!("there is no neighbour {address}").into());
        }
        self.vrf_mut().commit()?;
        Ok(Answer::done())
    }

    /// Has the router forget one neighbour that it has learned, or all of them.
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
struct NeighbourShown {
    address: IpAddr,
    /// `None` when it has not answered.
    mac: Option<String>,
    port: String,
    /// Who knows it: `static`, `learned` by the router, or the `kernel`.
    origin: &'static str,
    /// The state in Linux's words; the kernel's are not known here.
    state: Option<&'static str>,
    /// Seconds since the router has learned or confirmed it.
    age_s: Option<u64>,
}

#[derive(Serialize)]
struct NeighboursShown(Vec<NeighbourShown>);

impl fmt::Display for NeighboursShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut columns = Columns::new(["address", "MAC", "port", "origin", "state", "age"]);
        for NeighbourShown { address, mac, port, origin, state, age_s } in &self.0 {
            columns.row([
                address.to_string(),
                or_none(mac.clone()),
                port.clone(),
                (*origin).to_owned(),
                or_none(state.map(str::to_owned)),
                or_none(age_s.map(|seconds| format!("{seconds} s"))),
            ]);
        }
        columns.fmt(f)
    }
}
