//! `fwd-app run`: forward between DPDK ports.

mod service_manager;

use super::reload::ConfigReader;
use super::{start_eal, tables};
use crate::cli::args::{ForwardArgs, RunArgs};
use crate::cli::config::show::Shown;
use crate::console::server::socket::{self, SocketError};
use crate::console::{self, Console, Telemetry};
use crate::console::{Inbox, Server};
use crate::error::ConfigError;
use crate::forwarder::Signals;
use crate::forwarder::rates::sampler::Sampler;
use crate::forwarder::service::Service;
use crate::forwarder::spec::ForwardSpec;
use crate::forwarder::thread::ControlThread;
use crate::forwarder::updates::UpdateStream;
use crate::forwarder::{Forwarder, Site};
use crate::metrics::MetricsServer;
use crate::metrics::server::HttpLimits;
use crate::neighbours::thread::RouterThread;
use crate::neighbours::thread::asked::{RouterHandle, ToRouter};
use crate::notice;
use crate::notice::LogLevel;
use crate::ports::devices::Devices;
use crate::ports::dpdk::Ended;
use crate::ports::dpdk::{LINK_WAIT, PortCounts, PortLink, PortSpec, Ports};
use crate::ports::taps::{Taps, netns};
use crate::ports::{PortRecord, PortTable};
use crate::report::console::line;
use crate::report::periodic::Periodic;
use crate::report::ran::Ran;
use crate::report::{Setup, Summary, text};
use crate::routes::feeds::interfaces::Interfaces;
use crate::routes::feeds::running::Feeds;
use crate::routes::spec::{VrfSpec, vrfs_of_ports};
use crate::threads::{await_end, keep_to};
use crate::topology::plan::{LcorePlan, LcoreResources, PlanError};
use crate::topology::punts::PuntRings;
use crate::topology::queue_spec::{QueuePort, QueueSite};
use crate::topology::running::Idle;
use crate::topology::{QueueMap, QueueSpec, Settings, TopologyKind};
use anyhow::Context as _;
use crossbeam_channel::Receiver;
use dpdk_ffi::{DpdkError, Eal, LcoreId, Port, SocketId};
use service_manager::{ControlBeat, ServiceManager, Supervised};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Forwards until a signal or `--duration` ends it.
///
/// # Errors
/// The set-up fails, and as [`Summary::judge`].
pub(super) fn main(args: &RunArgs, reader: ConfigReader, shown: &[Shown]) -> anyhow::Result<()> {
    let signals = Signals::take_over().context("cannot install signal handlers")?;
    signals.reload_on_hangup().context("cannot install signal handlers")?;
    let words = eal_arguments(args)?;
    let vrf_specs = VrfSpec::all(&args.vrfs.vrf, &args.vrfs.vrf_fib)?;
    let updates = super::updates(&args.updates, &vrf_specs)?;
    let updates = updates.map(|updates| UpdateStream::new(updates, args.updates.spec(), Arc::default()));
    let mut forwarder = tables::open_to_forward(&args.tables, &vrf_specs)?;
    forwarder.set_audit(args.forward.audit);
    forwarder.config = super::config_values(shown);
    let mut ran = Ran::new(&super::config_values(shown), super::COMMIT);
    ran.work.insert("command", "run".into());
    // Routes of feeds are not known yet.
    let is_known = args.feeds.fpm.is_none() && !args.feeds.kernel_routes;
    ran.work.insert("table_hash", is_known.then(|| tables::hash(&forwarder)).into());
    // Before EAL pins this thread: threads started here may run on any CPU until the lcores' CPUs are known.
    let socket = serve(&args.forward, &words)?;
    let metrics = args.metrics.map(serve_metrics).transpose()?;
    let (routes_max, has_taps) = (args.tables.engine.routes_max, !args.ports.tap.is_empty());
    let feeds = args.feeds.spec(&args.order, routes_max, has_taps);
    let feeds = feeds.for_vrfs(&vrf_specs, &args.feeds.vrf_table)?;
    let feeds = netns::within(args.ports.taps().netns.as_deref(), || Feeds::start(&feeds))?;
    let cpus = fib::host::Host::here().cpus_allowed();
    let eal = start_eal(&words, &signals)?;
    // Fails if EAL was started without support for secondary processes.
    let _ = eal.allow_captures();
    let manager = ServiceManager::from_environment();
    let ran = Some(ran);
    let control = Control { ran, updates, vrf_specs, socket, metrics, feeds, cpus, reader, manager };
    let (summary, ended) = forward(args, &eal, forwarder, &signals, control)?;
    // Pools and EAL are released before any output is written.
    drop(eal);
    let published = summary.publish(super::files(&args.forward), &signals);
    // A thread that has failed may be why packets are missing.
    first_and_others([ended, summary.judge(), published])
}

