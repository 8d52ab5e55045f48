//! Identifies the peer of a connection: the kernel knows the user of a local socket (`NETLINK_SOCK_DIAG`).
//!
//! The request names the addresses and ports of the peer's socket, in the network namespace of the calling thread; a peer on a loopback
//! address is always in it.

use netlink_packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_ESTABLISHED};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FpmPeer {
    User(u32),
    /// A local process that has closed its socket, so that its user is unknown.
    Gone,
    Remote,
}

/// Identifies the process that has connected to `local` from `peer`.
///
/// # Errors
/// When the kernel does not answer.
pub(super) fn who(local: SocketAddr, peer: SocketAddr) -> io::Result<FpmPeer> {
    let (local, peer) = (canonical(local), canonical(peer));
    let socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.send_to(&request(peer, local), &NetlinkAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(1 << 12);
    socket.recv_from(&mut answer, 0)?;
    let is_here = peer.ip().is_loopback() || peer.ip() == local.ip();
    Ok(owner(&answer)?.unwrap_or(if is_here { FpmPeer::Gone } else { FpmPeer::Remote }))
}

/// An IPv4 address on an IPv6 socket belongs to an IPv4 socket of the peer.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let request = InetRequest {
        family: if from.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: from.port(),
            destination_port: to.port(),
            source_address: from.ip(),
            destination_address: to.ip(),
            interface_id: 0,
            cookie: [0xff; 8], // any
        },
    };
    let mut message = NetlinkMessage::from(SockDiagMessage::InetRequest(request));
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The owner of the socket in an answer; `None` if no such socket exists.
fn owner(answer: &[u8]) -> io::Result<Option<FpmPeer>> {
    let unknown = || io::Error::other("an unknown answer about a socket");
    let message = NetlinkMessage::<SockDiagMessage>::deserialize(answer).map_err(|_| unknown())?;
    match message.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(socket)) => {
            let is_in_use = socket.header.state == TCP_ESTABLISHED && socket.header.inode != 0;
            // A socket that is closing or listening belongs to no process; the kernel then reports user 0.
            Ok(Some(if is_in_use { FpmPeer::User(socket.header.uid) } else { FpmPeer::Gone }))
        }
        NetlinkPayload::Error(error) if error.to_io().raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
            Ok(None)
        }
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn connected(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, ours)
    }

    fn who_is(stream: &TcpStream) -> io::Result<FpmPeer> {
        who(stream.local_addr().unwrap(), stream.peer_addr().unwrap())
    }

    #[test]
    fn a_peer_of_this_host_has_the_user_of_its_process() {
        let us = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1", "127.0.0.5", "::1"] {
            let (theirs, _ours) = connected(address);
            assert_eq!(who_is(&theirs).unwrap(), FpmPeer::User(us), "{address}");
        }
        let listener = TcpListener::bind("[::]:0").unwrap();
        let _ours = TcpStream::connect(("127.0.0.1", listener.local_addr().unwrap().port())).unwrap();
        assert_eq!(who_is(&listener.accept().unwrap().0).unwrap(), FpmPeer::User(us));
    }

    #[test]
    fn a_peer_that_has_closed_its_socket_has_no_user() {
        // Its socket is gone or waits for our end; the kernel reports root as its user.
        let (theirs, ours) = connected("127.0.0.1");
        drop(ours);
        assert_eq!(who_is(&theirs).unwrap(), FpmPeer::Gone);
        let (theirs, ours) = connected("127.0.0.1");
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(who_is(&theirs).unwrap(), FpmPeer::Gone);
    }

    #[test]
    fn a_socket_that_is_not_here_is_gone_or_remote() {
        let (theirs, _ours) = connected("127.0.0.1");
        let local = theirs.local_addr().unwrap();
        assert_eq!(who(local, "127.0.0.9:1".parse().unwrap()).unwrap(), FpmPeer::Gone);
        assert_eq!(who(local, "192.0.2.1:1".parse().unwrap()).unwrap(), FpmPeer::Remote);
        // A listening socket is no end of a connection.
        assert_eq!(who("127.0.0.1:1".parse().unwrap(), local).unwrap(), FpmPeer::Gone);
    }
}
