//! The ports of a forwarder: one record each, their devices, the addresses on them, and their TAPs.
//!
//! | module | what lives there |
//! |---|---|
//! | [`table`], [`record`] | [`PortTable`]: the [`PortRecord`] of each port, and what all VRFs share |
//! | [`address`] | addresses of ports |
//! | [`whose`] | which addresses are the router's, and which it sends from |
//! | [`own`] | routes and destinations that follow from the addresses |
//! | [`dpdk`] | the devices: set-up, links, statistics, closing |
//! | [`devices`] | devices that are reset, removed, and come back |
//! | [`taps`] | TAPs of ports |

pub(crate) mod address;
pub(crate) mod devices;
pub(crate) mod dpdk;
pub(crate) mod own;
pub(crate) mod record;
pub(crate) mod table;
pub(crate) mod taps;
pub(crate) mod whose;

pub(crate) use record::{InterfaceId, PortRecord};
pub(crate) use table::PortTable;
