//! The command line as text: options, their parsers, and the plain values that they become.
//!
//! Each command's arguments turn into the structs of the modules below (`TableSpec`, `ForwardSpec`, ..). Nothing else knows the
//! command line but the commands.
//!
//! | module | what lives there |
//! |---|---|
//! | [`args`] | the options of `run` and `replay`, and the groups that commands share |
//! | [`values`] | parsers of option values |

pub(crate) mod args;
pub(crate) mod values;
