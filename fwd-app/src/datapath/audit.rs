//! `--audit`: copies of some answers, which the control thread compares with the RIB.
//!
//! An [`AuditSampler`] counts the keys that a stage looks up in a VRF, and copies about one in N with its answer to the [`AuditRing`] of
//! the stage. It never waits: a sample that does not fit is counted as lost. In [`AuditState`] the control thread counts the begin and the
//! end of each change of the table. An answer belongs to a generation between submit and collect, so it can be judged if this count was
//! the same even number before submit, after collect, and at the judgement.

use super::batch::Batch;
use crossbeam_channel::{Receiver, Sender, bounded};
use fib::NextHopId;
use fib::random::SplitMix64;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

/// Samples that wait for the control thread, which may be held up for some 20 ms by a commit.
pub(crate) const SAMPLES: usize = 1024;

/// An answer of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditSample {
    pub(crate) vrf: usize,
    pub(crate) key: IpAddr,
    pub(crate) answer: NextHopId,
    /// [`AuditState::changes`] before submit and after collect.
    pub(crate) changes: [u64; 2],
}

/// The audit of one VRF.
#[derive(Debug, Default)]
pub(crate) struct AuditState {
    /// Begins and ends of changes of the table: odd during one.
    changes: AtomicU64,
    /// One key in this many is sampled; 0 is none.
    one_in: AtomicU32,
}

impl AuditState {
    pub(crate) fn one_in(&self) -> u32 {
        self.one_in.load(Relaxed)
    }

    /// In effect from the next [`AuditSampler::refresh`] of each stage on.
    pub(crate) fn set_one_in(&self, one_in: u32) {
        self.one_in.store(one_in, Relaxed);
    }

    /// Runs `change`, during which lookups may have the answers of either table. For the control thread only.
    pub(crate) fn during<T>(&self, change: impl FnOnce() -> T) -> T {
        self.changes.fetch_add(1, Relaxed);
        // With the fence in `AuditSampler::sample`: a lookup that saw a store of `change` also sees the count.
        fence(Release);
        let result = change();
        self.changes.fetch_add(1, Release);
        result
    }

    /// Whether the table of `sample` is certain, and still in service. For the control thread only.
    pub(crate) fn is_certain(&self, sample: &AuditSample) -> bool {
        let now = self.changes.load(Relaxed);
        now.is_multiple_of(2) && sample.changes == [now; 2]
    }
}

/// The samples of one stage.
pub(crate) struct AuditRing {
    sender: Sender<AuditSample>,
    receiver: Receiver<AuditSample>,
    lost: AtomicU64,
}

impl Default for AuditRing {
    fn default() -> Self {
        let (sender, receiver) = bounded(SAMPLES);
        Self { sender, receiver, lost: AtomicU64::new(0) }
    }
}

impl AuditRing {
    fn push(&self, sample: AuditSample) {
        if self.sender.try_send(sample).is_err() {
            self.lost.store(self.lost.load(Relaxed) + 1, Relaxed);
        }
    }

    pub(crate) fn take(&self) -> Option<AuditSample> {
        self.receiver.try_recv().ok()
    }

    /// Samples for which there was no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Samples the keys that one stage looks up in one VRF.
pub(crate) struct AuditSampler {
    state: Arc<AuditState>,
    ring: Arc<AuditRing>,
    one_in: u32,
    /// Keys before the next sample.
    left: u64,
    random: SplitMix64,
}

impl AuditSampler {
    pub(crate) fn new(state: Arc<AuditState>, ring: Arc<AuditRing>) -> Self {
        let mut sampler = Self { state, ring, one_in: 0, left: u64::MAX, random: SplitMix64(0) };
        sampler.refresh();
        sampler
    }

    /// Takes over a changed rate.
    pub(crate) fn refresh(&mut self) {
        let one_in = self.state.one_in();
        if one_in != self.one_in {
            self.one_in = one_in;
            self.left = if one_in == 0 { u64::MAX } else { self.interval() - 1 };
        }
    }

    /// Keys from one sample to the next: random, so that every place in a batch has its turn, and on average `one_in`.
    fn interval(&mut self) -> u64 {
        let limit = (2 * u128::from(self.one_in)).saturating_sub(1);
        1 + ((u128::from(self.random.u64()) * limit) >> 64) as u64
    }

    /// The count of changes, for [`Self::count`]; to be read before the keys are submitted.
    #[inline(always)]
    pub(crate) fn changes(&self) -> u64 {
        self.state.changes.load(Acquire)
    }

    /// Counts the keys of an answered batch, and samples it when the next sample is within.
    #[inline(always)]
    pub(crate) fn count(&mut self, batch: &Batch, changes: u64) {
        let keys = (batch.v4.len + batch.v6.len) as u64;
        match self.left.checked_sub(keys) {
            Some(left) => self.left = left,
            None => self.sample(batch, keys, changes),
        }
    }

