//! The engine contract: keys in, next hops out, deltas applied while lookups run.
//!
//! An engine is one [`EngineWriter`], held by the control thread, and any number of [`EngineReader`]s, one per lcore.
//! `apply` is all or nothing and never blocks a reader. A reader works in *slots* allocated when it is made: `submit`
//! hands a batch of keys to a slot, `collect` takes its answers. A CPU engine finishes inside `submit`; a device engine
//! has many slots in flight.
//!
//! A router with several FIBs, one for each VRF, names the FIB of a delta ([`EngineWriter::apply_to`]) and those of a batch's keys
//! ([`EngineReader::submit_in`]). An engine that holds one FIB has FIB 0, which all other calls are about.
//!
//! Every answer is the answer of some generation between the one current at `submit` and the one current at `collect`.

use crate::{
    Details, Family, FibDelta, FibId, Fibs, Generation, IpPrefix, Isa, IsaError, Keys, NextHopId, Rib,
};
use std::task::Poll;

/// A slot of a reader, `0..slots()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u16);

/// Why an engine refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The table exceeds what the engine can hold; the old table is still in service.
    #[error("{what}: {used} needed, at most {limit} fit")]
    Full {
        /// What ran out, with its unit ("next hops", "table bytes").
        what: &'static str,
        /// What the new table would need.
        used: u64,
        /// What the engine can hold.
        limit: u64,
    },
    /// A prefix that the engine, as it was made, cannot hold; the old table is still in service.
    #[error("{prefix}: {wanted}")]
    Prefix {
        /// The prefix.
        prefix: IpPrefix,
        /// What it would have to be.
        wanted: &'static str,
    },
    /// Memory for the table could not be had; the old table is still in service.
    #[error("no memory for a table of {bytes} bytes: {reason}")]
    Memory {
        /// The bytes that were asked for.
        bytes: u64,
        /// What the system said.
        reason: String,
    },
    /// The instruction set is not there.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The engine's name is not known.
    #[error("'{name}' is no engine; known are: {known}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The device an engine needs is absent.
    #[error("engine {engine} needs {device}: {reason}")]
    NoDevice {
        /// The engine.
        engine: &'static str,
        /// The device.
        device: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The device an engine runs on was there and has failed since: lost, a call refused, a batch that never ends. What was
    /// in flight is lost; whoever keeps the keys may ask another engine.
    #[error("engine {engine}: its device failed: {reason}")]
    Device {
        /// The engine.
        engine: &'static str,
        /// The call that failed, and with what.
        reason: String,
        /// Whether the device is of no more use to this engine: every later call fails as well.
        lost: bool,
    },
    /// The device has no room for another reader; those there are go on.
    #[error("engine {engine} can have no more readers: {reason}")]
    Reader {
        /// The engine.
        engine: &'static str,
        /// What is short, what was wanted and what is left.
        reason: String,
    },
    /// The batch is larger than the slots were made for, or its arrays differ in length.
    #[error("a batch of {keys} keys does not fit a slot of {limit}")]
    Batch {
        /// The keys of the batch.
        keys: usize,
        /// What a slot holds.
        limit: usize,
    },
    /// The engine has no such FIB.
    #[error("FIB {fib} of an engine that holds {fibs}, from 0 on")]
    NoFib {
        /// The FIB; of several that are not there, the one with the largest id.
        fib: FibId,
        /// The FIBs that the engine holds.
        fibs: u32,
    },
    /// A parameter of the engine is out of range.
    #[error("{parameter} = {value}: {wanted}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// The value that was given.
        value: String,
        /// What would be right.
        wanted: &'static str,
    },
}

/// What an engine can hold at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The largest next-hop id.
    pub next_hop_id_max: u32,
    /// Distinct next hops.
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
    /// All next-hop ids in tables of so many bytes.
    #[must_use]
    pub fn of_bytes(table_bytes_max: u64) -> Self {
        Self { table_bytes_max, ..Self::default() }
    }

    /// What both of two engines can hold.
    #[must_use]
    pub fn of_both(self, other: Self) -> Self {
        Self {
            next_hop_id_max: self.next_hop_id_max.min(other.next_hop_id_max),
            next_hops_max: self.next_hops_max.min(other.next_hops_max),
            table_bytes_max: self.table_bytes_max.min(other.table_bytes_max),
        }
    }
}

