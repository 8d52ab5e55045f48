//! `show addresses`.

use crate::console::Answer;
use crate::console::desk::Steering;
use crate::report::columns::Columns;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;

impl Steering<'_> {
    pub(in crate::console) fn addresses(&self) -> Answer {
        let table = self.forwarder.ports();
        let mut shown = Vec::new();
        for port in table.interfaces() {
            let configured = port.configured().len();
            for (number, at) in port.addresses().iter().enumerate() {
                let address = at.address();
                let origin = match address {
                    IpAddr::V6(address) if address == port.link_local() => "link-local",
                    _ if number < configured => "configured",
                    _ if self.forwarder.tap_has(port.id.0, address) => "tap",
                    _ => "loopback",
                };
                shown.push(AddressShown {
                    port: port.id.0,
                    name: port.name.clone(),
                    address,
                    length: at.prefix_len(),
                    origin,
                    tap: port.tap.clone(),
                    vrf: self.forwarder.vrf(port.vrfs.own).name.clone(),
                });
            }
        }
        Answer::new(AddressesShown(shown))
    }
}

#[derive(Serialize)]
struct AddressShown {
    port: u16,
    name: String,
    address: IpAddr,
    length: u8,
    /// `configured` by `--address`, `link-local` from the MAC, of the `tap`, or of a `loopback` or dummy interface of the host.
    origin: &'static str,
    tap: Option<String>,
    vrf: String,
}

#[derive(Serialize)]
struct AddressesShown(Vec<AddressShown>);

impl fmt::Display for AddressesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = Columns::new(["port", "name", "address", "origin", "TAP", "VRF"]);
        for AddressShown { port, name, address, length, origin, tap, vrf } in &self.0 {
            columns.row([
                port.to_string(),
                name.clone(),
                format!("{address}/{length}"),
                (*origin).to_owned(),
                tap.clone().unwrap_or_else(|| "-".to_owned()),
                vrf.clone(),
            ]);
        }
        columns.fmt(f)
    }
}