    #[cold]
    fn sample(&mut self, batch: &Batch, keys: u64, before: u64) {
        fence(Acquire);
        let changes = [before, self.state.changes.load(Relaxed)];
        while let Ok(at) = usize::try_from(self.left)
            && self.left < keys
        {
            let (key, answer) = match at.checked_sub(batch.v4.len) {
                None => (IpAddr::V4(batch.keys4[at].into()), batch.v4.hops[at]),
                Some(at) => {
                    let (hi, lo) = (batch.keys6.0[at], batch.keys6.1[at]);
                    (IpAddr::V6((u128::from(hi) << 64 | u128::from(lo)).into()), batch.v6.hops[at])
                }
            };
            self.ring.push(AuditSample { vrf: batch.vrf, key, answer, changes });
            self.left += self.interval();
        }
        self.left -= keys;
    }
}

/// Without samples.
impl Default for AuditSampler {
    fn default() -> Self {
        Self::new(Arc::default(), Arc::default())
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::datapath::parse::parse;
    use crate::datapath::test_frames::{self, V4, V6};

    struct AuditRig {
        state: Arc<AuditState>,
        ring: Arc<AuditRing>,
        sampler: AuditSampler,
    }

    fn rig(one_in: u32) -> AuditRig {
        let (state, ring) = (Arc::<AuditState>::default(), Arc::<AuditRing>::default());
        state.set_one_in(one_in);
        AuditRig { sampler: AuditSampler::new(Arc::clone(&state), Arc::clone(&ring)), state, ring }
    }

    /// A batch of `v4` and `v6` keys, the last bits of which are their places; their answers are one more.
    fn batch(v4: u32, v6: u32) -> Option<Batch> {
        let mut frames = vec![V4::default().frame(); v4 as usize];
        frames.extend(vec![V6::default().frame(); v6 as usize]);
        let mut batch = test_frames::batch(&frames)?;
        parse(&mut batch);
        for at in 0..v4 {
            batch.keys4[at as usize] = at;
            batch.v4.hops[at as usize] = NextHopId::new(at + 1).unwrap();
        }
        for (at, place) in (0..v6).zip(v4..) {
            (batch.keys6.0[at as usize], batch.keys6.1[at as usize]) = (7, place.into());
            batch.v6.hops[at as usize] = NextHopId::new(place + 1).unwrap();
        }
        Some(batch)
    }

    #[test]
    fn every_place_of_a_batch_is_sampled_at_the_rate_wanted() {
        let Some(batch) = batch(6, 10) else { return };
        let AuditRig { ring, mut sampler, .. } = rig(16);
        let mut seen = [0; 16];
        for _ in 0..16_000 {
            let changes = sampler.changes();
            sampler.count(&batch, changes);
            while let Some(AuditSample { key, answer, vrf: 0, changes: [0, 0] }) = ring.take() {
                let place = match key {
                    IpAddr::V4(key) => key.to_bits().into(),
                    IpAddr::V6(key) => {
                        assert_eq!(key.to_bits() >> 64, 7);
                        key.to_bits() & 0xff
                    }
                };
                assert_eq!(u128::from(answer.get()), place + 1);
                assert_eq!(place < 6, key.is_ipv4());
                seen[usize::try_from(place).unwrap()] += 1;
            }
        }
        // 1,000 are expected of each place.
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn a_rate_of_one_takes_all_and_what_does_not_fit_is_counted() {
        let Some(batch) = batch(7, 9) else { return };
        let AuditRig { ring, mut sampler, .. } = rig(1);
        for _ in 0..100 {
            sampler.count(&batch, 0);
        }
        assert_eq!(ring.lost(), 1600 - SAMPLES as u64);
        assert_eq!(std::iter::from_fn(|| ring.take()).count(), SAMPLES);
        sampler.count(&batch, 0);
        assert_eq!(std::iter::from_fn(|| ring.take()).count(), 16);
    }

    #[test]
    fn the_rate_changes_while_it_runs() {
        let Some(batch) = batch(16, 0) else { return };
        let AuditRig { state, ring, mut sampler } = rig(0);
        let sampled = |sampler: &mut AuditSampler| {
            (0..10).for_each(|_| sampler.count(&batch, 0));
            std::iter::from_fn(|| ring.take()).count()
        };
        assert_eq!(sampled(&mut sampler), 0);
        state.set_one_in(1);
        assert_eq!(sampled(&mut sampler), 0, "not yet");
        sampler.refresh();
        assert_eq!(sampled(&mut sampler), 160);
        state.set_one_in(0);
        sampler.refresh();
        assert_eq!(sampled(&mut sampler), 0);
        state.set_one_in(u32::MAX);
        sampler.refresh();
        assert!(sampled(&mut sampler) < 2);
    }

    #[test]
    fn an_answer_is_certain_if_no_change_ran_from_its_submit_to_its_check() {
        let Some(batch) = batch(1, 0) else { return };
        let AuditRig { state, ring, mut sampler } = rig(1);
        let mut sample = |before, between: &dyn Fn()| {
            between();
            sampler.count(&batch, before);
            ring.take().unwrap()
        };
        let nothing: &dyn Fn() = &|| ();
        let quiet = sample(state.changes.load(Relaxed), nothing);
        assert!(state.is_certain(&quiet));
        let [submitted, during] = state.during(|| {
            assert!(!state.is_certain(&quiet), "the table may have changed already");
            let now = state.changes.load(Relaxed);
            [sample(0, nothing), sample(now, nothing)]
        });
        assert!(![quiet, submitted, during].iter().any(|sample| state.is_certain(sample)));
        let across = sample(state.changes.load(Relaxed), &|| state.during(|| ()));
        assert!(!state.is_certain(&across));
        assert!(state.is_certain(&sample(state.changes.load(Relaxed), nothing)));
    }
}
