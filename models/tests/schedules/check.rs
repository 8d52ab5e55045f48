//! Runs a model under many schedules, or shows that it fails when something is broken on purpose.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Threads that sleep are not woken.
    NobodyWakes,
    /// A compare-and-exchange is a look and a store.
    ExchangeInTwoSteps,
    /// An engine has a delta a while after it said so.
    LateTable,
    /// Channels have three places, whatever was asked for.
    NarrowChannels,
}

thread_local! {
    // All threads of a model run on one thread.
    static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
}

/// Whether `fault` is there now.
pub(crate) fn is(fault: Fault) -> bool {
    FAULT.get() == Some(fault)
}

/// Where the usual schedules come from.
const SEED: u64 = 20_150_708;

/// Steps of a schedule, at most: a model in which somebody waits for ever is over then.
const STEPS_MAX: usize = 20_000;

/// Draws `schedules` schedules of `model`.
fn run(model: fn(), schedules: usize) {
    let mut config = Config::new();
    config.silence_warnings = true;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    if std::env::var("FWD_MODELS").is_ok_and(|bounds| bounds == "full") && FAULT.get().is_none() {
        Runner::new(RandomScheduler::new(schedules * 100), config.clone()).run(model);
        // Few changes of priority: one thread is kept back for long.
        Runner::new(PctScheduler::new(3, schedules * 10), config).run(model);
    } else {
        Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config).run(model);
    }
}

/// `model` holds under `schedules` schedules, a hundred times as many if all are asked for.
pub(crate) fn check(model: fn(), schedules: usize) {
    FAULT.set(None);
    run(model, schedules);
}

/// `model` fails under one of `schedules` schedules when `fault` is there; with a message like one of `messages`.
pub(crate) fn check_fails(model: fn(), fault: Fault, schedules: usize, messages: &[&str]) {
    FAULT.set(Some(fault));
    let result = catch_unwind(AssertUnwindSafe(|| run(model, schedules)));
    FAULT.set(None);
    let panic = result.expect_err("something is broken, and nothing fails");
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
    assert!(messages.iter().any(|message| text.contains(message)), "{fault:?}: another failure: {text}");
}
