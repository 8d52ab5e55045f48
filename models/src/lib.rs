//! Models of the protocols between threads: the production files themselves, compiled over a model checker's types.
//!
//! This library is empty; its tests hold everything. Each test target has its own module `sync` in place of the
//! production crates' module, and includes their files by `#[path]`. The same source files are compiled over `std` in
//! production and over a checker here, and nothing is built twice.
