//! TAP devices: kernel interfaces whose frames this process reads and writes. A port of `net_tap` would be one more port to forward to,
//! and shift the indices of others. Calls fail if the device is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

/// A TAP device, with one attached process at a time. It exists as long as this value, or, if persistent, until it is deleted.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Creates the device `name` in the calling thread's network namespace. It is down; its frames have no TUN header and complete
    /// checksums. Calls on it do not block, and work from every namespace.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an invalid interface name, `EBUSY` if an interface of this name exists, and errors of the
    /// system.
    pub fn create(name: &str) -> io::Result<Self> {
        Self::open(name, libc::IFF_TUN_EXCL)
    }

    /// Attaches to the persistent device `name`, or creates it. An existing device keeps its state, but has a carrier.
    ///
    /// # Errors
    /// As [`Self::create`]; `EBUSY` if another process is attached, and [`io::ErrorKind::InvalidInput`] for an interface that is not a
    /// TAP, or has several queues.
    pub fn attach(name: &str) -> io::Result<Self> {
        Self::open(name, 0)
    }

    fn open(name: &str, more_flags: libc::c_int) -> io::Result<Self> {
        let is_name = !name.is_empty() && !matches!(name, "." | "..");
        if !is_name || name.len() >= libc::IFNAMSIZ || name.contains(['/', ':', '%', '\0', ' ']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no interface can have this name"));
        }
        let open =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: `ifreq` is plain data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | more_flags;
        // The flags are 16 bits wide; IFF_TUN_EXCL is the highest of them.
        request.ifr_ifru.ifru_flags = i16::from_ne_bytes([flags.to_le_bytes()[0], flags.to_le_bytes()[1]]);
        // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
        if unsafe { libc::ioctl(open.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(open))
    }

    /// Reads one frame into `buffer`, and returns its length; [`io::ErrorKind::WouldBlock`] without a frame.
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Sends a frame to the kernel: `EIO` if the device is down, [`io::ErrorKind::WouldBlock`] without room.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }

    /// Sets whether the device has a carrier, from Linux 5.0 on.
    pub fn set_carrier(&self, has_carrier: bool) -> io::Result<()> {
        let value = libc::c_int::from(has_carrier);
        // SAFETY: the descriptor is open, and TUNSETCARRIER reads one `int`, which lives until the call returns.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETCARRIER, &raw const value) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sets the owner to the user `uid`, who may attach without privileges.
    pub fn set_owner(&self, uid: u32) -> io::Result<()> {
        // SAFETY: the descriptor is open, and TUNSETOWNER takes a number.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOWNER, libc::c_ulong::from(uid)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sets whether the device persists, without a carrier, after this value is dropped or the process ends.
    pub fn set_persistent(&self, persists: bool) -> io::Result<()> {
        let value = libc::c_ulong::from(persists);
        // SAFETY: the descriptor is open, and TUNSETPERSIST takes a number.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETPERSIST, value) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A stand-in for a device: one end of a datagram socket.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn of_socket(socket: std::os::unix::net::UnixDatagram) -> Self {
        Self(File::from(std::os::fd::OwnedFd::from(socket)))
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", ".", "..", "a/b", "a:b", "tap%d", "a b", "sixteen-bytes-xx"] {
            assert_eq!(Tap::create(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
