//! A batch in flight: keys that are kept for another lookup, and the state of its two pieces.

use super::{HALVES, Wait};
use fib::{Family, KeyBuffer};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PiecePlace {
    Done,
    /// This half works on it.
    Flying(usize),
    /// Its half went out of service; its keys are kept for the other one.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) place: PiecePlace,
}

pub(super) struct PairFlight {
    /// The kept keys, at their positions in the batch.
    pub(super) keys: KeyBuffer,
    /// The first half's piece, then the second half's.
    pub(super) pieces: [Piece; HALVES],
    pub(super) wait: Wait,
    pub(super) judged: bool,
}

impl PairFlight {
    pub(super) fn new(batch_max: usize) -> Self {
        Self {
            keys: KeyBuffer::with_capacity(batch_max),
            pieces: [const { Piece { range: 0..0, place: PiecePlace::Done } }; HALVES],
            wait: Wait::default(),
            judged: true,
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, family: Family, len: usize, cut: usize) {
        self.keys.reset(family, len);
        self.pieces[0] = Piece { range: 0..cut, place: PiecePlace::Done };
        self.pieces[1] = Piece { range: cut..len, place: PiecePlace::Done };
        self.wait = Wait::default();
        self.judged = false;
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.pieces.iter().all(|piece| piece.place == PiecePlace::Done)
    }
}
