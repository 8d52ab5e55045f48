//! The control socket and DPDK's telemetry: answers requests, and carries out changes on the forwarder.
//!
//! The control thread serves a [`Console`] between other work. Values of [`crate::report`] keep the summary's keys.
//!
//! ```text
//! client --line of JSON--> socket -> [server: words -> Request] --bounded channel--> Inbox -> Steer (the control thread)
//!        <--line of JSON--           [bytes <- Answer]          <-----channel-----
//!
//! {"line": "show drops", "json": true}                        json is optional: text is the default
//! {"ok":true,"data":{"no_route":7}}                           with "json": true
//! {"ok":true,"text":"no_route  7\n"}                          without
//! {"ok":false,"error":"'dropz' is not understood here, .."}   refused, nothing has changed
//! ```
//!
//! Each request and each reply is one line of JSON, in order. A long `route list` is answered in parts: `next` is the request for the
//! following part, and the forwarder keeps no state between parts.
//!
//! Any program can be a client: `echo '{"line": "show drops"}' | socat - UNIX-CONNECT:/run/fwd-app/rte.sock`. For `capture drops` the open
//! file comes with the line (`SCM_RIGHTS`), since the forwarder opens no path named by a client.
//!
//! The server's thread never blocks on a client, and shares only two channels with the control thread. Limits bound the cost of clients:
//! their number, bytes of requests and replies, queued requests (one per client), and idle time.

pub(crate) mod answer;
mod capture;
pub(crate) mod capture_file;
pub(crate) mod client;
mod counting;
mod desk;
mod drain;
pub(crate) mod grammar;
pub(crate) mod server;
mod show;
mod site;
mod telemetry;
mod watching;

pub(crate) use answer::{Answer, Refusal};
pub(crate) use grammar::request::Request;
pub(crate) use server::Server;
pub(crate) use server::inbox::{ClientCommand, Inbox, Steer};
pub(crate) use site::Site;
pub(crate) use telemetry::Telemetry;

use crate::datapath::watch::PacketFilter;
use crate::forwarder::Forwarder;
use crate::forwarder::reload::ReloadClient;
use crate::neighbours::thread::asked::RouterHandle;
use crate::notice;
use crate::report::vrfs::VrfReports;
use crate::topology::Handle;
use anyhow::Context as _;
use counting::Counting;
use desk::{Cleared, Desk, Steering, unavailable};
use drain::Drains;
use grammar::request::{Clear, PortCounters, Ports, Show, WatchFilter};
use show::rates::RatesShown;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Instant;
use watching::Watching;

const AT_ONCE: usize = 8;

pub(crate) struct Console {
    telemetry: Telemetry,
    desk: Desk,
}

impl Console {
    /// Serves `socket` and `telemetry` for the forwarder at `site`. `drain_hook` runs at the start and the end of a drain.
    pub(crate) fn new(
        socket: Option<(Server, Inbox)>,
        telemetry: Telemetry,
        site: Site,
        drain_hook: Option<PathBuf>,
    ) -> Self {
        let desk = Desk {
            socket,
            site,
            router: None,
            start: Instant::now(),
            cleared: Cleared::default(),
            watching: Watching::default(),
            counting: Counting::default(),
            engines_wanted: Vec::new(),
            drains: Drains::new(drain_hook),
            reloads: None,
        };
        Self { telemetry, desk }
    }

    pub(crate) fn with_router(mut self, router: Option<RouterHandle>) -> Self {
        self.desk.router = router;
        self
    }

    pub(crate) fn with_reloads(mut self, client: ReloadClient) -> Self {
        self.desk.reloads = Some((client, None));
        self
    }

