//! Runs stages on lcores until all are done, and collects their counters.
//!
//! A panic in a stage is a broken invariant. Its lcore catches it, stops receiving everywhere ([`StageControl::stop_rx`]), collects the
//! counters and held packets of the stage, and continues with its other stages. In a pipeline, a receiver of the dead stage sees its
//! channel disconnect; batches sent to it stay in the channel. [`Running`] stops the stages and joins the lcores on drop: no stage runs
//! while EAL is shut down.

use super::handle::{Handle, LcoreHandle};
use super::lcores::BuiltStages;
use super::pipeline::Travelling;
use super::{Stage, StageControl, StageOutcome, StageProgress, Stages};
use crossbeam_channel::Receiver;
use dpdk_ffi::{DpdkError, Eal, LcoreId, LcoreJob};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Turns between two calls of `housekeeping`, which checks signals and clocks: about 10 to 500 us.
const HOUSEKEEPING_TURNS: u32 = 256;
/// Sleep of the main lcore between two calls of `housekeeping` when it has no stages left.
const NAP: Duration = Duration::from_millis(1);

const AWAKE_TURNS: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Polls again at once: the lcore has a dedicated CPU.
    Spin,
    /// Lets other threads run: lcores share CPUs.
    Yield,
    /// Sleeps after [`AWAKE_TURNS`] turns without work: 1 us, then twice the previous sleep, up to this.
    Sleep(Duration),
}

impl Idle {
    /// Sleeps of at most `longest_us`, or none if it is 0; `share_cpus` says that lcores outnumber CPUs.
    pub(crate) fn new(longest_us: u32, share_cpus: bool) -> Self {
        match longest_us {
            0 if share_cpus => Self::Yield,
            0 => Self::Spin,
            longest_us => Self::Sleep(Duration::from_micros(longest_us.into())),
        }
    }

    #[inline]
    pub(crate) fn wait(self, turns: u32) {
        match self {
            Self::Spin => dpdk_ffi::pause(),
            Self::Yield => std::thread::yield_now(),
            Self::Sleep(_) if turns <= AWAKE_TURNS => dpdk_ffi::pause(),
            Self::Sleep(longest) => std::thread::sleep(nap(turns - AWAKE_TURNS).min(longest)),
        }
    }
}

fn nap(number: u32) -> Duration {
    Duration::from_micros(1 << (number - 1).min(20))
}

#[derive(Debug, Default)]
struct Ended {
    outcomes: Vec<StageOutcome>,
    panic: Option<String>,
}

/// The stages of one lcore, polled round robin; a stage that is done is removed.
struct Lcore {
    stages: Stages,
    at: usize,
    ended: Ended,
    control: Arc<StageControl>,
    handle: Arc<LcoreHandle>,
}

impl Lcore {
    fn new(stages: Stages, handle: Arc<LcoreHandle>, control: &Arc<StageControl>) -> Self {
        Self { stages, at: 0, ended: Ended::default(), control: Arc::clone(control), handle }
    }

    /// Polls until all stages are done. Counts a heartbeat and calls `housekeeping` every [`HOUSEKEEPING_TURNS`] turns.
    fn run(&mut self, idle: Idle, mut housekeeping: impl FnMut()) {
        let (mut turn, mut idle_turns) = (0_u32, 0_u32);
        while !self.stages.is_empty() {
            let worked = self.poll();
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(HOUSEKEEPING_TURNS) {
                self.handle.heartbeat.beat();
                housekeeping();
            }
            if worked {
                idle_turns = 0;
            } else {
                idle_turns = idle_turns.saturating_add(1);
                idle.wait(idle_turns);
            }
        }
    }

    /// Polls each stage once; returns whether any worked. Does not unwind.
    #[inline]
    fn poll(&mut self) -> bool {
        match catch_unwind(AssertUnwindSafe(|| self.poll_each())) {
            Ok(worked) => worked,
            Err(panic) => {
                self.note(panic.as_ref());
                if self.at < self.stages.len() {
                    let died = self.stages.remove(self.at);
                    self.finish(died);
                }
                true
            }
        }
    }

