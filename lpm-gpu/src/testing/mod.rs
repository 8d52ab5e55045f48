//! Helpers for tests of host tables, for this crate and others, without a device.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    reason = "a test fails loudly; halves of keys are cut"
)]

mod device;
mod rig;

use fib::testing::{data, load};
use fib::{IpPrefix, NextHopTable, Route, Routes, feed};

pub use crate::model::{LoadedTable, LookupModel, high_bits};
pub use rig::HostRig;

/// Full tables of both families, and the updates of a real stream; `None`, with a message, unless `FWD_DATA` has them.
#[must_use]
pub fn real_routes() -> Option<(Routes, Routes)> {
    let [v4, v6, stream] = data(["v4-202401.txt.xz", "v6-202401.txt.xz", "updates-ris-20190101.txt.xz"])?;
    let (mut updates, mut hops) = (Routes::new(), NextHopTable::new());
    for update in feed::updates(&stream, None).unwrap().map(Result::unwrap) {
        let next_hop = update.next_hop(&mut hops).unwrap();
        match update.prefix {
            IpPrefix::V4(prefix) => updates.v4.push(Route { prefix, next_hop }),
            IpPrefix::V6(prefix) => updates.v6.push(Route { prefix, next_hop }),
        }
    }
    Some((Routes::from(&load(&[v4, v6])), updates))
}
