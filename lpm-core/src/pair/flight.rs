//! A batch in flight: the state of its two pieces. Its keys stay with the caller.

use super::{HALVES, Wait};
use fib::Family;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PiecePlace {
    Done,
    /// This half works on it.
    Flying(usize),
    /// Its half went out of service: the other one must look it up.
    Lost,
}

#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) place: PiecePlace,
}

pub(super) struct PairFlight {
    pub(super) family: Family,
    /// The number of keys.
    pub(super) len: usize,
    /// The first half's piece, then the second half's.
    pub(super) pieces: [Piece; HALVES],
    pub(super) wait: Wait,
    pub(super) judged: bool,
}

impl PairFlight {
    pub(super) fn new() -> Self {
        Self {
            family: Family::V4,
            len: 0,
            pieces: [const { Piece { range: 0..0, place: PiecePlace::Done } }; HALVES],
            wait: Wait::default(),
            judged: true,
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, family: Family, len: usize, cut: usize) {
        (self.family, self.len) = (family, len);
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
