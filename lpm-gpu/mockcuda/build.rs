//! Gives the library the name under which programs look for the driver.
//!
//! `dlopen("libcuda.so")` finds a library that is loaded already when its SONAME is that: so the mock, loaded by its own path
//! or by `LD_PRELOAD`, is the driver of the process.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
