//! The command line: options, parsers of their values, and the conversion to plain values.
//!
//! Each command's arguments become structs of the modules that use them (`TableSpec`, `ForwardSpec`, ..). Only the commands use it.

pub(crate) mod args;
mod choices;
pub(crate) mod config;
pub(crate) mod search;
pub(crate) mod sources;
pub(crate) mod traffic;
pub(crate) mod values;
pub(crate) mod vrfs;
