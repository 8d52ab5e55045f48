//! Sets the library's SONAME to the name under which programs look for the driver.
//!
//! `dlopen("libcuda.so")` finds an already loaded library with that SONAME. So the mock, loaded by its own path or by
//! `LD_PRELOAD`, is the driver of the process.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
