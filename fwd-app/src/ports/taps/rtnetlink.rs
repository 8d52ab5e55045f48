//! Synchronous rtnetlink requests about links and addresses.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// The kernel fills dumps up to 32 KiB.
const DATAGRAM_BYTES: usize = 1 << 16;

/// A socket in the namespace of the thread that opened it.
pub(super) struct Rtnetlink(Socket);

impl Rtnetlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Self(socket))
    }

    pub(super) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags, |_| ())
    }

    /// The interface `name`; `None` also for an invalid name.
    ///
    /// # Errors
    /// The socket fails.
    pub(super) fn link(&mut self, name: &str) -> io::Result<Option<LinkMessage>> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let mut link = None;
        let asked = self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_ACK, |answer| {
            if let RouteNetlinkMessage::NewLink(found) = answer {
                link = Some(found);
            }
        });
        match asked {
            Err(error) if error.raw_os_error().is_none() => Err(error),
            _ => Ok(link),
        }
    }

    pub(super) fn addresses(&mut self, index: u32) -> io::Result<Vec<AddressMessage>> {
        let mut addresses = Vec::new();
        self.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewAddress(address) = answer
                && address.header.index == index
            {
                addresses.push(address);
            }
        })?;
        Ok(addresses)
    }

    /// Sends a request, and passes the answers to `take` until the acknowledgement or the end of the dump.
    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        loop {
            datagram.clear();
            self.0.recv_from(&mut datagram, 0)?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?.length();
                let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
                match message.payload {
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::InnerMessage(answer) => take(answer),
                    _ => {}
                }
                // Messages are aligned to 4 bytes.
                let aligned = usize::try_from(length).map_or(usize::MAX, |length| length.next_multiple_of(4));
                rest = rest.get(aligned..).unwrap_or_default();
            }
        }
    }
}
