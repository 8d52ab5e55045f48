//! The control loop: applies changes of routes and ports while packets flow.
//!
//! Each source in turn gets a bounded amount of work. No failure here ends the forwarder: a refused change is a warning, and the state
//! before stays in service.

use super::rates::sampler::Sampler;
use super::reload::{ReadConfig, ReloadClient, Reloads};
use super::thread::StopFlag;
use super::updates::{Turn, UpdateStream};
use super::{Forwarder, Signals};
use crate::datapath::egress::Named as _;
use crate::neighbours::entries::Resolved;
use crate::notice;
use crate::ports::devices::Devices;
use crate::ports::dpdk::PortLink;
use crate::threads::Heartbeat;
use crossbeam_channel::Receiver;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The idle poll interval: with an update stream, whose updates are timed, and without.
const TICKS: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(2));
/// How often each link is polled, unless a driver reports a change earlier.
const LINK_PERIOD: Duration = Duration::from_millis(100);
/// Bounds of the pause between two neighbour updates of the egress tables; between them, as long as the last update took.
const NEIGHBOUR_PERIOD: Duration = Duration::from_millis(5);
const NEIGHBOUR_PERIOD_MAX: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct Service {
    stream: Option<UpdateStream>,
    is_strict: bool,
    reloads: Option<Reloads>,
    links: Option<Links>,
    sampler: Option<Sampler>,
    neighbours: Option<Neighbours>,
    requests: Option<Requests>,
    heartbeat: Arc<Heartbeat>,
}

type Requests = Box<dyn FnMut(&mut Forwarder) -> bool + Send>;

impl Service {
    /// Applies `stream`. If `is_strict`, the first refused update ends the stream and is the service's result; otherwise it is a warning.
    pub(crate) fn with_stream(mut self, stream: Option<UpdateStream>, is_strict: bool) -> Self {
        (self.stream, self.is_strict) = (stream, is_strict);
        self
    }

    pub(crate) fn with_reloads(mut self, signals: Signals, read: Option<ReadConfig>) -> (Self, ReloadClient) {
        let (reloads, client) = Reloads::new(signals, read);
        self.reloads = Some(reloads);
        (self, client)
    }

    pub(crate) fn with_links(mut self, links: Vec<PortLink>, devices: Devices) -> Self {
        self.links = Some(Links { links, devices, at: 0, at_once: 0, due: Instant::now(), events: 0 });
        self
    }

