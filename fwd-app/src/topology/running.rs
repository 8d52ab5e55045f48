//! Runs lists of stages on lcores until all are done, and collects what they counted.
//!
//! A panic in a stage is a broken invariant. Its lcore catches it, stops receiving everywhere ([`Control::stop_rx`]), takes what the
//! stage has counted and still holds, and goes on with its other stages. A neighbour in a pipeline that waits for batches sees its
//! channel disconnect; one that sends leaves them in the channel. So every lcore drains and ends, and the report tells the panic.
//!
//! [`Running`] stops and joins when it is dropped: neither an error nor a panic of the main lcore leaves stages running under an EAL
//! that ends.

use super::lcores::Built;
use super::pipeline::Travelling;
use super::{Control, Outcome, Progress, Stage};
use crate::datapath::lookup::EngineFault;
use crate::datapath::{Counters, Published};
use crossbeam_channel::Receiver;
use dpdk_ffi::{Burst, DpdkError, Eal, LcoreId, LcoreJob};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Turns between two looks at signals and clocks, about 10 to 500 us.
const HOUSEKEEPING_TURNS: u32 = 256;
/// How long the main lcore sleeps between two looks at signals and clocks, when it has nothing else to do.
const NAP: Duration = Duration::from_millis(5);

/// The stages of one lcore.
pub(crate) type Stages = Vec<Box<dyn Stage>>;

/// What an lcore does when no stage has anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Polls again at once: the lcore has a CPU of its own.
    Spin,
    /// Lets other threads run: lcores share CPUs.
    Yield,
}

impl Idle {
    /// Waits a moment.
    #[inline]
    pub(crate) fn wait(self) {
        match self {
            Self::Spin => dpdk_ffi::pause(),
            Self::Yield => std::thread::yield_now(),
        }
    }
}

/// What the stages of one lcore left behind.
#[derive(Debug, Default)]
struct Ended {
    outcomes: Vec<Outcome>,
    /// The message of the first panic.
    panic: Option<String>,
}

/// The stages of one lcore, polled round robin; those that are done leave the list.
struct Lcore {
    stages: Stages,
    /// The stage that is being polled.
    at: usize,
    ended: Ended,
    control: Arc<Control>,
}

impl Lcore {
    fn new(stages: Stages, control: &Arc<Control>) -> Self {
        Self { stages, at: 0, ended: Ended::default(), control: Arc::clone(control) }
    }

    /// Polls until all stages are done, calling `housekeeping` every [`HOUSEKEEPING_TURNS`] turns.
    fn run(&mut self, idle: Idle, mut housekeeping: impl FnMut()) {
        let mut turn = 0_u32;
        while !self.stages.is_empty() {
            let worked = self.poll();
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(HOUSEKEEPING_TURNS) {
                housekeeping();
            }
            if !worked {
                idle.wait();
            }
        }
    }

    /// Polls each stage once; answers whether any worked. Does not unwind.
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
        self.at = 0;
        while let Some(stage) = self.stages.get_mut(self.at) {
            match stage.poll() {
                Progress::Worked => worked = true,
                Progress::Idle => {}
                Progress::Done => {
                    let done = self.stages.remove(self.at);
                    self.finish(done);
                    continue;
                }
            }
            self.at += 1;
        }
        worked
    }

    /// Takes what a stage counted. One that panicked is asked too: its counters are written once a batch, and are all there is.
    fn finish(&mut self, stage: Box<dyn Stage>) {
        match catch_unwind(AssertUnwindSafe(|| stage.finish())) {
            Ok(outcome) => self.ended.outcomes.push(outcome),
            Err(panic) => self.note(panic.as_ref()),
        }
    }

    /// Ends the others too: nothing more is received.
    #[cold]
    fn note(&mut self, panic: &(dyn Any + Send)) {
        self.control.stop_rx();
        self.ended.panic.get_or_insert_with(|| dpdk_ffi::panic_message(panic));
    }
}

/// What all stages left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// By stage, and one for the channels between them.
    pub(crate) outcomes: Vec<Outcome>,
    /// The first [`DpdkError::Panicked`] there was, the main lcore's before others.
    pub(crate) panicked: Option<DpdkError>,
}