    /// Captures the first dropped packets to a file, if given with their number. Must be called before the topology starts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn capture_drops(
        &mut self,
        wanted: Option<&(String, NonZeroU64)>,
        running: &Handle,
    ) -> anyhow::Result<()> {
        let Some((file, packets)) = wanted else { return Ok(()) };
        let Desk { site, watching, .. } = &mut self.desk;
        let opened = capture_file::open(file).with_context(|| format!("cannot write {file}"))?;
        let (file, wanted) = ((file.clone(), opened), (*packets, PacketFilter::default()));
        watching.captures.start(file, wanted, None, running.watch(), site)
    }

    /// Answers pending requests; returns whether it did any work.
    pub(crate) fn serve(&mut self, forwarder: &mut Forwarder) -> bool {
        let mut worked = self.desk.watching.handle_packets(forwarder, &self.desk.site);
        worked |= self.desk.drains.advance(forwarder.running());
        worked |= self.desk.finish_reload();
        let mut steering = Steering { forwarder, vrf: None, desk: &mut self.desk };
        worked |= steering.finish_engines();
        worked |= steering.count_slice();
        worked |= self.telemetry.serve(&mut steering);
        for _ in 0..AT_ONCE {
            let others = steering.desk.counting.has_room();
            let next = |(_, inbox): &(Server, Inbox)| inbox.next(others);
            let Some(command) = steering.desk.socket.as_ref().and_then(next) else { break };
            steering.carry_out(command);
            worked = true;
        }
        worked
    }
}

impl Steer for Steering<'_> {
    fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::Show(what) => self.show(what),
            Request::Vrf { name, request } => {
                let vrf = Some(self.forwarder.find(&name).map_err(anyhow::Error::from)?);
                let answer = Steering { forwarder: self.forwarder, vrf, desk: self.desk }.answer(*request)?;
                Ok(answer.asking_by(|request| Request::Vrf { name, request: Box::new(request) }))
            }
            Request::ShowPort { what, ports } => self.show_ports(what, &ports),
            Request::Clear(what) => Ok(self.clear(what)),
            Request::ClearPort { what, ports } => self.clear_ports(what, &ports),
            Request::ClearNeigh { address } => self.clear_neighbours(address),
            Request::RouteGet { address, flow } => self.route_get(address, flow),
            Request::RouteList(list) => self.route_list(list),
            Request::RouteAdd { prefix, hop } => self.route_add(prefix, &hop),
            Request::RouteDel { prefix } => self.route_del(prefix),
            Request::NeighAdd { address, mac, port } => self.neighbour_add(address, mac, port),
            Request::NeighDel { address } => self.neighbour_del(address),
            Request::Start => self.desk.drains.resume(self.forwarder.running()),
            Request::Stop { drain: false } => {
                self.forwarder.running().pause(true);
                Ok(Answer::done())
            }
            Request::SetPromiscuous { ports, on } => self.set_promiscuous(&ports, on),
            Request::SetLink { port, up } => self.set_link(&port, up),
            Request::SetAudit { one_in } => {
                self.forwarder.set_audit(Some(one_in));
                Ok(Answer::done())
            }
            Request::SetNextHopCounters { on } => Ok(self.count_next_hops(on)),
            Request::CaptureStop
            | Request::Trace { .. }
            | Request::CaptureDrops { .. }
            | Request::Reload
            | Request::Stop { drain: true }
            | Request::SetEngine { .. } => {
                Err(unavailable(&request, "it is available on the control socket only"))
            }
        }
    }
}

