//! The command line from outside: the built program, its output, its exit codes. One binary, so that it links once.
//!
//! | module | tests |
//! |---|---|
//! | `lookup` | answers of every engine, and input and output of `lookup` |
//! | `full_tables` | the same on full-size tables, if `FWD_DATA` names their folder |
//! | `fib` | `fib stat`, `convert` and `generate` |
//! | `check` | `check` on this host |
//! | `gpu` | the GPU engines over the mock driver, and `--fallback` |
//! | `config` | `config` and configuration files |
//! | `ctl` | `ctl` without a forwarder, and `completions` |
//! | `errors`, `help` | messages, exit codes, `--help` |
//! | `mrt` | helper: a small MRT file |
//! | `trie` | helper: a longest-prefix match that shares no code with the program, to compare answers with |
//! | `support` | helper: runs the program, manages scratch files |

#[cfg(test)]
mod check;
#[cfg(test)]
mod config;
#[cfg(test)]
mod ctl;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod fib;
#[cfg(test)]
mod full_tables;
#[cfg(test)]
mod gpu;
#[cfg(test)]
mod help;
#[cfg(test)]
mod lookup;
#[cfg(test)]
mod mrt;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trie;
