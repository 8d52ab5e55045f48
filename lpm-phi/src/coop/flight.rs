//! A batch in flight: its keys as far as they may be needed again, and what has become of its two pieces.

use super::service::HALVES;
use crate::sync::time::Instant;
use fib::{Family, Keys};
use std::ops::Range;

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
    pub(super) place: Place,
}

/// See the module.
pub(super) struct Flight {
    family: Family,
    v4: Vec<u32>,
    hi: Vec<u64>,
    lo: Vec<u64>,
    pub(super) len: usize,
    /// The first half's, then the second half's.
    pub(super) pieces: [Piece; HALVES],
    /// When a half was first found to keep the caller waiting.
    pub(super) since: Option<Instant>,
    /// Whether it has been seen which half was there first.
    pub(super) judged: bool,
}

impl Flight {
    /// Room for `batch_max` keys of either family.
    pub(super) fn new(batch_max: usize) -> Self {
        Self {
            family: Family::V4,
            v4: vec![0; batch_max],
            hi: vec![0; batch_max],
            lo: vec![0; batch_max],
            len: 0,
            pieces: [const { Piece { range: 0..0, place: Place::Done } }; HALVES],
            since: None,
            judged: true,
        }
    }

    /// A new batch of `len` keys, cut at `cut`.
    #[inline]
    pub(super) fn begin(&mut self, family: Family, len: usize, cut: usize) {
        self.family = family;
        self.len = len;
        self.pieces[0] = Piece { range: 0..cut, place: Place::Done };
        self.pieces[1] = Piece { range: cut..len, place: Place::Done };
        self.since = None;
        self.judged = false;
    }

    /// The family of the batch.
    #[inline]
    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// Keeps `keys`, which lie at `at` in the batch.
    #[inline]
    pub(super) fn keep(&mut self, keys: Keys<'_>, at: Range<usize>) {
        match keys {
            Keys::V4(keys) => copy(keys, &mut self.v4[at]),
            Keys::V6 { hi, lo } => {
                copy(hi, &mut self.hi[at.clone()]);
                copy(lo, &mut self.lo[at]);
            }
        }
    }

    /// The kept keys of `range`.
    #[inline]
    pub(super) fn keys(&self, range: Range<usize>) -> Keys<'_> {
        match self.family {
            Family::V4 => Keys::V4(&self.v4[range]),
            Family::V6 => Keys::V6 { hi: &self.hi[range.clone()], lo: &self.lo[range] },
        }
    }

    /// Whether every answer is there.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.pieces.iter().all(|piece| piece.place == Place::Done)
    }
}

/// Copies `from` to `to`, equally long, a kilobyte at a time. The C library copies some kilobytes at once by a string instruction,
/// which is slow where the lines lie in another core's cache: a third of what the calling thread of two groups spent.
#[inline]
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    let part = 1024 / size_of::<T>();
    for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
        to.copy_from_slice(from);
    }
}

/// The keys of `range`.
#[inline]
pub(super) fn slice(keys: Keys<'_>, range: Range<usize>) -> Keys<'_> {
    match keys {
        Keys::V4(keys) => Keys::V4(&keys[range]),
        Keys::V6 { hi, lo } => Keys::V6 { hi: &hi[range.clone()], lo: &lo[range] },
    }
}

/// The family of `keys`.
#[inline]
pub(super) const fn family_of(keys: Keys<'_>) -> Family {
    match keys {
        Keys::V4(_) => Family::V4,
        Keys::V6 { .. } => Family::V6,
    }
}
