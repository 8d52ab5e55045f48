//! Messages to the service manager, as in systemd's `sd_notify(3)`: readiness, status line, watchdog.
//!
//! A thread checks the heartbeats of all lcores, idle ones included, and of the main, control and router threads. It feeds the watchdog
//! only if all have advanced since the last time, so a forwarder with one hanging lcore is restarted. Paused receiving (`ctl stop`) is no
//! hang, since lcores keep polling. After a panic of the control thread, the status says so, and the watchdog is no longer fed.
//!
//! The protocol is a datagram of lines `NAME=VALUE`, sent with the standard library: crates for it read the address only from the
//! environment, which a test cannot set without unsafe code.

use crate::forwarder::{Forwarder, Signals};
use crate::neighbours::thread::RouterThread;
use crate::notice;
use crate::threads::{Heartbeat, spawn};
use crate::topology::Handle;
use anyhow::Context as _;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{env, io};

const STATUS_PERIOD: Duration = Duration::from_secs(1);
const LOOKS: u32 = 8;

#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The manager ends the process unless fed within this time.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`; `None` without a manager.
    pub(super) fn from_environment() -> Option<Self> {
        let address = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0).map(Duration::from_micros);
        let manager = Self::new(&address, watchdog);
        let warn = |error: &io::Error| {
            notice::warn(format_args!("NOTIFY_SOCKET={}: {error}", address.to_string_lossy()));
        };
        manager.inspect_err(warn).ok()
    }

    /// The manager at `address`, a path or an abstract name after `@`. It must be fed within `watchdog`.
    ///
    /// # Errors
    /// The address is too long, or the system refuses a socket.
    pub(super) fn new(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, watchdog })
    }

    /// Sends `lines` without blocking; a manager that does not read loses them.
    fn tell(&self, lines: &str) {
        let _ = self.socket.send_to_addr(lines.as_bytes(), &self.address);
    }

    /// Reports readiness, and starts the reporting thread. It ends once the returned sender is dropped and receiving stops.
    fn follow(self, watched: Watched, signals: &Signals) -> anyhow::Result<(Sender<String>, JoinHandle<()>)> {
        let (sender, status) = bounded(1);
        self.tell("READY=1");
        let reporter = Reporter {
            fed: (watched.heartbeats(), Instant::now()),
            manager: self,
            watched,
            signals: signals.clone(),
            is_reloading: false,
            is_stopping: false,
            is_stuck: false,
        };
        let thread = spawn("service", move || reporter.run(&status));
        Ok((sender, thread.context("cannot start the thread for systemd")?))
    }
}

pub(super) struct Supervised {
    pub(super) main: Arc<Heartbeat>,
    pub(super) control: ControlBeat,
    /// `None` without a service manager. It ends when [`Self::control`] is dropped and receiving stops.
    pub(super) reporter: Option<JoinHandle<()>>,
}

impl Supervised {
    pub(super) fn start(
        manager: Option<ServiceManager>,
        (handle, router): (&Handle, Option<&RouterThread>),
        signals: &Signals,
    ) -> anyhow::Result<Self> {
        let [main, control] = [(); 2].map(|()| Arc::<Heartbeat>::default());
        let mut threads = vec![("main", Arc::clone(&main)), ("control", Arc::clone(&control))];
        threads.extend(router.map(|router| ("router", Arc::clone(router.heartbeat()))));
        let watched = Watched { handle: handle.clone(), threads };
        let follow = |manager: ServiceManager| manager.follow(watched, signals);
        let (status, reporter) = manager.map(follow).transpose()?.unzip();
        Ok(Self { main, control: ControlBeat { heartbeat: control, status, due: Instant::now() }, reporter })
    }
}

pub(super) struct ControlBeat {
    heartbeat: Arc<Heartbeat>,
    status: Option<Sender<String>>,
    due: Instant,
}

impl ControlBeat {
    pub(super) fn heartbeat(&self) -> Arc<Heartbeat> {
        Arc::clone(&self.heartbeat)
    }

    /// Counts a turn, and every second sends the status to the reporting thread. Does not block.
    pub(super) fn report(&mut self, forwarder: &Forwarder) {
        self.heartbeat.beat();
        let now = Instant::now();
        let Some(status) = self.status.as_ref().filter(|_| now >= self.due) else { return };
        self.due = now + STATUS_PERIOD;
        // Full only if the reporter is late; it gets the next line.
        let _ = status.try_send(status_line(forwarder));
    }
}

