//! Makes a TAP what its port is: MAC, MTU and addresses, by rtnetlink; settings first.

use super::settings;
use crate::ports::PortRecord;
use crate::ports::address::InterfaceAddress;
use anyhow::Context as _;
use dpdk_ffi::Tap;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// How long a new TAP has no address yet: FRR's zebra loses the addresses of a link that it has not taken in.
const SETTLING: Duration = Duration::from_millis(200);

/// The least MTU of a link with IPv6, bytes (RFC 8200 5).
const V6_MTU_MIN: u16 = 1280;

/// Makes the TAP `name` of `interface` in the namespace of the calling thread, and brings it up.
///
/// # Errors
/// When there is an interface of this name, and when the system refuses something.
pub(super) fn make(name: &str, interface: &PortRecord) -> anyhow::Result<Tap> {
    let tap = Tap::create(name).context("cannot make the TAP")?;
    settings::set(Path::new(settings::ROOT), name)?;
    let mut socket = Socket::new(NETLINK_ROUTE).context("no rtnetlink")?;
    socket.bind_auto().context("no rtnetlink")?;
    let index = rustix::net::netdevice::name_to_index(&socket, name).context("the TAP has no index")?;
    let mut ask = |message, flags, what: &str| {
        request(&mut socket, message, flags).with_context(|| format!("cannot set {what} of the TAP"))
    };
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.attributes = vec![
        LinkAttribute::Address(interface.mac.0.to_vec()),
        LinkAttribute::Mtu(u32::from(interface.mtu_bytes)),
    ];
    ask(RouteNetlinkMessage::SetLink(link.clone()), 0, "MAC and MTU")?;
    link.attributes.clear();
    (link.header.flags, link.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    ask(RouteNetlinkMessage::SetLink(link), 0, "the state")?;
    std::thread::sleep(SETTLING);
    // The kernel makes the link-local address of the MAC itself.
    let own = IpAddr::V6(interface.link_local());
    for at in interface.addresses().iter().filter(|at| at.address() != own) {
        let what = format!("the address {}/{}", at.address(), at.prefix_len());
        let message = RouteNetlinkMessage::NewAddress(address(index, at));
        ask(message, NLM_F_CREATE | NLM_F_REPLACE, &what)?;
    }
    Ok(tap)
}

/// Gives the TAP `name` in the namespace of the calling thread the MTU and the configured addresses of `after` in place of those of `before`.
///
/// # Errors
/// When the system refuses one; the others are set all the same.
pub(super) fn follow(name: &str, before: &PortRecord, after: &PortRecord) -> anyhow::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE).context("no rtnetlink")?;
    socket.bind_auto().context("no rtnetlink")?;
    let index = rustix::net::netdevice::name_to_index(&socket, name).context("the TAP has no index")?;
    let mut result = Ok(());
    if before.mtu_bytes != after.mtu_bytes {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Mtu(u32::from(after.mtu_bytes))];
        let asked = request(&mut socket, RouteNetlinkMessage::SetLink(link), 0);
        result = asked.with_context(|| format!("cannot set the MTU {}", after.mtu_bytes));
    }
    // With an MTU below this the kernel has no IPv6 there, and has forgotten settings and addresses when it is raised again.
    let has_v6_again = before.mtu_bytes < V6_MTU_MIN && after.mtu_bytes >= V6_MTU_MIN;
    if has_v6_again {
        result = result.and(settings::set(Path::new(settings::ROOT), name));
    }
    let own = IpAddr::V6(after.link_local());
    let (before, after) = (before.configured(), after.configured());
    if before == after && !has_v6_again {
        return result;
    }
    // With an IPv4 address the kernel takes those away that came later to its prefix, so all are set again.
    let added = after
        .iter()
        .filter(|at| at.address().is_ipv4() || !before.contains(at) || has_v6_again && at.address() != own);
    let added = added
        .map(|at| (at, RouteNetlinkMessage::NewAddress(address(index, at)), NLM_F_CREATE | NLM_F_REPLACE));
    let removed = before.iter().filter(|at| !after.contains(at));
    let removed = removed.map(|at| (at, RouteNetlinkMessage::DelAddress(address(index, at)), 0));
    for (at, message, flags) in removed.chain(added) {
        let asked = request(&mut socket, message, flags);
        // Somebody else may have taken it away.
        let is_gone = asked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
        let asked = if is_gone { Ok(()) } else { asked };
        result = result.and(
            asked.with_context(|| format!("cannot change the address {}/{}", at.address(), at.prefix_len())),
        );
    }
    result
}

/// The message about an address of the interface `index`.
fn address(index: u32, at: &InterfaceAddress) -> AddressMessage {
    let (address, family) = match at.address() {
        address @ IpAddr::V4(_) => (address, AddressFamily::Inet),
        address @ IpAddr::V6(_) => (address, AddressFamily::Inet6),
    };
    let mut message = AddressMessage::default();
    message.header.family = family;
    message.header.prefix_len = at.prefix_len();
    message.header.index = index;
    message.header.scope = AddressScope::Universe;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    if let (IpAddr::V4(_), Some(broadcast)) = (address, at.broadcast()) {
        message.attributes.push(AddressAttribute::Broadcast(broadcast));
    } else {
        // The router asks whether another node has the address, and uses it at once.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

/// Sends a request and waits for its acknowledgement.
fn request(socket: &mut Socket, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
    let mut answer = Vec::with_capacity(1 << 15);
    let (_, _) = socket.recv_from(&mut answer, 0)?;
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::Error::other("the kernel has not acknowledged it")),
    }
}
