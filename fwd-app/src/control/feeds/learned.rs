//! The feeds of a forwarder: their threads, their announcements, and the state of each.
//!
//! A [`Sources`] has the threads, which are started before EAL pins the main thread. Once the ports are known it becomes a
//! [`Learned`] for each VRF, which the VRF's session asks for changes.

use super::fpm::FpmOptions;
use super::fpm::listener::listen;
use super::interfaces::{Interfaces, LinkChange};
use super::kernel::KernelOptions;
use super::kernel::socket::watch;
use super::thread::FeedThread;
use super::{ChangeSet, FeedCounts, FeedEvent, FeedId, Path, Tables};
use crate::control::session::candidates::{SourceId, SourceRoutes};
use crate::control::vrfs::{NamedTable, VrfSpec};
use crate::error::ConfigError;
use crate::notice;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, bounded};
use fib::IpPrefix;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Change sets that wait for the control thread, at most; each is of one read.
const SETS_WAITING: usize = 64;
/// The most routes of a feed without `--routes-max`: four full tables.
const ROUTES_MAX: u64 = 1 << 22;
/// Numbers of protocols whose routes zebra makes in the kernel (`RTPROT_ZEBRA`, and `RTPROT_BGP` up to `RTPROT_OPENFABRIC`).
const ZEBRAS_PROTOCOLS: [u8; 12] = [11, 186, 187, 188, 189, 190, 191, 192, 193, 194, 195, 196];

/// A source of routes beside the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The route files and their updates.
    Files,
    /// Zebra, which connects to this address.
    Fpm(SocketAddr),
    /// The kernel.
    Kernel,
}

impl Source {
    /// Its name in answers.
    const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Fpm(_) => FeedKind::Fpm.name(),
            Self::Kernel => FeedKind::Kernel.name(),
        }
    }
}

/// What becomes of a feed's route none of whose paths has a port, when files have no route of its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ForeignRoutes {
    /// Its packets are dropped, and their senders are told that the destination is unreachable.
    #[default]
    Unreachable,
    /// It is left out, so that its packets take a shorter route.
    Ignore,
}

/// Which feeds a forwarder has.
#[derive(Clone, Debug, Default)]
pub(crate) struct FeedSpec {
    /// The sources, the most preferred first.
    pub(crate) sources: Vec<Source>,
    /// How long stale routes of FPM stay after zebra has come back.
    pub(crate) fpm_hold: Duration,
    /// What becomes of routes without a port.
    pub(crate) foreign: ForeignRoutes,
    /// The users that may announce routes over FPM, besides root and our own.
    pub(crate) fpm_users: Vec<u32>,
    /// Whether the links and addresses of TAPs are followed.
    pub(crate) taps: bool,
    /// The most routes of each feed in each VRF.
    pub(crate) routes_max: Option<u64>,
    /// The VRFs besides the default one.
    pub(crate) other_vrfs: usize,
    /// The VRFs of the kernel's tables.
    pub(crate) tables: Tables,
}

impl FeedSpec {
    /// The same feeds for `vrfs` besides the default VRF, which have these tables of the kernel.
    ///
    /// # Errors
    /// As [`VrfSpec::tables`], and [`ConfigError::Invalid`] for tables when no feed has any.
    pub(crate) fn for_vrfs(self, vrfs: &[VrfSpec], tables: &[NamedTable]) -> Result<Self, ConfigError> {
        if !tables.is_empty() && self.sources.iter().all(|source| *source == Source::Files) {
            return Err(ConfigError::Invalid("--vrf-table needs --fpm or --kernel-routes".to_owned()));
        }
        Ok(Self { other_vrfs: vrfs.len(), tables: VrfSpec::tables(vrfs, tables)?, ..self })
    }
}

/// The kind of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedKind {
    /// Zebra.
    Fpm,
    /// The kernel's routes.
    Kernel,
    /// The kernel's links and neighbours alone, for the routes of others.
    Links,
}

impl FeedKind {
    /// Its name in answers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fpm => "fpm",
            Self::Kernel => "kernel",
            Self::Links => "links",
        }
    }
}

/// What is known of a feed's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has never said anything.
    Waiting,
    /// It is there.
    Connected,
    /// It is there, and all of it has been told.
    Complete,
    /// It has gone; its routes are stale.
    Gone,
}

/// A feed.
#[derive(Clone)]
struct Feed {
    kind: FeedKind,
    name: String,
    /// How long its stale routes stay after its source has come back.
    hold: Duration,
    state: State,
    /// When the source came.
    since: Option<Instant>,
    thread: Arc<FeedThread>,
}

