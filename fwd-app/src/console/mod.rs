//! Answers what clients of the control socket and of DPDK's telemetry ask for: gathers it from the forwarder, or has it done.
//!
//! A [`Console`] is served on the control thread, between the other things that change the forwarder. It shows values of [`crate::report`]
//! where the summary has them too, so the keys are the same. A client steers with testpmd's words, over a local socket:
//!
//! ```text
//! client --line of JSON--> socket -> [server: words -> Request] --bounded channel--> Inbox -> Steer (the control thread)
//!        <--line of JSON--           [bytes <- Answer]          <-----channel-----
//! ```
//!
//! The protocol is one line of JSON for each request, and one for each reply, in the order of the requests:
//!
//! ```text
//! {"line": "show drops", "json": true}                        json is optional: text is the default
//! {"ok":true,"data":{"no_route":7}}                           with "json": true
//! {"ok":true,"text":"no_route  7\n"}                          without
//! {"ok":false,"error":"'dropz' is not understood here, .."}   refused, nothing has changed
//! ```
//!
//! `route list` may be a million lines long, so a reply has a part of them, and the words that ask for the lines after it. The last reply
//! has no `next`. With `"json": true` each line of a part is a value of JSON.
//!
//! ```text
//! {"line": "route list"}
//! {"ok":true,"part":"192.0.2.0/24 7\n..","next":"route list after 198.51.100.0/24"}
//! {"line": "route list after 198.51.100.0/24"}
//! {"ok":true,"part":"203.0.113.0/24 via 192.0.2.1 dev 1\n.."}
//! ```
//!
//! So between two parts the forwarder keeps nothing of a listing, not even a connection: a client that stops reading costs nothing, and may
//! go on an hour later. A route that is listed was in service when its part was made.
//!
//! So any program can be a client: `echo '{"line": "show drops"}' | socat - UNIX-CONNECT:/run/fwd-app/rte.sock`. `capture drops FILE N`
//! alone needs more: the file, open for writing, comes with the line (`SCM_RIGHTS`), since the forwarder opens no path that a client names.
//!
//! The server has a thread of its own, which polls all clients and never waits for one of them. It shares nothing with lcores, and
//! with the control thread only the two channels. The control thread takes requests when it gets round to it ([`Console::turn`]);
//! nobody but the client waits for the answer. What a client may cost is bounded: clients, bytes of a request and of a reply,
//! requests on their way to the forwarder (one a client), and how long a client may neither write nor read.
//!
//! | module | what lives there |
//! |---|---|
//! | [`grammar`] | parser, help and completion over one table of commands; [`Request`]: what is asked for |
//! | [`answer`] | [`Answer`], [`Refusal`]: the value behind a reply |
//! | [`server`] | the socket, its clients, and the thread that polls them |
//! | [`client`] | asks a forwarder |
//! | [`show`] | what is asked for, from the forwarder: ports, lcores, routes, neighbours |
//! | [`drain`] | taking the forwarder out of a network |
//! | [`watching`] | traces of packets |
//! | [`capture`], [`capture_file`] | captures of dropped packets: the thread that writes, the file |
//! | [`telemetry`] | the commands on DPDK's telemetry socket |

pub(crate) mod answer;
mod capture;
pub(crate) mod capture_file;
pub(crate) mod client;
mod drain;
pub(crate) mod grammar;
pub(crate) mod server;
mod show;
mod telemetry;
mod watching;

pub(crate) use answer::{Answer, Refusal};
pub(crate) use grammar::request::Request;
pub(crate) use server::Server;
pub(crate) use server::inbox::{ClientCommand, Inbox, Steer};
pub(crate) use telemetry::Telemetry;

