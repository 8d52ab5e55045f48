//! Destinations of results: stdout, or a file that is replaced atomically.

use anyhow::Context as _;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Version of all JSON outputs. It changes when a key is removed or changes its meaning, not when one is added.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Serialize)]
pub(crate) struct JsonDocument<'a, T> {
    schema: u32,
    kind: &'static str,
    #[serde(flatten)]
    value: &'a T,
}

impl<'a, T: Serialize> JsonDocument<'a, T> {
    /// `value` must serialise to an object.
    pub(crate) fn new(kind: &'static str, value: &'a T) -> Self {
        Self { schema: SCHEMA, kind, value }
    }
}

/// Runs `write` on stdout, or on a file that replaces `path` ([`fib::output::write_whole`]). A reader that closes stdout early is not an
/// error.
///
/// # Errors
/// The error of `write`, or an I/O error with the path.
pub(crate) fn write_to(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(path) = path else {
        let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
        return match write(&mut out).and_then(|()| Ok(out.flush()?)) {
            Err(error) if is_broken_pipe(&error) => Ok(()),
            other => other.context("cannot write to stdout"),
        };
    };
    fib::output::write_whole(path, write).with_context(|| format!("cannot write {}", path.display()))
}

/// Whether the reader of the output has closed it (`| head`).
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is))
}