fn first_and_others(outcomes: impl IntoIterator<Item = anyhow::Result<()>>) -> anyhow::Result<()> {
    outcomes.into_iter().filter_map(Result::err).reduce(and_then).map_or(Ok(()), Err)
}

fn and_then(first: anyhow::Error, second: anyhow::Error) -> anyhow::Error {
    let [first, second] = [first, second].map(|error| super::exit::message(&error));
    anyhow::anyhow!("{first}; {second}")
}

fn eal_arguments(args: &RunArgs) -> Result<Vec<String>, ConfigError> {
    let word = |word: &std::ffi::OsString| {
        word.to_str().map(str::to_owned).ok_or_else(|| {
            ConfigError::Invalid(format!("the EAL argument '{}' is not UTF-8", word.to_string_lossy()))
        })
    };
    args.eal.iter().map(word).collect()
}

/// The requested control socket, or the default one, which is optional.
fn serve(wanted: &ForwardArgs, eal: &[String]) -> anyhow::Result<Option<(Server, Inbox)>> {
    if let Some(path) = &wanted.ctl {
        return Ok(Some(super::control_socket(path, super::clients(wanted))?));
    }
    let served = Server::start(&socket::default_path(eal), super::clients(wanted));
    let warn = |error: &SocketError| {
        notice::warn(format_args!("{error}; fwd-app ctl cannot reach this forwarder (see --ctl)"));
    };
    Ok(served.inspect_err(warn).ok())
}

fn serve_metrics(address: SocketAddr) -> Result<MetricsServer, ConfigError> {
    MetricsServer::start(address, HttpLimits::default())
        .map_err(|error| ConfigError::Invalid(format!("--metrics: cannot listen on {address}: {error}")))
}

/// Warns of lcores that are on another NUMA node than their port, or than the device of an engine.
fn warn_of_nodes(eal: &Eal, plan: &LcorePlan, ports: &Ports, forwarder: &Forwarder) {
    ports.warn_of_sockets(eal, plan);
    let node = |lcore: u32| u32::try_from(eal.lcore_socket(LcoreId(lcore)).ok()?.0).ok();
    let lcores: Vec<_> = plan.lookup_lcores().filter_map(|lcore| Some((lcore, node(lcore)?))).collect();
    let engines = forwarder.vrfs().iter().map(|vrf| vrf.engine().info());
    tables::far_from_devices(engines, &lcores).into_iter().for_each(notice::warn);
}

#[derive(Default)]
struct Control {
    ran: Option<Ran>,
    updates: Option<UpdateStream>,
    vrf_specs: Vec<VrfSpec>,
    socket: Option<(Server, Inbox)>,
    metrics: Option<MetricsServer>,
    feeds: Option<Feeds>,
    cpus: Vec<u16>,
    reader: ConfigReader,
    manager: Option<ServiceManager>,
}

