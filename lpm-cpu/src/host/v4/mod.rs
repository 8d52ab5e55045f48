//! The table of IPv4: records of bit maps over shared cells of next-hop codes.
//!
//! ```text
//! records[key / 2^15] -- map, 32 bits      a bit for each cell of four /24s, set where the cell differs from the one before
//!                     `- first, 32 bits    where the record's run of cells begins, less one
//! cells[first + ones(map, up to the key's bit)] -- four codes, one for each /24
//!                     code -- next hop
//!                          `- escape: routes longer than /24
//! chunks[key / 2^16] -> blocks[256 a chunk] -> two records, for four addresses a cell in place of four /24s
//! ```
//! A record covers a /17, so all records take 1 MB, and a full table of 2024 has about 280,000 cells, of four bytes where next hops have
//! codes of eight bits (`codes`). A lookup is two dependent loads, its record and a word of a cell, and no branch. A /24 with longer
//! routes, which is rare, holds the escape code: its keys are put aside, and looked up once more when the others are done. Their records
//! lie behind those of the /17s, and their cells are cells like any other.
//!
//! A record whose /24s all have the same next hop needs one cell, and there is one for each code, which such records share.
//!
//! # Updates in place
//!
//! A lookup reads one record, one word of a cell, and, where codes are indices, one id. What a change affects is painted anew from the
//! RIB (`paint`), for the final state of a delta and once a delta, so each address goes from its old next hop to its new one:
//!
//! * by a store to a word of a cell, where the record's map does for the new cells too. A lookup reads the word before or after it. Other
//!   words of the record may be stored earlier or later, which a lookup of one key cannot tell.
//! * else by one store of the record, which has lookups read a new run. The old run keeps its cells until a grace period is over, for
//!   lookups that have read the old record, and is changed no more: each of its codes was right when its record went out of service.
//!
//! So a lookup answers as in the generation before a delta or after it. With several deltas since it began, it answers as in one of those:
//! a run in service is right in the generation of each delta, and one out of service in the last of its time.
//!
//! A /24 that gets routes longer than /24 has its block, with both records and their cells, and the links to it, before the escape code
//! goes into its cell. A /24 that loses them has its next hop put in place of the escape; then its block, and a chunk without blocks,
//! wait for a grace period, and the links to them stay as they are until another /24 or /16 gets what they lead to. As a lookup that has
//! read an escape follows links which the next delta may change, the next delta waits for that grace period. Runs are waited for in
//! large numbers only.
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
