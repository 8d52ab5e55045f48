//! The netlink socket of the kernel feed: requests dumps, receives datagrams and notices overruns.

use super::{Kernel, KernelOptions};
use crate::routes::feeds::thread::{FeedThread, LinksUnread, Outlet, Stopped, wait};
use crate::routes::feeds::{ChangeSet, FeedEvent};
use crossbeam_channel::Sender;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::time::Instant;

/// The groups (`RTNLGRP_*`) of links, neighbours, IPv4 addresses and IPv6 addresses.
const GROUPS: [u32; 4] = [1, 3, 5, 9];
/// The groups of IPv4 routes and IPv6 routes.
const ROUTE_GROUPS: [u32; 2] = [7, 11];
/// The group of next-hop objects, which kernels before 5.3 lack.
const NEXT_HOP_GROUP: u32 = 32;
/// Receive buffer for a burst of notifications: each overrun costs a dump of all tables.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// The largest datagram: the kernel fills dumps up to 32 KiB.
const DATAGRAM_BYTES: usize = 1 << 17;
/// The most datagrams in a change set.
const DATAGRAMS_MAX: usize = 64;

/// Watches the kernel's tables in the current network namespace and sends changes to `sender` until the returned value is dropped. Drops
/// `links` once the links are sent.
///
/// # Errors
/// When the socket cannot be made, or the system refuses a thread.
pub(crate) fn watch(
    options: KernelOptions,
    sender: Sender<ChangeSet>,
    links: LinksUnread,
) -> io::Result<FeedThread> {
    let (socket, feed) = (open()?, options.feed);
    GROUPS.into_iter().try_for_each(|group| socket.add_membership(group))?;
    if options.has_routes() {
        ROUTE_GROUPS.into_iter().try_for_each(|group| socket.add_membership(group))?;
        let _ = socket.add_membership(NEXT_HOP_GROUP);
    }
    let work = move |outlet: &Outlet| {
        let kernel = Kernel::new(options, Instant::now());
        let (datagram, events) = (Vec::with_capacity(DATAGRAM_BYTES), Vec::new());
        let mut watcher = Watcher { socket, kernel, datagram, events, links: Some(links) };
        while !outlet.is_stopping() && watcher.poll_once(outlet).is_ok() {}
    };
    FeedThread::start("kernel", feed, sender, work)
}

fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    // Without CAP_NET_ADMIN the system grants net.core.rmem_max at most.
    sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES))?;
    Ok(socket)
}

struct Watcher {
    socket: Socket,
    kernel: Kernel,
    datagram: Vec<u8>,
    events: Vec<FeedEvent>,
    /// Held until the links are sent; then FPM may accept connections.
    links: Option<LinksUnread>,
}

impl Watcher {
    fn poll_once(&mut self, outlet: &Outlet) -> Result<(), Stopped> {
        let now = Instant::now();
        if let Some(request) = self.kernel.request(now, &mut self.events)
            && self.socket.send_to(&request, &SocketAddr::new(0, 0), 0).is_err()
        {
            self.kernel.refused(now, &mut self.events);
        }
        wait(&mut [PollFd::new(&self.socket, PollFlags::IN)], self.kernel.deadline());
        for _ in 0..DATAGRAMS_MAX {
            self.datagram.clear();
            match self.socket.recv_from(&mut self.datagram, 0) {
                // Ignore senders besides the kernel (port 0).
                Ok((_, from)) if from.port_number() != 0 => {}
                Ok(_) => self.kernel.received(&self.datagram, Instant::now(), &mut self.events),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    self.kernel.overrun(Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        outlet.count(self.kernel.counts());
        outlet.send(&mut self.events)?;
        if self.kernel.has_links() {
            self.links = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_above_what_others_may_have() {
        let plain = Socket::new(NETLINK_ROUTE).unwrap();
        if let Err(error) = sockopt::set_socket_recv_buffer_size_force(&plain, RECEIVE_BUFFER_BYTES) {
            eprintln!("SKIPPED: wants CAP_NET_ADMIN: {error}");
            return;
        }
        // The kernel doubles the size, for its own records.
        let granted = sockopt::socket_recv_buffer_size(open().unwrap()).unwrap();
        assert_eq!(granted, 2 * RECEIVE_BUFFER_BYTES);
    }
}
