//! The reading side: splits each batch between the halves and joins the answers.
//!
//! The first half's keys go to its engine, which works in the background, and this thread looks up the second half's. While the first
//! engine works on a slot's batch, this thread works on its own share of the next one: the double buffering of section 4.4.1, as deep as
//! the caller has slots. [`EngineReader::lookup`] uses two internal slots for it. If the first half is a group over the second's table, a
//! lookup lends the keys instead ([`crate::lend`]).
//!
//! The caller keeps the keys in flight, and passes them again to collect the answers. The pieces of a half that fails go to the other half
//! then, in the slot of that half's own piece once that is answered.

use super::flight::{PairFlight, Piece, PiecePlace};
use super::lane::ReaderLane;
use super::{BOTH, BatchOutcome, FIRST, HALVES, SECOND, Service, Wait, Why};
use crate::lend::LOAN_MAX;
use crate::sync::{Arc, LOOKS_A_YIELD, hint, thread};
use fib::{EngineError, EngineReader, Family, KeyMemory, Keys, NextHopId, SlotId};
use std::task::Poll;
use std::time::Duration;

/// The internal slots of [`EngineReader::lookup`] where batches are [cut](Split::CUTS).
pub const LOOKUP_FLIGHTS: u16 = 2;

/// How batches are split between the halves.
pub trait Split: Send {
    /// Whether batches are cut in two. If not, a batch goes to one half without a copy of its answers, and a lookup uses slot 0.
    const CUTS: bool;

    /// The number of keys of a batch for the first half, while both are in service.
    fn cut(&mut self, family: Family, len: usize) -> usize;

    /// Called when a half got `keys` keys of a batch.
    fn handed(&mut self, _half: usize, _keys: usize) {}

    /// Called with whether the first half was late, for a batch of `len` keys cut at `cut`.
    fn judge(&mut self, _family: Family, _len: usize, _cut: usize, _first_late: bool) {}
}

struct Halves<S> {
    lanes: [ReaderLane; HALVES],
    flights: Vec<PairFlight>,
    order: [usize; HALVES],
    split: S,
    service: Arc<Service>,
    stall: Duration,
}

