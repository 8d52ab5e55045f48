//! Longest-prefix match on an NVIDIA GPU: GAMT, with GALE and SAIL_L beside it.

pub mod host;
