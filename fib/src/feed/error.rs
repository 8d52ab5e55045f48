//! Why a feed was refused: each error names the file, and the line or the record.

use super::{Compression, Format};
use crate::{Family, NextHopError, PrefixError};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Why a feed could not be read. Nothing of it, nor of the feeds loaded with it, has reached the RIB.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The file is not there, or may not be read.
    #[error("{}: cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory where a file was wanted.
    #[error("{}: is a directory, wanted a file", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The content is none of the formats.
    #[error("{}: is neither route text nor `ip -j route` JSON nor MRT", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// Compressed by a program whose format is not read here.
    #[error("{}: is compressed with {name}; wanted plain, gzip, bzip2 or xz", path.display())]
    UnknownCompression {
        /// The file.
        path: PathBuf,
        /// The format's name.
        name: &'static str,
    },
    /// The file is readable, but holds something else than was asked for.
    #[error("{}: {format} that holds {holds}, wanted {wanted}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// What it holds.
        holds: &'static str,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The system failed to read on.
    #[error("{}: reading failed after {offset_bytes} bytes: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Bytes read before, after decompression.
        offset_bytes: u64,
        /// What the system says.
        source: io::Error,
    },
    /// The file was written to while it was read: what was read may be half of one content and half of another.
    #[error("{}: was changed while it was read, after {offset_bytes} bytes; try again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Bytes read before, after decompression.
        offset_bytes: u64,
    },
    /// A compressed file ends before its content does.
    #[error("{}: the {compression} file is cut short; {offset_bytes} bytes came out of it", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// Bytes read before, after decompression.
        offset_bytes: u64,
    },
    /// A compressed file is damaged.
    #[error("{}: the {compression} file is damaged after {offset_bytes} bytes of content: {source}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        compression: Compression,
        /// Bytes read before, after decompression.
        offset_bytes: u64,
        /// What the decompressor says.
        source: io::Error,
    },
    /// A line of text, or an entry of JSON that ends in it, is wrong.
    #[error("{}:{line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        source: LineError,
    },
    /// The JSON is none.
    #[error("{}:{line}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What the JSON reader says.
        source: serde_json::Error,
    },
    /// A record of an MRT file is wrong.
    #[error("{}: record {record} at byte {offset_bytes}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record, from 1.
        record: u64,
        /// Where it starts, after decompression.
        offset_bytes: u64,
        /// What is wrong with it.
        source: RecordError,
    },
}

impl FeedError {
    /// The file that was refused.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Open { path, .. }
            | Self::Directory { path }
            | Self::UnknownFormat { path }
            | Self::UnknownCompression { path, .. }
            | Self::Content { path, .. }
            | Self::Read { path, .. }
            | Self::Changed { path, .. }
            | Self::CutShort { path, .. }
            | Self::Corrupt { path, .. }
            | Self::Line { path, .. }
            | Self::Json { path, .. }
            | Self::Record { path, .. } => path,
        }
    }

    /// The line that was refused, from 1; `None` where the format has no lines.
    #[must_use]
    pub const fn line(&self) -> Option<u64> {
        match self {
            Self::Line { line, .. } | Self::Json { line, .. } => Some(*line),
            _ => None,
        }
    }
}

/// What is wrong with a line of text or an entry of JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The next hop, by the rules of [`crate::NextHopTable`].
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// Where an id should be.
    #[error("'{text}' is not a next-hop id in 1..=16777215")]
    Id {
        /// What is there.
        text: String,
    },
    /// Where an l3fwd rule has its port.
    #[error("'{text}' is not an l3fwd port in 0..=65535")]
    Port {
        /// What is there.
        text: String,
    },
    /// Where an address should be.
    #[error("'{text}' after '{word}' is not an IP address")]
    Address {
        /// The word before it.
        word: &'static str,
        /// What is there.
        text: String,
    },
    /// A word that says nothing known, or something that forwarding would have to obey and does not.
    #[error("'{text}' is not understood here, wanted {wanted}")]
    Word {
        /// The word.
        text: String,
        /// What could stand there.
        wanted: &'static str,
    },
    /// A line that ends too early.
    #[error("'{word}' is the last word, wanted {wanted} after it")]
    Ends {
        /// Its last word.
        word: String,
        /// What should follow.
        wanted: &'static str,
    },
    /// A route without a next hop.
    #[error("the route has no next hop, wanted an id, 'via GATEWAY', 'dev PORT' or a 'nexthop' line")]
    NoNextHop,
    /// A `nexthop` line that follows no route.
    #[error("a 'nexthop' line without a route before it")]
    StrayNextHop,
    /// A gateway of the wrong family.
    #[error("the gateway {gateway} is not {family} as the route is; 'via inet6' says that this is meant")]
    GatewayFamily {
        /// The gateway.
        gateway: IpAddr,
        /// The route's family.
        family: Family,
    },
    /// A route type that a forwarder cannot serve.
    #[error("a '{text}' route is not for forwarding, wanted unicast, blackhole, unreachable or prohibit")]
    RouteType {
        /// The type.
        text: String,
    },
    /// A part that an entry of JSON or a neighbour needs.
    #[error("there is no '{name}'")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// The time of an update.
    #[error("'{text}' is not a time in seconds")]
    Time {
        /// What is there.
        text: String,
    },
    /// The origin of an update.
    #[error("'{text}' is not an AS number")]
    Origin {
        /// What is there.
        text: String,
    },
    /// The line is longer than any route.
    #[error("the line is longer than {limit_bytes} bytes")]
    TooLong {
        /// The limit.
        limit_bytes: usize,
    },
    /// The line is no UTF-8.
    #[error("the line is not text")]
    NotText,
}

/// What is wrong with a record of an MRT file (RFC 6396).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The type of the record is none that MRT has: the file is garbage from here on, or no MRT.
    #[error("{value} is not an MRT type, so this is no MRT record")]
    Type {
        /// The value.
        value: u16,
    },
    /// The record is longer than any.
    #[error("length {length_bytes} is above {limit_bytes}, so this is no MRT record")]
    Length {
        /// The length it claims.
        length_bytes: u32,
        /// The limit.
        limit_bytes: u32,
    },
    /// A field reaches beyond the end of what holds it.
    #[error("{what} needs {wanted_bytes} bytes, {left_bytes} are left")]
    Short {
        /// The field.
        what: &'static str,
        /// Its length.
        wanted_bytes: usize,
        /// What is left.
        left_bytes: usize,
    },
    /// The prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// A peer index that the file's PEER_INDEX_TABLE does not have.
    #[error("peer index {index} is not below the {peers} peers of the PEER_INDEX_TABLE")]
    Peer {
        /// The index.
        index: u16,
        /// The number of peers.
        peers: usize,
    },
    /// All next-hop ids are in use.
    #[error(transparent)]
    NextHop(#[from] NextHopError),
    /// Refused by the MRT library.
    #[error("{what}")]
    Library {
        /// Its words.
        what: String,
    },
}

/// At most 64 characters of what was found, for a message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