/// What other threads see of running stages, and how they stop them. The default one has no stages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handle {
    control: Arc<Control>,
    published: Arc<[Arc<Published>]>,
    fault: Arc<EngineFault>,
}

impl Handle {
    /// Over what the stages are stopped by, where they publish their counters, and where they note an engine's error.
    pub(crate) fn new(
        control: Arc<Control>,
        published: Vec<Arc<Published>>,
        fault: Arc<EngineFault>,
    ) -> Self {
        Self { control, published: published.into(), fault }
    }

    /// Nothing more is received from now on; what has been is drained.
    pub(crate) fn stop_rx(&self) {
        self.control.stop_rx();
    }

    /// Whether nothing more is to be received: somebody said so, or a stage panicked.
    pub(crate) fn is_stopping(&self) -> bool {
        self.control.is_stopping()
    }

    /// The counters of all stages now.
    pub(crate) fn counters(&self) -> Counters {
        let mut all = Counters::default();
        for published in &*self.published {
            all.merge(&published.read());
        }
        all
    }

    /// Errors of the engine when packets were looked up.
    pub(crate) fn fault(&self) -> &Arc<EngineFault> {
        &self.fault
    }
}

/// Stages on their lcores. Dropping stops all of them and waits for their end.
pub(crate) struct Running {
    main: LcoreId,
    /// The main lcore's.
    mine: Lcore,
    jobs: Vec<LcoreJob<Ended>>,
    /// Kept to the end: what was sent to a stage that panicked waits here to be counted.
    channels: Vec<Receiver<Travelling<Burst>>>,
    handle: Handle,
}

impl Running {
    /// Starts the stages of every lcore but the main one, whose stages wait for [`Self::poll`] or [`Self::run`].
    ///
    /// # Errors
    /// [`DpdkError`] when an lcore is not free; those that were started have ended then.
    pub(crate) fn launch(eal: &Eal, built: Built, idle: Idle) -> Result<Self, DpdkError> {
        let Built { lcores, channels, handle } = built;
        let main = eal.main_lcore();
        let mine = Lcore::new(Stages::new(), &handle.control);
        let mut running = Self { main, mine, jobs: Vec::with_capacity(lcores.len()), channels, handle };
        for (lcore, stages) in lcores {
            if LcoreId(lcore) == main {
                running.mine.stages.extend(stages);
                continue;
            }
            let mut theirs = Lcore::new(stages, &running.handle.control);
            let work = move || {
                theirs.run(idle, || ());
                theirs.ended
            };
            running.jobs.push(eal.launch(LcoreId(lcore), work)?);
        }
        Ok(running)
    }

    /// What other threads see of the stages.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Polls each stage of the main lcore once; answers whether any worked.
    pub(crate) fn poll(&mut self) -> bool {
        self.mine.poll()
    }

