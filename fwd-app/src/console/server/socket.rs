//! The socket file: where it is, who may use it, who owns it, and when it is removed.
//!
//! Only the user of the forwarder may use it, unless there are groups whose members may ([`super::access`]): the socket gets its mode
//! before it gets its name, so there is no moment at which others could connect. A file that no process listens at, left by a forwarder that died, is replaced; the folder is locked
//! meanwhile, so that two forwarders that start at once do not replace each other's. Anyone may lock a folder that he can read, so a
//! lock that stays is an error.

use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder of sockets by default.
pub(crate) const FOLDER: &str = "/run/fwd-app";
/// EAL's own default of `--file-prefix`.
const FILE_PREFIX: &str = "rte";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How long another forwarder that starts may have the folder locked.
const LOCKED_MAX: Duration = Duration::from_secs(3);

/// Why there is no socket to listen at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    /// Another forwarder listens there.
    #[error("{}: another forwarder listens here; give this one a --ctl of its own, or EAL another --file-prefix", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is a file of another kind.
    #[error("{}: exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// A process has its folder locked.
    #[error("{}: another process keeps this folder locked (flock); see lsof, or give --ctl a socket elsewhere", folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
    },
    /// A system call failed.
    #[error("{}: {what}: {source}", path.display())]
    System {
        /// The socket or its folder.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// The socket of the forwarder with these EAL arguments, where `--ctl` names none.
pub(crate) fn default_path(eal: &[String]) -> PathBuf {
    let mut prefix = FILE_PREFIX;
    for (at, argument) in eal.iter().enumerate() {
        if let Some(value) = argument.strip_prefix("--file-prefix") {
            prefix = value.strip_prefix('=').or(eal.get(at + 1).map(String::as_str)).unwrap_or(prefix);
        }
    }
    // A prefix is a part of file names for EAL too, but here it must not lead elsewhere.
    Path::new(FOLDER).join(format!("{}.sock", prefix.replace('/', "_")))
}

/// The sockets in `folder` that a process listens at, sorted.
pub(crate) fn live_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_live = |path: &PathBuf| match connect(path) {
        Ok(_) => true,
        // Somebody else's, or somebody is behind.
        Err(error) => matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::AGAIN)),
    };
    let mut live: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(is_live)
        .collect();
    live.sort();
    live
}

/// A connection to the socket at `path`; it does not block.
///
/// # Errors
/// The system's: no file, nobody listens, or as many wait already as may (`WouldBlock`).
pub(in crate::console) fn connect(path: &Path) -> io::Result<UnixStream> {
    let socket = socket()?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A listening socket, whose file is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, if they could be read.
    file: Option<(u64, u64)>,
}

impl Socket {
    /// Listens at `path`, whose folder is made if it is missing. Whether others may connect is `is_open`.
    ///
    /// # Errors
    /// [`SocketError`].
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
            // The name gets the mode that the socket has when it is bound.
            fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
            net::bind(&socket, &SocketAddrUnix::new(path)?)?;
            if is_open {
                // Whatever the umask of this process is.
                std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
            }
            net::listen(&socket, BACKLOG)?;
            Ok(socket.into())
        };
        let listener = bind().map_err(failed("cannot listen here"))?;
        let file = path.symlink_metadata().ok().map(|file| identity(&file));
        Ok(Self { listener, path: path.to_owned(), file })
    }

    /// The listener; it does not block.
    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A file that has taken its place is another forwarder's.
        let now = self.path.symlink_metadata().ok().map(|file| identity(&file));
        if now.is_some() && now == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Removes the socket file at `path` if nobody listens at it.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let system = |what, source| SocketError::System { path: path.to_owned(), what, source };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("cannot be looked at", error)),
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
        Err(error) => return Err(system("cannot tell whether somebody listens here", error)),
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
        let _open = Socket::listen(&path, true).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().mode() & 0o777, 0o666);
    }

    #[test]
    fn a_socket_that_nobody_listens_at_is_replaced_and_other_files_are_not() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("x.sock");
        // As after a crash: the listener is closed, the file stays.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && live_in(scratch.path()).is_empty());
        let socket = Socket::listen(&path, false).unwrap();
        connect(&path).unwrap();
        // Its file was replaced by another one, which must stay.
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists());
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
        // Another forwarder that starts has it for a moment only.
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
