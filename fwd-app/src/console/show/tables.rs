//! Tables: routes and next hops, feeds, the engine; changes of routes.

use crate::console::desk::{EngineWanted, Steering};
use crate::console::server::ServerTally;
use crate::console::{Answer, ClientCommand, Refusal, Request};
use crate::engines::EngineSpec;
use crate::report::EngineReport;
use crate::report::columns::{Columns, grouped};
use crate::routes::candidates::{OutcomeCounts, SourceId};
use crate::routes::engine_swap::LostFamilies;
use crate::routes::feeds::running::FeedStatus;
use crate::routes::listing::RouteCounts;
use fib::IpPrefix;
use fib::details::Details;
use fib::feed::Hop;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

impl Steering<'_> {
    pub(in crate::console) fn engine(&self) -> Answer {
        let details = self.vrf().engine().stats().details;
        Answer::new(EngineShown { report: EngineReport::new(self.vrf(), self.forwarder.running()), details })
    }

    pub(in crate::console) fn fib(&self, counts: &RouteCounts) -> Answer {
        let (rib, hops) = (self.vrf().rib(), self.vrf().hops());
        let table = self.vrf().egress.table();
        let (groups, paths, paths_alive) = table.map_or((0, 0, 0), |table| table.load().group_counts());
        let engine = self.vrf().engine();
        let stats = engine.stats();
        let [blackhole, unreachable, prohibit] = counts.discards;
        Answer::new(FibShown {
            routes_v4: rib.v4.len(),
            routes_v6: rib.v6.len(),
            used_v4: rib.v4.used_len(),
            used_v6: rib.v6.used_len(),
            blackhole,
            unreachable,
            prohibit,
            refused: self.vrf().refused.len(),
            next_hops: hops.len(),
            neighbours: hops.neighbours().count() + self.forwarder.ports().learned.len(),
            groups,
            paths,
            paths_alive,
            ecmp_seed: self.forwarder.ports().ecmp_seed,
            rib_bytes: rib.bytes(),
            table_bytes: stats.table_bytes,
            retired_bytes: stats.retired_bytes + self.vrf().egress.retired_bytes(),
            generation: engine.generation().0,
            updates: self.vrf().tally.updates,
        })
    }

    pub(in crate::console) fn feeds(&self, outcomes: &OutcomeCounts) -> Answer {
        let shown = |feed, name, clients, learned| FeedShown { feed, name, clients, learned };
        let file = |file: &PathBuf| shown("file", file.display().to_string(), None, None);
        let mut feeds: Vec<_> = self.vrf().files.iter().map(file).collect();
        for (number, status) in (0..).zip(self.forwarder.feed_states(self.number())) {
            let outcome = outcomes.outcome(SourceId::of_feed(number));
            let FeedStatus { kind, name, state, sweep_in_s, routes, counts } = status;
            let learned = LearnedShown {
                state,
                sweep_in_s,
                routes: routes.routes,
                stale: routes.stale,
                unresolved: outcome.unresolved,
                unresolved_unreachable: outcome.unreachable,
                no_table: outcome.no_table,
                refused: outcome.refused,
                over_limit: routes.over_limit + counts.over_limit,
                sessions: counts.sessions,
                peers_refused: counts.refused,
                messages: counts.messages,
                unsupported: counts.unsupported,
                errors: counts.errors,
                overruns: counts.overruns,
                repaired: counts.repaired,
            };
            feeds.push(shown(kind.name(), name, None, Some(learned)));
        }
        if let Some((server, _)) = &self.desk.socket {
            let routes = self.vrf().candidates.count(SourceId::CTL).routes;
            let clients = ClientsShown { tally: server.tally(), routes };
            feeds.push(shown("ctl", String::new(), Some(clients), None));
        }
        Answer::new(FeedsShown(feeds))
    }

    pub(in crate::console) fn route_add(&mut self, prefix: IpPrefix, hop: &Hop) -> Result<Answer, Refusal> {
        let id = self.vrf_mut().add_route(prefix, hop).map_err(anyhow::Error::from)?;
        self.vrf_mut().commit()?;
        let unusable = self.vrf().egress.table().and_then(|table| table.load().unusable(id));
        Ok(unusable.map_or_else(Answer::done, |why| {
            Answer::new(Warned { warning: format!("the route cannot forward now: {why}") })
        }))
    }

    pub(in crate::console) fn route_del(&mut self, prefix: IpPrefix) -> Result<Answer, Refusal> {
        if self.vrf().rib().get(prefix).is_none() {
            return Err(anyhow::anyhow!("there is no route {prefix}").into());
        }
        self.vrf_mut().remove_route(prefix).map_err(anyhow::Error::from)?;
        self.vrf_mut().commit()?;
        Ok(Answer::done())
    }

    pub(in crate::console) fn set_engine(&mut self, command: ClientCommand) {
        match self.build_engines(command.request()) {
            Ok(waiting) => self.desk.engines_wanted.push(EngineWanted { command, waiting, result: Ok(()) }),
            Err(error) => command.answer(Err(error.into())),
        }
    }

    /// Starts building the engine of `request`. Returns the VRFs that it is for.
    fn build_engines(&mut self, request: &Request) -> anyhow::Result<Vec<usize>> {
        let (only, request) = match request {
            Request::Vrf { name, request } => (Some(self.forwarder.find(name)?), request.as_ref()),
            request => (None, request),
        };
        let Request::SetEngine { name, parameters, force } = request else { return Ok(Vec::new()) };
        let before = &self.forwarder.vrf(only.unwrap_or(0)).engine.spec;
        let spec = EngineSpec::instead_of(before, name.clone(), parameters.clone())?;
        let lost = if *force { LostFamilies::LeftOut } else { LostFamilies::Refused };
        match only {
            Some(number) => {
                self.forwarder.vrf_mut(number).build_engine(spec, lost, None).map(|()| vec![number])
            }
            None => {
                self.forwarder.build_engines(&spec, lost)?;
                Ok((0..self.forwarder.vrfs().len()).collect())
            }
        }
    }

    /// Moves one VRF to its finished engine: one per turn, since each may wait for lcores. Returns whether an engine was finished.
    pub(in crate::console) fn finish_engines(&mut self) -> bool {
        let mut all = 0..self.forwarder.vrfs().len();
        let first = all.find_map(|number| Some((number, self.forwarder.finish_engine(number)?)));
        let worked = first.is_some();
        if let Some((number, finished)) = first {
            let is_for = |wanted: &&mut EngineWanted| wanted.waiting.contains(&number);
            if let Some(wanted) = self.desk.engines_wanted.iter_mut().find(is_for) {
                wanted.waiting.retain(|waiting| *waiting != number);
                if wanted.result.is_ok() {
                    wanted.result = finished;
                }
            }
        }
        let is_done = |wanted: &mut EngineWanted| wanted.waiting.is_empty();
        let done: Vec<_> = self.desk.engines_wanted.extract_if(.., is_done).collect();
        for EngineWanted { command, result, .. } in done {
            let vrf = match command.request() {
                Request::Vrf { name, .. } => self.forwarder.find(name).ok(),
                _ => None,
            };
            let shown = Steering { forwarder: self.forwarder, vrf, desk: self.desk }.engine();
            command.answer(result.map(|()| shown).map_err(Refusal::from));
        }
        worked
    }
}

