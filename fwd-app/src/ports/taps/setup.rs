//! Configures a TAP as its port: kernel settings first, then MAC, MTU and addresses by rtnetlink.

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

/// Pause before a new TAP gets addresses: FRR's zebra loses addresses of a link that it does not know yet.
const SETTLING: Duration = Duration::from_millis(200);

/// Least MTU for IPv6, bytes (RFC 8200 5).
const V6_MTU_MIN: u16 = 1280;

/// Creates the TAP `name` of `interface` in the thread's namespace, or takes over an existing one, and brings it up.
///
/// # Errors
/// The name is taken, or the system refuses something.
pub(super) fn make(name: &str, interface: &PortRecord) -> anyhow::Result<Tap> {
    let uid = rustix::process::geteuid().as_raw();
    let mut kernel = Rtnetlink::open().context("no rtnetlink")?;
    let left = kernel.link(name).context("no rtnetlink")?;
    left.iter().try_for_each(|link| existing::check(link, uid)).context("cannot make the TAP")?;
    let tap = match left {
        Some(_) => Tap::attach(name).context("cannot take over the existing TAP")?,
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
        // The kernel derives the link-local address from the MAC when the link comes up.
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
    // The kernel adds the link-local address of the MAC itself.
    let own = IpAddr::V6(interface.link_local());
    let wanted: Vec<_> = interface.addresses().iter().copied().filter(|at| at.address() != own).collect();
    let before =
        existing::own_addresses(&kernel.addresses(index).context("cannot list the addresses of the TAP")?);
    set_addresses(&mut kernel, index, &before, &wanted)?;
    Ok(tap)
}

/// Makes `tap` outlive the process, for the next start of the same user, or not.
pub(super) fn keep(tap: &Tap, is_kept: bool) -> anyhow::Result<()> {
    let kept = if is_kept { tap.set_owner(rustix::process::geteuid().as_raw()) } else { Ok(()) };
    kept.and_then(|()| tap.set_persistent(is_kept)).context("cannot change the persistence of the TAP")
}

/// Changes MTU and configured addresses of the TAP `name` in the thread's namespace from `before` to `after`.
///
/// # Errors
/// The system refuses one; the rest is still applied.
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
    // Below this MTU the kernel disables IPv6, and drops its settings and addresses.
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

fn set_addresses(
    kernel: &mut Rtnetlink,
    index: u32,
    before: &[InterfaceAddress],
    after: &[InterfaceAddress],
) -> anyhow::Result<()> {
    let (mut result, mut has_removed_v4) = (Ok(()), false);
    let mut change = |at: &InterfaceAddress, message, flags| {
        let asked = kernel.change(message, flags);
        // It may already have been removed by others.
        let is_gone = asked.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable);
        let asked = if is_gone { Ok(()) } else { asked };
        let asked =
            asked.with_context(|| format!("cannot change the address {}/{}", at.address(), at.prefix_len()));
        result = std::mem::replace(&mut result, Ok(())).and(asked);
    };
    for at in before.iter().filter(|at| !after.contains(at)) {
        has_removed_v4 |= at.address().is_ipv4();
        change(at, RouteNetlinkMessage::DelAddress(address(index, at)), 0);
    }
    // Removing an IPv4 address also removes later ones in its prefix, so all are set again.
    for at in after.iter().filter(|at| has_removed_v4 && at.address().is_ipv4() || !before.contains(at)) {
        let message = RouteNetlinkMessage::NewAddress(address(index, at));
        change(at, message, NLM_F_CREATE | NLM_F_REPLACE);
    }
    result
}

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
        // The router does its own duplicate address detection, without waiting.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}
