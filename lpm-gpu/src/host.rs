//! The contract between a host table and its engine: an image of the table, then steps that keep the image up to date. An engine
//! has each table twice: on the host, where updates are computed (off-line), and on the device, as one array of 32-bit words for
//! lookups. A [`HostTable`] is the host's copy of one family: it knows nothing of CUDA, and its caller nothing of tries.
//!
//! ```text
//! apply -> Due -> take_steps -> run the steps, or put the image in service -> reclaim
//!       -> refused: take_back
//! ```
//! Two promises hide updates from running lookups. Each step ends before the next starts, and after every single write each
//! lookup finds the old or the new answer of its key: new nodes are written before the pointers to them. And unlinked words
//! are not written again until [`HostTable::reclaim`] says that no lookup can still read them.

use fib::{Change, Details, EngineError, Key, NextHopId, RibTable};
use std::sync::Arc;

/// Words of the header: the table's shape, whose meaning is up to the kernel.
pub const HEADER_WORDS: usize = 128;

/// Bit of a raw answer: the device matched 64 bits, and longer prefixes lie below (IPv6 only).
pub const RAW_DEEP: u32 = 1 << 31;

/// Bits of a raw answer that hold the `inf` code (GAMT, section 3.1).
pub const RAW_INF: u32 = 0x00ff_ffff;

/// A word of the device's array and its new value, as the write kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Write {
    /// Index into the table's words.
    pub at: u32,
    /// The word.
    pub value: u32,
}

/// A prefix operation that the device computes (GALE), as its kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PrefixOp {
    /// The prefix's first address, host order; that /24's for an extension.
    pub address: u32,
    /// Kind and lengths: `kind | length << 8 | parent_length << 16`. Kinds are the table's.
    pub how: u32,
    /// Next hop or chunk.
    pub value: u32,
    /// Zero.
    pub reserved: u32,
}

/// Work for the device. The order within a step is free for `Writes`, and fixed for `Ops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateStep {
    /// Words to write, each at most once a step.
    Writes(Vec<Write>),
    /// Operations for the table's update kernel.
    Ops(Vec<PrefixOp>),
}

/// How an update reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// By steps that continue from the current image.
    Steps,
    /// By an image: the table was rebuilt.
    Image,
}

/// A new or rebuilt table for the device.
#[derive(Debug)]
pub struct Image<'a> {
    /// The shape, for the kernels.
    pub header: [u32; HEADER_WORDS],
    /// Runs of words with their first index, ascending; all other words are zero.
    pub runs: Vec<(u32, &'a [u32])>,
    /// Words to allocate, including head room.
    pub words: usize,
}

impl Image<'_> {
    /// All words of the device's array.
    #[must_use]
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = vec![0; self.words];
        for (start, run) in &self.runs {
            words[*start as usize..*start as usize + run.len()].copy_from_slice(run);
        }
        words
    }
}

/// Entry names of a table's kernels. Lookup kernels have the parameters
/// `(const u32 *words, const u32 *header, const KEY *keys, u32 *raw, u32 count)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNames {
    /// The module: file `kernels/NAME.ptx`.
    pub module: &'static str,
    /// Lookup in a table that is not written during the batch.
    pub frozen: &'static str,
    /// Lookup in a table that may be written.
    pub live: &'static str,
    /// Runs [`UpdateStep::Ops`]: `(u32 *words, const u32 *header, const PrefixOp *ops, u32 count)`; `None` for tables without them.
    pub ops: Option<&'static str>,
}

/// Resolves raw answers to next hops, for the answers in flight of all generations, across rebuilds. Readers share it.
pub trait Answers<K: Key>: Send + Sync {
    /// Turns raw answers into next-hop ids, in place. `low`: the last 64 bits of each IPv6 key; empty for IPv4.
    fn resolve(&self, low: &[u64], answers: &mut [u32]);
}

/// One family's table on the host. It keeps no copy of the routes: calls that may need them pass the RIB's.
pub trait HostTable<K: Key>: Send {
    /// Limits images to `words_max` words from now on: a rebuild takes less head room to stay below. A new table has its options' limit.
    fn limit(&mut self, words_max: usize);

