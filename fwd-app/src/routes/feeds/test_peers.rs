//! Traffic of peers for tests of sockets, here and in `tests/datapath_suite`: routes as zebra encodes them, and garbage from strangers.

use fib::IpPrefix;
use fib::random::SplitMix64;
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// A user that is neither root nor the user of the tests.
pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn encode(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// A route of the main table.
pub(crate) fn route_message(
    prefix: IpPrefix,
    kind: RouteType,
    attributes: Vec<RouteAttribute>,
) -> RouteMessage {
    let address: IpAddr = match prefix {
        IpPrefix::V4(prefix) => std::net::Ipv4Addr::from(prefix.address()).into(),
        IpPrefix::V6(prefix) => std::net::Ipv6Addr::from(prefix.address()).into(),
    };
    let mut message = RouteMessage::default();
    message.header.address_family = address.into();
    message.header.destination_prefix_length = prefix.len();
    message.header.table = 254;
    message.header.kind = kind;
    message.attributes = attributes;
    if prefix.len() > 0 {
        message.attributes.push(RouteAttribute::Destination(address.into()));
    }
    message
}

pub(crate) fn route_bytes(prefix: IpPrefix, kind: RouteType, attributes: Vec<RouteAttribute>) -> Vec<u8> {
    encode(RouteNetlinkMessage::NewRoute(route_message(prefix, kind, attributes)))
}

pub(crate) fn gone_bytes(prefix: IpPrefix) -> Vec<u8> {
    encode(RouteNetlinkMessage::DelRoute(route_message(prefix, RouteType::Unicast, Vec::new())))
}

pub(crate) fn fpm_frame(messages: &[u8]) -> Vec<u8> {
    let len = u16::try_from(4 + messages.len()).unwrap().to_be_bytes();
    [&[1, 1], &len[..], messages].concat()
}

/// A process of [`NOBODY`] that connects to `address`, sends `bytes` and reads until it is closed; `None` without the right to start one.
pub(crate) fn nobody_says(address: SocketAddr, bytes: &[u8]) -> Option<Child> {
    let script = "exec 3<>/dev/tcp/$0/$1 && cat >&3; cat <&3 >/dev/null";
    let mut command = Command::new("bash");
    command.args(["-c", script, &address.ip().to_string(), &address.port().to_string()]);
    let mut child = command.uid(NOBODY).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    // The peer may close it before it has sent everything.
    drop(child.stdin.take().map(|mut stdin| stdin.write_all(bytes)));
    Some(child)
}

/// Connects `count` strangers in turn, each by its number; each sends nothing, a part of `message`, random or far too many bytes.
pub(crate) fn strangers<S: Write>(count: u32, message: &[u8], mut connect: impl FnMut(u32) -> S) {
    let mut state = SplitMix64(29);
    let mut below = |end: usize| usize::try_from(state.u64() >> 1).unwrap() % end;
    for number in 0..count {
        let mut stream = connect(number);
        let cut = 1 + below(message.len() - 1);
        let said = match number % 4 {
            0 => Vec::new(),
            1 => message[..cut].to_vec(),
            2 => (0..below(300)).map(|_| below(256).to_le_bytes()[0]).collect(),
            _ => [&message[..cut.min(2)], &vec![0xff; if number % 256 == 3 { 200_000 } else { 40 }][..]]
                .concat(),
        };
        // A write fails when the other side has closed already.
        drop(stream.write_all(&said));
    }
}
