//! A batch in flight: its keys as far as they may be needed again, and what has become of its two pieces.

use super::{HALVES, Wait};
use fib::{Family, KeyBuffer};
use std::ops::Range;

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PiecePlace {
    /// Its answers are in the batch's.
    Done,
    /// A half has it.
    Flying(usize),
    /// The half that had it is out of service, and nobody else has it yet; its keys are kept.
    Lost,
}

/// Some keys of a batch, next to each other.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) place: PiecePlace,
}

/// See the module.
pub(super) struct PairFlight {
    /// Those that were kept, each in its place in the batch.
    pub(super) keys: KeyBuffer,
    /// The first half's, then the second half's.
    pub(super) pieces: [Piece; HALVES],
    /// How long a half has kept the caller waiting.
    pub(super) wait: Wait,
    /// Whether it has been seen which half was there first.
    pub(super) judged: bool,
}

impl PairFlight {
    /// Room for `batch_max` keys of either family.
    pub(super) fn new(batch_max: usize) -> Self {
        Self {
            keys: KeyBuffer::with_capacity(batch_max),
            pieces: [const { Piece { range: 0..0, place: PiecePlace::Done } }; HALVES],
            wait: Wait::default(),
            judged: true,
        }
    }

    /// A new batch of `len` keys, cut at `cut`.
    #[inline]
    pub(super) fn begin(&mut self, family: Family, len: usize, cut: usize) {
        self.keys.reset(family, len);
        self.pieces[0] = Piece { range: 0..cut, place: PiecePlace::Done };
        self.pieces[1] = Piece { range: cut..len, place: PiecePlace::Done };
        self.wait = Wait::default();
        self.judged = false;
    }

    /// Whether every answer is there.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.pieces.iter().all(|piece| piece.place == PiecePlace::Done)
    }
}
