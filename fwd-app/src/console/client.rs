//! Client of a running forwarder: one connection per request, so that an idle prompt occupies no place.

use crate::console::server::socket;
use crate::console::server::wire::{Ask, REPLY_BYTES_MAX, Reply};
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Retry interval while the listen queue is full.
const AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no forwarder listens at {}{}: {source}", path.display(), but_at(others))]
    Absent {
        path: PathBuf,
        source: io::Error,
        /// Live sockets in the same folder and in the default folder.
        others: Vec<PathBuf>,
    },
    #[error("no forwarder is running: none listens in {}", folder.display())]
    None {
        /// Where sockets are by default.
        folder: PathBuf,
    },
    #[error("{}: no reply within {} s", path.display(), limit.as_secs_f64())]
    Late {
        /// The socket.
        path: PathBuf,
        limit: Duration,
    },
    #[error("{}: {source}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        source: io::Error,
    },
    #[error("{}: not a reply of a forwarder: {source}", path.display())]
    NotAReply {
        /// The socket.
        path: PathBuf,
        source: serde_json::Error,
    },
}

fn but_at(others: &[PathBuf]) -> String {
    let others: Vec<_> = others.iter().map(|path| path.display().to_string()).collect();
    if others.is_empty() { String::new() } else { format!(", but at {}", others.join(", ")) }
}

/// Sends `ask`, with `file` if given, to the forwarder at `path` and waits for its reply, `limit` overall.
pub(crate) fn ask(
    path: &Path,
    ask: &Ask,
    file: Option<&File>,
    limit: Duration,
) -> Result<Reply, ClientError> {
    let broken = |source: io::Error| match source.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Late { path: path.to_owned(), limit },
        _ => ClientError::Broken { path: path.to_owned(), source },
    };
    let not_a_reply = |source| ClientError::NotAReply { path: path.to_owned(), source };
    let end = Instant::now() + limit;
    let stream = connect(path, end).map_err(|source| match source.kind() {
        ErrorKind::WouldBlock => broken(source),
        _ => {
            let mut others = socket::live_in(path.parent().unwrap_or(Path::new(".")));
            others.extend(socket::live_in(Path::new(socket::FOLDER)));
            others.dedup();
            ClientError::Absent { path: path.to_owned(), source, others }
        }
    })?;
    stream.set_nonblocking(false).map_err(broken)?;
    let line = serde_json::to_string(ask).map_err(not_a_reply)? + "\n";
    wait_until(&stream, end).map_err(broken)?;
    match send(&stream, line.as_bytes(), file) {
        // A server with too many clients replies and closes, maybe before it reads the request.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(broken(error)),
        _ => {}
    }
    let reply = read_line(&stream, end).map_err(broken)?;
    serde_json::from_slice(&reply).map_err(not_a_reply)
}

fn connect(path: &Path, end: Instant) -> io::Result<UnixStream> {
    loop {
        match socket::connect(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                thread::sleep(AGAIN)
            }
            other => return other,
        }
    }
}

/// Sends `bytes`; `file` goes with the first of them.
fn send(mut stream: &UnixStream, bytes: &[u8], file: Option<&File>) -> io::Result<()> {
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        let _ = control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&bytes[sent..])
}

fn wait_until(stream: &UnixStream, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))
}

fn read_line(stream: &UnixStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut input = BufReader::new(stream.take(REPLY_BYTES_MAX as u64));
    let mut line = Vec::new();
    loop {
        wait_until(stream, end)?;
        let bytes = input.fill_buf()?;
        let whole = bytes.iter().position(|&byte| byte == b'\n');
        let taken = whole.map_or(bytes.len(), |at| at + 1);
        line.extend_from_slice(&bytes[..taken]);
        input.consume(taken);
        match (whole, taken) {
            (Some(_), _) => return Ok(line),
            (None, 0) => {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the forwarder closed the connection"));
            }
            (None, _) => {}
        }
    }
}

/// The live sockets in `folder`.
///
/// # Errors
/// [`ClientError::None`] without a live socket.
pub(crate) fn find(folder: &Path) -> Result<Vec<PathBuf>, ClientError> {
    let live = socket::live_in(folder);
    if live.is_empty() { Err(ClientError::None { folder: folder.to_owned() }) } else { Ok(live) }
}