fn status_line(forwarder: &Forwarder) -> String {
    let ribs = forwarder.vrfs().iter().map(|vrf| vrf.rib());
    let (v4, v6) = ribs.fold((0, 0), |(v4, v6), rib| (v4 + rib.v4.len(), v6 + rib.v6.len()));
    let table = forwarder.ports();
    let up = table.ports.iter().filter(|port| port.is_up).count();
    let does = if forwarder.running().is_paused() { "receiving is stopped" } else { "forwarding" };
    let engine = forwarder.main().engine().info().name;
    format!("{does}; {v4} IPv4 and {v6} IPv6 routes, engine {engine}, {up} of {} ports up", table.ports.len())
}

struct Watched {
    handle: Handle,
    threads: Vec<(&'static str, Arc<Heartbeat>)>,
}

impl Watched {
    fn heartbeats(&self) -> Vec<u64> {
        let threads = self.threads.iter().map(|(_, heartbeat)| heartbeat.count());
        self.handle.heartbeats().map(|(_, count)| count).chain(threads).collect()
    }

    /// The threads that did not advance between two lists of [`Self::heartbeats`], with their current step.
    fn stuck(&self, before: &[u64], after: &[u64]) -> Vec<String> {
        let lcores = self.handle.heartbeats().map(|(lcore, _)| format!("lcore {lcore}"));
        let thread = |(name, heartbeat): &(&str, Arc<Heartbeat>)| match heartbeat.step_name() {
            "" => format!("the {name} thread"),
            step => format!("the {name} thread ({step})"),
        };
        let names = lcores.chain(self.threads.iter().map(thread));
        names.zip(before.iter().zip(after)).filter(|(_, (b, a))| b == a).map(|(name, _)| name).collect()
    }
}

struct Reporter {
    manager: ServiceManager,
    watched: Watched,
    signals: Signals,
    fed: (Vec<u64>, Instant),
    is_reloading: bool,
    is_stopping: bool,
    is_stuck: bool,
}

impl Reporter {
    fn run(mut self, status: &Receiver<String>) {
        let period = self.manager.watchdog.map_or(STATUS_PERIOD, |limit| (limit / LOOKS).min(STATUS_PERIOD));
        let mut shown = String::new();
        let mut due = Instant::now();
        loop {
            match status.recv_deadline(due) {
                Ok(line) if line != shown && !self.is_stuck => {
                    self.manager.tell(&format!("STATUS={line}"));
                    shown = line;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    due = Instant::now() + period;
                    self.check_heartbeats();
                    if self.is_stuck {
                        shown.clear();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.await_stop(period);
        self.stop();
    }

    /// Handles the end of the control thread: after a panic the watchdog is no longer fed. Waits until receiving stops.
    fn await_stop(&self, period: Duration) {
        let is_stopping = || self.watched.handle.is_stopping();
        if !is_stopping() {
            self.manager.tell(
                "STATUS=the control thread has panicked: forwarding continues, routes and links no longer change",
            );
        }
        while !is_stopping() {
            std::thread::sleep(period);
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopping, true) {
            self.manager.tell("STOPPING=1\nSTATUS=stopping");
        }
    }

    fn check_heartbeats(&mut self) {
        if self.watched.handle.is_stopping() {
            return self.stop();
        }
        let is_reloading = self.signals.is_reloading();
        if std::mem::replace(&mut self.is_reloading, is_reloading) != is_reloading {
            self.manager.tell(&if is_reloading { reloading() } else { "READY=1".to_owned() });
        }
        if let Some(limit) = self.manager.watchdog {
            self.feed(limit);
        }
    }

    /// Feeds the watchdog if all threads have advanced since the last time. Reports stuck threads before `limit` is reached.
    fn feed(&mut self, limit: Duration) {
        let now = self.watched.heartbeats();
        let stuck = self.watched.stuck(&self.fed.0, &now);
        if stuck.is_empty() {
            self.manager.tell("WATCHDOG=1");
            (self.fed, self.is_stuck) = ((now, Instant::now()), false);
            return;
        }
        let since = self.fed.1.elapsed();
        if since >= limit / 2 && !std::mem::replace(&mut self.is_stuck, true) {
            let who = stuck.join(", ");
            self.manager.tell(&format!("STATUS=stuck: {who}"));
            notice::warn(format_args!(
                "stuck for {} ms: {who}; the watchdog gets no heartbeat, and ends the forwarder after {} ms",
                since.as_millis(),
                limit.as_millis()
            ));
        }
    }
}

/// A RELOADING message with its time, since systemd accepts only a later READY as the end of the reload.
fn reloading() -> String {
    let now = clock_gettime(ClockId::Monotonic);
    let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={us}")
}
