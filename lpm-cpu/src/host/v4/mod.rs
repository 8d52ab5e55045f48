//! The table of IPv4: records of bit maps over shared cells of next-hop codes.
//!
//! ```text
//! records[key / 2^15] -- map, 32 bits      a bit for each cell of four /24s, set where the cell differs from the one before
//!                     `- first, 32 bits    where the record's run of cells begins, less one
//! cells[first + ones(map, up to the key's bit)] -- four codes, one for each /24
//!                     code -- next hop
//!                          `- escape: routes longer than /24
//! chunks[key / 2^16] -> blocks[256 a chunk] -> two records, for four addresses a cell in place of four /24s
//! default -- next hop where the code is 0
//! ```
//! A record covers a /17, so all records take 1 MB. A full table of 2024 has about 280,000 cells, of four bytes each where next-hop codes
//! have eight bits (`codes`). A lookup is two dependent loads, a record and a word of a cell, and no branch. Records whose /24s all have
//! the same next hop share one cell for each code.
//!
//! A /24 with longer routes, which is rare, has the escape code and a *block*: two records, for four addresses a cell. They lie behind the
//! records of the /17s, and their cells are cells like any other. A kernel puts keys that find an escape aside, and looks them up in
//! blocks when the others are done.
//!
//! # Updates in place
//!
//! A lookup reads one record, one word of a cell, and, where codes are indices, one id. (The next hop of the default route comes before
//! all: the folder above says why that is right.) An update paints the addresses that a delta
//! affects from the RIB, which is in the final state (`paint`). Each record is painted once a delta, so each address goes from its old
//! next hop to its new one in one store:
//!
//! * of a word of a cell, where the record's map fits the new cells too. The words of a record change one after the other, but a lookup
//!   reads only one of them.
//! * else of the record, which then leads to a new run of cells. The old run stays as it is until a grace period is over, for lookups that
//!   have read the old record: its answers are those of the generation before.
//!
//! So a lookup that began before a delta answers as before it or as after it; one that lasts through several deltas, as in one of their
//! generations. A grace period is thus needed only before cells are used again, and is waited for when many cells are out of service.
//!
//! A /24 that gets its first longer route gets its block, with records, cells and links, before the escape code appears in its cell. One
//! that loses its longer routes gets a next hop in place of the escape; its block, and the chunk of a /16 without blocks, are out of
//! service at the end of the delta. The links to them stay, for lookups that have read the escape. The next delta could change these
//! links, so it waits for a grace period first.
//!
//! A delta that changes the default route beside others is painted up to twice. First, addresses get their routes, while those that lose
//! theirs keep it (`Coverings`). Then the default route is stored, a grace period passes, and what has no route gets code 0.
//!
//! | module | what lives there |
//! |---|---|
//! | `table` | what lookups read |
//! | `codes` | next-hop codes, their width, and who has which |
//! | `paint` | from routes in order to the codes of each record |
//! | `store` | the writer's side of a table: cells, runs and blocks |
//! | `runs` | the allocator of cells |
//! | `writer` | the table behind the engine shell: sizes, building, updates |
//! | `kernel` | the lookup kernels, one file an instruction set |

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
