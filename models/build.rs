//! Sets `cfg(model)`, which leaves out the unit tests of the files that this crate compiles for a model checker: they use real threads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=model");
}
