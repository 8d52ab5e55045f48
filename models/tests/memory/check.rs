//! Runs a model, then runs it with each ordering and fence of the production code weakened in turn.

use crate::sync::atomic::begin;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Load,
    Store,
    Exchange,
    Fence,
}

/// A place in production code with an ordering or a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderingSite {
    what: What,
    file: &'static str,
    line: u32,
    column: u32,
}

thread_local! {
    // loom runs all threads of a model on one thread.
    static SEEN: RefCell<BTreeSet<OrderingSite>> = const { RefCell::new(BTreeSet::new()) };
    static WEAK: Cell<Option<OrderingSite>> = const { Cell::new(None) };
}

/// Whether the caller is the place that is being weakened. Places in the models themselves never are.
#[track_caller]
pub(crate) fn is_weak(what: What) -> bool {
    let at = Location::caller();
    if !at.file().contains("/src/") {
        return false;
    }
    let site = OrderingSite { what, file: at.file(), line: at.line(), column: at.column() };
    SEEN.with_borrow_mut(|seen| seen.insert(site));
    WEAK.get() == Some(site)
}

impl OrderingSite {
    fn text(&self) -> String {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = std::fs::read_to_string(top.join(self.file)).unwrap();
        text.lines().nth(self.line as usize - 1).unwrap_or_default().trim().to_owned()
    }
}

fn run(model: fn()) -> Result<(), String> {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    if std::env::var("FWD_MODELS").is_ok_and(|bounds| bounds == "full") {
        builder.preemption_bound = None;
    } else {
        builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS));
    }
    QUIET.with(|quiet| quiet());
    catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            begin();
            model();
        });
    }))
    .map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
    })
}

thread_local! {
    /// Installed once. Suppresses the messages of expected failures, of which there are hundreds; [`check`] reports them.
    static QUIET: fn() = || {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if WEAK.get().is_none() {
                    usual(info);
                }
            }));
        });
    };
}

/// Preemptions per execution, unless `FWD_MODELS=full`: loom's authors found two or three enough for most defects.
const PREEMPTIONS: usize = 2;

/// Checks that `model` holds, and fails when any ordering or fence of the production code is weakened, except `spare`: source line, reason.
pub(crate) fn check(model: fn(), spare: &[(&str, &str)]) {
    WEAK.set(None);
    SEEN.take();
    let start = std::time::Instant::now();
    if let Err(error) = run(model) {
        panic!("the model does not hold: {error}");
    }
    eprintln!("holds: {:?}", start.elapsed());
    let sites = SEEN.take();
    assert!(!sites.is_empty(), "the production code has no ordering or fence");
    let mut unused: BTreeSet<&str> = spare.iter().map(|(text, _)| *text).collect();
    let mut wrong = Vec::new();
    for site in sites {
        WEAK.set(Some(site));
        let result = run(model);
        WEAK.set(None);
        let text = site.text();
        let excuse = spare.iter().find(|(part, _)| text.contains(part));
        let name = format!("{}:{} {:?} `{text}`", site.file, site.line, site.what);
        match (&result, excuse) {
            (Err(error), _) if error.contains("maximum number of branches") => {
                wrong.push(format!("{name}: {error}"))
            }
            (Err(error), None) => eprintln!("needed: {name}: {}", error.lines().next().unwrap_or_default()),
            (Ok(()), Some((part, reason))) => {
                unused.remove(part);
                eprintln!("spare: {name}: {reason}");
            }
            (Err(_), Some((part, _))) => drop(unused.remove(part)),
            (Ok(()), None) => wrong.push(format!("{name}: weakened, and nothing fails")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "no such places: {unused:?}");
}

/// Checks that `model` holds. Its production code has no ordering or fence to weaken.
pub(crate) fn holds(model: fn()) {
    WEAK.set(None);
    SEEN.take();
    run(model).unwrap_or_else(|error| panic!("the model does not hold: {error}"));
    assert!(SEEN.take().is_empty(), "there is an ordering: `check` weakens it");
}

pub(crate) fn check_fails(model: fn()) {
    WEAK.set(None);
    let error = run(model).expect_err("a step was left out, and nothing fails");
    assert!(!error.contains("maximum number of branches"), "{error}");
    println!("{}", error.lines().next().unwrap_or_default());
}