impl Steering<'_> {
    /// Answers `command`. Traces, drains, reloads and changes of engine are answered later, when they finish.
    fn carry_out(&mut self, mut command: ClientCommand) {
        notice::debug(format_args!("ctl: {}", command.request()));
        match command.request() {
            Request::Trace { packets, filter } => {
                let wanted = self.packet_filter(filter).map(|filter| (*packets, filter));
                match wanted {
                    Ok(wanted) => {
                        self.desk.watching.trace(command, wanted, self.forwarder.running().watch());
                    }
                    Err(refusal) => command.answer(Err(refusal)),
                }
            }
            Request::CaptureDrops { file, packets, filter } => {
                let (name, packets, filter) = (file.clone(), *packets, filter.clone());
                let file = command.take_file();
                self.capture_drops((name, file), packets, &filter, command);
            }
            Request::CaptureStop => self.desk.watching.captures.stop(command),
            Request::Show(what) if what.is_counted() => {
                let what = *what;
                self.count(what, Box::new(move |answer| command.answer(answer)));
            }
            Request::Vrf { name, request }
                if let Request::Show(what) = **request
                    && what.is_counted() =>
            {
                match self.forwarder.find(name) {
                    Ok(vrf) => Steering { forwarder: self.forwarder, vrf: Some(vrf), desk: self.desk }
                        .count(what, Box::new(move |answer| command.answer(answer))),
                    Err(error) => command.answer(Err(anyhow::Error::from(error).into())),
                }
            }
            Request::Stop { drain: true } => self.desk.drains.start(command, self.forwarder.running()),
            Request::Reload => self.desk.reload(command),
            _ if command.request().sets_engine() => self.set_engine(command),
            _ => command.answer_by(|request| self.answer(request)),
        }
    }

    /// Starts a capture to a file opened by the client, called `name` in messages.
    fn capture_drops(
        &mut self,
        (name, file): (String, Option<File>),
        packets: NonZeroU64,
        filter: &WatchFilter,
        client: ClientCommand,
    ) {
        let Some(file) = file else {
            let without = "the request must come with the file, open for writing (SCM_RIGHTS), as from fwd-app ctl: the forwarder opens no path of a client";
            return client.answer(Err(anyhow::anyhow!(without).into()));
        };
        let filter = match self.packet_filter(filter) {
            Ok(filter) => filter,
            Err(refusal) => {
                capture::close(file);
                return client.answer(Err(refusal));
            }
        };
        let Desk { site, watching, .. } = &mut *self.desk;
        let watch = self.forwarder.running().watch();
        let _ = watching.captures.start((name, file), (packets, filter), Some(client), watch, site);
    }

    fn packet_filter(&self, filter: &WatchFilter) -> Result<PacketFilter, Refusal> {
        let WatchFilter { port, vrf, to, reason } = filter;
        let vrf = vrf.as_ref().map(|name| self.forwarder.find(name)).transpose();
        let vrf = vrf.map_err(anyhow::Error::from)?.and_then(|number| u16::try_from(number).ok());
        let port = port.clone().map(|port| self.indices(&Ports::One(port))).transpose()?;
        let port = port.and_then(|found| u16::try_from(*found.first()?).ok());
        Ok(PacketFilter { port, vrf, to: *to, reason: *reason })
    }

    fn show(&mut self, what: Show) -> Result<Answer, Refusal> {
        Ok(match what {
            Show::Drops => self.drops(),
            Show::Latency => self.latency(),
            Show::Lcores => self.lcores(),
            Show::Queues => self.queues(),
            Show::Rates => Answer::new(RatesShown(self.forwarder.rates().load_full())),
            Show::Stats => Answer::new(self.stats()),
            Show::Config => self.config(),
            Show::Engine => self.engine(),
            Show::Neigh => self.neighbours()?,
            Show::Addresses => self.addresses(),
            Show::Vrfs => Answer::new(VrfReports::new(self.forwarder)),
            Show::Feeds | Show::Fib | Show::Routes | Show::NextHops => {
                return Err(unavailable(&Request::Show(what), "it is available on the control socket only"));
            }
        })
    }

    fn clear(&mut self, what: Clear) -> Answer {
        match what {
            Clear::Drops => self.clear_drops(),
            Clear::Latency => self.clear_latency(),
        }
        Answer::done()
    }

    fn clear_ports(&mut self, what: PortCounters, ports: &Ports) -> Result<Answer, Refusal> {
        self.each_port(ports, |port| match what {
            PortCounters::Stats => port.reset_stats(),
            PortCounters::Xstats => port.reset_xstats(),
        })
    }
}
