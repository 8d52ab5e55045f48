//! The control loop: gives the forwarder what changes its routes and ports while packets flow.
//!
//! It runs on the control thread. Each source is asked in turn for a bounded amount of work: the update stream of `--updates`,
//! reloads, the links of the ports, the counters that rates are made of, feeds, and the clients that ask. Nothing here ends the
//! forwarder: what cannot be applied is a notice, and everything stays as it was.

use super::rates::sampler::Sampler;
use super::reload::{ReadConfig, ReloadClient, Reloads};
use super::thread::StopFlag;
use super::updates::{Turn, UpdateStream};
use super::{Forwarder, Signals};
use crate::datapath::egress::Named as _;
use crate::neighbours::entries::Resolved;
use crate::notice;
use crate::ports::devices::Devices;
use crate::ports::dpdk::Link;
use crate::threads::Heartbeat;
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the sources are asked when nothing happens, with an update stream, whose updates have their times, and without.
const TICKS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));
/// How often each link is looked at, if no driver reports a change before.
const LINK_PERIOD: Duration = Duration::from_millis(100);
/// The least time between two changes of egress entries by neighbours, and the greatest: as long as the last one took, between the two.
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);
const NEIGHBOUR_PERIOD_MAX: Duration = Duration::from_millis(20);

/// What changes a forwarder while packets flow.
#[derive(Default)]
pub(crate) struct Service {
    stream: Option<UpdateStream>,
    /// Whether the stream ends with the first update that is refused.
    is_strict: bool,
    reloads: Option<Reloads>,
    links: Option<Links>,
    sampler: Option<Sampler>,
    neighbours: Option<Neighbours>,
    requests: Option<Requests>,
    /// Has the name of the source that is asked.
    heartbeat: Arc<Heartbeat>,
}

/// Answers requests that wait; returns whether there were any.
type Requests = Box<dyn FnMut(&mut Forwarder) -> bool + Send>;

impl Service {
    /// Applies `stream`. If `is_strict`, the first update that is refused ends the stream and is the service's result; otherwise it
    /// is a warning.
    pub(crate) fn with_stream(mut self, stream: Option<UpdateStream>, is_strict: bool) -> Self {
        (self.stream, self.is_strict) = (stream, is_strict);
        self
    }

    /// Reads the configuration and the route files again when `signals` has a SIGHUP, and when the client that is returned asks.
    pub(crate) fn with_reloads(mut self, signals: Signals, read: Option<ReadConfig>) -> (Self, ReloadClient) {
        let (reloads, client) = Reloads::new(signals, read);
        self.reloads = Some(reloads);
        (self, client)
    }

    /// Follows `links` and `devices`.
    pub(crate) fn with_links(mut self, links: Vec<Link>, devices: Devices) -> Self {
        self.links = Some(Links { links, devices, at: 0, at_once: 0, due: Instant::now(), events: 0 });
        self
    }

