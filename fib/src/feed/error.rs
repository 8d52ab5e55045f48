//! Why a feed was refused. Each error names the file, and the line or the record where there is one.

use super::format::{Compression, Format, excerpt};
use crate::{Family, NextHopError, PrefixError};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Why a feed could not be read. Neither it nor the feeds loaded with it have changed the RIB.
#[derive(Debug)]
pub struct FeedError {
    /// The file that was refused.
    pub path: PathBuf,
    /// What is wrong with it.
    pub kind: FeedErrorKind,
}

impl FeedError {
    /// The refused line, from 1; `None` if the error concerns no line.
    #[must_use]
    pub const fn line(&self) -> Option<u64> {
        match self.kind {
            FeedErrorKind::Line { line, .. } | FeedErrorKind::Json { line, .. } => Some(line),
            _ => None,
        }
    }
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.display(), self.line()) {
            (path, Some(line)) => write!(f, "{path}:{line}: {}", self.kind),
            (path, None) => write!(f, "{path}: {}", self.kind),
        }
    }
}

impl std::error::Error for FeedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.kind)
    }
}

/// What is wrong with a feed.
#[derive(Debug, thiserror::Error)]
pub enum FeedErrorKind {
    /// The file does not exist or cannot be opened.
    #[error("cannot be opened: {source}")]
    Open {
        /// The system's error.
        source: io::Error,
    },
    /// The path is a directory.
    #[error("is a directory, wanted a file")]
    Directory,
    /// The content has none of the known formats.
    #[error("is neither route text nor `ip -j route` JSON nor MRT")]
    UnknownFormat,
    /// The file is compressed in an unsupported format.
    #[error("is compressed with {name}; wanted plain, gzip, bzip2, xz or zstd")]
    UnknownCompression {
        /// The format's name.
        name: &'static str,
    },
    /// The content is valid, but of the wrong kind (routes instead of updates, or the reverse).
    #[error("is {format} that holds {holds}, wanted {wanted}")]
    Content {
        /// Its format.
        format: Format,
        /// The kind of content found.
        holds: &'static str,
        /// The kind of content wanted.
        wanted: &'static str,
    },
    /// A read failed.
    #[error("reading failed after {offset_bytes} bytes: {source}")]
    Read {
        /// Bytes of content, decompressed, that were read before this.
        offset_bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file was modified while it was read, so the content may mix old and new data.
    #[error("was changed while it was read, after {offset_bytes} bytes; try again")]
    Changed {
        /// Bytes of content, decompressed, that were read before this.
        offset_bytes: u64,
    },
    /// A compressed file ends before its content does.
    #[error("the {compression} file is cut short after {offset_bytes} bytes of content")]
    CutShort {
        /// How it is compressed.
        compression: Compression,
        /// Bytes of content, decompressed, that were read before this.
        offset_bytes: u64,
    },
    /// A compressed file is damaged.
    #[error("the {compression} file is damaged after {offset_bytes} bytes of content: {source}")]
    Corrupt {
        /// How it is compressed.
        compression: Compression,
        /// Bytes of content, decompressed, that were read before this.
        offset_bytes: u64,
        /// The decompressor's error.
        source: io::Error,
    },
    /// A line of text, or the JSON entry that ends in that line, is wrong.
    #[error("{source}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        source: LineError,
    },
    /// The JSON is malformed.
    #[error("{source}")]
    Json {
        /// The line, from 1.
        line: u64,
        /// The JSON parser's error.
        source: serde_json::Error,
    },
    /// A record of an MRT file is wrong.
    #[error("record {record} at byte {offset_bytes}: {source}")]
    Record {
        /// The record, from 1.
        record: u64,
        /// Its offset, after decompression.
        offset_bytes: u64,
        /// What is wrong with it.
        source: RecordError,
    },
}

impl FeedErrorKind {
    pub(super) fn with_path(self, path: &Path) -> FeedError {
        FeedError { path: path.to_owned(), kind: self }
    }
}

/// What is wrong with a line of text or an entry of JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The prefix is wrong.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The next hop is wrong, or was refused by [`crate::NextHopTable`].
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// A number is wrong, or out of range.
    #[error("'{text}' is not {wanted}")]
    Number {
        /// The text found.
        text: String,
        /// The numbers allowed there.
        wanted: &'static str,
    },
    /// The address is wrong.
    #[error("'{text}' after '{word}' is not an IP address")]
    Address {
        /// The word before it.
        word: &'static str,
        /// The text found.
        text: String,
    },
    /// An unknown word, or a known one with an effect on forwarding that is not supported.
    #[error("'{text}' is not understood here, wanted {wanted}")]
    Word {
        /// The word.
        text: String,
        /// The words allowed there.
        wanted: &'static str,
    },
    /// The line ends too early.
    #[error("wanted {wanted} after '{word}'")]
    Ends {
        /// Its last word.
        word: String,
        /// The words that should follow.
        wanted: &'static str,
    },
    /// The route has no next hop.
    #[error("the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line")]
    NoNextHop,
    /// A `nexthop` line does not follow a route.
    #[error("a 'nexthop' line without a route before it")]
    StrayNextHop,
    /// The gateway's family differs from the route's.
    #[error(
        "the gateway {gateway} is not {family} like the route; if intended, name its family: 'via inet6'"
    )]
    GatewayFamily {
        /// The gateway.
        gateway: IpAddr,
        /// The route's family.
        family: Family,
    },
    /// The route type is not supported by a forwarder.
    #[error("a '{text}' route is not for forwarding, wanted unicast, blackhole, unreachable or prohibit")]
    RouteType {
        /// The type.
        text: String,
    },
    /// A required part of a JSON entry or a neighbour is missing.
    #[error("'{name}' is missing")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// The line is longer than any valid route.
    #[error("the line is longer than {limit_bytes} bytes")]
    TooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// The line is not UTF-8.
    #[error("the line is not UTF-8 text")]
    NotText,
}

impl LineError {
    pub(super) fn number(text: &str, wanted: &'static str) -> Self {
        Self::Number { text: excerpt(text), wanted }
    }

    pub(super) fn word(text: &str, wanted: &'static str) -> Self {
        Self::Word { text: excerpt(text), wanted }
    }
}

/// What is wrong with a record of an MRT file (RFC 6396).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record type is not one of MRT's: the rest of the file is garbage, or the file is not MRT.
    #[error("{value} is not an MRT type, so this is no MRT record")]
    Type {
        /// The value.
        value: u16,
    },
    /// The record is longer than any valid record.
    #[error("length {length_bytes} is above {limit_bytes}, so this is no MRT record")]
    Length {
        /// The length it claims.
        length_bytes: u32,
        /// The limit.
        limit_bytes: u32,
    },
    /// A field reaches past the end of its record or attribute.
    #[error("{what} needs {wanted_bytes} bytes, {left_bytes} are left")]
    Short {
        /// The field.
        what: &'static str,
        /// Its length.
        wanted_bytes: usize,
        /// The bytes left.
        left_bytes: usize,
    },
    /// The prefix is wrong.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The peer index is not in the file's PEER_INDEX_TABLE.
    #[error("peer index {index} is out of range: the PEER_INDEX_TABLE has {peers} peers")]
    Peer {
        /// The index.
        index: u16,
        /// The number of peers.
        peers: usize,
    },
    /// All next-hop ids are in use.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// The MRT library refused the record, or it is not the expected one.
    #[error("{what}")]
    Library {
        /// The library's message.
        what: String,
    },
}