/// The state of a feed, for `show feeds`.
#[derive(Debug)]
pub(crate) struct FeedStatus {
    /// Its kind.
    pub(crate) kind: FeedKind,
    /// Its address.
    pub(crate) name: String,
    /// In a word.
    pub(crate) state: &'static str,
    /// Seconds until stale routes are withdrawn, if their source is there.
    pub(crate) sweep_in_s: Option<u64>,
    /// Its routes.
    pub(crate) routes: SourceRoutes,
    /// What it has counted.
    pub(crate) counts: FeedCounts,
}

/// The threads of the feeds.
pub(crate) struct Sources {
    /// By the number of the VRF.
    receivers: Vec<Receiver<ChangeSet>>,
    feeds: Vec<Feed>,
    /// How many of them are preferred to files.
    before_files: u8,
    /// The names of all sources, the most preferred first.
    order: Vec<&'static str>,
    routes_max: u64,
    foreign: ForeignRoutes,
}

impl Sources {
    /// Starts the feeds of `spec`; `None` if there are none.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the system refuses a socket or a thread.
    pub(crate) fn start(spec: &FeedSpec) -> anyhow::Result<Option<Self>> {
        let has_fpm = spec.sources.iter().any(|source| matches!(source, Source::Fpm(_)));
        let has_kernel = spec.sources.contains(&Source::Kernel);
        if !has_fpm && !has_kernel && !spec.taps {
            return Ok(None);
        }
        let (senders, receivers): (Vec<_>, _) = (0..=spec.other_vrfs).map(|_| bounded(SETS_WAITING)).unzip();
        let routes_max = spec.routes_max.unwrap_or(ROUTES_MAX);
        let limit = usize::try_from(routes_max).unwrap_or(usize::MAX);
        let feed = |kind, name, hold, thread| {
            let thread = Arc::new(thread);
            Feed { kind, name, hold, state: State::Waiting, since: None, thread }
        };
        let kernel = |id, kind| -> anyhow::Result<Feed> {
            let options = KernelOptions {
                tables: if kind == FeedKind::Kernel { spec.tables.clone() } else { Tables::none() },
                protocols_left_out: if has_fpm { ZEBRAS_PROTOCOLS.to_vec() } else { Vec::new() },
                routes_max: limit,
                ..KernelOptions::default()
            };
            let thread = watch(id, options, senders.clone());
            let thread = thread.context("cannot watch the kernel's links and routes")?;
            Ok(feed(kind, "rtnetlink".to_owned(), Duration::ZERO, thread))
        };
        let (mut feeds, mut before_files, mut next) = (Vec::new(), 0, 0);
        for source in &spec.sources {
            match source {
                Source::Files => before_files = next,
                Source::Fpm(address) => {
                    let (hold, tables) = (spec.fpm_hold, spec.tables.clone());
                    let users = spec.fpm_users.clone();
                    let options = FpmOptions { hold, tables, routes_max: limit, users };
                    let (thread, address) = listen(*address, FeedId(next), options, senders.clone())
                        .with_context(|| format!("--fpm: cannot listen on {address}"))?;
                    feeds.push(feed(FeedKind::Fpm, address.to_string(), spec.fpm_hold, thread));
                    next += 1;
                }
                Source::Kernel => {
                    feeds.push(kernel(FeedId(next), FeedKind::Kernel)?);
                    next += 1;
                }
            }
        }
        if !has_kernel {
            feeds.push(kernel(FeedId(next), FeedKind::Links)?);
        }
        let order = spec.sources.iter().map(|source| source.name()).collect();
        Ok(Some(Self { receivers, feeds, before_files, order, routes_max, foreign: spec.foreign }))
    }

    /// What each VRF learns from the feeds, by its number, over the ports that `interfaces` lead to.
    pub(crate) fn over(self, interfaces: &Interfaces) -> Vec<Learned> {
        let Self { receivers, feeds, before_files, order, routes_max, foreign } = self;
        let learned = |receiver| Learned {
            receiver,
            vrf: None,
            feeds: feeds.clone(),
            before_files,
            order: order.clone(),
            routes_max,
            interfaces: interfaces.clone(),
            foreign,
            has_noticed_foreign: [false; 2],
            has_moved: false,
            has_new_neighbours: false,
            has_new_addresses: false,
        };
        receivers.into_iter().map(learned).collect()
    }
}

