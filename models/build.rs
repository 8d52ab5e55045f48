//! Marks this crate, and no other, as one that compiles protocols for a model checker: their own tests, of real threads, stay out.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=model");
}
