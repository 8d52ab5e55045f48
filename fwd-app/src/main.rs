//! The program `fwd-app`; all its code is in the library of the same name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fwd_app::main()
}
