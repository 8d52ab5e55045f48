//! Formats and compressions of feeds, by name.

use bgpkit_parser::models::EntryType;
use std::fmt;

/// The format of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Lines of text.
    Text,
    /// The JSON of iproute2.
    Json,
    /// MRT (RFC 6396).
    Mrt,
}

/// A name that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not {wanted}")]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
    /// The expected kind of name, and the known names.
    pub wanted: &'static str,
}

macro_rules! format_names {
    ($format:ident, $wanted:literal, $($variant:ident $name:literal),+) => {
        impl std::fmt::Display for $format {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }

        impl std::str::FromStr for $format {
            type Err = crate::feed::format::UnknownFormat;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(crate::feed::format::UnknownFormat { name: crate::feed::format::excerpt(name), wanted: $wanted }),
                }
            }
        }
    };
}
pub(super) use format_names;

format_names!(Format, "a feed format, wanted text, json or mrt", Text "text", Json "json", Mrt "mrt");

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not compressed.
    None,
    /// gzip (RFC 1952), with one or more members.
    Gzip,
    /// bzip2, with one or more streams.
    Bzip2,
    /// xz, with one or more streams.
    Xz,
    /// zstd, with one or more frames.
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        })
    }
}

/// Whether `value` is a type in RFC 6396. NULL (0) does not count, so that a file of zeros is garbage.
pub(super) fn is_mrt_type(value: u16) -> bool {
    value > 0 && EntryType::try_from(value).is_ok()
}

pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
