//! Common parts of the programs `lpm-bench`, `gpu-ceilings` and `gpu-concurrent`.
//!
//! | module | contents |
//! |---|---|
//! | [`launch`] | a kernel on a GPU, timed |
//! | [`progress`] | bars on standard error |
//! | [`stats`] | median and quantiles |
//! | [`text`] | tables for a terminal |

#![forbid(unsafe_code)]

pub mod launch;
pub mod progress;
pub mod stats;
pub mod text;
