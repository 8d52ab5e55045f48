//! Makes a TAP what its port is: MAC, MTU and addresses, by rtnetlink; settings first.

use super::rtnetlink::Rtnetlink;
use super::{existing, settings};
use crate::ports::PortRecord;
use crate::ports::address::InterfaceAddress;
use anyhow::Context as _;
use dpdk_ffi::Tap;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// How long a new TAP has no address yet: FRR's zebra loses the addresses of a link that it has not taken in.
const SETTLING: Duration = Duration::from_millis(200);

/// The least MTU of a link with IPv6, bytes (RFC 8200 5).
const V6_MTU_MIN: u16 = 1280;

/// Makes the TAP `name` of `interface` in the namespace of the calling thread, or takes over the one that is there, and brings it up.
///
/// # Errors
/// When there is something else of this name, and when the system refuses something.
pub(super) fn make(name: &str, interface: &PortRecord) -> anyhow::Result<Tap> {
    let uid = rustix::process::geteuid().as_raw();
    let mut kernel = Rtnetlink::open().context("no rtnetlink")?;
    let left = kernel.link(name).context("no rtnetlink")?;
    left.iter().try_for_each(|link| existing::check(link, uid)).context("cannot make the TAP")?;
    let tap = match left {
        Some(_) => Tap::attach(name).context("cannot take over the TAP that is there")?,
        None => Tap::create(name).context("cannot make the TAP")?,
    };
    settings::set(Path::new(settings::ROOT), name)?;
    let index = kernel.link(name).context("no rtnetlink")?.context("the TAP is gone")?.header.index;
    let mut set = |message, what: &str| {
        let asked = kernel.change(RouteNetlinkMessage::SetLink(message), 0);
        asked.with_context(|| format!("cannot set {what} of the TAP"))
    };
    let mut link = LinkMessage::default();
    link.header.index = index;
    let is_up = |flags| (flags, LinkFlags::Up);
    let mac = LinkAttribute::Address(interface.mac.0.to_vec());
    if left.as_ref().is_some_and(|left| !left.attributes.contains(&mac)) {
        // The kernel makes the link-local address of a MAC when the link comes up.
        (link.header.flags, link.header.change_mask) = is_up(LinkFlags::empty());
        set(link.clone(), "the state")?;
    }
    link.attributes = vec![mac, LinkAttribute::Mtu(u32::from(interface.mtu_bytes))];
    link.header.change_mask = LinkFlags::empty();
    set(link.clone(), "MAC and MTU")?;
    link.attributes.clear();
    (link.header.flags, link.header.change_mask) = is_up(LinkFlags::Up);
    set(link, "the state")?;
    if left.is_none() {
        std::thread::sleep(SETTLING);
    }
    // The kernel makes the link-local address of the MAC itself.
    let own = IpAddr::V6(interface.link_local());
    let wanted: Vec<_> = interface.addresses().iter().copied().filter(|at| at.address() != own).collect();
    let before = existing::ours(&kernel.addresses(index).context("cannot list the addresses of the TAP")?);
    set_addresses(&mut kernel, index, &before, &wanted)?;
    Ok(tap)
}

/// Has `tap` stay when the process ends, for the next start of the same user, or go.
///
/// # Errors
/// When the system refuses it.
pub(super) fn keep(tap: &Tap, is_kept: bool) -> anyhow::Result<()> {
    let kept = if is_kept { tap.set_owner(rustix::process::geteuid().as_raw()) } else { Ok(()) };
    kept.and_then(|()| tap.set_persistent(is_kept)).context("cannot set whether the TAP persists")
}

/// Gives the TAP `name` in the namespace of the calling thread the MTU and the configured addresses of `after` in place of those of
/// `before`.
///
/// # Errors
/// When the system refuses one; the others are set all the same.
pub(super) fn follow(name: &str, before: &PortRecord, after: &PortRecord) -> anyhow::Result<()> {
    let mut kernel = Rtnetlink::open().context("no rtnetlink")?;
    let index = kernel.link(name).context("no rtnetlink")?.context("the TAP is gone")?.header.index;
    let mut result = Ok(());
    if before.mtu_bytes != after.mtu_bytes {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes = vec![LinkAttribute::Mtu(u32::from(after.mtu_bytes))];
        let asked = kernel.change(RouteNetlinkMessage::SetLink(link), 0);
        result = asked.with_context(|| format!("cannot set the MTU {}", after.mtu_bytes));
    }
    // With an MTU below this the kernel has no IPv6 there, and has forgotten settings and addresses when it is raised again.
    let has_v6_again = before.mtu_bytes < V6_MTU_MIN && after.mtu_bytes >= V6_MTU_MIN;
    if has_v6_again {
        result = result.and(settings::set(Path::new(settings::ROOT), name));
    }
    let own = IpAddr::V6(after.link_local());
    let there = |at: &&InterfaceAddress| !has_v6_again || at.address().is_ipv4();
    let wanted = |at: &&InterfaceAddress| !has_v6_again || at.address() != own;
    let before: Vec<_> = before.configured().iter().filter(there).copied().collect();
    let after: Vec<_> = after.configured().iter().filter(wanted).copied().collect();
    result.and(set_addresses(&mut kernel, index, &before, &after))
}

/// Gives the interface `index` the addresses `after` in place of `before`.
fn set_addresses(
    kernel: &mut Rtnetlink,
    index: u32,
    before: &[InterfaceAddress],
    after: &[InterfaceAddress],
) -> anyhow::Result<()> {
    let (mut result, mut has_removed_v4) = (Ok(()), false);
    let mut change = |at: &InterfaceAddress, message, flags| {
        let asked = kernel.change(message, flags);
        // Somebody else may have taken it away.
        let is_gone = asked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
        let asked = if is_gone { Ok(()) } else { asked };
        let asked =
            asked.with_context(|| format!("cannot change the address {}/{}", at.address(), at.prefix_len()));
        // The first error counts.
        result = std::mem::replace(&mut result, Ok(())).and(asked);
    };
    for at in before.iter().filter(|at| !after.contains(at)) {
        has_removed_v4 |= at.address().is_ipv4();
        change(at, RouteNetlinkMessage::DelAddress(address(index, at)), 0);
    }
    // With an IPv4 address the kernel takes those away that came later to its prefix, so all are set again.
    for at in after.iter().filter(|at| has_removed_v4 && at.address().is_ipv4() || !before.contains(at)) {
        let message = RouteNetlinkMessage::NewAddress(address(index, at));
        change(at, message, NLM_F_CREATE | NLM_F_REPLACE);
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
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
        AddressAttribute::Protocol(existing::OURS),
    ];
    if let (IpAddr::V4(_), Some(broadcast)) = (address, at.broadcast()) {
        message.attributes.push(AddressAttribute::Broadcast(broadcast));
    } else {
        // The router asks whether another node has the address, and uses it at once.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}
