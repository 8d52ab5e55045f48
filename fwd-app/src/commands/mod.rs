//! The commands that forward nothing: `lookup`, `fib`, `check`.

pub(crate) mod check;
pub(crate) mod fib;
pub(crate) mod lookup;
pub(crate) mod output;
