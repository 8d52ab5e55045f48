//! Runs a model under many schedules, or shows that it fails when a fault is injected.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// Threads that sleep are not woken.
    NobodyWakes,
    /// A compare-and-exchange is a load and a store.
    ExchangeInTwoSteps,
    /// An engine has a delta only some time after it reported success.
    LateTable,
    /// Channels have three places, regardless of their capacity.
    NarrowChannels,
}

thread_local! {
    // All threads of a model run on one thread.
    static FAULT: Cell<Option<InjectedFault>> = const { Cell::new(None) };
}

pub(crate) fn is(fault: InjectedFault) -> bool {
    FAULT.get() == Some(fault)
}

const SEED: u64 = 20_150_708;

/// The most steps of a schedule, which ends a model in which a thread waits forever.
const STEPS_MAX: usize = 20_000;

fn run(model: fn(), schedules: usize) {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    if std::env::var("FWD_MODELS").is_ok_and(|bounds| bounds == "full") && FAULT.get().is_none() {
        Runner::new(RandomScheduler::new(schedules * 100), config.clone()).run(model);
        // Few changes of priority, so that one thread is held back for long.
        Runner::new(PctScheduler::new(3, schedules * 10), config).run(model);
    } else {
        Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config).run(model);
    }
}

/// Checks that `model` holds under `schedules` schedules, or a hundred times as many with `FWD_MODELS=full`.
pub(crate) fn check(model: fn(), schedules: usize) {
    FAULT.set(None);
    run(model, schedules);
}

/// Checks that `model` fails under one of `schedules` schedules when `fault` is injected, with one of `messages`.
pub(crate) fn check_fails(model: fn(), fault: InjectedFault, schedules: usize, messages: &[&str]) {
    FAULT.set(Some(fault));
    let result = catch_unwind(AssertUnwindSafe(|| run(model, schedules)));
    FAULT.set(None);
    let panic = result.expect_err("something is broken, and nothing fails");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
    assert!(messages.iter().any(|message| text.contains(message)), "{fault:?}: another failure: {text}");
}
