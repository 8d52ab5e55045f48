//! Sets `cfg(model)`, which marks this crate as compiling protocols for a model checker. It leaves out those files' own
//! tests, which use real threads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=model");
}