fn forward(
    args: &RunArgs,
    eal: &Eal,
    mut forwarder: Forwarder,
    signals: &Signals,
    control: Control,
) -> anyhow::Result<(Summary, anyhow::Result<()>)> {
    let Control { ran, updates, vrf_specs, socket, metrics, feeds, cpus, reader, manager } = control;
    let forward = args.forward.spec();
    let settings = forward.settings(forwarder.main()).of_devices();
    let found = Ports::open(eal, &args.ports.ports, &args.ports.port_name)?;
    let plan = plan(&forward, settings, eal, &found)?;
    let (spec, words) = (args.ports.spec(), eal_arguments(args)?);
    let (ports, records) = Ports::set_up(eal, found, &plan, &spec, settings.batch, &words)?;
    let table = port_table(args, &spec, &vrf_specs, records)?;
    let (devices, links) = (Devices::new(&ports, &table), ports.links(&table.ports));
    forwarder.set_ports(table.clone())?;
    set_links(&forwarder, &links, &await_links(&ports, &table, &plan, signals)?);
    if let Some(feeds) = feeds {
        forwarder.set_feeds(feeds.over(Interfaces::new(&table.ports)))?;
    }
    forwarder.commit()?;
    let taps = Taps::open(&spec.taps, &table)?;
    tables::warn_of_neighbours(&forwarder);
    warn_of_nodes(eal, &plan, &ports, &forwarder);
    text::banner(&forwarder, settings, &plan).into_iter().for_each(|text| line(LogLevel::Info, text));
    metrics.iter().for_each(|at| line(LogLevel::Info, format_args!("metrics  http://{}/", at.address())));
    line(LogLevel::Info, "forwarding; Ctrl-C stops");

    let mut periodic = Periodic::new(args.forward.stats_period, forwarder.rates());
    let taken = cpus_of(eal, &plan);
    let idle = Idle::new(args.idle_us, plan.lcores.len() > taken.len());
    let punts = PuntRings::for_interfaces(eal, forwarder.punt_addresses().to_vec(), ports.tx_descriptors())?;
    let setup = setup(eal, settings, &plan, &table);
    let steer = console::Site::new(&ports.ports, &plan, setup.clone(), dpdk_ffi::tsc_hz(eal));
    let (router, asked) = RouterHandle::new();
    let console = Console::new(socket, Telemetry::register(eal)?, steer, args.drain_hook.clone());
    let mut console = console.with_router(punts.is_some().then(|| router.clone()));
    console.capture_drops(args.forward.capture_drops.as_ref(), forwarder.running())?;
    let site = Site { eal, ports: &ports.ports, plan: &plan, settings, idle, punts: punts.as_ref() };
    keep_to(&cpus_for_threads(&cpus, &taken, punts.is_some()));
    let running = forwarder.start(&site)?;
    let handle = running.handle().clone();
    let (router, service) = start_router(args, (&site, &forwarder), taps, asked)?;
    let supervised = Supervised::start(manager, (&handle, router.as_ref()), signals)?;
    let Supervised { main, control: heartbeat, reporter } = supervised;
    let service = service.with_stream(updates, false).with_links(links, devices);
    let service = service.with_rates(sampler(eal, &ports, &plan)).with_heartbeat(heartbeat.heartbeat());
    let (service, reloads) =
        service.with_reloads(signals.clone(), Some(Arc::new(move |now| reader.read(now))));
    let (beat, tsc_hz) = (heartbeat.heartbeat(), dpdk_ffi::tsc_hz(eal));
    let answers = answers(console.with_reloads(reloads), metrics.as_ref(), heartbeat, tsc_hz);
    let service = service.with_requests(answers);
    let control = ControlThread::start(forwarder, move |forwarder, told| service.run(forwarder, told))?;
    let (start, mut ends) = (Instant::now(), Ends::default());
    let mut finished = running.run(idle, || {
        main.beat();
        if signals.is_stopping() || args.duration.is_some_and(|limit| start.elapsed() >= limit) {
            handle.stop_rx();
        }
        let router = router.as_ref().is_some_and(RouterThread::has_ended);
        ends.notice(Ends { control: control.has_panicked(), router });
        periodic.tick(&handle, signals.stats_wanted());
    });
    let routed = router.map(RouterThread::stop).transpose();
    let routed = routed.map(|outcome| finished.outcomes.extend(outcome));
    let stopped = control.stop().with_context(|| format!("in the step '{}'", beat.step_name()));
    let (forwarder, threads) = threads_ended(routed, stopped)?;
    // The reporter ends when the control thread has dropped the sender of status lines.
    reporter.into_iter().for_each(await_end);
    let ended = Ended {
        finished,
        duration_s: start.elapsed().as_secs_f64(),
        ports: PortCounts::read_all(&ports.ports, &plan.receives(ports.ports.len())),
    };
    let closed = ports.close().context("cannot close the ports");
    let ran = ran.map(|ran| ran.with_seed("ecmp", forwarder.ports().ecmp_seed));
    let summary = Summary { ran, ..Summary::new("run", &forwarder, &ended, setup, tsc_hz) };
    Ok((summary, first_and_others([threads, closed])))
}

/// The forwarder with the failures of both threads, given the router's end and the control thread's.
///
/// # Errors
/// The control thread has not returned the forwarder. A failure of the router comes first: it was before.
fn threads_ended<T>(
    routed: anyhow::Result<()>,
    stopped: anyhow::Result<(T, anyhow::Result<()>)>,
) -> anyhow::Result<(T, anyhow::Result<()>)> {
    match (stopped, routed) {
        (Ok((forwarder, served)), routed) => Ok((forwarder, first_and_others([served, routed]))),
        (Err(late), Err(first)) => Err(and_then(first, late)),
        (Err(late), Ok(())) => Err(late),
    }
}

fn port_table(
    args: &RunArgs,
    spec: &PortSpec,
    vrf_specs: &[VrfSpec],
    records: Vec<PortRecord>,
) -> anyhow::Result<PortTable> {
    let vrfs = vrfs_of_ports(vrf_specs, &records)?;
    let table = PortTable { ports: records, ecmp_seed: ecmp_seed(args), ..PortTable::default() };
    let table = table.with_vrfs(vrfs).with_interfaces(&spec.addresses, &spec.taps)?;
    Ok(table.with_kernel_interfaces(&args.feeds.kernel_interface)?)
}

