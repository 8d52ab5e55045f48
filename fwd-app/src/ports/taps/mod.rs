//! TAPs: kernel interfaces that represent ports (`--tap`), so that routing daemons communicate through the forwarder.
//!
//! A TAP has its port's MAC, MTU, configured addresses and carrier, and ignores configuration from the wire ([`settings`]). Packets for
//! the router without an answer there go to the TAP of the receiving port; frames from the kernel leave unchanged by that port. Addresses
//! added to a TAP by others become addresses of the port ([`crate::forwarder`]). With `--tap-persist` TAPs outlive the forwarder and are
//! taken over by its next start ([`existing`]). The router's thread owns them. A failed TAP loses its frames, which are counted.

mod existing;
pub(crate) mod netns;
mod rtnetlink;
mod settings;
mod setup;

use super::{InterfaceId, PortRecord, PortTable};
use crate::datapath::egress::{Named as _, find_port};
use crate::error::ConfigError;
use crate::notice;
use anyhow::Context as _;
use dpdk_ffi::Tap;
use fib::PortRef;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct TapSpec {
    pub(crate) taps: Vec<(PortRef, String)>,
    /// Their network namespace; `None` for the process's.
    pub(crate) netns: Option<PathBuf>,
    /// Whether they outlive the forwarder.
    pub(crate) persist: bool,
}

impl TapSpec {
    /// TAP names by port index.
    ///
    /// # Errors
    /// [`ConfigError`] for a missing port, and for a repeated port or name.
    pub(super) fn of_ports(&self, ports: &[PortRecord]) -> Result<BTreeMap<u16, String>, ConfigError> {
        let mut names = BTreeMap::new();
        for (port, name) in &self.taps {
            let found = find_port(port, ports, || format!("--tap {port}={name}"));
            let index = found.map_err(|error| ConfigError::NoDevice(error.to_string()))?;
            let is_twice = names.values().any(|other| other == name);
            let before = index.and_then(|index| names.insert(index, name.clone()));
            if is_twice || before.is_some() {
                let message =
                    format!("--tap {port}={name}: a port has only one TAP, and TAPs need different names");
                return Err(ConfigError::Invalid(message));
            }
        }
        Ok(names)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Taken,
    /// The TAP is down, full or gone.
    Refused,
    NoTap,
}

struct PortTap {
    title: String,
    /// `None` once the device is gone.
    tap: Option<Tap>,
    /// Whether the last frame was refused, which limits warnings to one per series.
    is_refusing: bool,
}

#[derive(Default)]
pub(crate) struct Taps(BTreeMap<InterfaceId, PortTap>);

impl Taps {
    /// Creates the TAPs of `ports` in the namespace of `spec`, or takes over the TAPs of an earlier start, and brings them up.
    ///
    /// # Errors
    /// A name is taken, the namespace does not exist, or the system refuses.
    pub(crate) fn open(spec: &TapSpec, ports: &PortTable) -> anyhow::Result<Self> {
        let made = || {
            let mut taps = Self::default();
            for (port, name) in ports.ports.iter().filter_map(|port| Some((port, port.tap.as_ref()?))) {
                let tap = setup::make(name, port).with_context(|| format!("--tap {}={name}", port.id.0))?;
                taps.add(port.id, format!("{}: TAP {name}", port.title(port.id.0)), tap);
            }
            // Only now: a failed start must not leave new TAPs behind.
            taps.0
                .values()
                .filter_map(|at| at.tap.as_ref())
                .try_for_each(|tap| setup::keep(tap, spec.persist))?;
            Ok(taps)
        };
        if spec.taps.is_empty() { Ok(Self::default()) } else { netns::within(spec.netns.as_deref(), made) }
    }

    /// Applies changed MTUs and configured addresses to the TAPs in `netns`.
    ///
    /// # Errors
    /// The namespace does not exist, or the system refuses something; the rest is still applied.
    pub(crate) fn follow(netns: Option<&Path>, before: &PortTable, after: &PortTable) -> anyhow::Result<()> {
        let of = |port: &PortRecord| (port.mtu_bytes, port.configured().to_vec());
        let pairs = before.ports.iter().zip(&after.ports).filter(|(before, after)| of(before) != of(after));
        let taps = pairs.filter_map(|(before, after)| Some((after.tap.clone()?, (before, after))));
        let taps: Vec<_> = taps.collect();
        if taps.is_empty() {
            return Ok(());
        }
        netns::within(netns, || {
            let mut result = Ok(());
            for (name, (before, after)) in &taps {
                let set = setup::follow(name, before, after);
                result = result.and(set.with_context(|| format!("TAP {name}")));
            }
            result
        })
    }

