//! Route files to RIB to engine: what `lookup`, `replay` and `run` do first.
//!
//! The engine is made before the first file is opened, so that a wrong name costs no wait. Loading is all or nothing: on
//! an error no table is in service. Progress is drawn on a terminal only.

use crate::cli::args::TableArgs;
use crate::cli::exit::CliError;
use crate::cli::message::warn;
use crate::datapath::lookup::EngineFault;
use crate::engines::{self, Made};
use crate::fallback::Switch;
use anyhow::Context as _;
use fib::feed::{self, LoadOptions, Loaded};
use fib::{EngineError, EngineWriter, Generation, NextHopTable, Rib};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lpm_phi::memory::{self, Mapped};
use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Updates that become one delta. Large enough that an engine's fixed cost per delta does not show, small enough that
/// no reader waits long for news.
const UPDATES_PER_DELTA: usize = 1024;

/// A RIB, what its next hops mean, and an engine that has all of it.
pub(crate) struct Tables {
    /// The routes as told; nothing is dirty after [`Tables::load`].
    pub(crate) rib: Rib,
    /// What the next hops mean.
    pub(crate) hops: NextHopTable,
    /// The engine, with the whole RIB applied.
    pub(crate) engine: Box<dyn EngineWriter>,
    /// With a fallback, which of the two engines answers.
    pub(crate) switch: Option<Arc<Switch>>,
    /// What went wrong first when packets were looked up.
    pub(crate) fault: Arc<EngineFault>,
    /// How long the engine may keep a batch, microseconds.
    stall_us: u64,
    /// Whether the engine was given a latency to keep to.
    is_latency_target: bool,
    /// The generation of the engine that holds the RIB.
    pub(crate) generation: Generation,
    /// Time to read the files, seconds.
    pub(crate) load_s: f64,
    /// Time to build the engine's table, seconds.
    pub(crate) build_s: f64,
}

/// What an update file held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpdateCounts {
    /// Updates read and applied to the RIB.
    pub(crate) updates: u64,
    /// Deltas that reached the engine.
    pub(crate) deltas: u64,
}

impl Tables {
    /// Reads the files of `args` and builds the engine. Warnings (an MRT file cut short) go to stderr.
    ///
    /// # Errors
    /// [`EngineError`] for an engine that cannot be made or a table it cannot hold, `FeedError` for a file.
    pub(crate) fn load(args: &TableArgs) -> anyhow::Result<Self> {
        if let Some(node) = args.engine.table_node {
            memory::check_node(node).map_err(|why| CliError::Usage(format!("--table-node {why}")))?;
        }
        let Made { mut engine, switch } = engines::make_with_fallback(&args.engine)?;
        let start = Instant::now();
        let (mut rib, hops, _) = load_rib(&args.fib)?;
        let load_s = start.elapsed().as_secs_f64();
        let routes = rib.len() as u64;
        if let Some(limit) = args.engine.routes_max.filter(|limit| routes > *limit) {
            return Err(EngineError::Full { what: "routes (--routes-max)", used: routes, limit }.into());
        }
        let start = Instant::now();
        // Everything is dirty after loading: this is the full delta, and leaves nothing dirty for the next one.
        let delta = rib.take_delta();
        let generation = engine
            .apply(&delta)
            .with_context(|| format!("engine {} cannot hold this table of {routes} routes", engine.name()))?;
        let build_s = start.elapsed().as_secs_f64();
        Ok(Self {
            rib,
            hops,
            engine,
            switch,
            fault: Arc::default(),
            stall_us: args.engine.stall_us,
            is_latency_target: args.engine.latency_target_us.is_some(),
            generation,
            load_s,
            build_s,
        })
    }

    /// Applies at most `limit` updates of the file at `path`, in batches, to the RIB and the engine.
    ///
    /// # Errors
    /// `FeedError` for the file, `NextHopError` for an id that means something else already, [`EngineError`] when the
    /// engine cannot hold the result; what came before is in service then.
    pub(crate) fn apply_updates(&mut self, path: &Path, limit: u64) -> anyhow::Result<UpdateCounts> {
        let mut stream = feed::updates(path, None)?;
        let bar = progress_bar("updating", stream.bytes_total());
        let mut counts = UpdateCounts::default();
        let mut pending = 0;
        while counts.updates < limit {
            let Some(update) = stream.next().transpose()? else { break };
            update
                .apply(&mut self.rib, &mut self.hops)
                .with_context(|| format!("{}:{}", path.display(), stream.position()))?;
            counts.updates += 1;
            pending += 1;
            if pending == UPDATES_PER_DELTA {
                counts.deltas += u64::from(self.push_delta()?);
                pending = 0;
                bar.set_position(stream.bytes_done());
            }
        }
        counts.deltas += u64::from(self.push_delta()?);
        bar.finish_and_clear();
        if let Some(cut) = stream.truncated() {
            let updates = counts.updates;
            warn(format_args!("{}: {cut}; the {updates} updates before it are applied", path.display()));
        }
        Ok(counts)
    }

