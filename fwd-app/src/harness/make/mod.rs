//! Generated traffic, and changes to captured frames. Both are determined by a table, a seed and the order of the frames.
//!
//! [`FrameChanges`] also serves streamed traces: it works frame by frame, and a clone made before the first repeats the same changes.
//!
//! | module | contents |
//! |---|---|
//! | [`generate`] | `--generate`: packets to the routes of a table |
//! | [`sizes`] | `--sizes` and `--imix` |
//! | [`remap`] | `--remap`: maps destinations into a table |
//! | [`packet`] | edits packets and maintains lengths and checksums |
//! | [`shares`] | weighted choices |

pub(crate) mod generate;
mod packet;
#[cfg(test)]
mod packet_test;
mod remap;
mod shares;
pub(crate) mod sizes;

use crate::datapath::check::is_unicast;
use fib::random::Seeded;
use fib::{Key, NextHopId, Prefix, Rib, RibTable};
use packet::IpLayout;
use remap::{AddressMap, destination_of};
use sizes::{SizeDealer, SizeMix};

/// Most addresses of a prefix tried to find a unicast address.
const PROBES: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct FrameChanges {
    map: Option<AddressMap>,
    sizes: Option<SizeDealer>,
    /// Packets with a new destination.
    pub(crate) remapped: u64,
    pub(crate) longer: u64,
}

impl FrameChanges {
    pub(crate) fn new(sizes: Option<&SizeMix>, remap: Option<&Rib>, seed: u64) -> Self {
        let (map, sizes) =
            (remap.map(|rib| AddressMap::new(rib, seed)), sizes.map(|mix| SizeDealer::new(mix, seed)));
        Self { map, sizes, ..Self::default() }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.map.is_none() && self.sizes.is_none()
    }

    /// Changes the next frame. Frames that are not IP are kept and do not consume a size.
    pub(crate) fn apply(&mut self, frame: &mut Vec<u8>) {
        let Some(layout) = IpLayout::parse(frame) else { return };
        if let Some(to) = self.map.as_ref().and_then(|map| map.map(layout.destination(frame))) {
            layout.set_destination(frame, to);
            self.remapped += 1;
        }
        if self.sizes.is_some() && layout.is_sound(frame) {
            // An untruncated packet keeps its Ethernet padding, too.
            let own = layout.frame_bytes(frame).max(frame.len());
            let wanted = self.next_frame_bytes().unwrap_or(own);
            if wanted != frame.len() {
                layout.resize(frame, wanted);
                self.longer += u64::from(frame.len() > wanted);
            }
        }
    }

    fn next_frame_bytes(&mut self) -> Option<usize> {
        self.sizes.as_mut().and_then(SizeDealer::next)
    }
}

/// The routes that contain a unicast address, in order.
fn forwardable<K: Key>(table: &RibTable<K>) -> Vec<(Prefix<K>, NextHopId)> {
    let mut rng = Seeded::new(0, 0x756e_6963);
    let mut holds_one = |prefix: Prefix<K>| {
        let mut keys = std::iter::once(prefix.address()).chain((1..PROBES).map(|_| rng.inside(prefix)));
        keys.any(|key| is_unicast(destination_of(key)))
    };
    table.iter().filter(|(prefix, _)| holds_one(*prefix)).collect()
}
