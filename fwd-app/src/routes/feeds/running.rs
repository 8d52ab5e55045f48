//! The feeds of a forwarder: their threads, their events, and the state of each.
//!
//! The threads start before the EAL pins the main thread. Once the ports are known, [`Feeds::over`] sets the interfaces that lead to them,
//! and the forwarder consumes the events.

use super::fpm::FpmOptions;
use super::fpm::listener::listen;
use super::interfaces::Interfaces;
use super::kernel::KernelOptions;
use super::kernel::socket::watch;
use super::thread::FeedThread;
use super::{ChangeSet, FeedCounts, FeedEvent, FeedId, RoutingTables};
use crate::error::ConfigError;
use crate::notice;
use crate::ports::PortTable;
use crate::ports::table::SharedPorts;
use crate::routes::Vrf;
use crate::routes::candidates::{Said, SourceId, SourceRoutes};
use crate::routes::spec::{NamedTable, VrfSpec};
use crate::routes::vrf::Foreign;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, bounded};
use fib::{NextHop, NextHopError, NextHopId};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most change sets of one commit: some ten thousand routes.
const SETS_PER_COMMIT: usize = 64;
/// Most change sets that wait for the control thread; each is of one read.
const SETS_WAITING: usize = 64;
/// Default limit on a feed's routes: four full tables.
const ROUTES_MAX: u64 = 1 << 22;
/// Protocols whose routes zebra makes in the kernel (`RTPROT_ZEBRA`, and `RTPROT_BGP` up to `RTPROT_OPENFABRIC`).
const ZEBRAS_PROTOCOLS: [u8; 12] = [11, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedSource {
    Files,
    /// Zebra, which connects to this address.
    Fpm(SocketAddr),
    Kernel,
}

impl FeedSource {
    const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Fpm(_) => FeedKind::Fpm.name(),
            Self::Kernel => FeedKind::Kernel.name(),
        }
    }
}

/// Treatment of a prefix known only from feeds, with no path to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForeignRoutes {
    /// Packets are dropped and answered as unreachable.
    #[default]
    Unreachable,
    /// The prefix is left out, so that its packets match a shorter route.
    Ignore,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FeedSpec {
    /// In order of preference.
    pub(crate) sources: Vec<FeedSource>,
    /// How long stale routes of FPM stay after zebra reconnects.
    pub(crate) fpm_hold: Duration,
    pub(crate) foreign: ForeignRoutes,
    /// Users that may announce routes over FPM, besides root and our own.
    pub(crate) fpm_users: Vec<u32>,
    /// Whether to follow links and addresses of TAPs.
    pub(crate) taps: bool,
    /// The most routes of each feed in each VRF.
    pub(crate) routes_max: Option<u64>,
    pub(crate) tables: RoutingTables,
}