    /// The keys of a batch that the engine found to keep to `--latency-target-us`, in both families; `None` where it did not measure.
    pub(crate) fn batch_measured(&self) -> Option<u32> {
        let details = self.engine.stats().details;
        let batch = |wanted| details.iter().find(|(name, _)| *name == wanted).map(|(_, keys)| *keys);
        let keys = f64::min(batch("batch")?, batch("batch_v6")?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
        self.is_latency_target.then_some(keys as u32)
    }

    /// How long the datapath waits for a batch, microseconds. A fallback answers always, so there is no end to the wait then.
    pub(crate) fn stall_us(&self) -> u64 {
        if self.switch.is_some() { u64::MAX } else { self.stall_us }
    }

    /// Hands the engine what changed in the RIB; whether there was anything.
    fn push_delta(&mut self) -> Result<bool, EngineError> {
        let delta = self.rib.take_delta();
        if delta.is_empty() {
            return Ok(false);
        }
        self.generation = self.engine.apply(&delta)?;
        Ok(true)
    }
}

/// Warns of tables in 4 KB pages: they work, but a lookup may cost a TLB miss a load.
pub(crate) fn warn_of_pages() {
    let Mapped { small_bytes, .. } = memory::mapped();
    if small_bytes > 0 {
        let megabytes = small_bytes.div_ceil(1 << 20);
        warn(format_args!(
            "{megabytes} MB of tables lie in 4 KB pages, which slows lookups: too few 2 MB pages are free, and there are no \
             transparent ones; sysctl -w vm.nr_hugepages=N with N at least {} more",
            megabytes.div_ceil(2)
        ));
    }
}

/// Warns of gateways without a neighbour: there is no MAC to send their packets to. A table from MRT has only gateways.
pub(crate) fn warn_of_neighbours(hops: &NextHopTable) {
    let gateways: BTreeSet<IpAddr> = hops.iter().filter_map(|(_, hop)| hop.gateway()).collect();
    let without = gateways.iter().filter(|gateway| hops.neighbour(**gateway).is_none()).count();
    if without > 0 {
        warn(format_args!(
            "{without} of {} gateways have no neighbour: packets for them are dropped as no_neighbour; give lines `neigh ADDR \
             lladdr MAC dev PORT` with --fib, or ids in place of gateways (fwd-app fib convert --to text)",
            gateways.len()
        ));
    }
}

/// Reads route files into a RIB, with a progress bar; warns of a file that is cut short.
///
/// # Errors
/// `FeedError`, with file and line.
pub(crate) fn load_rib(paths: &[PathBuf]) -> anyhow::Result<(Rib, NextHopTable, Vec<Loaded>)> {
    let (mut rib, mut hops) = (Rib::new(), NextHopTable::new());
    let bar = progress_bar("loading", 0);
    let mut draw = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let options = LoadOptions { format: None, on_progress: Some(&mut draw) };
    let files = feed::load(paths, &mut rib, &mut hops, options);
    bar.finish_and_clear();
    let files = files?;
    for file in &files {
        warn_of(file);
    }
    Ok((rib, hops, files))
}

fn warn_of(file: &Loaded) {
    let path = file.path.display();
    if let Some(cut) = file.truncated {
        warn(format_args!("{path}: {cut}; the {} routes before it are used", file.routes()));
    }
    if file.unusable > 0 {
        warn(format_args!("{path}: {} prefixes have no next hop and are left out", file.unusable));
    }
}

/// A bar over bytes, drawn on stderr when that is a terminal; `bytes_total` 0 means not known.
fn progress_bar(what: &'static str, bytes_total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar =
        ProgressBar::with_draw_target(Some(bytes_total), ProgressDrawTarget::stderr()).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
