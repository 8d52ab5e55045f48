//! Models of the protocols between threads: the production files themselves, compiled over the types of a model checker.
//!
//! This library is empty; everything is in its tests. Each test target has a module `sync` of its own in the place of the one that
//! the production crates have, and takes their files in by `#[path]`. So there is no second build of anything: production code is
//! compiled over `std`, here over a checker, from one text.