    #[inline]
    fn poll_each(&mut self) -> bool {
        let mut worked = false;
        if self.handle.snapshot.is_offered() {
            self.handle
                .snapshot
                .exchange(|snapshot| snapshot.fill(&mut self.ended.outcomes, &mut self.stages));
        }
        if self.handle.queues.is_offered() {
            self.handle.queues.exchange(|mut queues| {
                self.stages.iter_mut().for_each(|stage| stage.exchange(&mut queues));
                queues
            });
        }
        self.at = 0;
        while let Some(stage) = self.stages.get_mut(self.at) {
            match stage.poll() {
                StageProgress::Worked => worked = true,
                StageProgress::Idle => {}
                StageProgress::Done => {
                    let done = self.stages.remove(self.at);
                    self.finish(done);
                    continue;
                }
            }
            self.at += 1;
        }
        worked
    }

    /// Collects the outcome of a stage. A panicked stage has the counters of its last update, at most a batch old.
    fn finish(&mut self, stage: Box<dyn Stage>) {
        match catch_unwind(AssertUnwindSafe(|| stage.finish())) {
            Ok(outcome) => self.ended.outcomes.push(outcome),
            Err(panic) => self.note(panic.as_ref()),
        }
    }

    #[cold]
    fn note(&mut self, panic: &(dyn Any + Send)) {
        self.control.stop_rx();
        self.ended.panic.get_or_insert_with(|| dpdk_ffi::panic_message(panic));
    }
}

#[derive(Debug)]
pub(crate) struct Finished {
    /// One per stage, and one for the channels between them.
    pub(crate) outcomes: Vec<StageOutcome>,
    /// The first [`DpdkError::Panicked`]; the main lcore's takes precedence.
    pub(crate) panicked: Option<DpdkError>,
}

/// Stages running on their lcores. Dropping it stops every stage and waits for its end.
pub(crate) struct Running {
    main: LcoreId,
    mine: Lcore,
    jobs: Vec<LcoreJob<Ended>>,
    /// Kept to the end: batches sent to a panicked stage stay here and count as held.
    channels: Vec<Receiver<Travelling>>,
    handle: Handle,
}

