//! The socket file: path, access, takeover and removal.
//!
//! The socket gets its mode before its name, so that others can connect at no moment. A stale file of a crashed forwarder is replaced under
//! a lock of the folder, so that two starting forwarders do not replace each other's file. Any user who can read the folder can lock it, so
//! a lock that stays is an error.

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const FOLDER: &str = "/run/fwd-app";
const FILE_PREFIX: &str = "rte";
const BACKLOG: i32 = 128;
/// The mode that lets all users connect.
const OPEN: u32 = 0o666;
/// Time allowed for another starting forwarder to hold the lock.
const LOCKED_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("{}: another forwarder listens here; give this one another --ctl, or EAL another --file-prefix", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    #[error("{}: exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    #[error("{}: another process keeps this folder locked (flock); see lsof, or give --ctl a socket elsewhere", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    #[error("{}: {what}: {source}", path.display())]
    System {
        path: PathBuf,
        /// The failed operation.
        what: &'static str,
        source: io::Error,
    },
}

pub(crate) fn default_path(eal: &[String]) -> PathBuf {
    let mut prefix = FILE_PREFIX;
    for (at, argument) in eal.iter().enumerate() {
        if let Some(value) = argument.strip_prefix("--file-prefix") {
            prefix = value.strip_prefix('=').or(eal.get(at + 1).map(String::as_str)).unwrap_or(prefix);
        }
    }
    // A prefix with slashes must not lead to another folder.
    Path::new(FOLDER).join(format!("{}.sock", prefix.replace('/', "_")))
}

pub(crate) fn live_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_live = |path: &PathBuf| match connect(path) {
        Ok(_) => true,
        // No permission, or the listen queue is full.
        Err(error) => matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::AGAIN)),
    };
    let mut live: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(is_live)
        .collect();
    live.sort();
    live
}

/// Connects to `path` without blocking.
///
/// # Errors
/// The system's: no file, no listener, or a full listen queue (`WouldBlock`).
pub(in crate::console) fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = socket()?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A listening socket; dropping it removes the file.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Whether users other than root and the own user can connect.
    is_open: bool,
    /// The mode of the file while it is open to other users.
    open_mode: u32,
    /// Device and inode of the file, unless unreadable.
    file: Option<(u64, u64)>,
}

impl Socket {
    /// Listens at `path`, and creates the folder if missing. `is_open` lets other users connect.
    pub(super) fn listen(path: &Path, is_open: bool) -> Result<Self, SocketError> {
        let failed =
            |what| move |source: io::Error| SocketError::System { path: path.to_owned(), what, source };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder)
            .map_err(failed("cannot make its folder"))?;
        let lock = File::open(folder).map_err(failed("cannot open its folder"))?;
        let end = Instant::now() + LOCKED_MAX;
        while let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if errno != Errno::WOULDBLOCK {
                return Err(failed("cannot lock its folder")(errno.into()));
            }
            if Instant::now() >= end {
                return Err(SocketError::Locked { folder: folder.to_owned() });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        remove_stale(path)?;
        let bind = || {
            let socket = socket()?;
            // Binding gives the file the socket's mode.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            if is_open {
                // Independent of the umask.
                std::fs::set_permissions(path, Permissions::from_mode(OPEN))?;
            }
            net::listen(&socket, BACKLOG)?;
            Ok(socket.into())
        };
        let listener = bind().map_err(failed("cannot listen here"))?;
        let file = path.symlink_metadata().ok().map(|file| identity(&file));
        Ok(Self { listener, path: path.to_owned(), is_open, open_mode: OPEN, file })
    }

    /// Sets whether users other than root and the own user can connect from now on. Returns whether they can: the system may refuse.
    pub(super) fn set_open(&mut self, is_open: bool) -> bool {
        if self.is_open != is_open && self.set_mode(is_open).is_ok() {
            self.is_open = is_open;
        }
        self.is_open
    }

    /// Sets the mode by descriptor: the path may have become a link to another file.
    fn set_mode(&mut self, is_open: bool) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let now = file.metadata()?;
        if Some(identity(&now)) != self.file {
            return Err(io::ErrorKind::NotFound.into());
        }
        if !is_open {
            self.open_mode = now.mode() & 0o777;
        }
        let mode = Permissions::from_mode(if is_open { self.open_mode } else { 0o600 });
        std::fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
    }

    /// Whether the file is still this socket's: one with another identity belongs to another forwarder.
    fn has_file(&self) -> bool {
        let now = self.path.symlink_metadata().ok().map(|file| identity(&file));
        now.is_some() && now == self.file
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.has_file() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let system = |what, source| SocketError::System { path: path.to_owned(), what, source };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("cannot be inspected", error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(SocketError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Ok(_) => return Err(SocketError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(SocketError::InUse { path: path.to_owned() });
        }
        Err(error) => return Err(system("cannot find out whether a forwarder listens here", error)),
    }
    std::fs::remove_file(path)
        .map_err(|error| system("cannot remove the socket of a forwarder that died", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_with_the_socket() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("a/b/x.sock");
        let socket = Socket::listen(&path, false).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o600);
        let again = Socket::listen(&path, false).unwrap_err();
        assert!(matches!(again, SocketError::InUse { .. }), "{again}");
        let live = || live_in(path.parent().unwrap());
        assert!(live().iter().eq([&path]));
        drop(socket);
        assert!(!path.exists() && live().is_empty());
        let mut open = Socket::listen(&path, true).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o666);
        for (is_open, mode) in [(false, 0o600), (true, 0o666)] {
            assert_eq!(open.set_open(is_open), is_open);
            assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_other_files_are_not() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && live_in(scratch.path()).is_empty());
        let mut socket = Socket::listen(&path, false).unwrap();
        connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(!socket.set_open(true));
        drop(socket);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        drop(other);
        let file = scratch.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert!(matches!(Socket::listen(&file, false).unwrap_err(), SocketError::NotASocket { .. }));
        assert_eq!(std::fs::read(&file).unwrap(), b"text");
        let long = scratch.path().join("x".repeat(200));
        assert!(matches!(Socket::listen(&long, false).unwrap_err(), SocketError::System { .. }));
    }

    #[test]
    fn a_folder_that_stays_locked_is_an_error() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x.sock");
        let other = File::open(scratch.path()).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        let start = Instant::now();
        let error = Socket::listen(&path, false).unwrap_err();
        assert!(matches!(&error, SocketError::Locked { folder } if folder == scratch.path()), "{error}");
        assert!(start.elapsed() >= LOCKED_MAX);
        let unlock = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
        });
        Socket::listen(&path, false).unwrap();
        unlock.join().unwrap();
    }

    #[test]
    fn the_path_follows_the_file_prefix() {
        let path = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            default_path(&words).to_str().unwrap().to_owned()
        };
        assert_eq!(path("-l 1"), "/run/fwd-app/rte.sock");
        assert_eq!(path("-l 1 --file-prefix a"), "/run/fwd-app/a.sock");
        assert_eq!(path("--file-prefix=../b -l 1"), "/run/fwd-app/.._b.sock");
        assert_eq!(path("--file-prefix"), "/run/fwd-app/rte.sock");
    }
}