/// What is known of an engine before it has routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineInfo {
    /// The engine's name, as on the command line.
    pub name: &'static str,
    /// The instruction set of the CPU that lookups run on; [`Isa::Scalar`] where they run on none in particular.
    pub isa: Isa,
    /// What a report calls the code that lookups run: the name of `isa`, unless it is not the CPU that looks up.
    pub isa_name: String,
    /// What the engine can hold.
    pub capacity: Capacity,
    /// The FIBs that the engine holds, `0..fibs`. Lookups and [`EngineWriter::apply`] are about FIB 0 unless they name another one.
    pub fibs: u32,
    /// The families that there are tables for, for as long as the engine lives. Routes of another family are refused, and its lookups
    /// find none.
    pub families: Vec<Family>,
    /// Whether routes that change no answer are better left out of its deltas. Its table is smaller without them; but a change of the route
    /// that covers them is more changes then, which costs some engines more than they gain.
    pub wants_fewer_routes: bool,
    /// Whether a call may never return, since it waits for a device. Such a writer may be given a thread of its own.
    pub may_hang: bool,
}

impl EngineInfo {
    /// An engine with tables for both families, one FIB and the [default capacity](Capacity::default), which answers or refuses at once.
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
        }
    }

    /// Whether there is a table for this family.
    #[must_use]
    pub fn has_family(&self, family: Family) -> bool {
        self.families.contains(&family)
    }
}

/// What an engine holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// IPv4 routes that the engine has: those used.
    pub routes_v4: u64,
    /// IPv6 routes that the engine has.
    pub routes_v6: u64,
    /// Memory that lookups read, bytes.
    pub table_bytes: u64,
    /// Memory that only the writer uses, bytes.
    pub writer_bytes: u64,
    /// Memory of tables that were replaced and that a reader may still read, bytes. See [`EngineWriter::free_retired`].
    pub retired_bytes: u64,
    /// Engine-specific figures ("g1_filter_bits", "v6_chunks").
    pub details: Details,
}

/// How an engine is to be made. An engine ignores an instruction set, a node or pages that do not concern it; a parameter that it
/// does not know is [`EngineError::Parameter`], for a misspelt one must not go unnoticed.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The instruction set; the best there is when `None`.
    pub isa: Option<Isa>,
    /// Bytes of table memory at most; an apply that needs more is refused.
    pub table_bytes_max: u64,
    /// The NUMA node for the tables; first touch decides when `None`.
    pub numa_node: Option<u32>,
    /// Whether tables may lie in huge pages (taken when there are any, never required).
    pub huge_pages: bool,
    /// How long [`EngineReader::lookup`] of a device engine waits for a batch, microseconds: then it is an error, which costs
    /// that batch and leaves the engine usable once the device goes on. The engine's own limit when `None`. It is no limit
    /// of slots: whoever submits and collects counts for themselves.
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
    /// The usual options with these parameters.
    #[must_use]
    pub fn of(parameters: &[(&str, &str)]) -> Self {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self { parameters: parameters.collect(), ..Self::default() }
    }
}

/// The writing side of an engine: one per table, on the control thread.
pub trait EngineWriter: Send {
    /// What is known of the engine. It is not for the hot path.
    fn info(&self) -> EngineInfo;