    /// Takes samples of all counters, and makes rates of them.
    pub(crate) fn with_rates(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// Takes in what the router learns of neighbours.
    pub(crate) fn with_neighbours(mut self, from: Receiver<Resolved>) -> Self {
        self.neighbours = Some(Neighbours { from, due: Instant::now() });
        self
    }

    /// Names the source that is asked in `heartbeat`.
    pub(crate) fn with_heartbeat(mut self, heartbeat: Arc<Heartbeat>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Has `answer` answer the requests of clients, some at a time.
    pub(crate) fn with_requests(
        mut self,
        answer: impl FnMut(&mut Forwarder) -> bool + Send + 'static,
    ) -> Self {
        self.requests = Some(Box::new(answer));
        self
    }

    /// Serves `forwarder` until `stop` is set.
    ///
    /// # Errors
    /// The first update that was refused, if the stream is strict.
    pub(crate) fn run(mut self, forwarder: &mut Forwarder, stop: &StopFlag) -> anyhow::Result<()> {
        let mut result = Ok(());
        let heartbeat = Arc::clone(&self.heartbeat);
        while !stop.is_stopping() {
            let mut worked = false;
            // What an update changes is not taken back with a reload that is refused.
            let is_applying = self.reloads.as_ref().is_some_and(Reloads::is_applying);
            worked |= is_applying;
            let stream = self.stream.as_mut().filter(|_| !is_applying);
            match stream.map(|stream| heartbeat.step("updates", || stream.turn(forwarder))) {
                None | Some(Ok(Turn::Idle)) => {}
                Some(Ok(Turn::Worked)) => worked = true,
                Some(Ok(Turn::Ended)) => self.stream = None,
                Some(Err(error)) if self.is_strict => (self.stream, result) = (None, Err(error)),
                Some(Err(error)) => notice::warn(format_args!("{error:#}; what it changes stays as it was")),
            }
            if let Some(reloads) = &mut self.reloads {
                let mut devices = self.links.as_mut().map(|links| &mut links.devices);
                let mut set_mtu = |port, mtu_bytes| {
                    devices.as_mut().map_or(Ok(()), |devices| devices.set_mtu(port, mtu_bytes))
                };
                heartbeat.step("a reload", || reloads.turn(forwarder, &mut set_mtu));
            }
            if let Some(links) = &mut self.links {
                heartbeat.step("devices", || links.follow_devices(forwarder));
                heartbeat.step("links", || links.turn(forwarder));
            }
            if let Some(sampler) = &mut self.sampler {
                worked |= heartbeat.step("counters", || sampler.turn(forwarder));
            }
            if let Some(neighbours) = &mut self.neighbours {
                heartbeat.step("neighbours", || neighbours.turn(forwarder));
            }
            worked |= heartbeat.step("feeds", || forwarder.learn());
            if let Some(answer) = &mut self.requests {
                worked |= heartbeat.step("clients", || answer(forwarder));
            }
            heartbeat.step("memory that lcores let go", || forwarder.free_retired());
            if !worked {
                std::thread::sleep(if self.stream.is_some() { TICKS.0 } else { TICKS.1 });
            }
        }
        if let Some(links) = &mut self.links {
            links.devices.end(forwarder.running());
        }
        // Lcores have ended by now, and may have left packets for someone who looks on.
        if let Some(answer) = &mut self.requests {
            answer(forwarder);
        }
        result
    }
}

/// What the router learns of neighbours.
struct Neighbours {
    from: Receiver<Resolved>,
    /// When it is to be looked at again.
    due: Instant,
}

impl Neighbours {
    /// Brings into service what has been learned since.
    fn turn(&mut self, forwarder: &mut Forwarder) {
        let start = Instant::now();
        if self.from.is_empty() || start < self.due {
            return;
        }
        forwarder.set_resolved(self.from.try_iter().take(self.from.len()));
        if let Err(error) = forwarder.commit() {
            notice::warn(format_args!("{error:#}"));
        }
        // Until a MAC is in service the router sends the packets to it, slowly, so a busy host delays it by 20 ms at most.
        self.due = start + start.elapsed().clamp(NEIGHBOUR_PERIOD, NEIGHBOUR_PERIOD_MAX);
    }
}

/// The links of the ports.
struct Links {
    links: Vec<Link>,
    devices: Devices,
    /// The link that is looked at next. It is one at a time, since some drivers take milliseconds to tell.
    at: usize,
    /// Links to look at without a pause, since one of all has changed.
    at_once: usize,
    /// When the next one is looked at.
    due: Instant,
    /// Changes that drivers had reported by then.
    events: u64,
}

impl Links {
    /// Takes devices that are reset or removed out of use, and back into use.
    fn follow_devices(&mut self, forwarder: &mut Forwarder) {
        let (ports, handle) = (forwarder.ports(), forwarder.running().clone());
        self.devices.turn(&ports, &handle, &mut |port, is_up| set_link(forwarder, port.into(), is_up));
    }

    /// Takes the next hops behind a link that has gone down out of service, and back behind one that has come up.
    fn turn(&mut self, forwarder: &mut Forwarder) {
        let Some(link) = self.links.get(self.at) else { return };
        let (count, events) = (self.links.len(), link.port.link_events());
        if events != self.events {
            (self.events, self.at_once) = (events, count);
        }
        let start = Instant::now();
        if self.at_once == 0 && start < self.due {
            return;
        }
        // A device that is being reset may still say that its link is up.
        let is_up = if self.devices.is_out(link.index) { None } else { link.is_up() };
        (self.at, self.at_once) = ((self.at + 1) % count, self.at_once.saturating_sub(1));
        // A slow driver gets a tenth of this thread's time.
        let pause = LINK_PERIOD / u32::try_from(count).unwrap_or(u32::MAX);
        self.due = start + pause.max(start.elapsed() * 10);
        let Some(is_up) = is_up else { return };
        let was_up = forwarder.ports().ports.get(link.index).is_some_and(|port| port.is_up);
        if is_up != was_up {
            let (index, state) = (link.index, if is_up { "up" } else { "down" });
            notice::post(format_args!("{}: link {state}", link.port.title(index)));
            set_link(forwarder, index, is_up);
        }
    }
}

/// Brings the state of a port's link into service.
fn set_link(forwarder: &mut Forwarder, index: usize, is_up: bool) {
    forwarder.set_link(index, is_up);
    if let Err(error) = forwarder.commit() {
        notice::warn(format_args!("{error:#}"));
    }
}
