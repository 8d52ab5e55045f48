//! Progress and result of a load.

use super::format::{Compression, Format};
use super::mrt::Truncated;
use super::source::FeedSource;
use std::path::PathBuf;

/// Called with the bytes read so far and their total over all files, as stored (compressed). A total of 0 is unknown (a pipe).
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// The contents of a file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// How it is compressed.
    pub compression: Compression,
    /// IPv4 routes read, including duplicates.
    pub routes_v4: u64,
    /// IPv6 routes read, including duplicates.
    pub routes_v6: u64,
    /// Neighbours read.
    pub neighbours: u64,
    /// Routes that replaced an earlier one: from this file, from an earlier file, or in the RIB before loading.
    pub duplicates: u64,
    /// Prefixes of an MRT table left out because none of their entries has a usable next hop.
    pub unusable: u64,
    /// MRT records left out because of their type (multicast, updates, ..).
    pub skipped_records: u64,
    /// JSON routes left out because of their TOS.
    pub with_tos: u64,
    /// The content's length, after decompression.
    pub bytes: u64,
    /// Where an MRT file was cut short. The routes before that point are loaded; the caller should warn.
    pub truncated: Option<Truncated>,
}

impl Loaded {
    /// Routes read, of both families, including duplicates.
    #[must_use]
    pub const fn routes(&self) -> u64 {
        self.routes_v4 + self.routes_v6
    }
}

pub(super) struct LoadProgress<'a> {
    pub(super) hook: Option<OnProgress<'a>>,
    pub(super) before_bytes: u64,
    pub(super) last_bytes: u64,
    pub(super) total_bytes: u64,
}

impl LoadProgress<'_> {
    pub(super) fn tick(&mut self, source: &FeedSource) {
        if let Some(hook) = &mut self.hook {
            let done_bytes = self.before_bytes + source.bytes_done();
            if done_bytes != self.last_bytes {
                self.last_bytes = done_bytes;
                hook(done_bytes, self.total_bytes);
            }
        }
    }
}
