//! The command line from outside: the built program, its output, its exit codes.
//!
//! One binary for all of it, so that it links once. `trie` is an independent longest-prefix match that the answers are compared
//! with; it shares no code with the program.

#[cfg(test)]
mod check;
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