    /// Whether every stage has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.mine.stages.is_empty() && self.jobs.iter().all(LcoreJob::is_finished)
    }

    /// Runs the main lcore's stages, then waits for the others, calling `housekeeping` now and then. A panic there ends the stages
    /// as one of theirs does; `housekeeping` is not called from then on.
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

    /// Ends the main lcore's stages where they are and waits for all others to drain; who calls this has told them to stop.
    pub(crate) fn wait(mut self) -> Finished {
        // First: channels disconnect, which others wait for.
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
        outcomes.push(Outcome { held, ..Outcome::default() });
        Finished { outcomes, panicked: first }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop_rx();
        // Before the jobs are joined: channels disconnect, which others wait for.
        self.mine.stages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
    use rusty_fork::rusty_fork_test;

    /// Done after so many polls.
    struct Countdown(u64);

    impl Stage for Countdown {
        fn poll(&mut self) -> Progress {
            match self.0 {
                0 => Progress::Done,
                _ => {
                    self.0 -= 1;
                    if self.0.is_multiple_of(2) { Progress::Worked } else { Progress::Idle }
                }
            }
        }

        fn finish(self: Box<Self>) -> Outcome {
            Outcome { held: self.0, ..Outcome::default() }
        }
    }

    /// Receives until it is stopped, as an rx stage does; sends nothing, but keeps its channel open.
    struct Receiving(Arc<Control>, Option<Sender<()>>);

    impl Stage for Receiving {
        fn poll(&mut self) -> Progress {
            if self.0.is_stopping() { Progress::Done } else { Progress::Idle }
        }

        fn finish(self: Box<Self>) -> Outcome {
            Outcome { held: u64::from(self.1.is_some()), ..Outcome::default() }
        }
    }

    /// Done when the other end of its channel is gone, as a tx stage is.
    struct Sending(Receiver<()>);

    impl Stage for Sending {
        fn poll(&mut self) -> Progress {
            match self.0.try_recv() {
                Err(TryRecvError::Disconnected) => Progress::Done,
                _ => Progress::Idle,
            }
        }

        fn finish(self: Box<Self>) -> Outcome {
            Outcome::default()
        }
    }

    /// Breaks an invariant at the poll of that number; holds a channel open and seven packets.
    struct Dying(u32, Option<Sender<()>>);

    impl Stage for Dying {
        fn poll(&mut self) -> Progress {
            self.0 -= 1;
            assert!(self.0 > 0, "an invariant, broken on purpose");
            Progress::Worked
        }

        fn finish(self: Box<Self>) -> Outcome {
            assert!(self.1.is_some(), "an invariant at the end, broken on purpose");
            Outcome { held: 7, ..Outcome::default() }
        }
    }

    #[test]
    fn stages_run_until_all_are_done_and_the_house_is_kept() {
        let stages: Stages = vec![Box::new(Countdown(1000)), Box::new(Countdown(3)), Box::new(Countdown(0))];
        let mut kept = 0;
        let control = Arc::new(Control::default());
        let mut lcore = Lcore::new(stages, &control);
        lcore.run(Idle::Yield, || kept += 1);
        assert_eq!((lcore.ended.outcomes.len(), lcore.ended.panic), (3, None));
        assert!(lcore.ended.outcomes.iter().all(|outcome| outcome.held == 0));
        assert_eq!((kept, control.is_stopping()), (1001 / HOUSEKEEPING_TURNS, false));
    }

    #[test]
    fn a_stage_that_panics_stops_the_others_and_leaves_what_it_had() {
        let control = Arc::new(Control::default());
        let (sender, receiver) = bounded(1);
        let stages: Stages = vec![
            Box::new(Receiving(Arc::clone(&control), None)),
            Box::new(Dying(5, Some(sender))),
            Box::new(Dying(9, None)),
            Box::new(Sending(receiver)),
        ];
        let mut lcore = Lcore::new(stages, &control);
        lcore.run(Idle::Yield, || ());
        // The second to die has nothing to tell.
        let held: Vec<_> = lcore.ended.outcomes.iter().map(|outcome| outcome.held).collect();
        assert_eq!((held.len(), held.iter().sum::<u64>(), control.is_stopping()), (3, 7, true));
        assert_eq!(lcore.ended.panic.as_deref(), Some("an invariant, broken on purpose"));
    }

    /// Ready to run, without channels between them.
    fn built(lcores: Vec<(u32, Stages)>, control: &Arc<Control>) -> Built {
        Built { lcores, channels: vec![], handle: Handle::new(Arc::clone(control), vec![], Arc::default()) }
    }

    /// Stages on the main lcore and two others, each of which waits for another to stop.
    fn entangled(control: &Arc<Control>) -> Vec<(u32, Stages)> {
        let (sender, receiver) = bounded(1);
        vec![
            (0, vec![Box::new(Receiving(Arc::clone(control), Some(sender)))]),
            (1, vec![Box::new(Sending(receiver))]),
            (3, vec![Box::new(Receiving(Arc::clone(control), None))]),
        ]
    }

    rusty_fork_test! {
        #![rusty_fork(timeout_ms = 30_000)]

        #[test]
        fn a_launch_that_fails_ends_those_before_it() {
            let Some(eal) = dpdk_ffi::testing::eal() else { return };
            let (release, busy) = bounded::<()>(0);
            let job = eal.launch(LcoreId(2), move || busy.recv().is_ok()).unwrap();
            let control = Arc::new(Control::default());
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
                let control = Arc::new(Control::default());
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
