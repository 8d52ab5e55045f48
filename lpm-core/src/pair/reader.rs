//! The reading side: each batch is cut in two, and put together again.
//!
//! ```text
//! submit:  first half's keys to its engine, which works on them meanwhile; the second half's are looked up on this thread
//! collect: the first half's answers beside the second half's; pending while they are not there
//! ```
//! A slot's batch is with the first engine while this thread is busy with its own share of the next: that is the double
//! buffering of section 4.4.1, as deep as the caller has slots. [`EngineReader::lookup`] does so with two slots of its own, unless
//! the first half is a group over the second's table: then both work where keys and answers lie, for the caller waits anyway
//! ([`crate::lend`]), and whoever ends first takes over what the other has not begun.
//!
//! The keys of what an engine has in flight are kept, here or by the threads that have them. A half that fails is taken out of
//! service ([`super::service`]), and its pieces go to the other one, in the slot of the other one's own piece once that is there.

use super::flight::{PairFlight, PiecePlace};
use super::lane::ReaderLane;
use super::{BOTH, BatchOutcome, FIRST, HALVES, SECOND, Service, Wait, Why};
use crate::lend::LOAN_MAX;
use crate::sync::{Arc, LOOKS_A_YIELD, hint, thread};
use fib::{EngineError, EngineReader, Family, Keys, NextHopId, SlotId};
use std::task::Poll;
use std::time::Duration;

/// Batches that [`EngineReader::lookup`] has in flight, in slots of its own, where batches are [cut](Split::CUTS).
pub const LOOKUP_FLIGHTS: u16 = 2;

/// How batches are shared by the two halves.
pub trait Split: Send {
    /// Whether batches are cut in two. One that is not goes to a half as a whole, its answers are not copied from there, and a lookup
    /// uses slot 0.
    const CUTS: bool;

    /// How many keys of a batch the first half gets, while both are in service.
    fn cut(&mut self, family: Family, len: usize) -> usize;

    /// A half was handed `keys` keys of a batch.
    fn handed(&mut self, _half: usize, _keys: usize) {}

    /// Takes in whether the first half was waited for, of a batch of `len` keys cut at `cut`.
    fn judge(&mut self, _family: Family, _len: usize, _cut: usize, _first_late: bool) {}
}

/// The two halves of a reader, and what is in flight.
struct Halves<S> {
    lanes: [ReaderLane; HALVES],
    flights: Vec<PairFlight>,
    /// Who is handed its share first.
    order: [usize; HALVES],
    split: S,
    service: Arc<Service>,
    stall: Duration,
}

impl<S: Split> Halves<S> {
    /// Hands `keys` over in flight `at`; answers go to `out`, as many, here and at [`Self::poll`]. After an error the flight has
    /// no keys.
    #[inline]
    fn start(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let started = self.hand_over(at, keys, out);
        if started.is_err() {
            // A piece that nobody was handed has no answers.
            self.flights[at].begin(keys.family(), 0, 0);
        }
        started
    }

    #[inline]
    fn hand_over(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let (family, len) = (keys.family(), keys.len());
        let mask = self.service.mask();
        let cut = match mask {
            BOTH => self.split.cut(family, len),
            mask if mask >> FIRST & 1 == 1 => len,
            _ => 0,
        };
        self.flights[at].begin(family, len, cut);
        for half in self.order {
            let range = self.flights[at].pieces[half].range.clone();
            if range.is_empty() {
                continue;
            }
            let part = keys.part(range.clone());
            let place = match self.lanes[half].submit(at, part, &mut out[range.clone()]) {
                Ok(true) => PiecePlace::Done,
                Ok(false) => {
                    if !self.lanes[half].keeps_keys() {
                        self.flights[at].keys.put(range.start, part);
                    }
                    PiecePlace::Flying(half)
                }
                Err(why) => {
                    self.flights[at].keys.put(range.start, part);
                    self.flights[at].pieces[half].place = PiecePlace::Lost;
                    self.service.fail(half, why)?;
                    PiecePlace::Lost
                }
            };
            self.flights[at].pieces[half].place = place;
            self.split.handed(half, range.len());
        }
        Ok(())
    }

