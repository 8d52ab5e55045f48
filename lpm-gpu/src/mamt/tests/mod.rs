//! Tests of `mamt` that need its insides.

mod stores;