/// What the feeds have announced for a VRF.
pub(crate) struct Learned {
    receiver: Receiver<ChangeSet>,
    /// The VRF's name, unless it is the default one.
    vrf: Option<String>,
    /// By [`FeedId`].
    feeds: Vec<Feed>,
    /// How many of them are preferred to files.
    before_files: u8,
    /// The names of all sources, the most preferred first.
    order: Vec<&'static str>,
    /// The most routes of a feed.
    routes_max: u64,
    interfaces: Interfaces,
    foreign: ForeignRoutes,
    /// Whether a route without a port was a notice, and whether a default route was.
    has_noticed_foreign: [bool; 2],
    /// Whether a route may have another next hop than before.
    has_moved: bool,
    /// Whether neighbours have changed, or which links are up.
    has_new_neighbours: bool,
    /// Whether the addresses of TAPs may have changed.
    has_new_addresses: bool,
}

impl Learned {
    /// Takes the next change set, if one waits, and what it says of links, neighbours and addresses; the rest is for the caller.
    pub(crate) fn take(&mut self) -> Option<ChangeSet> {
        let set = self.receiver.try_recv().ok()?;
        for event in &set.events {
            match event {
                FeedEvent::Link(link) => self.link_changed(|interfaces| interfaces.set_link(link)),
                FeedEvent::LinkGone(ifindex) => {
                    self.link_changed(|interfaces| interfaces.remove_link(*ifindex));
                }
                FeedEvent::Neighbour(neighbour) => {
                    self.has_new_neighbours |= self.interfaces.set_neighbour(*neighbour);
                }
                FeedEvent::NeighbourGone(address, ifindex) => {
                    self.has_new_neighbours |= self.interfaces.remove_neighbour(*address, *ifindex);
                }
                FeedEvent::Address(address) => {
                    self.has_new_addresses |= self.interfaces.set_address(*address);
                }
                FeedEvent::AddressGone(address) => {
                    self.has_new_addresses |= self.interfaces.remove_address(address);
                }
                _ => {}
            }
        }
        Some(set)
    }

    /// The source of routes that a feed is.
    pub(crate) const fn source(&self, feed: FeedId) -> SourceId {
        SourceId::of_feed(feed.0, self.before_files)
    }

    /// The most routes of a feed.
    pub(crate) const fn routes_max(&self) -> u64 {
        self.routes_max
    }

    /// Does `change`, which tells what it matters to.
    fn link_changed(&mut self, change: impl FnOnce(&mut Interfaces) -> LinkChange) {
        match change(&mut self.interfaces) {
            LinkChange::None => {}
            LinkChange::State => self.has_new_neighbours = true,
            LinkChange::Port => (self.has_moved, self.has_new_addresses) = (true, true),
        }
    }

    /// With a VRF's name in notices.
    pub(crate) fn of_vrf(self, name: &str) -> Self {
        Self { vrf: Some(name.to_owned()), ..self }
    }

    /// A feed's name in notices.
    fn name_of(&self, feed: &Feed) -> String {
        match &self.vrf {
            Some(vrf) => format!("{}: VRF {vrf}", feed.kind.name()),
            None => feed.kind.name().to_owned(),
        }
    }

    /// Takes note of what a set says of the state of its feed, which has so many routes.
    pub(crate) fn note(&mut self, set: &ChangeSet, count: SourceRoutes) {
        let is_of_state = |event: &&FeedEvent| {
            matches!(
                event,
                FeedEvent::Connected | FeedEvent::Disconnected | FeedEvent::Complete | FeedEvent::Sweep
            )
        };
        set.events.iter().filter(is_of_state).for_each(|event| self.note_event(set.feed, event, count));
    }

    fn note_event(&mut self, id: FeedId, event: &FeedEvent, count: SourceRoutes) {
        let Some(name) = self.feeds.get(usize::from(id.0)).map(|feed| self.name_of(feed)) else { return };
        let feed = &mut self.feeds[usize::from(id.0)];
        let SourceRoutes { routes, stale, .. } = count;
        match event {
            FeedEvent::Connected => {
                (feed.state, feed.since) = (State::Connected, Some(Instant::now()));
                if feed.kind == FeedKind::Fpm && self.vrf.is_none() {
                    notice::post(format_args!("{name}: zebra is there"));
                }
            }
            FeedEvent::Disconnected => {
                (feed.state, feed.since) = (State::Gone, None);
                notice::post(format_args!("{name}: zebra has gone; its {routes} routes stay"));
            }
            FeedEvent::Complete => feed.state = State::Complete,
            FeedEvent::Sweep if feed.kind == FeedKind::Fpm => {
                feed.state = State::Complete;
                let left = routes - stale;
                notice::post(format_args!("{name}: stale routes are withdrawn, {left} are left"));
            }
            _ => {}
        }
    }