impl FeedSpec {
    /// The same feeds for `vrfs` besides the default VRF, which use these kernel tables.
    ///
    /// # Errors
    /// The errors of [`VrfSpec::tables`], and [`ConfigError::Invalid`] for tables when no feed provides any.
    pub(crate) fn for_vrfs(self, vrfs: &[VrfSpec], tables: &[NamedTable]) -> Result<Self, ConfigError> {
        if !tables.is_empty() && self.sources.iter().all(|source| *source == FeedSource::Files) {
            return Err(ConfigError::Invalid("--vrf-table needs --fpm or --kernel-routes".to_owned()));
        }
        Ok(Self { tables: VrfSpec::tables(vrfs, tables)?, ..self })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedKind {
    Fpm,
    Kernel,
    /// Only the kernel's links and neighbours, for other feeds.
    Links,
}

impl FeedKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fpm => "fpm",
            Self::Kernel => "kernel",
            Self::Links => "links",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedState {
    Waiting,
    Connected,
    /// It is connected, and has announced all its routes.
    Complete,
    Gone,
}

struct Feed {
    kind: FeedKind,
    name: String,
    hold: Duration,
    state: FeedState,
    since: Option<Instant>,
    thread: FeedThread,
}

#[derive(Debug)]
pub(crate) struct FeedStatus {
    pub(crate) kind: FeedKind,
    pub(crate) name: String,
    /// One word.
    pub(crate) state: &'static str,
    /// Seconds until stale routes are withdrawn, if their source is connected.
    pub(crate) sweep_in_s: Option<u64>,
    pub(crate) routes: SourceRoutes,
    pub(crate) counts: FeedCounts,
}

pub(crate) struct Feeds {
    receiver: Receiver<ChangeSet>,
    /// By [`FeedId`].
    feeds: Vec<Feed>,
    /// Files, and the feeds that have routes; in order of preference.
    order: Vec<SourceId>,
    routes_max: u64,
    interfaces: Interfaces,
    foreign: ForeignRoutes,
}

impl Feeds {
    /// Starts the feeds of `spec`; `None` if it has none.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the system refuses a socket or a thread.
    pub(crate) fn start(spec: &FeedSpec) -> anyhow::Result<Option<Self>> {
        let has_fpm = spec.sources.iter().any(|source| matches!(source, FeedSource::Fpm(_)));
        let has_kernel = spec.sources.contains(&FeedSource::Kernel);
        if !has_fpm && !has_kernel && !spec.taps {
            return Ok(None);
        }
        let (sender, receiver) = bounded(SETS_WAITING);
        let (links_unread, links_read) = bounded(0);
        let routes_max = spec.routes_max.unwrap_or(ROUTES_MAX);
        let limit = usize::try_from(routes_max).unwrap_or(usize::MAX);
        let feed = |kind, name, hold, thread| Feed {
            kind,
            name,
            hold,
            state: FeedState::Waiting,
            since: None,
            thread,
        };
        let kernel = |id, kind| -> anyhow::Result<Feed> {
            let options = KernelOptions {
                feed: id,
                tables: if kind == FeedKind::Kernel { spec.tables.clone() } else { RoutingTables::none() },
                protocols_left_out: if has_fpm { ZEBRAS_PROTOCOLS.to_vec() } else { Vec::new() },
                routes_max: limit,
                ..KernelOptions::default()
            };
            let thread = watch(options, sender.clone(), links_unread.clone());
            let thread = thread.context("cannot watch the kernel's links and routes")?;
            Ok(feed(kind, "rtnetlink".to_owned(), Duration::ZERO, thread))
        };
        let (mut feeds, mut order, mut next) = (Vec::new(), Vec::new(), 0);
        for source in &spec.sources {
            let is_files = *source == FeedSource::Files;
            order.push(if is_files { SourceId::FILES } else { SourceId::of_feed(next) });
            match source {
                FeedSource::Files => {}
                FeedSource::Fpm(address) => {
                    let (hold, tables) = (spec.fpm_hold, spec.tables.clone());
                    let users = spec.fpm_users.clone();
                    let options = FpmOptions { feed: FeedId(next), hold, tables, routes_max: limit, users };
                    let links = links_read.clone();
                    let (thread, address) = listen(*address, options, sender.clone(), links)
                        .with_context(|| format!("--fpm: cannot listen on {address}"))?;
                    feeds.push(feed(FeedKind::Fpm, address.to_string(), spec.fpm_hold, thread));
                    next += 1;
                }
                FeedSource::Kernel => {
                    feeds.push(kernel(FeedId(next), FeedKind::Kernel)?);
                    next += 1;
                }
            }
        }
        if !has_kernel {
            feeds.push(kernel(FeedId(next), FeedKind::Links)?);
        }
        Ok(Some(Self {
            receiver,
            feeds,
            order,
            routes_max,
            interfaces: Interfaces::default(),
            foreign: spec.foreign,
        }))
    }

    pub(crate) fn over(self, interfaces: Interfaces) -> Self {
        Self { interfaces, ..self }
    }

    /// Gives the VRFs some change sets to commit, and records links, neighbours and addresses. Returns whether there was work.
    pub(crate) fn give(&mut self, vrfs: &mut [Vrf], ports: &SharedPorts) -> bool {
        let sets: Vec<ChangeSet> = self.receiver.try_iter().take(SETS_PER_COMMIT).collect();
        sets.iter().flat_map(|set| &set.events).for_each(|event| self.interfaces.apply(event));
        let news = &mut self.interfaces.news;
        let has_moved = std::mem::take(&mut news.has_moved);
        let has_neighbours = std::mem::take(&mut news.has_neighbours);
        if has_moved || has_neighbours {
            PortTable::change(ports, |table| {
                let stopped = self.interfaces.stopped_ports();
                table.ports.iter_mut().for_each(|port| port.is_stopped = stopped.contains(&port.id.0));
                Arc::make_mut(&mut table.learned).replace_kernel(self.interfaces.neighbours());
            });
            vrfs.iter_mut().for_each(|vrf| vrf.follow_kernel(has_moved));
        }
        if !sets.is_empty() {
            vrfs.iter_mut().for_each(Vrf::commit_updates);
        }
        for set in &sets {
            let source = SourceId::of_feed(set.feed.0);
            for event in &set.events {
                match event {
                    FeedEvent::Announce { vrf, prefix, metric, route } => {
                        if let Some(vrf) = vrfs.get_mut(*vrf) {
                            vrf.announce(source, (*prefix, *metric), route, &self.interfaces);
                        }
                    }
                    FeedEvent::Withdraw { vrf, prefix, metric } => {
                        if let Some(vrf) = vrfs.get_mut(*vrf) {
                            let (prefix, metric) = (*prefix, *metric);
                            let gone = Said { source, prefix, metric, route: None };
                            vrf.candidates.set_and_mark(&gone, || NextHopId::NONE);
                        }
                    }
                    FeedEvent::Object { object, route } => {
                        for vrf in &mut *vrfs {
                            vrf.set_object(*object, route.as_ref(), &self.interfaces);
                        }
                    }
                    FeedEvent::Stale => vrfs.iter_mut().for_each(|vrf| vrf.candidates.begin_epoch(source)),
                    FeedEvent::Sweep => vrfs.iter_mut().for_each(|vrf| vrf.candidates.sweep(source)),
                    _ => {}
                }
            }
            let counts = vrfs.iter().map(|vrf| vrf.candidates.count(source));
            let count = counts.fold(SourceRoutes::default(), SourceRoutes::and);
            set.events.iter().for_each(|event| self.note(set.feed, event, count));
        }
        !sets.is_empty()
    }

    /// Sets the order of sources, the limit of each feed, and the handling of routes without a port in a VRF.
    ///
    /// # Errors
    /// [`NextHopError`] when no id is free.
    pub(crate) fn apply_rules(&self, vrf: &mut Vrf) -> Result<(), NextHopError> {
        vrf.candidates.set_order(&self.order);
        vrf.candidates.routes_max = self.routes_max;
        if self.foreign == ForeignRoutes::Unreachable {
            vrf.candidates.unreachable = vrf.egress.hops.intern(NextHop::Unreachable)?;
        }
        Ok(())
    }

    /// Updates the state of a feed by an event; `count` is its number of routes in all VRFs.
    fn note(&mut self, id: FeedId, event: &FeedEvent, count: SourceRoutes) {
        let Some(feed) = self.feeds.get_mut(usize::from(id.0)) else { return };
        let name = feed.kind.name();
        let SourceRoutes { routes, stale, .. } = count;
        match event {
            FeedEvent::Connected => {
                (feed.state, feed.since) = (FeedState::Connected, Some(Instant::now()));
                if feed.kind == FeedKind::Fpm {
                    notice::post(format_args!("{name}: zebra has connected"));
                }
            }
            FeedEvent::Disconnected => {
                (feed.state, feed.since) = (FeedState::Gone, None);
                notice::post(format_args!("{name}: zebra has disconnected; its {routes} routes stay"));
            }
            FeedEvent::Complete => feed.state = FeedState::Complete,
            FeedEvent::Sweep if feed.kind == FeedKind::Fpm => {
                feed.state = FeedState::Complete;
                let left = routes - stale;
                if stale == 0 {
                    notice::post(format_args!("{name}: zebra has announced all its {left} routes again"));
                } else {
                    notice::warn(format_args!(
                        "{name}: withdrawing {stale} routes that zebra has not announced again; {left} stay"
                    ));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn take_new_addresses(&mut self) -> bool {
        std::mem::take(&mut self.interfaces.news.has_addresses)
    }

    pub(crate) const fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// Warns that a route of `source` leads to no port. `vrf` is the name of the VRF, unless it is the only one.
    pub(crate) fn notice_foreign(&self, vrf: Option<&str>, Foreign { prefix, source, ifindex }: &Foreign) {
        let Some((name, _)) = self.sources().find(|(_, of)| of == source) else { return };
        let vrf = vrf.map_or_else(String::new, |vrf| format!("VRF {vrf}: "));
        let interface = self.interfaces.name_of_other(*ifindex);
        let which = if prefix.len() == 0 { "the default route" } else { "the route" };
        notice::warn(format_args!(
            "{name}: {vrf}{which} {prefix} leads over {interface}, which has no port: its packets are dropped as unreachable, as for all such routes (ctl show feeds, --foreign-routes)"
        ));
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = (&'static str, SourceId)> {
        (0..).zip(&self.feeds).map(|(number, feed)| (feed.kind.name(), SourceId::of_feed(number)))
    }

    pub(crate) fn order(&self) -> &[SourceId] {
        &self.order
    }

    /// Converts the order of `wanted`. Stopped sources are skipped; running ones that it lacks follow at the end.
    pub(crate) fn order_like(&self, wanted: &[FeedSource]) -> Vec<SourceId> {
        let source = |wanted: &FeedSource| match wanted {
            FeedSource::Files => Some(SourceId::FILES),
            feed => self.sources().find(|(name, _)| *name == feed.name()).map(|(_, source)| source),
        };
        let mut order: Vec<_> = wanted.iter().filter_map(source).collect();
        let others = self.order.iter().filter(|of| !order.contains(of)).copied().collect::<Vec<_>>();
        order.extend(others);
        order
    }

    pub(crate) fn set_order(&mut self, order: Vec<SourceId>) {
        self.order = order;
    }

    pub(crate) fn status(&self, count: impl Fn(SourceId) -> SourceRoutes) -> Vec<FeedStatus> {
        let of = |(id, feed): (u8, &Feed)| {
            let routes = count(SourceId::of_feed(id));
            let has_stale = routes.stale > 0;
            let left = feed.since.map(|since| feed.hold.saturating_sub(since.elapsed()).as_secs());
            let state = match feed.state {
                _ if feed.thread.has_ended() => "ended",
                FeedState::Waiting => "waiting",
                FeedState::Gone => "stale",
                FeedState::Connected if has_stale => "connected, stale routes stay",
                FeedState::Connected => "connected",
                FeedState::Complete => "complete",
            };
            FeedStatus {
                kind: feed.kind,
                name: feed.name.clone(),
                state,
                sweep_in_s: left.filter(|_| has_stale && feed.kind == FeedKind::Fpm),
                routes,
                counts: feed.thread.counts(),
            }
        };
        (0..).zip(&self.feeds).map(of).collect()
    }
}

#[cfg(test)]
#[path = "test_feeds.rs"]
mod test_feeds;
