//! Reloads: the configuration and the route files are read again, and what can change while packets flow is applied.
//!
//! SIGHUP and `ctl reload` start one. Everything is read and checked on a thread of its own first; if anything is wrong, nothing changes.
//! Then the control thread sets addresses, and applies the difference of the routes in slices.

use super::service::Applying;
use super::{Forwarder, Signals};
use crate::notice::{self, LogLevel};
use crate::ports::address::PortAddress;
use crate::routes::files::load_rib;
use crossbeam_channel::{Receiver, Sender, unbounded};
use fib::{NextHopTable, Rib};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What the configuration says now of what can change.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReloadPlan {
    /// The route files of each VRF.
    pub(crate) files: Vec<Vec<PathBuf>>,
    /// The addresses of ports.
    pub(crate) addresses: Vec<PortAddress>,
    /// The namespace of the TAPs.
    pub(crate) netns: Option<PathBuf>,
    /// Messages below it are left out; `None` leaves that as it is.
    pub(crate) log_level: Option<LogLevel>,
    /// Keys that have changed, and that are applied.
    pub(crate) applied: Vec<String>,
    /// Keys that have changed, and that need a restart.
    pub(crate) restart: Vec<String>,
}

/// Reads the configuration again.
pub(crate) type ReadConfig = Arc<dyn Fn() -> anyhow::Result<ReloadPlan> + Send + Sync>;

/// What a reload has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ReloadReport {
    /// Keys that have changed and are applied.
    pub(crate) applied: Vec<String>,
    /// Keys that have changed and need a restart.
    pub(crate) restart: Vec<String>,
    /// Routes in the files, and how many of them are new.
    pub(crate) routes: usize,
    pub(crate) changed: u64,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { applied, restart, routes, changed } = self;
        let list = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        writeln!(f, "applied          {}", list(applied))?;
        writeln!(f, "needs a restart  {}", list(restart))?;
        writeln!(f, "route files      {routes} routes, {changed} changed")
    }
}

/// How a reload ended; the error says that nothing, or what, has changed.
pub(crate) type ReloadResult = Result<ReloadReport, String>;

/// The end of a channel by which clients ask for reloads.
#[derive(Debug)]
pub(crate) struct ReloadClient {
    ask: Sender<()>,
    /// The answer to each.
    pub(crate) answers: Receiver<ReloadResult>,
}

impl ReloadClient {
    /// Asks for a reload, whose answer comes later.
    pub(crate) fn ask(&self) {
        // A service that has ended answers nothing: the client is told so when its command is dropped.
        let _ = self.ask.send(());
    }
}

type Loaded = anyhow::Result<(Option<ReloadPlan>, Vec<(Rib, NextHopTable)>)>;

/// A reload whose routes are being applied.
struct Pending {
    applying: Applying,
    report: ReloadReport,
    /// Why the addresses are not all in service.
    refused: Option<String>,
}

/// The reload in progress, and who may ask for one.
pub(super) struct Reloads {
    signals: Signals,
    read: Option<ReadConfig>,
    asked: Receiver<()>,
    answers: Sender<ReloadResult>,
    /// Whether a client waits for the answer.
    has_client: bool,
    loading: Option<JoinHandle<Loaded>>,
    applying: Option<Pending>,
}

impl Reloads {
    /// Reloads by SIGHUP, and by the client that is returned. Without `read` only the route files are read.
    pub(super) fn new(signals: Signals, read: Option<ReadConfig>) -> (Self, ReloadClient) {
        let ((ask, asked), (sender, answers)) = (unbounded(), unbounded());
        let reloads =
            Self { signals, read, asked, answers: sender, has_client: false, loading: None, applying: None };
        (reloads, ReloadClient { ask, answers })
    }

    /// Whether routes are being applied.
    pub(super) fn is_applying(&self) -> bool {
        self.applying.is_some()
    }