impl Running {
    /// Launches the stages of all lcores except the main one, whose stages run in [`Self::poll`] and [`Self::run`].
    ///
    /// # Errors
    /// [`DpdkError`] when an lcore is busy; the stages launched before it have ended by then.
    pub(crate) fn launch(eal: &Eal, built: BuiltStages, idle: Idle) -> Result<Self, DpdkError> {
        let BuiltStages { lcores, channels, handle } = built;
        let main = eal.main_lcore();
        let find =
            |number| handle.lcores.iter().find(|lcore| lcore.number == number).cloned().unwrap_or_default();
        let mine = Lcore::new(Stages::new(), find(main.0), &handle.control);
        let handles: Vec<_> = lcores.iter().map(|(number, _)| find(*number)).collect();
        let mut running = Self { main, mine, jobs: Vec::with_capacity(lcores.len()), channels, handle };
        for ((number, stages), lcore) in lcores.into_iter().zip(handles) {
            if LcoreId(number) == main {
                running.mine.stages.extend(stages);
                continue;
            }
            let mut theirs = Lcore::new(stages, lcore, &running.handle.control);
            let work = move || {
                theirs.run(idle, || ());
                theirs.ended
            };
            running.jobs.push(eal.launch(LcoreId(number), work)?);
        }
        Ok(running)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Polls each stage of the main lcore once; returns whether any worked.
    pub(crate) fn poll(&mut self) -> bool {
        self.mine.poll()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.mine.stages.is_empty() && self.jobs.iter().all(LcoreJob::is_finished)
    }

    /// Runs the main lcore's stages, then waits for the others. A panic in `housekeeping` stops all stages; it is not called again.
    pub(crate) fn run(mut self, idle: Idle, mut housekeeping: impl FnMut()) -> Finished {
        let (handle, mut panic) = (self.handle.clone(), None);
        let mut keep = || {
            if panic.is_none()
                && let Err(broken) = catch_unwind(AssertUnwindSafe(&mut housekeeping))
            {
                handle.stop_rx();
                panic = Some(dpdk_ffi::panic_message(broken.as_ref()));
            }
        };
        self.mine.run(idle, &mut keep);
        while !self.is_finished() {
            keep();
            std::thread::sleep(NAP);
        }
        self.mine.ended.panic = self.mine.ended.panic.take().or(panic);
        self.wait()
    }

    /// Ends the main lcore's stages at once and waits for all others to drain. The caller has stopped receiving before.
    pub(crate) fn wait(mut self) -> Finished {
        // First, because it disconnects the channels that other stages wait for.
        for stage in std::mem::take(&mut self.mine.stages) {
            self.mine.finish(stage);
        }
        let Ended { mut outcomes, panic } = std::mem::take(&mut self.mine.ended);
        let panicked = |lcore| move |message| DpdkError::Panicked { lcore, message };
        let mut first = panic.map(panicked(self.main));
        for job in std::mem::take(&mut self.jobs) {
            let lcore = job.lcore();
            match job.wait() {
                Ok(ended) => {
                    outcomes.extend(ended.outcomes);
                    first = first.or(ended.panic.map(panicked(lcore)));
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        let waiting = self.channels.iter().flat_map(Receiver::try_iter);
        let held = waiting.map(|batch| batch.packets.len() as u64).sum();
        // The last answer of an lcore may not be collected yet.
        self.handle.take_latencies();
        outcomes.push(StageOutcome { held, latency: self.handle.past(), ..StageOutcome::default() });
        Finished { outcomes, panicked: first }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop_rx();
        // Before the jobs are joined, because it disconnects the channels that other stages wait for.
        self.mine.stages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Latency;
    use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
    use rusty_fork::rusty_fork_test;
    use std::time::Instant;

    struct TestStage<S>(S, fn(&mut S) -> StageProgress, fn(S) -> u64);

    impl<S: Send> Stage for TestStage<S> {
        fn poll(&mut self) -> StageProgress {
            (self.1)(&mut self.0)
        }

        fn snapshot(&mut self, _: Option<Latency>) -> StageOutcome {
            StageOutcome::default()
        }

        fn finish(self: Box<Self>) -> StageOutcome {
            StageOutcome { held: (self.2)(self.0), ..StageOutcome::default() }
        }
    }

    fn countdown(polls: u64, works: bool) -> Box<dyn Stage> {
        let poll = |(left, works): &mut (u64, bool)| {
            let Some(fewer) = left.checked_sub(1) else { return StageProgress::Done };
            *left = fewer;
            if *works && left.is_multiple_of(2) { StageProgress::Worked } else { StageProgress::Idle }
        };
        Box::new(TestStage((polls, works), poll, |(left, _)| left))
    }

    /// Receives until it is stopped, like an rx stage. It sends nothing, but keeps its channel open.
    fn receiving(control: &Arc<StageControl>, channel: Option<Sender<()>>) -> Box<dyn Stage> {
        let poll = |(control, _): &mut (Arc<StageControl>, _)| {
            if control.is_stopping() { StageProgress::Done } else { StageProgress::Idle }
        };
        Box::new(TestStage((Arc::clone(control), channel), poll, |(_, channel)| u64::from(channel.is_some())))
    }

    /// Done when its channel is disconnected, like a tx stage.
    fn sending(channel: Receiver<()>) -> Box<dyn Stage> {
        let poll = |channel: &mut Receiver<()>| match channel.try_recv() {
            Err(TryRecvError::Disconnected) => StageProgress::Done,
            _ => StageProgress::Idle,
        };
        Box::new(TestStage(channel, poll, |_| 0))
    }

    fn dying(polls: u32, channel: Option<Sender<()>>) -> Box<dyn Stage> {
        let poll = |(left, _): &mut (u32, _)| {
            *left -= 1;
            assert!(*left > 0, "an invariant, broken on purpose");
            StageProgress::Worked
        };
        Box::new(TestStage((polls, channel), poll, |(_, channel)| {
            assert!(channel.is_some(), "an invariant at the end, broken on purpose");
            7
        }))
    }

    #[test]
    fn stages_run_until_all_are_done_and_the_house_is_kept() {
        let stages: Stages = vec![countdown(1000, true), countdown(3, true), countdown(0, true)];
        let mut kept = 0;
        let control = Arc::new(StageControl::default());
        let mut lcore = Lcore::new(stages, Arc::default(), &control);
        lcore.run(Idle::Yield, || kept += 1);
        assert_eq!((lcore.ended.outcomes.len(), lcore.ended.panic), (3, None));
        assert!(lcore.ended.outcomes.iter().all(|outcome| outcome.held == 0));
        assert_eq!((kept, control.is_stopping()), (1001 / HOUSEKEEPING_TURNS, false));
    }

    #[test]
    fn a_stage_that_panics_stops_the_others_and_leaves_what_it_had() {
        let control = Arc::new(StageControl::default());
        let (sender, receiver) = bounded(1);
        let stages: Stages =
            vec![receiving(&control, None), dying(5, Some(sender)), dying(9, None), sending(receiver)];
        let mut lcore = Lcore::new(stages, Arc::default(), &control);
        lcore.run(Idle::Yield, || ());
        // The second panicking stage also panics in `finish`, so it has no outcome.
        let held: Vec<_> = lcore.ended.outcomes.iter().map(|outcome| outcome.held).collect();
        assert_eq!((held.len(), held.iter().sum::<u64>(), control.is_stopping()), (3, 7, true));
        assert_eq!(lcore.ended.panic.as_deref(), Some("an invariant, broken on purpose"));
    }

    #[test]
    fn an_idle_lcore_sleeps_longer_and_longer_until_there_is_work() {
        let longest = Duration::from_micros(100);
        let naps: Vec<_> = (1..=9).map(|number| nap(number).min(longest).as_micros()).collect();
        assert_eq!(naps, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert!(nap(u32::MAX) > longest);
        // 200 idle turns are 136 sleeps, 126 of the longest.
        let mut lcore = Lcore::new(vec![countdown(200, false)], Arc::default(), &Arc::default());
        let start = Instant::now();
        lcore.run(Idle::Sleep(Duration::from_millis(1)), || ());
        assert!(start.elapsed() > Duration::from_millis(126));
    }

    fn built(lcores: Vec<(u32, Stages)>, control: &Arc<StageControl>) -> BuiltStages {
        BuiltStages {
            lcores,
            channels: vec![],
            handle: Handle { control: Arc::clone(control), ..Handle::default() },
        }
    }

    /// Stages on the main lcore and two others; one of them ends only after the main lcore's stage is dropped.
    fn entangled(control: &Arc<StageControl>) -> Vec<(u32, Stages)> {
        let (sender, receiver) = bounded(1);
        vec![
            (0, vec![receiving(control, Some(sender))]),
            (1, vec![sending(receiver)]),
            (3, vec![receiving(control, None)]),
        ]
    }

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 30_000)]

        #[test]
        fn a_launch_that_fails_ends_those_before_it() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let (release, busy) = bounded::<()>(0);
            let job = eal.launch(LcoreId(2), move || busy.recv().is_ok()).unwrap();
            let control = Arc::new(StageControl::default());
            let lcores = [entangled(&control), vec![(2, vec![])]].into_iter().flatten().collect();
            let refused = Running::launch(eal, built(lcores, &control), Idle::Yield).err();
            assert!(matches!(refused, Some(DpdkError::LcoreBusy { lcore: LcoreId(2), .. })), "{refused:?}");
            drop(release);
            assert!(!job.wait().unwrap());
        }

        #[test]
        fn whatever_happens_on_the_main_lcore_the_others_end() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let launch = || {
                let control = Arc::new(StageControl::default());
                Running::launch(eal, built(entangled(&control), &control), Idle::Yield).unwrap()
            };
            drop(launch());
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _running = launch();
                panic!("a broken loop");
            }));
            assert!(unwound.is_err());
            let finished = launch().run(Idle::Yield, || panic!("a broken house"));
            let message = finished.panicked.unwrap().to_string();
            assert_eq!(message, "lcore 0 panicked: a broken house");
            assert_eq!(finished.outcomes.len(), 3 + 1);
        }
    }
}
