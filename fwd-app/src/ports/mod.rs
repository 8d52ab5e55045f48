//! The ports of a forwarder: records ([`PortTable`]), DPDK devices, addresses and TAPs.

pub(crate) mod address;
pub(crate) mod address_owner;
pub(crate) mod devices;
pub(crate) mod dpdk;
pub(crate) mod own;
pub(crate) mod record;
pub(crate) mod table;
pub(crate) mod taps;

pub(crate) use record::{InterfaceId, PortRecord};
pub(crate) use table::PortTable;