    /// Whether routes may have other next hops than before, since the last call.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Whether neighbours have changed, or which links are up, since the last call.
    pub(crate) fn take_new_neighbours(&mut self) -> bool {
        std::mem::take(&mut self.has_new_neighbours)
    }

    /// Whether the addresses of TAPs may have changed, since the last call.
    pub(crate) fn take_new_addresses(&mut self) -> bool {
        std::mem::take(&mut self.has_new_addresses)
    }

    /// Neighbours of files or the control socket have changed: routes may have other next hops than before.
    pub(crate) const fn moved(&mut self) {
        self.has_moved = true;
    }

    /// The interfaces.
    pub(crate) const fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// What becomes of routes without a port.
    pub(crate) const fn foreign(&self) -> ForeignRoutes {
        self.foreign
    }

    /// Says of the first route without a port, and of the first default route, that it is unreachable.
    pub(crate) fn notice_foreign(&mut self, prefix: IpPrefix, source: SourceId, paths: &[Path]) {
        let mut numbered = (0..).zip(&self.feeds);
        let feed = numbered.find(|(feed, _)| self.source(FeedId(*feed)) == source);
        let Some((_, feed)) = feed else { return };
        let is_default = prefix.len() == 0;
        // Nothing is forwarded to these prefixes, which every host has.
        if self.has_noticed_foreign[usize::from(is_default)] || is_never_forwarded(prefix) {
            return;
        }
        self.has_noticed_foreign[usize::from(is_default)] = true;
        let name = self.name_of(feed);
        let interface = self.interfaces.name_of_other(paths.first().map_or(0, |path| path.ifindex));
        let which = if is_default { "the default route" } else { "the route" };
        notice::warn(format_args!(
            "{name}: {which} {prefix} leads over {interface}, which has no port: it is unreachable, as all such routes are (ctl show feeds; --foreign-routes)"
        ));
    }

    /// The names of all sources beside the control socket, the most preferred first.
    pub(crate) fn order(&self) -> &[&'static str] {
        &self.order
    }

    /// The state of each feed; `count` says how many routes a source has.
    pub(crate) fn status(&self, count: impl Fn(SourceId) -> SourceRoutes) -> Vec<FeedStatus> {
        let of = |(id, feed): (u8, &Feed)| {
            let routes = count(self.source(FeedId(id)));
            let has_stale = routes.stale > 0;
            let left = feed.since.map(|since| feed.hold.saturating_sub(since.elapsed()).as_secs());
            let state = match feed.state {
                _ if feed.thread.has_ended() => "ended",
                State::Waiting => "waiting",
                State::Gone => "stale",
                State::Connected if has_stale => "connected, stale routes stay",
                State::Connected => "connected",
                State::Complete => "complete",
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

    /// The same, which leaves routes without a port out.
    #[cfg(test)]
    pub(crate) fn ignoring_foreign(self) -> Self {
        Self { foreign: ForeignRoutes::Ignore, ..self }
    }

    /// A table that `sender`'s change sets fill, without threads; the first feeds are preferred to files.
    #[cfg(test)]
    pub(crate) fn for_test(receiver: Receiver<ChangeSet>, before_files: u8, interfaces: Interfaces) -> Self {
        Self {
            receiver,
            vrf: None,
            feeds: Vec::new(),
            before_files,
            order: Vec::new(),
            routes_max: ROUTES_MAX,
            interfaces,
            foreign: ForeignRoutes::default(),
            has_noticed_foreign: [false; 2],
            has_moved: false,
            has_new_neighbours: false,
            has_new_addresses: false,
        }
    }
}

/// Whether the addresses are those of a host or of a link, of which every host has some.
fn is_never_forwarded(prefix: IpPrefix) -> bool {
    match prefix {
        IpPrefix::V4(prefix) => Ipv4Addr::from_bits(prefix.address()).is_loopback(),
        IpPrefix::V6(prefix) => {
            let address = Ipv6Addr::from_bits(prefix.address());
            address.is_loopback() || address.is_unicast_link_local() || address.is_multicast()
        }
    }
}