use crate::datapath::Drops;
use crate::datapath::watch::PacketFilter;
use crate::forwarder::Forwarder;
use crate::forwarder::reload::ReloadClient;
use crate::neighbours::thread::asked::RouterHandle;
use crate::notice;
use crate::report::Setup;
use crate::report::vrfs::VrfReports;
use crate::routes::Vrf;
use crate::topology::Handle;
use crate::topology::plan::LcorePlan;
use anyhow::Context as _;
use dpdk_ffi::{Granted, Port};
use drain::Drains;
use fib::NextHopId;
use grammar::request::{Clear, PortCounters, Ports, Show, WatchFilter};
use hdrhistogram::Histogram;
use show::counts::Counting;
use show::rates::RatesShown;
use show::tables::EngineWanted;
use std::fs::File;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Instant;
use watching::Watching;

/// Requests that are answered before other work has its turn.
const AT_ONCE: usize = 8;

/// The ports and lcores, as they were set up.
pub(crate) struct Site {
    /// Its ports, by index.
    ports: Vec<Port>,
    /// What was granted to each at the start.
    granted: Vec<Granted>,
    /// The driver and the device of each at the start.
    devices: Vec<[String; 2]>,
    /// Which of them an lcore receives from.
    receives: Vec<bool>,
    /// Port and queue of each input.
    inputs: Vec<(u16, u16)>,
    /// How it was set up.
    setup: Setup,
    /// The rate of the time stamp counter.
    tsc_hz: u64,
}

impl Site {
    /// `ports`, from which packets are forwarded by `plan`.
    pub(crate) fn new(ports: &[Port], plan: &LcorePlan, setup: Setup, tsc_hz: u64) -> Self {
        let inputs = plan.inputs.iter().map(|input| (input.port, input.queue)).collect();
        // All are configured.
        let granted = ports.iter().filter_map(Port::granted).collect();
        let device =
            |port: &Port| port.device_info().map(|info| [info.driver, info.device]).unwrap_or_default();
        let devices = ports.iter().map(device).collect();
        Self {
            ports: ports.to_vec(),
            granted,
            devices,
            receives: plan.receives(ports.len()),
            inputs,
            setup,
            tsc_hz,
        }
    }
}

/// What was counted when a client had it cleared.
#[derive(Default)]
struct Cleared {
    drops: Drops,
    latency: Option<Histogram<u64>>,
}

/// Who asks, and what answers need beside the forwarder.
pub(crate) struct Console {
    telemetry: Telemetry,
    desk: Desk,
}

/// What answers need beside the forwarder.
struct Desk {
    socket: Option<(Server, Inbox)>,
    site: Site,
    /// The router, if ports are interfaces.
    router: Option<RouterHandle>,
    start: Instant,
    cleared: Cleared,
    watching: Watching,
    counting: Counting,
    /// Who has asked for the engines that are being built.
    engines_wanted: Vec<EngineWanted>,
    drains: Drains,
    /// How reloads are asked for, and who waits for the one that runs.
    reloads: Option<(ReloadClient, Option<ClientCommand>)>,
}

impl Console {
    /// Answers the requests of `socket`, and those of `telemetry`, about the forwarder at `site`, which starts now. `drain_hook`
    /// is told when a drain begins and when one is over.
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

    /// Asks `router` for what it has learned, if there is one.
    pub(crate) fn with_router(mut self, router: Option<RouterHandle>) -> Self {
        self.desk.router = router;
        self
    }

    /// Asks for reloads there.
    pub(crate) fn with_reloads(mut self, client: ReloadClient) -> Self {
        self.desk.reloads = Some((client, None));
        self
    }

    /// Captures the first dropped packets to a file, if one is given with their number. Call it before the topology of `running` starts.
    ///
    /// # Errors
    /// When the file cannot be written.
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

