//! See `fwd_app_fuzz::TARGETS`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fwd_app_fuzz::run("config", data));