    fn add(&mut self, id: InterfaceId, title: String, tap: Tap) {
        self.0.insert(id, PortTap { title, tap: Some(tap), is_refusing: false });
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InterfaceId> {
        self.0.keys().copied()
    }

    pub(crate) fn send(&mut self, id: InterfaceId, frame: &[u8]) -> Sent {
        let Some(PortTap { title, tap, is_refusing }) = self.0.get_mut(&id) else { return Sent::NoTap };
        let Some(device) = tap else { return Sent::Refused };
        match device.send(frame) {
            Ok(()) => {
                *is_refusing = false;
                return Sent::Taken;
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BADFD.raw_os_error()) => {
                *tap = None;
                warn_gone(title);
            }
            Err(error) => {
                if !std::mem::replace(is_refusing, true) {
                    notice::warn(format_args!(
                        "{title} takes no frames: {error}; the frames are dropped as punt_full"
                    ));
                }
            }
        }
        Sent::Refused
    }

    /// Reads a frame that the kernel sent by the TAP of `id`, and returns its length.
    pub(crate) fn recv(&mut self, id: InterfaceId, buffer: &mut [u8]) -> Option<usize> {
        let PortTap { title, tap, .. } = self.0.get_mut(&id)?;
        match tap.as_ref()?.recv(buffer) {
            Ok(bytes) => Some(bytes),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(_) => {
                *tap = None;
                warn_gone(title);
                None
            }
        }
    }

    pub(crate) fn set_carrier(&self, id: InterfaceId, is_up: bool) {
        if let Some(tap) = self.0.get(&id).and_then(|at| at.tap.as_ref()) {
            // Not every kernel supports it; a vanished TAP is noticed by its frames.
            let _ = tap.set_carrier(is_up);
        }
    }

    pub(crate) fn wait(&self, timeout: Duration) {
        let taps = self.0.values().filter_map(|at| at.tap.as_ref());
        let mut fds: Vec<PollFd<'_>> = taps.map(|tap| PollFd::new(tap, PollFlags::IN)).collect();
        if fds.is_empty() {
            return std::thread::sleep(timeout);
        }
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
    }
}

fn warn_gone(title: &str) {
    notice::warn(format_args!(
        "{title} was deleted: packets for the kernel are dropped as punt_full from now on"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    const ID: InterfaceId = InterfaceId(1);

    /// TAPs with one on port `ID`, and the kernel's end of it.
    fn taps() -> (Taps, UnixDatagram) {
        let (ours, kernels) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut taps = Taps::default();
        taps.add(ID, "TAP tap1".to_owned(), Tap::of_socket(ours));
        (taps, kernels)
    }

    #[test]
    fn frames_go_both_ways() {
        let (mut taps, kernel) = taps();
        let mut buffer = [0; 100];
        assert_eq!(taps.recv(ID, &mut buffer), None);
        assert_eq!(taps.send(ID, &[7; 60]), Sent::Taken);
        assert_eq!(kernel.recv(&mut buffer).unwrap(), 60);
        kernel.send(&[8; 50]).unwrap();
        assert_eq!(taps.recv(ID, &mut buffer), Some(50));
        assert_eq!(taps.send(InterfaceId(0), &[7; 60]), Sent::NoTap);
        assert_eq!(taps.recv(InterfaceId(0), &mut buffer), None);
    }

    #[test]
    fn a_kernel_that_does_not_read_refuses_until_it_does() {
        let (mut taps, kernel) = taps();
        let taken = (0..10_000).take_while(|_| taps.send(ID, &[7; 60]) == Sent::Taken).count();
        assert!(taken > 0 && taken < 10_000);
        assert_eq!(taps.send(ID, &[7; 60]), Sent::Refused);
        for _ in 0..taken {
            kernel.recv(&mut [0; 100]).unwrap();
        }
        assert_eq!(taps.send(ID, &[7; 60]), Sent::Taken);
    }

    #[test]
    fn a_tap_that_is_gone_refuses_and_waits_no_longer() {
        let (mut taps, kernel) = taps();
        drop(kernel);
        assert_eq!(taps.send(ID, &[7; 60]), Sent::Refused);
        taps.0.get_mut(&ID).unwrap().tap = None;
        assert_eq!((taps.send(ID, &[7; 60]), taps.recv(ID, &mut [0; 100])), (Sent::Refused, None));
        let start = std::time::Instant::now();
        taps.wait(Duration::from_millis(5));
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