    /// Words of a rebuilt table that [`Self::apply`] may put in service before that is due.
    fn early_words(&self) -> Option<u64> {
        None
    }

    /// Whether to put off rebuilds that are not due yet, because memory is short or lookups hold replaced tables.
    fn put_off_rebuilds(&mut self, _is_put_off: bool) {}

    /// Off-line update: makes `changes`, which lead to `routes`. Rebuilds the table if steps cannot keep up the image, or cost
    /// more than a new one.
    ///
    /// # Errors
    /// [`EngineError::Full`] or [`EngineError::Memory`]. Some changes may then be made, until [`Self::take_back`].
    fn apply(&mut self, changes: &[Change<K>], routes: &RibTable<K>) -> Result<Due, EngineError>;

    /// Whether the last [`Self::apply`] may have made some of its changes. [`Self::take_back`] then reverses every change, so to reverse a
    /// change that was not made must have no effect.
    fn may_have_changed(&self) -> bool {
        true
    }

    /// Reverses `changes`, which the last [`Self::apply`] made or refused. `routes` are the routes before it.
    ///
    /// # Errors
    /// Errors of [`Self::apply`]; the table is then unusable.
    fn take_back(&mut self, changes: &[Change<K>], routes: &RibTable<K>) -> Result<Due, EngineError> {
        if self.may_have_changed() { reverse(self, changes, routes) } else { Ok(Due::Steps) }
    }

    /// Whether calls read the `routes` passed.
    fn reads_routes(&self) -> bool {
        true
    }

    /// Rebuilds the table from its routes, with fresh head room, and drops pending steps. The image changes.
    ///
    /// # Errors
    /// Errors of [`Self::apply`]; the table is then unchanged.
    fn rebuild(&mut self) -> Result<(), EngineError>;

    /// Takes the steps since the last call or the last image; once an update, before the device changes. `update` is its
    /// number, ascending: words that it unlinks may be reused after [`Self::reclaim`] of that number. A rebuild leaves no
    /// steps; the steps of an updated table may be dropped if its image is sent instead. [`Self::answers`] include the
    /// update from here on. `routes` are the routes of the last [`Self::apply`].
    fn take_steps(&mut self, update: u64, routes: &RibTable<K>) -> Vec<UpdateStep>;

    /// All lookups submitted before update `update` ended on the device were collected.
    fn reclaim(&mut self, update: u64);

    /// The image of the table as it is now.
    fn image(&self, routes: &RibTable<K>) -> Image<'_>;

    /// The kernels of the table.
    fn kernels(&self) -> KernelNames;

    /// Resolves the table's raw answers.
    fn answers(&self) -> Arc<dyn Answers<K>>;

    /// Limit of distinct next hops.
    fn next_hops_max(&self) -> u64 {
        NextHopId::MAX.get().into()
    }

    /// Number of routes.
    fn routes(&self) -> u64;

    /// Bytes of replaced parts of [`Self::answers`] that readers may still hold.
    fn retired_bytes(&self) -> u64 {
        0
    }

    /// Frees replaced parts that no reader holds.
    fn free_retired(&mut self) {}

    /// Bytes of host memory, an estimate.
    fn host_bytes(&self) -> u64;

    /// The table's figures for `EngineStats::details`.
    fn details(&self) -> Details;
}

/// Reverts `changes`, made in full or in part, to `routes`. Rebuilds a full table once: the shape may have changed.
pub(crate) fn reverse<K: Key, T: HostTable<K> + ?Sized>(
    table: &mut T,
    changes: &[Change<K>],
    routes: &RibTable<K>,
) -> Result<Due, EngineError> {
    // Withdraws first, to make room.
    let mut back: Vec<_> = changes.iter().map(|change| change.reversed()).collect();
    back.sort_by_key(|change| !change.withdraws());
    table.limit(usize::MAX);
    table.apply(&back, routes).or_else(|_| {
        table.rebuild()?;
        table.apply(&back, routes)?;
        Ok(Due::Image)
    })
}
