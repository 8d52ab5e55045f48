//! Existing interfaces with the name of a TAP: takes over a TAP left by `--tap-persist`, refuses anything else.
//!
//! A persistent TAP is owned by the forwarder's user (`ip tuntap list`), so no other user's TAP is taken over. Addresses set by the
//! forwarder are marked with a protocol (`IFA_PROTO`, since Linux 5.18; older kernels keep no mark, so none counts as the forwarder's).

use crate::ports::address::InterfaceAddress;
use anyhow::bail;
use netlink_packet_core::Nla as _;
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressProtocol};
use netlink_packet_route::link::{InfoData, InfoKind, InfoTun, LinkAttribute, LinkInfo, LinkMessage};

/// Protocol of addresses set by the forwarder. The kernel uses 1 to 3.
pub(super) const OURS: AddressProtocol = AddressProtocol::Other(102);

/// Attributes in `IFLA_INFO_DATA`: owner, and TUN or TAP.
const IFLA_TUN_OWNER: u16 = 1;
const IFLA_TUN_TYPE: u16 = 3;
const IFF_TAP: u32 = 2;

/// # Errors
/// It is not a TAP of this user.
pub(super) fn check(link: &LinkMessage, uid: u32) -> anyhow::Result<()> {
    let infos = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => Some(infos.as_slice()),
        _ => None,
    });
    let (mut kind, mut data) = (None, &[][..]);
    for info in infos.unwrap_or_default() {
        match info {
            LinkInfo::Kind(found) => kind = Some(found),
            LinkInfo::Data(InfoData::Tun(found)) => data = found,
            _ => {}
        }
    }
    let value = |wanted| data.iter().find_map(|attribute| number(attribute, wanted));
    let what = match (kind, value(IFLA_TUN_TYPE), value(IFLA_TUN_OWNER)) {
        (Some(InfoKind::Tun), Some(IFF_TAP), Some(owner)) if owner == uid => return Ok(()),
        (Some(InfoKind::Tun), Some(IFF_TAP), Some(owner)) => format!("a TAP of the user {owner}"),
        (Some(InfoKind::Tun), Some(IFF_TAP), None) => "a TAP of no user".to_owned(),
        (Some(InfoKind::Tun), ..) => "a TUN".to_owned(),
        (Some(kind), ..) => format!("an interface of the kind {kind}"),
        (None, ..) => "a device of the host".to_owned(),
    };
    bail!("this name belongs to {what}; only a TAP of the user {uid} is taken over")
}

fn number(attribute: &InfoTun, wanted: u16) -> Option<u32> {
    let (mut bytes, length) = ([0; 4], attribute.value_len());
    if attribute.kind() != wanted || length > bytes.len() {
        return None;
    }
    attribute.emit_value(&mut bytes[..length]);
    Some(u32::from_le_bytes(bytes))
}

pub(super) fn own_addresses(addresses: &[AddressMessage]) -> Vec<InterfaceAddress> {
    let is_ours = |at: &&AddressMessage| at.attributes.contains(&AddressAttribute::Protocol(OURS));
    let address = |at: &AddressMessage| {
        let local = at.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        });
        // For IPv6 the kernel gives only `IFA_ADDRESS`.
        let address = local.or_else(|| {
            at.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })
        });
        InterfaceAddress::new(address?, at.header.prefix_len).ok()
    };
    addresses.iter().filter(is_ours).filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::DefaultNla;

    fn link(kind: InfoKind, data: &[(u16, &[u8])]) -> LinkMessage {
        let attributes =
            data.iter().map(|(kind, value)| InfoTun::Other(DefaultNla::new(*kind, value.to_vec())));
        let data = LinkInfo::Data(InfoData::Tun(attributes.collect()));
        let mut link = LinkMessage::default();
        link.attributes = vec![LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), data])];
        link
    }

    #[test]
    fn a_tap_of_the_same_user_is_taken_over_and_nothing_else() {
        let owner = 1000_u32.to_le_bytes();
        let tap: [(u16, &[u8]); 2] = [(IFLA_TUN_TYPE, &[2]), (IFLA_TUN_OWNER, &owner)];
        check(&link(InfoKind::Tun, &tap), 1000).unwrap();
        let refused = |link: &LinkMessage, what: &str| {
            let error = check(link, 7).unwrap_err().to_string();
            assert!(error.starts_with(&format!("this name belongs to {what}")), "{error}");
        };
        refused(&link(InfoKind::Tun, &tap), "a TAP of the user 1000");
        refused(&link(InfoKind::Tun, &tap[..1]), "a TAP of no user");
        refused(&link(InfoKind::Tun, &[(IFLA_TUN_TYPE, &[1]), tap[1]]), "a TUN");
        refused(&link(InfoKind::Veth, &[]), "an interface of the kind veth");
        refused(&LinkMessage::default(), "a device of the host");
    }

    #[test]
    fn addresses_with_the_mark_are_ours() {
        let address = |attributes: &[AddressAttribute], prefix_len| {
            let mut message = AddressMessage::default();
            message.header.prefix_len = prefix_len;
            message.attributes = attributes.to_vec();
            message
        };
        let [v4, peer, v6] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|text| text.parse().unwrap());
        let ours_v4 =
            [AddressAttribute::Address(peer), AddressAttribute::Local(v4), AddressAttribute::Protocol(OURS)];
        let ours_v6 = [AddressAttribute::Address(v6), AddressAttribute::Protocol(OURS)];
        let others = [AddressAttribute::Address(v6), AddressAttribute::Protocol(AddressProtocol::LinkLocal)];
        let all =
            [address(&ours_v4, 24), address(&ours_v6, 64), address(&others, 64), address(&others[..1], 64)];
        let wanted = [InterfaceAddress::new(v4, 24).unwrap(), InterfaceAddress::new(v6, 64).unwrap()];
        assert_eq!(own_addresses(&all), wanted);
    }
}
