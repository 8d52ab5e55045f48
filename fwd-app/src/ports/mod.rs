//! The ports of a forwarder: one record each, and the addresses on them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`table`] | [`PortTable`]: all that routes need to know of ports |
//! | [`addresses`] | ports with addresses of this router, and what follows from them |

pub(crate) mod addresses;
pub(crate) mod table;

pub(crate) use table::PortTable;