    /// Whether flight `at` has all its answers in `out`, where it began.
    #[inline]
    fn poll(&mut self, at: usize, out: &mut [NextHopId]) -> Poll<Result<(), EngineError>> {
        for piece in 0..HALVES {
            if let PiecePlace::Flying(half) = self.flights[at].pieces[piece].place {
                let Self { lanes, service, flights, stall, .. } = self;
                let flight = &mut flights[at];
                let collect = || lanes[half].collect(at, &mut out[flight.pieces[piece].range.clone()]);
                match service.outcome(half, &mut flight.wait, *stall, collect) {
                    Ok(BatchOutcome::Answered(())) => flight.pieces[piece].place = PiecePlace::Done,
                    Ok(BatchOutcome::InFlight) => {}
                    Ok(BatchOutcome::Lost) => self.lose(at, piece, half),
                    Err(error) => {
                        self.lose(at, piece, half);
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        if !self.flights[at].judged {
            self.judge(at);
        }
        if !self.flights[at].is_done() {
            match self.again(at, out) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a piece that `half` has away from it, with its keys.
    #[cold]
    fn lose(&mut self, at: usize, piece: usize, half: usize) {
        let flight = &mut self.flights[at];
        flight.pieces[piece].place = PiecePlace::Lost;
        let mut from = flight.pieces[piece].range.start;
        self.lanes[half].kept(at, |keys| {
            flight.keys.put(from, keys);
            from += keys.len();
        });
    }

    /// Takes in which half was waited for, once a batch.
    #[inline]
    fn judge(&mut self, at: usize) {
        let flight = &self.flights[at];
        let (first, second) = (flight.pieces[FIRST].place, flight.pieces[SECOND].place);
        let asynchronous = [FIRST, SECOND].map(|half| self.lanes[half].is_asynchronous());
        let first_late = match (first, second) {
            (PiecePlace::Flying(_), PiecePlace::Flying(_)) => return, // undecided yet
            (PiecePlace::Lost, _) | (_, PiecePlace::Lost) => None,
            // Both were there. Then one that works on this thread kept the other waiting.
            (PiecePlace::Done, PiecePlace::Done) => {
                (asynchronous[FIRST] != asynchronous[SECOND]).then_some(!asynchronous[FIRST])
            }
            (first, _) => Some(first != PiecePlace::Done),
        };
        let (family, len) = (flight.keys.family(), flight.keys.len());
        let cut = flight.pieces[FIRST].range.end;
        self.flights[at].judged = true;
        if let Some(first_late) = first_late {
            self.split.judge(family, len, cut, first_late);
        }
    }

    /// Has lost pieces of flight `at` looked up by the half that is left. Whether all answers are there.
    #[cold]
    fn again(&mut self, at: usize, out: &mut [NextHopId]) -> Result<bool, EngineError> {
        for piece in 0..HALVES {
            if self.flights[at].pieces[piece].place != PiecePlace::Lost {
                continue;
            }
            let half = if self.service.has(FIRST) { FIRST } else { SECOND };
            let busy = PiecePlace::Flying(half);
            if self.flights[at].pieces.iter().any(|piece| piece.place == busy) {
                return Ok(false); // its slot has another piece of this batch
            }
            let range = self.flights[at].pieces[piece].range.clone();
            let keys = self.flights[at].keys.keys().part(range.clone());
            let place = match self.lanes[half].submit(at, keys, &mut out[range.clone()]) {
                Ok(true) => PiecePlace::Done,
                Ok(false) => PiecePlace::Flying(half),
                Err(why) => {
                    self.service.fail(half, why)?;
                    PiecePlace::Lost
                }
            };
            self.flights[at].wait = Wait::default();
            self.flights[at].pieces[piece].place = place;
            self.service.count_again(range.len());
        }
        Ok(self.flights[at].is_done())
    }

    /// Has `keys` looked up into `out` by both halves where they lie, when the first is a group over the second's table. Whether
    /// all answers are there; if not, the caller is to ask again, in another way.
    ///
    /// # Errors
    /// What the last half said.
    #[inline]
    fn lend(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<bool, EngineError> {
        let (family, len) = (keys.family(), out.len());
        if self.service.mask() != BOTH {
            return Ok(false);
        }
        let [ReaderLane::Threads(group), ReaderLane::Inline(mine)] = &mut self.lanes else {
            return Ok(false);
        };
        if !group.lends() {
            return Ok(false);
        }
        let cut = self.split.cut(family, len);
        let looked_up = if cut == 0 {
            let failed = |error| (SECOND, Why::Failed { during: "submit", error });
            mine.lookup(keys, out).map(|()| 0).map_err(failed)
        } else {
            group.lend(keys, out, cut, mine.as_mut())
        };
        let firsts = match looked_up {
            Ok(firsts) => firsts,
            Err((half, why)) => {
                self.service.fail(half, why)?;
                return Ok(false);
            }
        };
        self.split.handed(FIRST, firsts);
        self.split.handed(SECOND, len - firsts);
        if firsts != cut {
            // Who was done before took keys of the other over.
            self.split.judge(family, len, cut, firsts < cut);
        }
        Ok(true)
    }

    /// Waits for flight `at`.
    fn finish(&mut self, at: usize, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let mut polls = 0_u32;
        loop {
            if let Poll::Ready(done) = self.poll(at, out) {
                return done;
            }
            polls += 1;
            if polls.is_multiple_of(LOOKS_A_YIELD) { thread::yield_now() } else { hint::spin_loop() }
        }
    }
}

impl<S> Drop for Halves<S> {
    fn drop(&mut self) {
        for (half, lane) in self.lanes.iter_mut().enumerate() {
            if matches!(lane, ReaderLane::Slots(_)) && !self.service.has(half) {
                // Freeing the slots of a broken device may never come back; the end of the process frees them.
                std::mem::forget(std::mem::replace(lane, ReaderLane::Absent));
            }
        }
    }
}

/// See the module.
pub struct PairReader<S> {
    halves: Halves<S>,
    /// By slot: the answers, and how many there are.
    answers: Vec<(Vec<NextHopId>, usize)>,
    batch_max: usize,
}

impl<S: Split> PairReader<S> {
    /// The slots that its lanes must have for a reader with `slots` slots.
    #[must_use]
    pub const fn flights(slots: u16) -> u16 {
        if S::CUTS {
            slots.saturating_add(LOOKUP_FLIGHTS)
        } else if slots == 0 {
            1
        } else {
            slots
        }
    }

    /// A reader over `lanes`, whose slots take `batch_max` keys. A half that keeps a batch for `stall` goes out of service.
    #[must_use]
    pub fn new(
        lanes: [ReaderLane; HALVES],
        split: S,
        service: Arc<Service>,
        (slots, batch_max): (u16, usize),
        stall: Duration,
    ) -> Self {
        // What works elsewhere begins first.
        let order = if lanes[FIRST].is_asynchronous() || !lanes[SECOND].is_asynchronous() {
            [FIRST, SECOND]
        } else {
            [SECOND, FIRST]
        };
        let flights = Self::flights(slots);
        let slots = slots.min(if S::CUTS { flights - LOOKUP_FLIGHTS } else { flights });
        let flights = (0..flights).map(|_| PairFlight::new(batch_max)).collect();
        let halves = Halves { lanes, flights, order, split, service, stall };
        Self { halves, answers: vec![(vec![NextHopId::NONE; batch_max], 0); slots.into()], batch_max }
    }

    /// The answers of a batch that `half` has as a whole, from its slot.
    #[inline]
    fn collect_whole(&mut self, at: usize, half: usize) -> Poll<Result<&[NextHopId], EngineError>> {
        let Halves { lanes, flights, service, stall, .. } = &mut self.halves;
        let (flight, keys) = (&mut flights[at], self.answers[at].1);
        match service.outcome(half, &mut flight.wait, *stall, || lanes[half].collect_slot(at, keys)) {
            Ok(BatchOutcome::Answered(answers)) => Poll::Ready(Ok(answers)),
            // At the next call it is looked up again.
            Ok(BatchOutcome::InFlight | BatchOutcome::Lost) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: Split> EngineReader for PairReader<S> {
    #[expect(clippy::cast_possible_truncation, reason = "made from a u16")]
    fn slots(&self) -> u16 {
        self.answers.len() as u16
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        let (answers, len) = &mut self.answers[usize::from(slot.0)];
        let started = self.halves.start(usize::from(slot.0), keys, &mut answers[..keys.len()]);
        *len = if started.is_ok() { keys.len() } else { 0 };
        started
    }

    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>> {
        let at = usize::from(slot.0);
        if !S::CUTS
            && let PiecePlace::Flying(half) = self.halves.flights[at].pieces[FIRST].place
            && self.halves.service.has(half)
        {
            return self.collect_whole(at, half);
        }
        let (answers, len) = &mut self.answers[at];
        let answers = &mut answers[..*len];
        self.halves.poll(at, answers).map_ok(|()| &*answers)
    }

    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        keys.check_answers(out)?;
        if self.batch_max == 0 {
            return Err(EngineError::Batch { keys: keys.len(), limit: 0 });
        }
        if let ReaderLane::Inline(reader) = &mut self.halves.lanes[SECOND]
            && !self.halves.service.has(FIRST)
        {
            return reader.lookup(keys, out);
        }
        let (mut keys, mut out) = (keys, out);
        while !out.is_empty() {
            let part = out.len().min(LOAN_MAX);
            if !self.halves.lend(keys.part(0..part), &mut out[..part])? {
                break;
            }
            keys = keys.part(part..out.len());
            out = &mut out[part..];
        }
        let (len, step) = (out.len(), self.batch_max);
        let (slots, flights) = if S::CUTS { (self.answers.len(), LOOKUP_FLIGHTS) } else { (0, 1) };
        let other = |turn: usize| if S::CUTS { turn ^ 1 } else { turn };
        let range = |start: usize| start..len.min(start + step);
        let (mut begun, mut done, mut turn) = (0, 0, 0);
        while done < len {
            while begun < len && begun - done < usize::from(flights) * step {
                let part = range(begun);
                self.halves.start(slots + turn, keys.part(part.clone()), &mut out[part.clone()])?;
                turn = other(turn);
                begun = part.end;
            }
            let part = range(done);
            // With two in flight the older one is in the slot whose turn is next, with one in the other.
            let oldest = if begun - done > step { turn } else { other(turn) };
            self.halves.finish(slots + oldest, &mut out[part.clone()])?;
            done = part.end;
        }
        Ok(())
    }

    fn refresh(&mut self) {
        self.halves.lanes.iter_mut().for_each(ReaderLane::refresh);
    }
}