    /// Applies `delta`, all or nothing. Lookups go on meanwhile. `rib` is where the delta comes from ([`Rib::commit`]): what is
    /// [used](crate::RibTable::used) in it is what the engine is to have when the delta is applied, for engines that must know more than
    /// what changes.
    ///
    /// # Errors
    /// [`EngineError::Full`] or [`EngineError::Memory`]; the old table is in service then.
    fn apply(&mut self, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError>;

    /// As [`Self::apply`], for the FIB `fib`, whose routes are those of `rib`. Generations are those of the engine: each delta makes one,
    /// whichever FIB it changes.
    ///
    /// # Errors
    /// [`EngineError::NoFib`], else as [`Self::apply`].
    fn apply_to(&mut self, fib: FibId, delta: &FibDelta, rib: &Rib) -> Result<Generation, EngineError> {
        Fibs::One(fib).check(0, 1)?;
        self.apply(delta, rib)
    }

    /// Frees the tables that were replaced and that nobody reads any more. A reader never frees one, so the writer does it: here, which
    /// its thread calls every now and then, and with each delta.
    fn free_retired(&mut self) {}

    /// The generation in service.
    fn generation(&self) -> Generation;

    /// What the engine holds now.
    fn stats(&self) -> EngineStats;

    /// A reader of this table with `slots` slots of `batch_max` keys.
    ///
    /// # Errors
    /// [`EngineError::Memory`] when the slots cannot be had.
    fn reader(&self, slots: u16, batch_max: usize) -> Result<Box<dyn EngineReader>, EngineError>;
}

/// The reading side of an engine: one per lcore. Nothing here allocates, blocks or takes a lock.
pub trait EngineReader: Send {
    /// The number of slots.
    fn slots(&self) -> u16;

    /// The most keys that a slot takes.
    fn batch_max(&self) -> usize;

    /// Hands `keys` to `slot`, whose earlier answers are lost.
    ///
    /// # Errors
    /// [`EngineError::Batch`] when the keys do not fit; a device engine's own errors.
    fn submit(&mut self, slot: SlotId, keys: Keys<'_>) -> Result<(), EngineError>;

    /// As [`Self::submit`], each key in its FIB.
    ///
    /// # Errors
    /// [`EngineError::NoFib`], [`EngineError::Batch`] when there are not as many ids as keys, else as [`Self::submit`].
    fn submit_in(&mut self, slot: SlotId, fibs: Fibs<'_>, keys: Keys<'_>) -> Result<(), EngineError> {
        fibs.check(keys.len(), 1)?;
        self.submit(slot, keys)
    }

    /// The answers of what `slot` was handed, in the order of the keys; `Pending` while a device works on it.
    ///
    /// # Errors
    /// A device engine's own errors.
    fn collect(&mut self, slot: SlotId) -> Poll<Result<&[NextHopId], EngineError>>;

    /// Looks up `keys` into `out`, equally many, in calls of any size. For engines that finish inside `submit` this is
    /// one step without a copy; the provided body submits to slot 0 and polls.
    ///
    /// # Errors
    /// As [`Self::submit`] and [`Self::collect`]; [`EngineError::Batch`] when `out` is not as long as `keys`.
    fn lookup(&mut self, keys: Keys<'_>, out: &mut [NextHopId]) -> Result<(), EngineError> {
        lookup_in_slot(self, keys, out)
    }

    /// Two calls of [`Self::lookup`], such as for the two families of a burst, which share what a call costs whatever its size.
    ///
    /// # Errors
    /// Those of each call.
    fn lookup_both(&mut self, calls: [(Keys<'_>, &mut [NextHopId]); 2]) -> [Result<(), EngineError>; 2] {
        calls.map(|(keys, out)| self.lookup(keys, out))
    }

    /// As [`Self::lookup`], each key in its FIB.
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

    /// Lets go of tables that were replaced, if this reader has any. A lookup does that with the table it reads; this is for a reader
    /// without lookups, which would keep a table from being freed. It costs a few loads: call it every few thousand turns.
    fn refresh(&mut self) {}
}

/// Looks up `keys` into `out` in batches through slot 0 of `reader`, each polled until it is answered.
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
        reader.submit(SlotId(0), keys.part(start..end))?;
        loop {
            if let Poll::Ready(answers) = reader.collect(SlotId(0)) {
                out[start..end].copy_from_slice(answers?);
                break;
            }
            std::hint::spin_loop();
        }
        start = end;
    }
    Ok(())
}
