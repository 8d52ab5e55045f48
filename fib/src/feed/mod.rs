//! Route feeds: files in, routes out.
//!
//! ```text
//! file -> FeedSource (plain, gzip, bzip2, xz, zstd) -> text | json | table_dump -> Collected -> Rib + NextHopTable
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`open`], [`FeedSource`] | a file's bytes, decompressed; guesses the format from the content |
//! | `text` | route text: `PREFIX ID`, iproute2's dialect, l3fwd's `R` lines, neighbours; [`parse_route`], [`parse_neighbour`] for one |
//! | `json` | `ip -j route` and `ip -j neigh` |
//! | `mrt`, `table_dump` | MRT records, and the tables in TABLE_DUMP and TABLE_DUMP_V2 records |
//! | [`updates`], [`Updates`] | update streams: MRT BGP4MP, text |
//! | [`write()`] | writes a table as text, iproute2, l3fwd rules or JSON |
//! | `collect` | collects the routes of all files, then moves them to the RIB at once |
//!
//! [`load`] is all or nothing: a wrong line in the last of several files leaves the RIB unchanged.

mod collect;
mod error;
mod format;
mod json;
mod lines;
mod loaded;
mod mrt;
mod source;
mod table_dump;
mod text;
mod updates;
mod write;

pub use collect::Hop;
pub use error::{FeedError, FeedErrorKind, LineError, RecordError};
pub use format::{Compression, Format, UnknownFormat};
pub use loaded::{Loaded, OnProgress};
pub use mrt::Truncated;
pub use source::{FeedSource, open};
pub use text::{parse_neighbour, parse_route};
pub use updates::{Action, Update, Updates, updates};
pub use write::{RouteWords, WriteError, WriteFormat, WriteOptions, write};

use crate::{NextHopTable, Rib};
use collect::Collected;
use lines::Lines;
use loaded::LoadProgress;
use mrt::Records;
use std::path::Path;

/// Options of [`load`].
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// The format of all files; `None` guesses the format of each file from its content.
    pub format: Option<Format>,
    /// Called periodically while loading, and once at the end.
    pub on_progress: Option<OnProgress<'a>>,
}

/// Loads the tables of all files, in order, into `rib` and `hops`. The last route of a prefix wins; within one file in iproute2's form the
/// lowest metric, then the first, as in the kernel. Bare ids of all files are reserved first, so files of ids combine with files of gateways.
///
/// # Errors
/// The first [`FeedError`]; `rib` and `hops` are unchanged then. A cut MRT file is not an error ([`Loaded::truncated`]), cut compressed text is.
pub fn load<P: AsRef<Path>>(
    paths: &[P],
    rib: &mut Rib,
    hops: &mut NextHopTable,
    options: LoadOptions<'_>,
) -> Result<Vec<Loaded>, FeedError> {
    // Open all files first, so that a wrong name is reported before any file is read.
    let mut sources = Vec::with_capacity(paths.len());
    for path in paths {
        sources.push(open(path.as_ref())?);
    }
    let is_known = sources.iter().all(|source| source.bytes_total() > 0);
    let total_bytes = if is_known { sources.iter().map(FeedSource::bytes_total).sum() } else { 0 };
    let mut progress =
        LoadProgress { hook: options.on_progress, before_bytes: 0, last_bytes: 0, total_bytes };
    let mut collected = Collected::default();
    let mut loaded = Vec::with_capacity(paths.len());
    for source in sources {
        loaded.push(load_one(source, options.format, &mut collected, &mut progress)?);
    }
    collected.commit(rib, hops, &mut loaded)?;
    Ok(loaded)
}

fn load_one(
    mut source: FeedSource,
    format: Option<Format>,
    collected: &mut Collected,
    progress: &mut LoadProgress<'_>,
) -> Result<Loaded, FeedError> {
    // With a given format, unrecognised content is accepted, but a read error is still returned.
    let guessed = source.sniff();
    let format = match (format, guessed) {
        (Some(format), Ok(_) | Err(FeedError { kind: FeedErrorKind::UnknownFormat, .. })) => format,
        (_, guessed) => guessed?,
    };
    let neighbours_before = collected.neighbours();
    let mut outcome = table_dump::DumpOutcome::default();
    let mut with_tos = 0;
    let source = match format {
        Format::Text => {
            let mut lines = Lines::new(source);
            text::read(&mut lines, collected, progress)?;
            lines.source
        }
        Format::Json => {
            with_tos = json::read(&mut source, collected, progress)?;
            source
        }
        Format::Mrt => {
            let mut records = Records::new(source);
            outcome = table_dump::read(&mut records, collected, progress)?;
            records.source
        }
    };
    collected.end_file();
    progress.tick(&source);
    progress.before_bytes += source.bytes_done();
    Ok(Loaded {
        path: source.path().to_owned(),
        format,
        compression: source.compression(),
        routes_v4: 0,
        routes_v6: 0,
        neighbours: (collected.neighbours() - neighbours_before) as u64,
        duplicates: 0,
        unusable: outcome.unusable,
        skipped_records: outcome.skipped_records,
        with_tos,
        bytes: source.offset_bytes(),
        truncated: outcome.truncated,
    })
}
