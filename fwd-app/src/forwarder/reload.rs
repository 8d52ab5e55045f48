//! Reloads: reads the configuration and the route files again, and applies the options that may change while packets flow.
//!
//! A separate thread reads and checks everything first; any error leaves everything unchanged. Then the control thread sets MTUs, which a
//! device may still refuse, and addresses. The order of sources and the route differences follow in slices.

use super::in_effect::{ConfigValue, in_effect};
use super::port_changes::{ChangeRefused, SetMtu};
use super::{Forwarder, Signals};
use crate::notice::{self, LogLevel};
use crate::ports::address::PortAddress;
use crate::ports::taps::Taps;
use crate::routes::feeds::running::FeedSource;
use crate::routes::files::Replacement;
use crate::routes::spec::load_rib;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, Sender, unbounded};
use fib::{NextHopTable, PortRef, Rib};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Enumerate;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Instant;
use std::vec::IntoIter;

pub(crate) type VrfFiles = BTreeMap<String, Vec<PathBuf>>;

/// The options of a newly read configuration that may change while packets flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadPlan {
    pub(crate) files: VrfFiles,
    pub(crate) addresses: Vec<PortAddress>,
    /// Bytes; ports that are not listed get their default.
    pub(crate) mtus: Vec<(PortRef, u16)>,
    /// `None` leaves the order unchanged.
    pub(crate) order: Option<Vec<FeedSource>>,
    pub(crate) netns: Option<PathBuf>,
    /// The least severe level to print; `None` leaves it unchanged.
    pub(crate) log_level: Option<LogLevel>,
    /// Changed keys that the reload applies.
    pub(crate) applied: Vec<String>,
    /// Changed keys that need a restart.
    pub(crate) restart: Vec<String>,
    pub(crate) config: Vec<ConfigValue>,
}

pub(crate) type ReadConfig = Arc<dyn Fn(&[ConfigValue]) -> anyhow::Result<ReloadPlan> + Send + Sync>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ReloadReport {
    pub(crate) applied: Vec<String>,
    pub(crate) restart: Vec<String>,
    /// The routes in the files; `changed` counts those that differ.
    pub(crate) routes: usize,
    pub(crate) changed: u64,
    /// Prefixes with several routes, which a new order of sources may affect.
    pub(crate) reordered: usize,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied, restart, routes, changed, reordered } = self;
        let list = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        writeln!(f, "applied          {}", list(applied))?;
        writeln!(f, "needs a restart  {}", list(restart))?;
        if *reordered > 0 {
            writeln!(f, "order of sources {reordered} prefixes of several sources")?;
        }
        writeln!(f, "route files      {routes} routes, {changed} changed")
    }
}

/// Result of a reload; the error says which parts have changed nevertheless, or that everything is as before.
pub(crate) type ReloadResult = Result<ReloadReport, String>;

#[derive(Debug)]
pub(crate) struct ReloadClient {
    ask: Sender<()>,
    pub(crate) answers: Receiver<ReloadResult>,
}

impl ReloadClient {
    pub(crate) fn ask(&self) {
        // A service that has ended does not answer; the client then gets an error when its command is dropped.
        let _ = self.ask.send(());
    }
}

type Loaded = anyhow::Result<(Option<ReloadPlan>, Vec<(Rib, NextHopTable)>)>;

/// A reload whose routes are being applied, one VRF at a time.
struct Pending {
    /// The remaining tables, by number of the VRF.
    tables: Enumerate<IntoIter<(Rib, NextHopTable)>>,
    current: Option<(usize, Replacement)>,
    start: Instant,
    has_taken: bool,
    report: ReloadReport,
    read: Option<(VrfFiles, Vec<ConfigValue>)>,
    refused: Option<String>,
}

