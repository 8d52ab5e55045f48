//! Raw bindings: what bindgen generates from libdpdk's headers and our shim. Nothing here leaves the crate.

#![allow(
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unreachable_pub,
    missing_docs,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    clippy::ptr_as_ptr,
    clippy::cast_ptr_alignment,
    clippy::too_many_arguments,
    clippy::cast_possible_truncation,
    reason = "written by bindgen at build time; which of these fire depends on the DPDK installed"
)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
