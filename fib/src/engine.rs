//! The engine contract: keys in, next hops out, deltas applied while lookups run.
//!
//! An engine is one [`EngineWriter`], owned by the control thread, and an [`EngineReader`] per lcore. `apply` is all or
//! nothing and never blocks a reader. A reader has a fixed number of *slots*: `submit` hands a batch of keys to a slot,
//! `collect` returns its answers. A CPU engine finishes within `submit`; a device engine has many slots in flight. The caller keeps the keys
//! until then, and passes them to `collect`, too: no engine needs a copy to finish the answers or to look them up again.
//!
//! Every answer belongs to a generation between the one current at `submit` and the one current at `collect`.
//!
//! An engine may hold several FIBs, one per VRF. Calls that name no FIB use FIB 0, which every engine has.

use crate::{
    Details, EngineError, Family, FibDelta, FibId, Fibs, Generation, Isa, Keys, NextHopId, Rib, SlotId,
};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

/// The limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The largest next-hop id.
    pub next_hop_id_max: u32,
    /// The number of distinct next hops.
    pub next_hops_max: u64,
    /// Bytes of table memory.
    pub table_bytes_max: u64,
}

impl Default for Capacity {
    /// All next-hop ids, and memory without a limit.
    fn default() -> Self {
        let id_max = NextHopId::MAX.get();
        Self { next_hop_id_max: id_max, next_hops_max: id_max.into(), table_bytes_max: u64::MAX }
    }
}

impl Capacity {
    /// All next-hop ids, in tables of at most `table_bytes_max` bytes.
    #[must_use]
    pub fn of_bytes(table_bytes_max: u64) -> Self {
        Self { table_bytes_max, ..Self::default() }
    }

    /// The limits that hold for both of two engines.
    #[must_use]
    pub fn of_both(self, other: Self) -> Self {
        Self {
            next_hop_id_max: self.next_hop_id_max.min(other.next_hop_id_max),
            next_hops_max: self.next_hops_max.min(other.next_hops_max),
            table_bytes_max: self.table_bytes_max.min(other.table_bytes_max),
        }
    }
}

/// Properties of an engine that do not depend on its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The engine's name, as on the command line.
    pub name: &'static str,
    /// The instruction set of the lookup kernels; [`Isa::Scalar`] if they use no particular one.
    pub isa: Isa,
    /// The name of the lookup code in reports: usually the name of `isa`, and `ptx` on a GPU.
    pub isa_name: String,
    /// The limits of the engine.
    pub capacity: Capacity,
    /// The number of FIBs, `0..fibs`. Calls that name no FIB use FIB 0.
    pub fibs: u32,
    /// The families with tables, for the engine's whole life. Routes of others are refused, lookups find none.
    pub families: Vec<Family>,
    /// Whether routes that change no answer should be left out of deltas. The table is smaller without them. But a
    /// change of the route that covers them is then several changes, which costs some engines more than they gain.
    pub wants_fewer_routes: bool,
    /// Whether a call may never return because it waits for a device. Callers may run such a writer on its own thread.
    pub may_hang: bool,
    /// The NUMA node of the device that looks up. `None` without a device, or if the kernel does not say.
    pub numa_node: Option<u32>,
}

impl EngineInfo {
    /// An engine with both families, one FIB and the [default capacity](Capacity::default), whose calls never hang.
    #[must_use]
    pub fn new(name: &'static str, isa: Isa) -> Self {
        Self {
            name,
            isa,
            isa_name: isa.to_string(),
            capacity: Capacity::default(),
            fibs: 1,
            families: Family::ALL.to_vec(),
            wants_fewer_routes: false,
            may_hang: false,
            numa_node: None,
        }
    }

    /// Whether the engine has a table for this family.
    #[must_use]
    pub fn has_family(&self, family: Family) -> bool {
        self.families.contains(&family)
    }
}