impl Pending {
    /// Does a slice of the work. Returns whether the reload is complete.
    fn advance(&mut self, forwarder: &mut Forwarder) -> bool {
        // Wait until all prefixes are reordered.
        if self.report.reordered > 0 && forwarder.vrfs().iter().any(|vrf| vrf.candidates.walk.is_reordering())
        {
            return false;
        }
        let refusal = if let Some((number, replacement)) = &mut self.current {
            let Poll::Ready(result) = replacement.advance(forwarder.vrf_mut(*number)) else { return false };
            let taken = result.map(|changed| {
                self.has_taken = true;
                self.report.routes += replacement.routes();
                self.report.changed += changed;
            });
            self.current = None;
            taken.err()
        } else if let Some((number, (rib, hops))) = self.tables.next() {
            let begun = forwarder.vrf_mut(number).replace_routes(rib, hops);
            begun.map(|replacement| self.current = Some((number, replacement))).err()
        } else {
            if self.has_taken {
                let (ReloadReport { routes, changed, .. }, ms) =
                    (&self.report, self.start.elapsed().as_millis());
                notice::post(format_args!(
                    "route files read again: {routes} routes, {changed} changed, in {ms} ms"
                ));
            }
            return true;
        };
        if let Some(error) = refusal {
            let why = format!("{error:#}; its routes were not changed");
            notice::warn(&why);
            self.refused.get_or_insert(why);
        }
        false
    }

    fn end(self, forwarder: &mut Forwarder) -> ReloadResult {
        let Self { report, read, refused, .. } = self;
        if let Some((files, config)) = read {
            if refused.is_none() {
                for (name, files) in files {
                    if let Ok(number) = forwarder.find(&name) {
                        forwarder.vrf_mut(number).files = files;
                    }
                }
            }
            // Keys of route files end in `fib`.
            let stays = |path: &str| {
                report.restart.iter().any(|known| known == path) || refused.is_some() && path.ends_with("fib")
            };
            forwarder.config = in_effect(&forwarder.config, &config, stays);
        }
        refused.map_or(Ok(report), Err)
    }
}

pub(super) struct Reloads {
    signals: Signals,
    read: Option<ReadConfig>,
    asked: Receiver<()>,
    answers: Sender<ReloadResult>,
    has_client: bool,
    loading: Option<JoinHandle<Loaded>>,
    applying: Option<Pending>,
}

impl Reloads {
    /// Accepts SIGHUP and the returned client. Without `read` only the route files are read.
    pub(super) fn new(signals: Signals, read: Option<ReadConfig>) -> (Self, ReloadClient) {
        let ((ask, asked), (sender, answers)) = (unbounded(), unbounded());
        let reloads =
            Self { signals, read, asked, answers: sender, has_client: false, loading: None, applying: None };
        (reloads, ReloadClient { ask, answers })
    }

    pub(super) fn is_applying(&self) -> bool {
        self.applying.is_some()
    }

    /// Does a slice of the work. `device` sets the MTU of a device.
    pub(super) fn advance(&mut self, forwarder: &mut Forwarder, device: SetMtu<'_>) {
        if let Some(done) = self.applying.take_if(|pending| pending.advance(forwarder)) {
            self.end(done.end(forwarder));
        }
        if let Some(loaded) = self.loading.take_if(|loading| loading.is_finished()) {
            let loaded = loaded
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that reads files has panicked")));
            let (loaded, before) = (loaded.map_err(ChangeRefused::from), forwarder.ports());
            match loaded.and_then(|loaded| Self::begin(forwarder, loaded, device)) {
                Ok(applying) => self.applying = Some(applying),
                Err(refused) => {
                    forwarder.note_kept_mtus(&before);
                    notice::warn(&refused);
                    self.end(Err(refused.to_string()));
                }
            }
        }
        let is_busy = self.is_busy();
        if self.asked.try_recv().is_ok() {
            if is_busy {
                let _ = self.answers.send(Err("a reload is running".to_owned()));
            } else {
                self.has_client = true;
                self.start(forwarder);
            }
        } else if !is_busy && self.signals.reload_wanted() {
            self.start(forwarder);
        }
        self.signals.set_reloading(self.is_busy());
    }