    /// Does a slice of the work.
    pub(super) fn turn(&mut self, forwarder: &mut Forwarder) {
        if let Some(Pending { mut applying, mut report, refused }) = self.applying.take() {
            match (applying.turn(forwarder), refused) {
                (None, refused) => self.applying = Some(Pending { applying, report, refused }),
                (Some(Ok((routes, changed))), None) => {
                    (report.routes, report.changed) = (routes, changed);
                    self.end(Ok(report));
                }
                (Some(routes), addresses) => {
                    let refused: Vec<_> = addresses.into_iter().chain(routes.err()).collect();
                    self.end(Err(refused.join("; ")));
                }
            }
        }
        if let Some(loaded) = self.loading.take_if(|loading| loading.is_finished()) {
            let loaded =
                loaded.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that reads has panicked")));
            match loaded.and_then(|loaded| Self::begin(forwarder, loaded)) {
                Ok(applying) => self.applying = Some(applying),
                Err(error) => {
                    notice::warn(format_args!("{error:#}; everything stays as it was"));
                    self.end(Err(format!("{error:#}; everything stays as it was")));
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

    /// Whether something is being read, or its difference applied.
    fn is_busy(&self) -> bool {
        self.loading.is_some() || self.applying.is_some()
    }

    /// Reads on a thread of its own.
    fn start(&mut self, forwarder: &Forwarder) {
        let read = self.read.clone();
        let files: Vec<_> = forwarder.vrfs().iter().map(|vrf| vrf.files().to_vec()).collect();
        let has_files = !files.iter().all(Vec::is_empty);
        let load = move || {
            let plan = read.map(|read| read()).transpose()?;
            let files = plan.as_ref().map_or(files, |plan| plan.files.clone());
            if !has_files && files.iter().all(Vec::is_empty) {
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

    /// Checks the addresses, then applies them. The routes follow.
    fn begin(
        forwarder: &mut Forwarder,
        (plan, tables): (Option<ReloadPlan>, Vec<(Rib, NextHopTable)>),
    ) -> anyhow::Result<Pending> {
        let (mut report, mut refused) = (ReloadReport::default(), None);
        if let Some(ReloadPlan { files, addresses, netns, log_level, applied, restart }) = plan {
            let ports = forwarder.ports().with_addresses(&addresses)?;
            if let Err(error) = forwarder.set_addresses(&ports, netns.as_deref()) {
                let why = format!("{error:#}; the addresses are not all in service");
                notice::warn(&why);
                refused = Some(why);
            }
            log_level.into_iter().for_each(notice::set_level);
            files
                .into_iter()
                .enumerate()
                .for_each(|(number, files)| forwarder.vrf_mut(number).set_files(files));
            for (what, keys) in [("applied", &applied), ("a restart is needed for", &restart)] {
                if !keys.is_empty() {
                    notice::post(format_args!("configuration read again: {what} {}", keys.join(", ")));
                }
            }
            (report.applied, report.restart) = (applied, restart);
        }
        Ok(Pending { applying: Applying::new(tables), report, refused })
    }

    fn end(&mut self, result: ReloadResult) {
        if std::mem::take(&mut self.has_client) {
            let _ = self.answers.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarder::test_forwarder::forwarder;
    use crate::ports::table::tests::ports;
    use crate::ports::taps::TapSpec;
    use fib::PortRef;

    fn address(text: &str) -> PortAddress {
        PortAddress { port: PortRef::Index(0), address: text.parse().unwrap(), prefix_len: 24 }
    }

    /// The answer to a client of a forwarder whose port 0 has 192.0.2.1, and maybe a TAP, and whose configuration has these addresses now.
    fn reloaded(forwarder: &mut Forwarder, has_tap: bool, addresses: Vec<PortAddress>) -> ReloadResult {
        let taps = has_tap.then(|| (PortRef::Index(0), "tap0".to_owned())).into_iter().collect();
        let taps = TapSpec { taps, ..TapSpec::default() };
        let table = ports(2).with_interfaces(&[address("192.0.2.1")], &taps).unwrap();
        forwarder.set_ports(table).unwrap();
        let files = vec![forwarder.main().files().to_vec()];
        let netns = Some(PathBuf::from("/nonexistent"));
        let applied = vec!["port.p0.addresses".to_owned()];
        let plan = ReloadPlan { files, addresses, netns, applied, ..ReloadPlan::default() };
        let read: ReadConfig = Arc::new(move || Ok(plan.clone()));
        let (mut reloads, client) = Reloads::new(Signals::default(), Some(read));
        client.ask();
        loop {
            reloads.turn(forwarder);
            if let Ok(answer) = client.answers.try_recv() {
                return answer;
            }
            std::thread::yield_now();
        }
    }

    fn v4_of(forwarder: &Forwarder) -> Vec<String> {
        forwarder.ports().ports[0].v4().map(|address| address.to_string()).collect()
    }

    #[test]
    fn addresses_are_replaced_and_the_routes_to_them_follow() {
        let mut forwarder = forwarder();
        let routes = forwarder.main().rib().v4.len();
        let answer = reloaded(&mut forwarder, false, vec![address("192.0.2.7"), address("198.51.100.7")]);
        let report = answer.unwrap();
        assert_eq!((report.applied, report.routes > 0), (vec!["port.p0.addresses".to_owned()], true));
        assert_eq!(v4_of(&forwarder), ["192.0.2.7", "198.51.100.7"]);
        let route = |text: &str| forwarder.main().longest(text.parse().unwrap()).unwrap().0;
        assert_eq!(route("192.0.2.7").prefix.to_string(), "192.0.2.7/32");
        assert_ne!(route("192.0.2.1").prefix.to_string(), "192.0.2.1/32", "the router is not there any more");
        assert!(forwarder.main().rib().v4.len() > routes);
    }

    #[test]
    fn an_address_of_a_port_that_had_none_changes_nothing() {
        let mut forwarder = forwarder();
        let first = PortAddress { port: PortRef::Index(1), ..address("192.0.2.9") };
        let why = reloaded(&mut forwarder, false, vec![address("192.0.2.7"), first]).unwrap_err();
        assert!(why.contains("port p1 has had none") && why.ends_with("everything stays as it was"), "{why}");
        assert_eq!(v4_of(&forwarder), ["192.0.2.1"]);
    }

    #[test]
    fn a_tap_that_refuses_is_in_the_answer() {
        let mut forwarder = forwarder();
        let why = reloaded(&mut forwarder, true, vec![address("192.0.2.7")]).unwrap_err();
        assert!(why.ends_with("the addresses are not all in service"), "{why}");
        assert_eq!(v4_of(&forwarder), ["192.0.2.7"], "the forwarder's own are");
    }
}