/// The contents and the memory of an engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// IPv4 routes in the table.
    pub routes_v4: u64,
    /// IPv6 routes in the table.
    pub routes_v6: u64,
    /// Bytes that lookups read.
    pub table_bytes: u64,
    /// Bytes that only the writer uses.
    pub writer_bytes: u64,
    /// Bytes of replaced tables that readers may still hold; see [`EngineWriter::free_retired`].
    pub retired_bytes: u64,
    /// Engine-specific figures ("g1_filter_bits", "v6_chunks").
    pub details: Details,
}

/// How an engine is made. Options that do not apply are ignored, except unknown parameters ([`EngineError::Parameter`]).
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The instruction set; `None` selects the best of this CPU.
    pub isa: Option<Isa>,
    /// The limit of table memory in bytes; a delta that needs more is refused.
    pub table_bytes_max: u64,
    /// The NUMA node of the tables; with `None` first touch decides.
    pub numa_node: Option<u32>,
    /// Whether tables may use huge pages, if the host has any.
    pub huge_pages: bool,
    /// How long [`EngineReader::lookup`] waits for a device, in microseconds; `None`: the engine's default. The lookup fails then, the engine
    /// stays usable. It does not apply to `submit` and `collect`, whose callers watch the time themselves.
    pub stall_us: Option<u64>,
    /// Engine-specific parameters, `name=value` as given on the command line.
    pub parameters: Vec<(String, String)>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            isa: None,
            table_bytes_max: 4 << 30,
            numa_node: None,
            huge_pages: true,
            stall_us: None,
            parameters: Vec::new(),
        }
    }
}

impl EngineOptions {
    /// The default options with these parameters.
    #[must_use]
    pub fn with_parameters(parameters: &[(&str, &str)]) -> Self {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self { parameters: parameters.collect(), ..Self::default() }
    }
}

/// The writing side of an engine, used by the control thread.
pub trait EngineWriter: Send {
    /// Properties of the engine. Not for the hot path.
    fn info(&self) -> EngineInfo;

    /// Applies `delta`, all or nothing, while lookups run. `rib` is the RIB that the delta was compiled from ([`Rib::commit`]); its
    /// [used](crate::RibTable::used) routes are the engine's routes after the delta.
    ///
    /// # Errors
    /// [`EngineError::Full`], [`EngineError::Prefix`] or [`EngineError::Memory`]; the old table stays in service. A
    /// device engine may fail with [`EngineError::Device`].
    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError>;

    /// As [`Self::apply`], for the FIB `fib` with the routes of `rib`. Each delta makes one generation, whichever FIB it changes.
    ///
    /// # Errors
    /// [`EngineError::NoFib`], else as [`Self::apply`].
    fn apply_to(&mut self, fib: FibId, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        Fibs::One(fib).check(0, 1)?;
        self.apply(delta, rib)
    }

    /// Frees replaced tables that no reader holds. Readers never free one; the writer does in each delta, and in this periodic call.
    fn free_retired(&mut self) {}

    /// The current generation.
    fn generation(&self) -> Generation;

    /// The current contents and memory.
    fn stats(&self) -> EngineStats;

    /// A new reader with `slots` slots of `batch_max` keys.
    ///
    /// # Errors
    /// [`EngineError::Memory`] when the slots cannot be allocated, [`EngineError::Reader`] when a device has no room for it.
    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError>;
}

/// Memory in which callers keep the keys of batches. It stays mapped as long as the value lives. Batches outlive an engine that is replaced,
/// and several engines read them: so readers [adopt](EngineReader::adopt) the callers' memory, instead of callers that use an engine's.
pub trait KeyMemory: Send + Sync {
    /// The addresses of the memory, always the same.
    fn addresses(&self) -> Range<usize>;
}

/// The reading side, one per lcore. No method may allocate or take a lock, except `adopt`; `submit` and `collect` must not wait for a device.
pub trait EngineReader: Send {
    /// The number of slots.
    fn slots(&self) -> u16;

    /// The maximum number of keys of a slot.
    fn batch_max(&self) -> usize;

