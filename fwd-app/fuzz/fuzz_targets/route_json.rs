//! See `fwd_app_fuzz::TARGETS`.

#![no_main]

libfuzzer_sys::fuzz_target!(init: fwd_app_fuzz::seeds::write("route_json"), |data: &[u8]| fwd_app_fuzz::run("route_json", data));
