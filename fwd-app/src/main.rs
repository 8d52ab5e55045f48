//! The program `fwd-app`; the library of the same name is all of it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fwd_app::main()
}
