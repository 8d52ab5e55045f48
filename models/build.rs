//! Sets `cfg(model)`, which marks this crate as compiling protocols for a model checker. It leaves out the unit tests
//! of these files, which use real threads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=model");
}
