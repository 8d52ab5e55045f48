//! The command line: options, the parsers of their values, and the plain values that they are converted to.
//!
//! Each command's arguments are converted to the structs of the modules below (`TableSpec`, `ForwardSpec`, ..). Only the commands
//! use this module.
//!
//! | module | what lives there |
//! |---|---|
//! | [`args`] | the options of `run` and `replay`, and the groups that commands share |
//! | [`config`] | options from the environment and from a file; the result as TOML |
//! | [`search`] | the options of a search for a rate |
//! | [`sources`] | in which order the sources of routes are preferred |
//! | [`traffic`] | the options of `replay` for packets that are made or changed |
//! | [`vrfs`] | the options of VRFs |
//! | [`values`] | parsers of option values |

pub(crate) mod args;
pub(crate) mod config;
pub(crate) mod search;
pub(crate) mod sources;
pub(crate) mod traffic;
pub(crate) mod values;
pub(crate) mod vrfs;
