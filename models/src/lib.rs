//! Models of the protocols between threads: the production files themselves, compiled over a model checker's types.
//! Each test target has a module `sync` that replaces the production crates' module, and includes their files by `#[path]`.