#[derive(Serialize)]
struct Warned {
    warning: String,
}

impl fmt::Display for Warned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "warning: {}", self.warning)
    }
}

#[derive(Serialize)]
struct EngineShown {
    #[serde(flatten)]
    report: EngineReport,
    details: Details,
}

impl fmt::Display for EngineShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::report::text::engine(&self.report))?;
        let mut columns = Columns::new([]);
        self.details.iter().for_each(|(name, value)| columns.row([format!("  {name}"), value.to_string()]));
        columns.fmt(f)
    }
}

#[derive(Serialize)]
struct FibShown {
    routes_v4: usize,
    routes_v6: usize,
    used_v4: usize,
    used_v6: usize,
    blackhole: u64,
    unreachable: u64,
    prohibit: u64,
    /// Prefixes with a route refused by the engine; an older route or none stays in service.
    refused: usize,
    next_hops: usize,
    neighbours: usize,
    /// Groups of paths, paths of all groups, and live paths.
    groups: usize,
    paths: usize,
    paths_alive: usize,
    ecmp_seed: u64,
    rib_bytes: u64,
    table_bytes: u64,
    /// Replaced tables that lcores may still read.
    retired_bytes: u64,
    generation: u64,
    updates: u64,
}

impl fmt::Display for FibShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |counts: [usize; 2]| counts.map(grouped);
        let [v4, v6] = counts([self.routes_v4, self.routes_v6]);
        writeln!(f, "routes      {v4} IPv4, {v6} IPv6")?;
        let [v4, v6] = counts([self.used_v4, self.used_v6]);
        writeln!(f, "in engine   {v4} IPv4, {v6} IPv6")?;
        let discards = [self.blackhole, self.unreachable, self.prohibit];
        if discards.iter().sum::<u64>() > 0 {
            let [blackhole, unreachable, prohibit] = discards.map(grouped);
            writeln!(f, "dropping    {blackhole} blackhole, {unreachable} unreachable, {prohibit} prohibit")?;
        }
        if self.refused > 0 {
            writeln!(f, "refused     {} by the engine, will be tried again", grouped(self.refused))?;
        }
        writeln!(f, "next hops   {}, {} neighbours", grouped(self.next_hops), grouped(self.neighbours))?;
        if self.groups > 0 {
            let [groups, alive, paths] = [self.groups, self.paths_alive, self.paths].map(grouped);
            writeln!(f, "groups      {groups}, {alive} of {paths} paths alive, seed {}", self.ecmp_seed)?;
        }
        let [rib, engine, retired] = [self.rib_bytes, self.table_bytes, self.retired_bytes].map(grouped);
        writeln!(f, "memory      RIB {rib} bytes, engine {engine} bytes, retired {retired} bytes")?;
        writeln!(f, "generation  {}, {} updates", grouped(self.generation), grouped(self.updates))
    }
}

