//! The table of IPv4: records of bit maps over shared cells of next-hop codes.
//!
//! ```text
//! records[key / 2^15] -- map, 32 bits      a bit for each cell of four /24s, set where the cell differs from its predecessor
//!                     `- first, 32 bits    where the record's run of cells begins, less one
//! cells[first + ones(map, up to the key's bit)] -- four codes, one for each /24
//!                     code -- next hop
//!                          `- escape: routes longer than /24
//! chunks[key / 2^16] -> blocks[256 a chunk] -> two records, for four addresses a cell instead of four /24s
//! default -- next hop where the code is 0
//! ```
//! A record covers a /17, so all records take 1 MB. A full table of 2024 has about 280,000 cells, of four bytes each with 8-bit codes
//! (`codes`). A lookup is two dependent loads, a record and a word of a cell, and no branch. Records whose /24s share one next hop share
//! one cell per code. A /24 with longer routes, which is rare, has the escape code and a *block*: two records
//! behind the /17s' records, for four addresses a cell.
//!
//! # Updates in place
//!
//! A lookup reads one record, one word of a cell and, if codes are indices, one id. An update paints the addresses that a delta affects
//! from the RIB, which is in the final state (`paint`). Each record is painted once a delta, so one store moves each address:
//!
//! * a store to a word of a cell, if the record's map fits the new cells too. A lookup reads only one of a record's words.
//! * otherwise a store to the record, which then leads to a new run of cells. The old run stays unchanged until a grace period has passed:
//!   it answers for the previous generation to lookups that have read the old record.
//!
//! So a lookup answers by a generation that it overlaps. A grace period is needed only before cells are reused, and is waited for when
//! many cells are retired.
//!
//! A /24 that gets its first longer route gets its block, with records, cells and links, before the escape code appears in its cell. A /24
//! that loses its longer routes gets a next hop instead of the escape; its block, and the chunk of a /16 without blocks, retire at the end
//! of the delta. The links stay for lookups that have read the escape. The next delta waits for a grace period.
//!
//! A delta that changes the default route and others is painted up to twice. First, addresses get their new routes, while addresses that
//! lose theirs keep the old ones (`Coverings`). Then the default route is stored, a grace period passes, and these get code 0.

pub(crate) mod codes;
#[expect(unsafe_code, reason = "gathers take raw pointers")]
pub(crate) mod kernel;
mod paint;
mod runs;
mod store;
mod table;
mod writer;

pub(crate) use table::Table4;
pub(crate) use writer::Writer4;