    pub(crate) fn with_rates(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    pub(crate) fn with_neighbours(mut self, from: Receiver<Resolved>) -> Self {
        self.neighbours = Some(Neighbours { from, due: Instant::now() });
        self
    }

    pub(crate) fn with_heartbeat(mut self, heartbeat: Arc<Heartbeat>) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    pub(crate) fn with_requests(
        mut self,
        answer: impl FnMut(&mut Forwarder) -> bool + Send + 'static,
    ) -> Self {
        self.requests = Some(Box::new(answer));
        self
    }

    /// # Errors
    /// The first refused update, if the stream is strict.
    pub(crate) fn run(mut self, forwarder: &mut Forwarder, stop: &StopFlag) -> anyhow::Result<()> {
        let mut result = Ok(());
        let heartbeat = Arc::clone(&self.heartbeat);
        while !stop.is_stopping() {
            // First: commits of this turn make samples of earlier routes uncertain.
            let mut worked = heartbeat.step("the audit", || forwarder.audit());
            // Pause the stream: a refused reload must not undo updates applied in between.
            let is_applying = self.reloads.as_ref().is_some_and(Reloads::is_applying);
            worked |= is_applying;
            let stream = self.stream.as_mut().filter(|_| !is_applying);
            match stream.map(|stream| heartbeat.step("updates", || stream.apply_due(forwarder))) {
                None | Some(Ok(Turn::Idle)) => {}
                Some(Ok(Turn::Worked)) => worked = true,
                Some(Ok(Turn::Ended)) => self.stream = None,
                Some(Err(error)) if self.is_strict => (self.stream, result) = (None, Err(error)),
                Some(Err(error)) => notice::warn(format_args!("{error:#}; the update was not applied")),
            }
            if let Some(reloads) = &mut self.reloads {
                let mut devices = self.links.as_mut().map(|links| &mut links.devices);
                let mut set_mtu = |port, mtu_bytes| {
                    devices.as_mut().map_or(Ok(()), |devices| devices.set_mtu(port, mtu_bytes))
                };
                heartbeat.step("a reload", || reloads.advance(forwarder, &mut set_mtu));
            }
            if let Some(links) = &mut self.links {
                heartbeat.step("devices", || links.follow_devices(forwarder));
                heartbeat.step("links", || links.poll_next(forwarder));
            }
            if let Some(sampler) = &mut self.sampler {
                worked |= heartbeat.step("counters", || sampler.sample_if_due(forwarder));
            }
            if let Some(neighbours) = &mut self.neighbours {
                heartbeat.step("neighbours", || neighbours.commit_resolved(forwarder));
            }
            worked |= heartbeat.step("feeds", || forwarder.learn());
            if let Some(answer) = &mut self.requests {
                worked |= heartbeat.step("clients", || answer(forwarder));
            }
            heartbeat.step("memory released by lcores", || forwarder.free_retired());
            if !worked {
                std::thread::sleep(if self.stream.is_some() { TICKS.0 } else { TICKS.1 });
            }
        }
        if let Some(links) = &mut self.links {
            links.devices.end(forwarder.running());
        }
        // Lcores have stopped, and may have left samples, and packets for a client that captures them.
        forwarder.audit();
        if let Some(answer) = &mut self.requests {
            answer(forwarder);
        }
        result
    }
}

struct Neighbours {
    from: Receiver<Resolved>,
    due: Instant,
}

impl Neighbours {
    fn commit_resolved(&mut self, forwarder: &mut Forwarder) {
        let start = Instant::now();
        if self.from.is_empty() || start < self.due {
            return;
        }
        forwarder.set_resolved(self.from.try_iter().take(self.from.len()));
        if let Err(error) = forwarder.commit() {
            notice::warn(format_args!("{error:#}"));
        }
        // Until a MAC is in service, packets take the slow path through the router, so the pause is limited even on a busy host.
        self.due = Instant::now() + start.elapsed().clamp(NEIGHBOUR_PERIOD, NEIGHBOUR_PERIOD_MAX);
    }
}

struct Links {
    links: Vec<PortLink>,
    devices: Devices,
    /// The link to poll next. One at a time, since some drivers take milliseconds to answer.
    at: usize,
    /// Links to poll without a pause, after a driver reported a change.
    at_once: usize,
    due: Instant,
    /// The drivers' count of link changes at the last poll.
    events: u64,
}

impl Links {
    fn follow_devices(&mut self, forwarder: &mut Forwarder) {
        let (ports, handle) = (forwarder.ports(), forwarder.running().clone());
        self.devices.advance(&ports, &handle, &mut |port, is_up| set_link(forwarder, port.into(), is_up));
    }

    fn poll_next(&mut self, forwarder: &mut Forwarder) {
        let Some(link) = self.links.get(self.at) else { return };
        let (count, events) = (self.links.len(), link.port.link_events());
        if events != self.events {
            (self.events, self.at_once) = (events, count);
        }
        let start = Instant::now();
        if self.at_once == 0 && start < self.due {
            return;
        }
        // A device in reset may still report its link as up.
        let is_up = if self.devices.is_out(link.index) { None } else { link.is_up() };
        (self.at, self.at_once) = ((self.at + 1) % count, self.at_once.saturating_sub(1));
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

fn set_link(forwarder: &mut Forwarder, index: usize, is_up: bool) {
    forwarder.set_link(index, is_up);
    if let Err(error) = forwarder.commit() {
        notice::warn(format_args!("{error:#}"));
    }
}