    /// From now on, keys that lie in `memory` are read where they lie by a device that can, and not copied. They must stay unchanged until
    /// `collect` has returned the answers of the slot, or those answers are arbitrary. A device never writes to `memory`. Not for the hot
    /// path. The default is for engines that use no device.
    ///
    /// # Errors
    /// The device's. If only the memory is refused, keys are copied.
    fn adopt(&mut self, _memory: &Arc<dyn KeyMemory>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Hands `keys` to `slot` and discards its earlier answers.
    ///
    /// # Errors
    /// [`EngineError::Batch`] when the keys do not fit; a device engine's own errors.
    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError>;

    /// As [`Self::submit`], with a FIB for each key.
    ///
    /// # Errors
    /// [`EngineError::NoFib`], [`EngineError::Batch`] when the numbers of ids and keys differ, else as [`Self::submit`].
    fn submit_in(&mut self, slot: SlotId, fibs: Fibs<'_>, keys: Keys<'_>) -> Result<(), EngineError> {
        fibs.check(keys.len(), 1)?;
        self.submit(slot, keys)
    }

    /// The answers of `slot`, in the order of its `keys`; `Pending` while a device works on them. `keys` equal the keys of the slot's last
    /// `submit`: the answers to other keys of the same number and family are arbitrary.
    ///
    /// # Errors
    /// [`EngineError::Batch`] for keys of another number or family than submitted: nothing is collected. Other errors are the device's.
    fn collect(&mut self, slot: SlotId, keys: Keys<'_>) -> Poll<Result<&[NextHopId], EngineError>>;

    /// Gives up the batch of `slot`, whose keys are no longer needed: only this call or `submit` may follow for the slot. Ready once no
    /// answers to it are outstanding; `Pending` while a device still works on it. The default is for readers that answer within `submit`.
    ///
    /// # Errors
    /// The device's error. The next `submit` to the slot may have to wait for a device that still works on the batch.
    fn discard(&mut self, _slot: SlotId) -> Poll<Result<(), EngineError>> {
        Poll::Ready(Ok(()))
    }

    /// Looks up any number of `keys` into `out`, which is as long. The default submits batches to slot 0 and polls.
    ///
    /// # Errors
    /// As [`Self::submit`] and [`Self::collect`]; [`EngineError::Batch`] when `out` is not as long as `keys`.
    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        lookup_in_slot(self, keys, out)
    }

    /// Two calls of [`Self::lookup`], such as for the two families of a burst, which share the fixed cost of a call.
    ///
    /// # Errors
    /// The errors of each call.
    fn lookup_both(&mut self, calls: [(Keys<'_>, &mut [NextHopId]); 2]) -> [Result<(), EngineError>; 2] {
        calls.map(|(keys, out)| self.lookup(keys, out))
    }

    /// As [`Self::lookup`], with a FIB for each key.
    ///
    /// # Errors
    /// As [`Self::submit_in`] and [`Self::lookup`].
    fn lookup_in(
        &mut self,
        fibs: Fibs<'_>,
        keys: Keys<'_>,
        out: &mut [NextHopId],
    ) -> Result<(), EngineError> {
        fibs.check(keys.len(), 1)?;
        self.lookup(keys, out)
    }

    /// Releases replaced tables, as a lookup does. It costs a few loads: a reader without lookups calls it every few thousand polls.
    fn refresh(&mut self) {}
}

/// [`EngineReader::lookup`] in batches through slot 0 of `reader`, polling each until it is answered.
///
/// # Errors
/// As [`EngineReader::lookup`].
pub fn lookup_in_slot<R: EngineReader + ?Sized>(
    reader: &mut R,
    keys: Keys<'_>,
    out: &mut [NextHopId],
) -> Result<(), EngineError> {
    keys.check_answers(out)?;
    let (count, limit) = (out.len(), reader.batch_max());
    if limit == 0 {
        return Err(EngineError::Batch { keys: count, limit });
    }
    let mut start = 0;
    while start < count {
        let end = count.min(start + limit);
        let part = keys.part(start..end);
        reader.submit(SlotId(0), part)?;
        loop {
            if let Poll::Ready(answers) = reader.collect(SlotId(0), part) {
                out[start..end].copy_from_slice(answers?);
                break;
            }
            std::hint::spin_loop();
        }
        start = end;
    }
    Ok(())
}