#[derive(Serialize)]
struct FeedShown {
    feed: &'static str,
    name: String,
    #[serde(flatten)]
    clients: Option<ClientsShown>,
    #[serde(flatten)]
    learned: Option<LearnedShown>,
}

#[derive(Serialize)]
struct ClientsShown {
    #[serde(flatten)]
    tally: ServerTally,
    routes: u64,
}

#[derive(Serialize)]
struct LearnedShown {
    state: &'static str,
    sweep_in_s: Option<u64>,
    routes: u64,
    stale: u64,
    /// Routes in use without a port on any path.
    unresolved: u64,
    /// Unresolved routes installed as unreachable.
    unresolved_unreachable: u64,
    no_table: u64,
    refused: u64,
    over_limit: u64,
    sessions: u64,
    /// Connections of peers without the right to announce routes.
    peers_refused: u64,
    messages: u64,
    unsupported: u64,
    errors: u64,
    overruns: u64,
    /// Entries corrected by the periodic comparison with the kernel.
    repaired: u64,
}

impl fmt::Display for LearnedShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, routes, stale, unresolved, unresolved_unreachable: unreachable, .. } = self;
        let Self { no_table, refused, peers_refused, unsupported, errors, .. } = self;
        write!(f, "{state}; {} routes, {} stale", grouped(routes), grouped(stale))?;
        if let Some(seconds) = self.sweep_in_s {
            write!(f, " for {seconds} s more")?;
        }
        write!(f, ", {} without a port", grouped(unresolved))?;
        if *unreachable > 0 {
            write!(f, " ({} unreachable)", grouped(unreachable))?;
        }
        if *no_table > 0 {
            write!(f, ", {} of a family without a table in the engine", grouped(no_table))?;
        }
        let [refused, unsupported, errors] = [refused, unsupported, errors].map(grouped);
        write!(f, ", {refused} refused, {unsupported} unsupported, {errors} errors")?;
        if *peers_refused > 0 {
            write!(f, ", {peers_refused} peers refused")?;
        }
        if self.repaired > 0 {
            write!(f, ", {} repaired", grouped(self.repaired))?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct FeedsShown(Vec<FeedShown>);

impl fmt::Display for FeedsShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = Columns::new(["feed", "name"]);
        for FeedShown { feed, name, clients, learned } in &self.0 {
            let counts = clients.as_ref().map(|ClientsShown { tally, routes }| {
                let ServerTally { clients, requests, errors, turned_away, timed_out } = tally;
                let [requests, errors, turned_away, timed_out] =
                    [requests, errors, turned_away, timed_out].map(grouped);
                let routes = grouped(routes);
                format!(
                    "{routes} routes, {clients} clients, {turned_away} turned away, {timed_out} timed out, {requests} requests, {errors} errors"
                )
            });
            let counts = counts.or_else(|| learned.as_ref().map(|learned| format!("{name} {learned}")));
            columns.row([(*feed).to_owned(), counts.unwrap_or_else(|| name.clone())]);
        }
        columns.fmt(f)
    }
}
