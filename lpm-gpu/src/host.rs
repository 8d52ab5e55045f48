//! What a table on the host owes the device: an image to start from, then steps that keep the image up to date.
//!
//! Every engine of this crate keeps its table twice: on the host, where updates are worked out (off-line), and as one array
//! of 32-bit words on the device, which lookups read. A [`HostTable`] is one family's table on the host. It knows nothing of
//! CUDA; what drives it (`engine`) knows nothing of tries.
//!
//! ```text
//! apply -> Due -> take_steps -> the steps are run, or the image is put in service -> reclaim
//!       -> refused: take_back
//! ```
//! Two promises make updates invisible to running lookups. Steps are run in order, each finished before the next
//! starts, and after every single write of a step each lookup still finds the old or the new answer of its key: what is new
//! is written before what points to it. And what an update unlinks is written again only after [`HostTable::reclaim`] says
//! that no lookup can still see it.

use fib::{Change, Details, EngineError, Key, NextHopId, RibTable};
use std::sync::Arc;

/// Words in front of a table that tell the kernels its shape; what each means is up to the kernel.
pub const HEADER_WORDS: usize = 128;

/// Set in a raw answer: the device matched 64 bits, and longer prefixes lie below (IPv6 only).
pub const RAW_DEEP: u32 = 1 << 31;

/// The bits of a raw answer that hold the `inf` code (GAMT, section 3.1).
pub const RAW_INF: u32 = 0x00ff_ffff;

/// A word of the device's array, and its new value: what the write kernel reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Write {
    /// Index into the table's words.
    pub at: u32,
    /// The word.
    pub value: u32,
}

/// A prefix operation that the device works out itself (GALE): four words, as its kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PrefixOp {
    /// The prefix's first address, host order; of an extension, the /24's.
    pub address: u32,
    /// What to do, and with which lengths: `kind | length << 8 | parent_length << 16`; the kinds are the table's.
    pub how: u32,
    /// Next hop or chunk.
    pub value: u32,
    /// Zero.
    pub reserved: u32,
}

/// What the device has to do. Within a step the order does not matter for `Writes`, and is kept for `Ops`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Words to write, each at most once in a step.
    Writes(Vec<Write>),
    /// Operations of the table's own update kernel.
    Ops(Vec<PrefixOp>),
}

/// How the device gets an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// By steps, which lead on from what it has.
    Steps,
    /// By an image: the table was built anew.
    Image,
}

/// The table as the device gets it when it is new or rebuilt.
#[derive(Debug)]
pub struct Image<'a> {
    /// The shape, for the kernels.
    pub header: [u32; HEADER_WORDS],
    /// Runs of words, in order of address: where each starts, and the words. What no run covers is zero.
    pub runs: Vec<(u32, &'a [u32])>,
    /// Words to allocate, head room included.
    pub words: usize,
}

impl Image<'_> {
    /// All words, as the device has them.
    #[must_use]
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = vec![0; self.words];
        for (start, run) in &self.runs {
            words[*start as usize..*start as usize + run.len()].copy_from_slice(run);
        }
        words
    }
}

/// The kernels of a table, by entry name. All lookups have the parameters
/// `(const u32 *words, const u32 *header, const KEY *keys, u32 *raw, u32 count)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNames {
    /// The module: a file `kernels/NAME.ptx`.
    pub module: &'static str,
    /// Lookup in a table that is not written meanwhile.
    pub frozen: &'static str,
    /// Lookup in a table that is.
    pub live: &'static str,
    /// Runs [`Step::Ops`]: `(u32 *words, const u32 *header, const PrefixOp *ops, u32 count)`; `None` without such steps.
    pub ops: Option<&'static str>,
}

/// From raw answers to next hops. Shared with the readers, and valid for answers of all generations that are still in flight,
/// rebuilds included.
pub trait Answers<K: Key>: Send + Sync {
    /// Turns raw answers into ids of next hops, in place. `low`: the last 64 bits of the keys, as many as `answers`, if they are
    /// read; else nothing.
    fn resolve(&self, low: &[u64], answers: &mut [u32]);

