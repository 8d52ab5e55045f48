//! Sets the library's SONAME to the driver's name. `dlopen("libcuda.so")` finds an already loaded library with that SONAME, so the
//! mock, loaded by its path or by `LD_PRELOAD`, becomes the driver of the process.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo:rerun-if-changed=build.rs");
}
