//! Numbers of the engines of a pair.

/// The engine that is called first; the primary of a fallback.
pub const FIRST: usize = 0;
/// The other engine.
pub const SECOND: usize = 1;
/// The number of engines in a pair.
pub const HALVES: usize = 2;
/// The value of [`Service::mask`](super::Service::mask) while both are in service.
pub const BOTH: u8 = 0b11;