    /// Whether the last 64 bits of keys are read: only then a batch keeps a copy of them.
    fn reads_low_bits(&self) -> bool {
        false
    }
}

/// One family's table on the host. It keeps no routes for their own sake: every call that may need them gets the RIB's.
pub trait HostTable<K: Key>: Send {
    /// Off-line update: makes `changes`, which lead to `routes`, and builds the table anew where the image on the device can no longer
    /// be kept up by steps, or should not be. An image may have `words_max` words: one that is built anew takes less head room rather
    /// than more words.
    ///
    /// # Errors
    /// [`EngineError::Full`] or [`EngineError::Memory`]; some of the changes may be made then, until [`Self::take_back`].
    fn apply(
        &mut self,
        changes: &[Change<K>],
        routes: &RibTable<K>,
        words_max: usize,
    ) -> Result<Due, EngineError>;

    /// Takes back `changes`, which the last [`Self::apply`] that had any made or refused. `routes` are those from before it.
    ///
    /// # Errors
    /// As [`Self::apply`]; the table is of no more use then.
    fn take_back(&mut self, changes: &[Change<K>], routes: &RibTable<K>) -> Result<Due, EngineError>;

    /// Whether it reads the routes that come with a call.
    fn reads_routes(&self) -> bool {
        true
    }

    /// Builds the table anew from its routes, with fresh head room; drops the steps that were kept. The image changes.
    ///
    /// # Errors
    /// As [`Self::apply`]; the table then is as it was.
    fn rebuild(&mut self, words_max: usize) -> Result<(), EngineError>;

    /// What the device has to do since the last call, or the image, whichever is later. `update` numbers the update that these
    /// steps belong to, counting up: what they unlink may be used again once [`Self::reclaim`] was told of it.
    ///
    /// To be called once for every update, before the device shows anything of it: the steps of the update are run after
    /// this, and an image that replaces them is put into service after this (the steps are none after a rebuild, and can be
    /// dropped when the image of an updated table is sent instead). [`Self::answers`] know of the update from here on. `routes` are
    /// those of the last [`Self::apply`].
    fn take_steps(&mut self, update: u64, routes: &RibTable<K>) -> Vec<Step>;

    /// Every lookup that was submitted before update `update` was finished on the device has been collected.
    fn reclaim(&mut self, update: u64);

    /// The image of the table as it is now, with `routes`.
    fn image(&self, routes: &RibTable<K>) -> Image<'_>;

    /// Its kernels.
    fn kernels(&self) -> KernelNames;

    /// From its raw answers to next hops.
    fn answers(&self) -> Arc<dyn Answers<K>>;

    /// Distinct next hops that it can hold.
    fn next_hops_max(&self) -> u64 {
        NextHopId::MAX.get().into()
    }

    /// Routes in it.
    fn routes(&self) -> u64;

    /// Parts of [`Self::answers`] that were replaced and that readers may still have, bytes.
    fn retired_bytes(&self) -> u64 {
        0
    }

    /// Frees those parts that no reader has any more.
    fn free_retired(&mut self) {}

    /// Bytes of host memory, about.
    fn host_bytes(&self) -> u64;

    /// Figures of its own for `EngineStats::details`.
    fn details(&self) -> Details;
}

/// Makes `table` take `changes`, all or some of which are made, back to `routes`. Going back needs no more room than there was, but
/// perhaps not where it was: a table that is full is built anew once.
pub(crate) fn reverse<K: Key, T: HostTable<K> + ?Sized>(
    table: &mut T,
    changes: &[Change<K>],
    routes: &RibTable<K>,
) -> Result<Due, EngineError> {
    // Withdraws first: they make room for what comes back.
    let mut back: Vec<_> = changes.iter().map(|change| change.reversed()).collect();
    back.sort_by_key(|change| !change.withdraws());
    table.apply(&back, routes, usize::MAX).or_else(|_| {
        table.rebuild(usize::MAX)?;
        table.apply(&back, routes, usize::MAX)?;
        Ok(Due::Image)
    })
}