fn answers(
    mut console: Console,
    metrics: Option<&MetricsServer>,
    mut heartbeat: ControlBeat,
    tsc_hz: u64,
) -> impl FnMut(&mut Forwarder) -> bool + Send + use<> {
    let mut publisher = metrics.map(|metrics| metrics.publisher(tsc_hz));
    move |forwarder| {
        heartbeat.report(forwarder);
        publisher.iter_mut().for_each(|publisher| publisher.publish_if_sampled(forwarder));
        console.serve(forwarder)
    }
}

/// The seed of the flow hash. Routers with equal seeds would pick correlated paths (polarization).
fn ecmp_seed(args: &RunArgs) -> u64 {
    args.forward.ecmp_seed.unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

#[derive(Clone, Copy, Default)]
struct Ends {
    control: bool,
    router: bool,
}

impl Ends {
    /// Warns once per thread that it has ended, which while packets flow means a panic.
    fn notice(&mut self, ended: Self) {
        if ended.control && !std::mem::replace(&mut self.control, true) {
            notice::warn(
                "the control thread has panicked: forwarding continues, routes and links no longer change",
            );
        }
        if ended.router && !std::mem::replace(&mut self.router, true) {
            notice::warn(
                "the router thread has panicked: forwarding continues, the router no longer answers",
            );
        }
    }
}

fn sampler(eal: &Eal, ports: &Ports, plan: &LcorePlan) -> Sampler {
    let (names, read) = (ports.ports.iter().map(|port| port.label().to_owned()), ports.ports.clone());
    let is_used = |lcore: &u32| plan.lcores.iter().any(|(used, _)| used == lcore);
    let spare = eal.lcores().into_iter().filter(|lcore| *lcore != eal.main_lcore()).map(|lcore| lcore.0);
    let spare = spare.filter(|lcore| !is_used(lcore)).collect();
    // A port is left out of a sample while a device is being brought back.
    let sampler = Sampler::new(names, Box::new(move |index| read[index].try_stats().ok()), spare);
    sampler.with_alarms(plan).with_pools(ports.pools(plan))
}

fn plan(forward: &ForwardSpec, settings: Settings, eal: &Eal, ports: &[Port]) -> anyhow::Result<LcorePlan> {
    let lcores: Vec<u32> = eal.lcores().into_iter().map(|lcore| lcore.0).collect();
    let tx_queues_max = Ports::tx_queues_max(ports)?;
    let host =
        LcoreResources { ports: ports.len(), tx_queues_max, lcores: &lcores, main: eal.main_lcore().0 };
    let map = forward.config.as_ref().map(|config| queue_map(config, settings, eal, ports)).transpose()?;
    Ok(LcorePlan::new(settings.topology, map.as_ref(), host).map_err(ConfigError::from)?)
}

/// Which lcore serves which queue. The main lcore is used only if it is the only one.
fn queue_map(config: &QueueSpec, settings: Settings, eal: &Eal, ports: &[Port]) -> anyhow::Result<QueueMap> {
    let place = |port: &Port| {
        let node = Some(port.socket()).filter(|node| *node != SocketId::ANY);
        let node = node.and_then(|node| u32::try_from(node.0).ok());
        let (name, device) = (port.label().to_owned(), port.name().to_owned());
        Ok(QueuePort { name, device, node, queues_max: port.device_info()?.max_rx_queues })
    };
    let ports: Vec<_> = ports.iter().map(place).collect::<Result<_, DpdkError>>()?;
    let (main, mut workers) = (eal.main_lcore(), eal.lcores());
    if workers.len() > 1 {
        workers.retain(|lcore| *lcore != main);
    }
    let node = |lcore: &LcoreId| {
        let node = eal.lcore_socket(*lcore).ok().and_then(|node| u32::try_from(node.0).ok());
        Some((u16::try_from(lcore.0).ok()?, node.unwrap_or(0)))
    };
    let lcores: Vec<_> = workers.iter().filter_map(node).collect();
    // The other lcores of a pipeline look up and send.
    let queues_max = if settings.topology == TopologyKind::Pipeline { 1 } else { u16::MAX };
    let site = QueueSite { ports: &ports, lcores: &lcores, queues_max };
    Ok(config.resolve(&site).map_err(|error| ConfigError::from(PlanError::from(error)))?)
}

fn setup(eal: &Eal, settings: Settings, plan: &LcorePlan, table: &PortTable) -> Setup {
    let taps = table.ports.iter().filter_map(|port| Some(format!("{}={}", port.id.0, port.tap.as_ref()?)));
    Setup { taps: taps.collect(), ..Setup::new(settings, plan, plan.lcores.len(), eal.has_hugepages()) }
}

fn start_router(
    args: &RunArgs,
    (site, forwarder): (&Site<'_>, &Forwarder),
    taps: Taps,
    asked: Receiver<ToRouter>,
) -> anyhow::Result<(Option<RouterThread>, Service)> {
    let Some(punts) = site.punts else { return Ok((None, Service::default())) };
    let age = Duration::from_secs(args.ports.neigh_age.into());
    let shared = forwarder.shared_with_router(punts);
    let (thread, learned) = RouterThread::start(site.eal, asked, age, taps, shared)?;
    Ok((Some(thread), Service::default().with_neighbours(learned)))
}

/// Waits until all links are up, at most [`LINK_WAIT`], and prints each port. Returns the states of the links.
fn await_links(
    ports: &Ports,
    table: &PortTable,
    plan: &LcorePlan,
    signals: &Signals,
) -> anyhow::Result<Vec<bool>> {
    let end = Instant::now() + LINK_WAIT;
    let mut are_up = Vec::with_capacity(ports.granted.len());
    for (index, (granted, record)) in ports.granted.iter().zip(&table.ports).enumerate() {
        let link = ports.await_link(index, end, || signals.is_stopping())?;
        text::port((record, granted), &link, plan).into_iter().for_each(|text| line(LogLevel::Info, text));
        are_up.push(link.up);
        if granted.rx_queues > 1 && granted.rss.is_empty() {
            let title = table.title(record.id.0);
            notice::warn(format_args!("{title} has no RSS: only queue 0 will receive"));
        }
    }
    Ok(are_up)
}

fn set_links(forwarder: &Forwarder, links: &[PortLink], are_up: &[bool]) {
    links.iter().for_each(|link| forwarder.set_link(link.index, are_up[link.index]));
}

/// The CPUs of the lcores, which yield when they outnumber these.
fn cpus_of(eal: &Eal, plan: &LcorePlan) -> Vec<u16> {
    let mut cpus: Vec<u16> = Vec::new();
    for (lcore, _) in &plan.lcores {
        cpus.extend(eal.lcore_cpus(LcoreId(*lcore)).unwrap_or_default());
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// CPUs for other threads: `all` except `taken`, or `all` if nothing remains. Warns if the router then shares a CPU with an lcore.
fn cpus_for_threads(all: &[u16], taken: &[u16], has_router: bool) -> Vec<u16> {
    let free: Vec<u16> = all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
    if !free.is_empty() {
        return free;
    }
    if has_router {
        notice::warn(
            "every CPU of this process has an lcore, so the router and the lcores delay each other; leave one CPU free (EAL's -l, \
             taskset)",
        );
    }
    all.to_vec()
}

#[cfg(test)]
mod devices_test;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod service_manager_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beside_lcores_get_cpus_of_their_own_if_there_are_any() {
        assert_eq!(cpus_for_threads(&[0, 1, 2, 3], &[1, 2], true), [0, 3]);
        // Not only the main lcore's CPU, to which this thread is pinned.
        assert_eq!(cpus_for_threads(&[1, 2], &[1, 2], true), [1, 2]);
    }

    #[test]
    fn every_failure_of_the_end_is_reported_and_the_first_comes_first() {
        let failed = |why: &str| Err(anyhow::anyhow!("{why}"));
        let message = |error: anyhow::Error| crate::commands::exit::message(&error);
        let late = || Err(anyhow::anyhow!("it has not ended after 15 s").context("in the step 'feeds'"));
        let ended = threads_ended::<()>(failed("the router's thread panicked"), late());
        assert_eq!(
            message(ended.unwrap_err()),
            "the router's thread panicked; in the step 'feeds': it has not ended after 15 s"
        );
        assert_eq!(
            message(threads_ended::<()>(Ok(()), late()).unwrap_err()),
            "in the step 'feeds': it has not ended after 15 s"
        );
        let (forwarder, ended) = threads_ended(failed("second"), Ok((7, failed("first")))).unwrap();
        assert_eq!((forwarder, message(ended.unwrap_err())), (7, "first; second".to_owned()));
        let (_, ended) = threads_ended(failed("alone"), Ok(((), Ok(())))).unwrap();
        assert_eq!(message(ended.unwrap_err()), "alone");
        assert!(first_and_others([Ok(()), Ok(())]).is_ok());
    }
}
