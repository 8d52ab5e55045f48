//! The control loop: gives a session what changes its routes and ports while packets flow.
//!
//! It runs on the control thread. Each source is asked in turn for a bounded amount of work: the update stream of `--updates`,
//! SIGHUP, which reads the route files again, the links of the ports, the session's feeds, and the clients that ask. Nothing here ends the
//! forwarder: what cannot be applied is a notice, and everything stays as it was.

use super::interfaces::Resolved;
use super::ports::Link;
use super::session::load_rib;
use super::thread::Told;
use super::updates::{Stream, Turn};
use super::{Session, Signals};
use crate::notice;
use crossbeam_channel::Receiver;
use fib::{NextHopTable, Rib};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the sources are asked when nothing happens, with an update stream, whose updates have their times, and without.
const TICKS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));
/// How often links are looked at, if no driver reports a change by an interrupt before.
const LINK_PERIOD: Duration = Duration::from_millis(100);
/// How often neighbours become egress entries, at most: each time costs a new egress table.
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);

/// What changes a session while packets flow.
#[derive(Default)]
pub(crate) struct Service {
    stream: Option<Stream>,
    /// Whether the stream ends with the first update that is refused.
    is_strict: bool,
    reloads: Option<Reloads>,
    links: Option<Links>,
    neighbours: Option<Neighbours>,
    requests: Option<Requests>,
}

/// Answers requests that wait; returns whether there were any.
type Requests = Box<dyn FnMut(&mut Session) -> bool + Send>;

impl Service {
    /// Applies `stream`. If `is_strict`, the first update that is refused ends the stream and is the service's result; otherwise it
    /// is a warning.
    pub(crate) fn with_stream(mut self, stream: Option<Stream>, is_strict: bool) -> Self {
        (self.stream, self.is_strict) = (stream, is_strict);
        self
    }

    /// Reads `files`, if there are any, again when `signals` has a SIGHUP.
    pub(crate) fn with_reloads(mut self, signals: Signals, files: Vec<PathBuf>) -> Self {
        self.reloads = (!files.is_empty()).then_some(Reloads { signals, files, loading: None });
        self
    }

    /// Follows `links`; `are_up` says which of all ports' links are up now.
    pub(crate) fn with_links(mut self, links: Vec<Link>, are_up: Vec<bool>) -> Self {
        self.links = Some(Links { links, are_up, last: Instant::now(), events: 0 });
        self
    }

    /// Takes in what the router learns of neighbours.
    pub(crate) fn with_neighbours(mut self, from: Option<Receiver<Resolved>>) -> Self {
        self.neighbours = from.map(|from| Neighbours { from, last: Instant::now() });
        self
    }

    /// Has `answer` answer the requests of clients, some at a time.
    pub(crate) fn with_requests(mut self, answer: impl FnMut(&mut Session) -> bool + Send + 'static) -> Self {
        self.requests = Some(Box::new(answer));
        self
    }

    /// Serves `session` until the thread is told to stop.
    ///
    /// # Errors
    /// The first update that was refused, if the stream is strict.
    pub(crate) fn run(mut self, session: &mut Session, told: &Told) -> anyhow::Result<()> {
        let mut result = Ok(());
        while !told.is_stopping() {
            let mut worked = false;
            match self.stream.as_mut().map(|stream| stream.turn(session)) {
                None | Some(Ok(Turn::Idle)) => {}
                Some(Ok(Turn::Worked)) => worked = true,
                Some(Ok(Turn::Ended)) => self.stream = None,
                Some(Err(error)) if self.is_strict => (self.stream, result) = (None, Err(error)),
                Some(Err(error)) => notice::warn(format_args!("{error:#}; what it changes stays as it was")),
            }
            if let Some(reloads) = &mut self.reloads {
                reloads.turn(session);
            }
            if let Some(links) = &mut self.links {
                links.turn(session);
            }
            if let Some(neighbours) = &mut self.neighbours {
                neighbours.turn(session);
            }
            worked |= session.learn();
            worked |= self.requests.as_mut().is_some_and(|answer| answer(session));
            if !worked {
                std::thread::sleep(if self.stream.is_some() { TICKS.0 } else { TICKS.1 });
            }
        }
        // Lcores have ended by now, and may have left packets for someone who looks on.
        if let Some(answer) = &mut self.requests {
            answer(session);
        }
        result
    }
}

/// The tables of the route files, read again.
type Tables = anyhow::Result<(Rib, NextHopTable)>;

/// SIGHUP: the route files are read on a thread of their own, then their difference is applied.
struct Reloads {
    signals: Signals,
    files: Vec<PathBuf>,
    loading: Option<JoinHandle<Tables>>,
}

impl Reloads {
    fn turn(&mut self, session: &mut Session) {
        match self.loading.take_if(|loading| loading.is_finished()) {
            Some(loaded) => {
                let loaded = loaded
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that reads has panicked")));
                apply(session, loaded);
            }
            None if self.loading.is_none() && self.signals.reload_wanted() => {
                let files = self.files.clone();
                let read = move || load_rib(&files, &mut |_| ()).map(|(rib, hops, _)| (rib, hops));
                match std::thread::Builder::new().name("reload".into()).spawn(read) {
                    Ok(loading) => self.loading = Some(loading),
                    Err(error) => notice::warn(format_args!("cannot read the route files again: {error}")),
                }
            }
            None => {}
        }
    }
}

/// Applies the difference to tables that were read again.
fn apply(session: &mut Session, loaded: Tables) {
    let start = Instant::now();
    match loaded.and_then(|(rib, hops)| Ok((session.replace_routes(&rib, &hops)?, rib.len()))) {
        Ok((changes, routes)) => {
            let ms = start.elapsed().as_millis();
            notice::post(format_args!(
                "route files read again: {routes} routes, {changes} changed, in {ms} ms"
            ));
        }
        Err(error) => notice::warn(format_args!("{error:#}; the routes stay as they were")),
    }
}

/// What the router learns of neighbours.
struct Neighbours {
    from: Receiver<Resolved>,
    last: Instant,
}

impl Neighbours {
    /// Brings into service what has been learned since.
    fn turn(&mut self, session: &mut Session) {
        if self.from.is_empty() || self.last.elapsed() < NEIGHBOUR_PERIOD {
            return;
        }
        self.last = Instant::now();
        self.from.try_iter().for_each(|learned| session.set_resolved(learned));
        if let Err(error) = session.commit() {
            notice::warn(format_args!("{error:#}"));
        }
    }
}

/// The links of the ports.
struct Links {
    links: Vec<Link>,
    /// By the port's index.
    are_up: Vec<bool>,
    last: Instant,
    /// Changes that drivers had reported by then.
    events: u64,
}

impl Links {
    /// Takes the next hops behind a link that has gone down out of service, and back behind one that has come up.
    fn turn(&mut self, session: &mut Session) {
        let events = self.links.first().map_or(0, |link| link.port.link_events());
        if events == self.events && self.last.elapsed() < LINK_PERIOD {
            return;
        }
        (self.last, self.events) = (Instant::now(), events);
        let mut changed = false;
        for link in &self.links {
            let (Some(is_up), Some(was_up)) = (link.is_up(), self.are_up.get_mut(link.index)) else {
                continue;
            };
            if is_up != *was_up {
                let (index, name, state) = (link.index, link.port.name(), if is_up { "up" } else { "down" });
                notice::post(format_args!("port {index} ({name}): link {state}"));
                (*was_up, changed) = (is_up, true);
                session.set_link(index, is_up);
            }
        }
        if changed && let Err(error) = session.commit() {
            notice::warn(format_args!("{error:#}"));
        }
    }
}