    fn is_busy(&self) -> bool {
        self.loading.is_some() || self.applying.is_some()
    }

    fn start(&mut self, forwarder: &Forwarder) {
        let read = self.read.clone();
        let vrfs: Vec<_> = forwarder.vrfs().iter().map(|vrf| (vrf.name.clone(), vrf.files.clone())).collect();
        let config = forwarder.config.clone();
        let load = move || {
            let plan = read.map(|read| read(&config)).transpose()?;
            let had_files = vrfs.iter().any(|(_, files)| !files.is_empty());
            let files = vrfs.into_iter().map(|(name, files)| match &plan {
                Some(plan) => {
                    plan.files.get(&name).cloned().with_context(|| format!("there is no VRF {name} any more"))
                }
                None => Ok(files),
            });
            let files = files.collect::<anyhow::Result<Vec<_>>>()?;
            if !had_files && files.iter().all(Vec::is_empty) {
                return Ok((plan, Vec::new()));
            }
            let tables = files.iter().map(|files| load_rib(files, &mut |_| ()));
            let tables = tables.map(|loaded| loaded.map(|(rib, hops, _)| (rib, hops)));
            Ok((plan, tables.collect::<anyhow::Result<_>>()?))
        };
        match std::thread::Builder::new().name("reload".into()).spawn(load) {
            Ok(loading) => self.loading = Some(loading),
            Err(error) => {
                notice::warn(format_args!("cannot read the configuration again: {error}"));
                self.end(Err(error.to_string()));
            }
        }
    }

    /// Checks everything, then applies MTUs and addresses. The order of sources and the routes follow in slices.
    fn begin(
        forwarder: &mut Forwarder,
        (plan, tables): (Option<ReloadPlan>, Vec<(Rib, NextHopTable)>),
        device: SetMtu<'_>,
    ) -> Result<Pending, ChangeRefused> {
        for (number, (rib, hops)) in tables.iter().enumerate() {
            forwarder.vrf(number).check_routes(rib, hops)?;
        }
        let mut pending = Pending {
            tables: tables.into_iter().enumerate(),
            current: None,
            start: Instant::now(),
            has_taken: false,
            report: ReloadReport::default(),
            read: None,
            refused: None,
        };
        if let Some(plan) = plan {
            let ReloadPlan { files, addresses, mtus, order, netns, log_level, applied, restart, config } =
                plan;
            let before = forwarder.ports();
            let ports = before.with_addresses(&addresses).and_then(|ports| ports.with_mtus(&mtus));
            let ports = ports.map_err(anyhow::Error::from)?;
            if let Err(mut refused) = forwarder.set_mtus(&ports, device) {
                // The TAPs of ports that keep their new MTUs get them too.
                refused.kept.extend(Taps::follow(netns.as_deref(), &before, &forwarder.ports()).err());
                return Err(refused);
            }
            if let Err(why) = forwarder.set_addresses(&before, &ports, netns.as_deref()) {
                let kept = forwarder.restore_ports(&before, &ports, netns.as_deref(), device);
                return Err(ChangeRefused { why, kept });
            }
            log_level.into_iter().for_each(notice::set_level);
            pending.report.reordered = order.map_or(0, |order| forwarder.set_source_order(&order));
            for (what, keys) in [("applied", &applied), ("a restart is needed for", &restart)] {
                if !keys.is_empty() {
                    notice::post(format_args!("configuration read again: {what} {}", keys.join(", ")));
                }
            }
            (pending.report.applied, pending.report.restart) = (applied, restart);
            pending.read = Some((files, config));
        }
        Ok(pending)
    }

    fn end(&mut self, result: ReloadResult) {
        if std::mem::take(&mut self.has_client) {
            let _ = self.answers.send(result);
        }
    }
}

#[cfg(test)]
#[path = "reload_test.rs"]
mod tests;
