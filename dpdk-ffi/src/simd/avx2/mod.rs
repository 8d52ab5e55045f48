//! The passes that AVX2 makes faster.

mod parse;
mod rewrite;

pub(super) use parse::parse;
pub(super) use rewrite::rewrite;