    /// Answers requests that wait; returns whether there were any.
    pub(crate) fn turn(&mut self, forwarder: &mut Forwarder) -> bool {
        let mut worked = self.desk.watching.turn(forwarder, &self.desk.site);
        worked |= self.desk.drains.turn(forwarder.running());
        worked |= self.desk.finish_reload();
        let mut steering = Steering { forwarder, vrf: None, desk: &mut self.desk };
        worked |= steering.finish_engines();
        worked |= steering.count_turn();
        worked |= self.telemetry.serve(&mut steering);
        for _ in 0..AT_ONCE {
            let others = steering.desk.counting.has_room();
            let next = |(_, inbox): &(Server, Inbox)| inbox.next(others);
            let Some(command) = steering.desk.socket.as_ref().and_then(next) else { break };
            steering.take(command);
            worked = true;
        }
        worked
    }
}

impl Desk {
    /// Asks for a reload; the answer comes when it has ended. One that runs is not waited for by two.
    fn reload(&mut self, command: ClientCommand) {
        match &mut self.reloads {
            Some((_, Some(_))) => command.answer(Err(anyhow::anyhow!("a reload is running").into())),
            Some((client, waiting)) => {
                client.ask();
                *waiting = Some(command);
            }
            None => {
                let refusal = unavailable(command.request(), "a replay reads its files once");
                command.answer(Err(refusal));
            }
        }
    }

    /// Answers who waits for the reload that has ended. Returns whether there was one.
    fn finish_reload(&mut self) -> bool {
        let Some((client, waiting)) = &mut self.reloads else { return false };
        let Ok(result) = client.answers.try_recv() else { return false };
        if let Some(command) = waiting.take() {
            command.answer(result.map(Answer::new).map_err(|why| anyhow::anyhow!(why).into()));
        }
        true
    }
}

/// The forwarder while it is asked.
struct Steering<'a> {
    forwarder: &'a mut Forwarder,
    /// The number of the VRF that a request names.
    vrf: Option<usize>,
    desk: &'a mut Desk,
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
            Request::SetNextHopCounters { on } => Ok(self.count_next_hops(on)),
            Request::CaptureStop
            | Request::Trace { .. }
            | Request::CaptureDrops { .. }
            | Request::Reload
            | Request::Stop { drain: true }
            | Request::SetEngine { .. } => Err(unavailable(&request, "only the control socket has it")),
        }
    }
}

fn unavailable(request: &Request, why: &str) -> Refusal {
    Refusal::Unavailable { what: request.to_string(), why: why.to_owned() }
}

impl Steering<'_> {
    /// The tables of the VRF that is asked about.
    fn vrf(&self) -> &Vrf {
        self.forwarder.vrf(self.number())
    }

    fn vrf_mut(&mut self) -> &mut Vrf {
        self.forwarder.vrf_mut(self.number())
    }

    /// A next hop of that VRF, with its ports as all answers refer to them.
    fn hop_text(&self, id: NextHopId) -> Option<String> {
        self.vrf().hops().get(id).map(|hop| self.forwarder.ports().shown(hop).to_string())
    }

    /// The number of that VRF.
    fn number(&self) -> usize {
        self.vrf.unwrap_or(0)
    }

    /// Answers `command`. The answer to a trace comes when its packets have come, that to a drain when all have left, that to another
    /// engine when it is in service.
    fn take(&mut self, mut command: ClientCommand) {
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

    /// Starts a capture to the file that a client has opened and calls `name`.
    fn capture_drops(
        &mut self,
        (name, file): (String, Option<File>),
        packets: NonZeroU64,
        filter: &WatchFilter,
        client: ClientCommand,
    ) {
        let Some(file) = file else {
            let without = "the file, open for writing, must come with the request (SCM_RIGHTS), as from fwd-app ctl: the forwarder opens no path of a client";
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
        // The client gets an error as its answer.
        let _ = watching.captures.start((name, file), (packets, filter), Some(client), watch, site);
    }

    /// The filter with the numbers of its port and VRF.
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
            Show::Feeds => self.feeds(),
            Show::Addresses => self.addresses(),
            Show::Vrfs => Answer::new(VrfReports::new(self.forwarder)),
            Show::Fib | Show::Routes | Show::NextHops => {
                return Err(unavailable(&Request::Show(what), "its answer must be waited for"));
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
