//! Seeded tables and update streams that resemble today's Internet, for measurements without a real table.
//!
//! [`table`] makes routes with the prefix lengths of a full table of January 2024, more-specifics in runs below covering allocations, next
//! hops often equal to the parent's. [`Updates`] makes a stream of changes. The same spec gives the same routes on every host.
//!
//! | module | contents |
//! |---|---|
//! | `lengths` | prefix lengths of a full table |
//! | `space` | the allocated address space, and the shape of the routes in it |
//! | `spec`, `table` | parameters of a table; generates it |
//! | `updates` | generates an update stream |
//! | `variation` | further FIBs that resemble a table |

mod lengths;
mod space;
mod spec;
mod table;
mod updates;
mod variation;

pub use spec::{DEFAULT_NEXT_HOPS, DEFAULT_ROUTES_V4, DEFAULT_ROUTES_V6, GenerateError, TableSpec};
pub use table::table;
pub use updates::Updates;
pub use variation::variation;
