//! MRT records (RFC 6396), one by one, and where the file is cut short.
//!
//! The library reads the records. This file checks each header first, to distinguish garbage from a file cut short: when a header
//! is valid but the end of its record is missing, the file was cut short, and the records before are kept.

use super::format::is_mrt_type;
use super::{FeedError, FeedErrorKind, FeedSource, RecordError};
use bgpkit_parser::ParserError;
use bgpkit_parser::parser::{RawMrtRecord, chunk_mrt_record};
use std::fmt;
use std::io;

/// Timestamp, type, subtype and length (RFC 6396 section 2).
const HEADER_BYTES: usize = 12;
/// The limit of the library. The longest records seen in public archives have about 100 KiB.
const RECORD_BYTES_MAX: u32 = 16 << 20;

/// Where an MRT file was cut short. The records before are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The incomplete record, from 1.
    pub record: u64,
    /// Its offset, after decompression.
    pub offset_bytes: u64,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut short in record {} at byte {}", self.record, self.offset_bytes)
    }
}

pub(super) enum Next {
    Record(RawMrtRecord),
    /// The end of the file, with the position where it was cut short, if it was.
    End(Option<Truncated>),
}

pub(super) struct Records {
    pub(super) source: FeedSource,
    pub(super) number: u64,
    pub(super) offset_bytes: u64,
}

impl Records {
    pub(super) const fn new(source: FeedSource) -> Self {
        Self { source, number: 0, offset_bytes: 0 }
    }

    pub(super) fn error(&self, source: RecordError) -> FeedError {
        let (record, offset_bytes) = (self.number, self.offset_bytes);
        FeedErrorKind::Record { record, offset_bytes, source }.with_path(self.source.path())
    }

    pub(super) fn next_record(&mut self) -> Result<Next, FeedError> {
        self.offset_bytes = self.source.offset_bytes();
        let truncated = Truncated { record: self.number + 1, offset_bytes: self.offset_bytes };
        let head = self.source.peek(HEADER_BYTES);
        let (head_bytes, kind, length_bytes) = match head {
            [_, _, _, _, t1, t0, _, _, l3, l2, l1, l0] => {
                (HEADER_BYTES, u16::from_be_bytes([*t1, *t0]), u32::from_be_bytes([*l3, *l2, *l1, *l0]))
            }
            _ => (head.len(), 0, 0),
        };
        if head_bytes < HEADER_BYTES {
            if let Some(failure) = self.source.take_failure() {
                return Err(failure);
            }
            let cut = head_bytes > 0 || self.source.is_cut_short();
            return Ok(Next::End(cut.then_some(truncated)));
        }
        self.number += 1;
        if !is_mrt_type(kind) {
            return Err(self.error(RecordError::Type { value: kind }));
        }
        if length_bytes > RECORD_BYTES_MAX {
            let limit_bytes = RECORD_BYTES_MAX;
            return Err(self.error(RecordError::Length { length_bytes, limit_bytes }));
        }
        match chunk_mrt_record(&mut self.source) {
            Ok(record) => Ok(Next::Record(record)),
            Err(error) => match error.error {
                ParserError::IoError(error) | ParserError::EofError(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof =>
                {
                    Ok(Next::End(Some(truncated)))
                }
                ParserError::IoError(error) => Err(self.source.error(error)),
                error => Err(self.error(library(&error))),
            },
        }
    }
}

pub(super) fn library(error: &ParserError) -> RecordError {
    RecordError::Library { what: error.to_string() }
}
