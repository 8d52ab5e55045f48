//! The expected result of each frame by the routes as loaded, computed by the reference before the frame is fed.

use super::reference::{Reference, Verdict};
use super::trace::Trace;
use fib::NextHopTable;
use rustc_hash::FxHashMap;

pub(crate) struct VrfReferences {
    /// By VRF number: its routes, and the meaning of its next hops.
    pub(crate) vrfs: Vec<(Reference, NextHopTable)>,
}

/// The fragments of a frame, each with the number of its arrivals.
pub(super) type Pieces = Vec<(Vec<u8>, u64)>;

/// Expected and actual results of the frames of a [`TracePart`](super::deal::TracePart).
#[derive(Default)]
pub(crate) struct Expected {
    /// By the routes as loaded.
    pub(super) verdicts: Vec<Verdict>,
    /// Arrivals of each frame unfragmented.
    pub(super) sent: Vec<u64>,
    /// For frames that are fragmented by the routes as loaded.
    pub(super) pieces: FxHashMap<usize, Pieces>,
}

impl Expected {
    pub(super) fn judge(&mut self, tables: &VrfReferences, trace: &Trace, vrf_of: &[usize]) {
        let Self { verdicts, sent, pieces } = self;
        verdicts.clear();
        pieces.clear();
        for (frame, vrf) in vrf_of.iter().enumerate() {
            let (original, (reference, hops)) = (trace.frame(frame), &tables.vrfs[*vrf]);
            let verdict = reference.verdict(original, hops);
            if let Verdict::Fragments { port, destination, ip_at, mtu_bytes } = verdict {
                let made = reference.fragments(original, port, destination, ip_at, mtu_bytes);
                pieces.insert(frame, made.into_iter().map(|piece| (piece, 0)).collect());
            }
            verdicts.push(verdict);
        }
        sent.clear();
        sent.resize(verdicts.len(), 0);
    }
}