impl<S: Split> Halves<S> {
    /// Submits `keys` as flight `at`, with answers in `out`, which is as long. After an error the flight has no keys.
    #[inline]
    fn start(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let started = self.hand_over(at, keys, out);
        if started.is_err() {
            // A piece that was not submitted has no answers.
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
                Ok(false) => PiecePlace::Flying(half),
                Err(why) => {
                    self.service.fail(half, why)?;
                    PiecePlace::Lost
                }
            };
            self.flights[at].pieces[half].place = place;
            self.split.handed(half, range.len());
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Poll<Result<(), EngineError>> {
        for piece in 0..HALVES {
            if let PiecePlace::Flying(half) = self.flights[at].pieces[piece].place {
                let Self { lanes, service, flights, stall, .. } = self;
                let flight = &mut flights[at];
                let range = flight.pieces[piece].range.clone();
                let collect = || lanes[half].collect(at, keys.part(range.clone()), &mut out[range]);
                let place = &mut flight.pieces[piece].place;
                match service.outcome(half, &mut flight.wait, *stall, collect) {
                    Ok(BatchOutcome::Answered(())) => *place = PiecePlace::Done,
                    Ok(BatchOutcome::InFlight) => {}
                    Ok(BatchOutcome::Lost) => *place = PiecePlace::Lost,
                    Err(error) => {
                        *place = PiecePlace::Lost;
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
        if !self.flights[at].judged {
            self.judge(at);
        }
        if !self.flights[at].is_done() {
            match self.retry_lost(at, keys, out) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready once no half works on flight `at`, which has no keys then. Lost pieces are not looked up again.
    #[cold]
    fn discard(&mut self, at: usize) -> Poll<Result<(), EngineError>> {
        let Self { lanes, service, flights, stall, .. } = self;
        let flight = &mut flights[at];
        let mut discarded = Poll::Ready(Ok(()));
        for Piece { place, .. } in &mut flight.pieces {
            if let PiecePlace::Flying(half) = *place {
                match service.outcome(half, &mut flight.wait, *stall, || lanes[half].discard(at)) {
                    Ok(BatchOutcome::InFlight) => {
                        discarded = Poll::Pending;
                        continue;
                    }
                    Ok(BatchOutcome::Answered(()) | BatchOutcome::Lost) => {}
                    Err(error) => discarded = discarded.map(|_| Err(error)),
                }
            }
            *place = PiecePlace::Done;
        }
        if discarded.is_ready() {
            flight.begin(flight.family, 0, 0);
        }
        flight.judged = true;
        discarded
    }

    #[inline]
    fn judge(&mut self, at: usize) {
        let flight = &self.flights[at];
        let (first, second) = (flight.pieces[FIRST].place, flight.pieces[SECOND].place);
        let asynchronous = [FIRST, SECOND].map(|half| self.lanes[half].is_asynchronous());
        let first_late = match (first, second) {
            (PiecePlace::Flying(_), PiecePlace::Flying(_)) => return, // undecided yet
            (PiecePlace::Lost, _) | (_, PiecePlace::Lost) => None,
            // Both had answered. A half on this thread kept the other one waiting.
            (PiecePlace::Done, PiecePlace::Done) => {
                (asynchronous[FIRST] != asynchronous[SECOND]).then_some(!asynchronous[FIRST])
            }
            (first, _) => Some(first != PiecePlace::Done),
        };
        let (family, len) = (flight.family, flight.len);
        let cut = flight.pieces[FIRST].range.end;
        self.flights[at].judged = true;
        if let Some(first_late) = first_late {
            self.split.judge(family, len, cut, first_late);
        }
    }

    #[cold]
    fn retry_lost(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<bool, EngineError> {
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
            let part = keys.part(range.clone());
            let place = match self.lanes[half].submit(at, part, &mut out[range.clone()]) {
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

    /// Lends to both halves if the first is a group over the second's table. Returns whether all answers are complete.
    #[inline]
    fn lend(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<bool, EngineError> {
        let (family, len) = (keys.family(), out.len());
        if self.service.mask() != BOTH {
            return Ok(false);
        }
        let [ReaderLane::Threads(group), ReaderLane::Inline(reader)] = &mut self.lanes else {
            return Ok(false);
        };
        if !group.lends() {
            return Ok(false);
        }
        let cut = self.split.cut(family, len);
        let looked_up = if cut == 0 {
            let failed = |error| (SECOND, Why::Failed { during: "submit", error });
            reader.lookup(keys, out).map(|()| 0).map_err(failed)
        } else {
            group.lend(keys, out, cut, reader.as_mut())
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
            // The half that finished first took over keys from the other.
            self.split.judge(family, len, cut, firsts < cut);
        }
        Ok(true)
    }

    fn finish(&mut self, at: usize, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        let mut polls = 0_u32;
        loop {
            if let Poll::Ready(done) = self.poll(at, keys, out) {
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
                // Freeing the slots of a broken device may never return; the end of the process frees them.
                std::mem::forget(std::mem::replace(lane, ReaderLane::Absent));
            }
        }
    }
}

/// A reader over the readers of both halves.
pub struct PairReader<S> {
    halves: Halves<S>,
    answers: Vec<Vec<NextHopId>>,
    batch_max: usize,
}

impl<S: Split> PairReader<S> {
    /// The slots that the lanes need for a reader with `slots` slots.
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
        // An asynchronous half gets its share first.
        let order = if lanes[FIRST].is_asynchronous() || !lanes[SECOND].is_asynchronous() {
            [FIRST, SECOND]
        } else {
            [SECOND, FIRST]
        };
        let flights = Self::flights(slots);
        let slots = slots.min(if S::CUTS { flights - LOOKUP_FLIGHTS } else { flights });
        let flights = (0..flights).map(|_| PairFlight::new()).collect();
        let halves = Halves { lanes, flights, order, split, service, stall };
        Self { halves, answers: vec![vec![NextHopId::NONE; batch_max]; slots.into()], batch_max }
    }

    #[inline]
    fn collect_whole(
        &mut self,
        at: usize,
        half: usize,
        keys: Keys<'_>,
    ) -> Poll<Result<&[NextHopId], EngineError>> {
        let Halves { lanes, flights, service, stall, .. } = &mut self.halves;
        let flight = &mut flights[at];
        match service.outcome(half, &mut flight.wait, *stall, || lanes[half].collect_slot(at, keys)) {
            Ok(BatchOutcome::Answered(answers)) => Poll::Ready(Ok(answers)),
            // A lost batch is looked up again at the next call.
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

    /// A half that fails goes out of service.
    fn adopt(&mut self, memory: &std::sync::Arc<dyn KeyMemory>) -> Result<(), EngineError> {
        let Halves { lanes, service, .. } = &mut self.halves;
        for (half, lane) in lanes.iter_mut().enumerate() {
            if service.has(half) {
                lane.adopt(memory).or_else(|why| service.fail(half, why))?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError> {
        keys.check(self.batch_max)?;
        let at = usize::from(slot.0);
        self.halves.start(at, keys, &mut self.answers[at][..keys.len()])
    }

    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>> {
        let at = usize::from(slot.0);
        let PairFlight { family, len, .. } = self.halves.flights[at];
        if let Err(other) = keys.check_again(family, len) {
            return Poll::Ready(Err(other));
        }
        if !S::CUTS
            && let PiecePlace::Flying(half) = self.halves.flights[at].pieces[FIRST].place
            && self.halves.service.has(half)
        {
            return self.collect_whole(at, half, keys);
        }
        let answers = &mut self.answers[at][..len];
        self.halves.poll(at, keys, answers).map_ok(|()| &*answers)
    }

    fn discard(&mut self, slot: SlotId) -> Poll<Result<(), EngineError>> {
        self.halves.discard(slot.0.into())
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
            // With two flights the older one is in slot `turn`, with one in the other slot.
            let oldest = if begun - done > step { turn } else { other(turn) };
            self.halves.finish(slots + oldest, keys.part(part.clone()), &mut out[part.clone()])?;
            done = part.end;
        }
        Ok(())
    }

    fn refresh(&mut self) {
        self.halves.lanes.iter_mut().for_each(ReaderLane::refresh);
    }
}
