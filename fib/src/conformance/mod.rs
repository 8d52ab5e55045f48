//! The conformance suite that every engine passes, on every instruction set.
//!
//! The tests of an engine pass a closure that makes it. The suite compares it with the [`crate::oracle`] and panics with the case, the
//! generation, the key and both answers. The groups are public functions; [`crate::conformance_tests`] makes a `#[test]` of each.
//!
//! | group | checks |
//! |---|---|
//! | [`shapes`] | empty, default only, every single length, nested chains, siblings, host routes, routes beyond /64 |
//! | [`boundaries`] | first, last, one before and one after every prefix of a table |
//! | [`random_tables`] | 100 to 20,000 routes, scattered and nested |
//! | [`internet_tables`] | tables shaped like today's Internet; full size with `FWD_CONFORMANCE=full` |
//! | [`batches`] | batches of 0 to 4096 keys, several slots in flight, slots collected after a delta |
//! | [`next_hops`] | ids at the limits of 8, 16 and 24 bits, 70,000 distinct ids, ids that come and go |
//! | [`withdraw`] | withdraws of absent routes, re-announcements, withdraw all == empty |
//! | [`churn`] | hundreds of random deltas, engine == oracle after each |
//! | [`replay`] | an update stream ends in the same table as one built at once from the final routes |
//! | [`concurrent`] | lookups during deltas: every answer belongs to a generation between submit and collect |
//! | [`announces`] | the same, for deltas that announce one prefix at a time |
//! | [`withdraws`] | the same, for nested withdraws without a replacement |
//! | [`refusals`] | invalid batches and ids get a typed error, and change nothing |
//! | [`limited`] | a table over `table_bytes_max` is refused as a whole (not in [`run`]) |

mod churn;
mod concurrent;
mod contract;
mod draw;
mod limits;
mod options;
mod rig;
mod shapes;
mod tables;

pub use churn::{churn, replay, withdraw};
pub use concurrent::{announces, concurrent, withdraws};
pub use contract::{batches, refusals};
pub use limits::{limited, next_hops};
pub use options::{MakeEngine, Options};
pub use shapes::shapes;
pub use tables::{boundaries, internet_tables, random_tables};

use crate::EngineError;

/// Runs every group except [`limited`].
pub fn run(make: MakeEngine<'_>, options: Options) {
    for group in [
        shapes,
        boundaries,
        random_tables,
        internet_tables,
        batches,
        next_hops,
        withdraw,
        churn,
        replay,
        concurrent,
        announces,
        withdraws,
        refusals,
    ] {
        group(make, options);
    }
}

/// Whether this host lacks the instruction set or the device of the engine. Prints `SKIPPED` and the reason.
///
/// # Panics
/// When the environment variable `FWD_REQUIRE` (a comma-separated list such as `avx512f,gpu`) names the missing feature.
#[must_use]
pub fn skipped(make: MakeEngine<'_>) -> bool {
    let (missing, reason) = match make() {
        Err(EngineError::Isa(error @ crate::IsaError::Unavailable { isa, .. })) => {
            (isa.to_string(), error.to_string())
        }
        Err(error @ EngineError::NoDevice { device, .. }) => (device.to_lowercase(), error.to_string()),
        _ => return false,
    };
    crate::testing::skip(&missing, reason);
    true
}

/// Makes a `#[test]` of each group, for the engine that the closure makes. A word before it is a method of [`Options`].
///
/// ```ignore
/// fib::conformance_tests!(oracle, || Ok(Box::new(OracleEngine::new(&EngineOptions::default()))));
/// fib::conformance_tests!(sail, ipv4_only, || sail_l::make(&EngineOptions::default()));
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $make:expr) => {
        $crate::conformance_tests!(@module $module, $make, $crate::conformance::Options::from_env());
    };
    ($module:ident, $kind:ident, $make:expr) => {
        $crate::conformance_tests!(@module $module, $make, $crate::conformance::Options::from_env().$kind());
    };
    (@module $module:ident, $make:expr, $options:expr) => {
        mod $module {
            #[allow(unused_imports, reason = "the closure may name nothing of the outer module")]
            use super::*;

            fn make() -> Result<Box<dyn $crate::EngineWriter>, $crate::EngineError> {
                let make: fn() -> Result<Box<dyn $crate::EngineWriter>, $crate::EngineError> = $make;
                make()
            }

            fn options() -> $crate::conformance::Options {
                $options
            }

            $crate::conformance_tests!(@groups shapes boundaries random_tables internet_tables batches
                next_hops withdraw churn replay concurrent announces withdraws refusals);
        }
    };
    (@groups $($group:ident)*) => {
        $(
            #[test]
            fn $group() {
                if !$crate::conformance::skipped(&make) {
                    $crate::conformance::$group(&make, options());
                }
            }
        )*
    };
}
