//! Traffic that a replay makes, and what it changes in the frames of a trace. All of it follows from a table, a seed and the order of
//! the frames.
//!
//! [`FrameChanges`] works on a frame at a time, so that it does for a trace in memory and for one that is read while it is sent; a clone of
//! it from before the first frame makes the same changes again.
//!
//! | module | what lives there |
//! |---|---|
//! | [`generate`] | `--generate`: packets to the routes of a table |
//! | [`sizes`] | `--sizes` and `--imix`: which sizes there are |
//! | [`remap`] | `--remap`: destinations become addresses of a table |
//! | [`packet`] | changes to the bytes of a packet, with lengths and checksums |
//! | [`shares`] | choices by weights |

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

/// Addresses of a prefix that are looked at, at most, to find a unicast address.
const PROBES: usize = 64;

/// Changes to the frames of a trace, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameChanges {
    map: Option<AddressMap>,
    sizes: Option<SizeDealer>,
    /// Packets that have got another destination.
    pub(crate) remapped: u64,
    /// Packets that are longer than their size, since their headers are.
    pub(crate) longer: u64,
}

impl FrameChanges {
    /// With the sizes of `sizes`, and destinations among the routes of `remap`, where there are such.
    pub(crate) fn new(sizes: Option<&SizeMix>, remap: Option<&Rib>, seed: u64) -> Self {
        let (map, sizes) =
            (remap.map(|rib| AddressMap::new(rib, seed)), sizes.map(|mix| SizeDealer::new(mix, seed)));
        Self { map, sizes, ..Self::default() }
    }

    /// Whether frames stay as they are.
    pub(crate) fn is_none(&self) -> bool {
        self.map.is_none() && self.sizes.is_none()
    }

    /// Changes the next frame. What is no IP packet stays, and counts as none of the sizes.
    pub(crate) fn apply(&mut self, frame: &mut Vec<u8>) {
        let Some(layout) = IpLayout::of(frame) else { return };
        if let Some(to) = self.map.as_ref().and_then(|map| map.map(layout.destination(frame))) {
            layout.set_destination(frame, to);
            self.remapped += 1;
        }
        if self.sizes.is_some() && layout.is_sound(frame) {
            // A packet that has all that its header says keeps its padding, too.
            let own = layout.frame_bytes(frame).max(frame.len());
            let wanted = self.next_frame_bytes().unwrap_or(own);
            if wanted != frame.len() {
                layout.resize(frame, wanted);
                self.longer += u64::from(frame.len() > wanted);
            }
        }
    }

    /// Bytes that the next frame is to have; `None` where it keeps its own.
    fn next_frame_bytes(&mut self) -> Option<usize> {
        self.sizes.as_mut().and_then(SizeDealer::next)
    }
}

/// The routes of a table that hold a unicast address, in order.
fn forwardable<K: Key>(table: &RibTable<K>) -> Vec<(Prefix<K>, NextHopId)> {
    let mut rng = Seeded::new(0, 0x756e_6963);
    let mut holds_one = |prefix: Prefix<K>| {
        let mut keys = std::iter::once(prefix.address()).chain((1..PROBES).map(|_| rng.inside(prefix)));
        keys.any(|key| is_unicast(destination_of(key)))
    };
    table.iter().filter(|(prefix, _)| holds_one(*prefix)).collect()
}
