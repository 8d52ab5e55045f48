"""The golden forwarder: what an IPv4 and IPv6 router must do with a frame, written from the RFCs and kept slow and plain.

It shares no idea with the datapath that it judges: longest-prefix match by `ipaddress`, one packet at a time, the checksum both
adjusted (RFC 1624) and computed from scratch. Order of the checks: layer 2, header, addresses, TTL, route, MTU; the first that fails names
the drop. The destination MAC is ignored.
"""

import struct
from ipaddress import ip_address, ip_network

from .packets import ETHERTYPE_IPV4, ETHERTYPE_IPV6, TPID_C, TPID_OLD, TPID_S, ones_complement_sum

PORTS = 4
MTU_BYTES = 1500
MAX_TAGS = 2
SOURCE_MACS = [bytes.fromhex("02f0000000") + bytes([port]) for port in range(PORTS)]

# RFC 1812 5.3.7 and 4.2.2.11, RFC 1122 3.2.1.3, RFC 3927 7: no packet from or to these is forwarded. 240/4 holds the
# limited broadcast. Multicast (224/4) is `martian` as a source and `multicast` as a destination.
MARTIAN_V4 = [ip_network(p) for p in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "240.0.0.0/4")]
MULTICAST_V4 = ip_network("224.0.0.0/4")
# RFC 4291 2.5.2, 2.5.3, 2.5.6, 2.7; RFC 4038 4.2 for addresses mapped from IPv4 on the wire.
MARTIAN_V6 = [ip_network(p) for p in ("::/128", "::1/128", "fe80::/10", "::ffff:0:0/96")]
MULTICAST_V6 = ip_network("ff00::/8")


class Drop(Exception):
    """A packet that is not sent; the text is the drop reason's name."""


class Table:
    """Routes: a map of networks for each length, searched from the longest; and neighbours, address -> (MAC, port).

    A way out is a bare next-hop id, or ("via", gateway, port), ("dev", port), ("port", port), or ("drop", reason). The port of a
    gateway may be None: it is its neighbour's then.
    """

    def __init__(self, routes, neighbours=None):
        self.by_length = {4: {}, 6: {}}
        self.neighbours = neighbours or {}
        for prefix, hop in routes:
            net = ip_network(prefix)
            self.by_length[net.version].setdefault(net.prefixlen, {})[net] = hop

    def lookup(self, address):
        """The way out of the longest prefix that holds `address`, 0 without a route."""
        lengths = self.by_length[address.version]
        for length in sorted(lengths, reverse=True):
            net = ip_network((address, length), strict=False)
            if net in lengths[length]:
                return lengths[length][net]
        return 0


def ip_offset(frame):
    """Layer 2: (ethertype, offset) of the IP header behind at most two VLAN tags."""
    if len(frame) < 14:
        raise Drop("malformed")
    at = 12
    for _ in range(MAX_TAGS):
        if struct.unpack_from("!H", frame, at)[0] not in (TPID_C, TPID_S, TPID_OLD):
            break
        at += 4
        if len(frame) < at + 2:
            raise Drop("malformed")
    ethertype = struct.unpack_from("!H", frame, at)[0]
    if ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        raise Drop("not_ip")
    return ethertype, at + 2


def check_addresses(src, dst, martian, multicast):
    """The addresses' part of RFC 1812 5.3.7, source first."""
    if src in multicast or any(src in net for net in martian):
        raise Drop("martian")
    if dst in multicast:
        raise Drop("multicast")
    if any(dst in net for net in martian):
        raise Drop("martian")


def check_ipv4(packet):
    """RFC 1812 5.2.2 in its order, then addresses and TTL (5.3.1). Returns (destination, IP length)."""
    if len(packet) < 20:
        raise Drop("malformed")
    version, header_bytes = packet[0] >> 4, (packet[0] & 15) * 4
    total = struct.unpack_from("!H", packet, 2)[0]
    if version != 4 or header_bytes < 20 or header_bytes > len(packet):
        raise Drop("malformed")
    if total < header_bytes or total > len(packet):
        raise Drop("malformed")
    if ones_complement_sum(packet[:header_bytes]) != 0xFFFF:
        raise Drop("bad_checksum")
    src, dst = ip_address(packet[12:16]), ip_address(packet[16:20])
    check_addresses(src, dst, MARTIAN_V4, MULTICAST_V4)
    if packet[8] <= 1:
        raise Drop("ttl_expired")
    return dst, total


def check_ipv6(packet):
    """RFC 8200 3, RFC 4291 2.5 and 2.7, then the hop limit (RFC 8200 3). Returns (destination, IP length)."""
    if len(packet) < 40 or packet[0] >> 4 != 6:
        raise Drop("malformed")
    length = 40 + struct.unpack_from("!H", packet, 4)[0]
    if length > len(packet):
        raise Drop("malformed")
    src, dst = ip_address(packet[8:24]), ip_address(packet[24:40])
    check_addresses(src, dst, MARTIAN_V6, MULTICAST_V6)
    if packet[7] <= 1:
        raise Drop("ttl_expired")
    return dst, length


def adjusted_checksum(old, word_before, word_after):
    """RFC 1624 equation 3: HC' = ~(~HC + ~m + m')."""
    total = (~old & 0xFFFF) + (~word_before & 0xFFFF) + word_after
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def resolve(hop, dst, neighbours):
    """(egress port, destination MAC) of a way out."""
    if isinstance(hop, int):
        return (hop - 1) % PORTS, bytes.fromhex("020000") + hop.to_bytes(3, "big")
    kind, *rest = hop
    if kind == "drop":
        raise Drop(rest[0])
    port = rest[-1]
    if kind == "port":
        return port, bytes.fromhex("020000") + (port + 1).to_bytes(3, "big")
    mac, link = neighbours.get(rest[0] if kind == "via" else str(dst), (None, None))
    if link is None or port not in (None, link):
        raise Drop("no_neighbour")
    return link, mac


def rewrite(frame, ethertype, at, mac, port):
    """The frame that leaves: new MACs, TTL or hop limit less one, IPv4 checksum adjusted, every other byte as it came."""
    out = bytearray(frame)
    out[0:6] = mac
    out[6:12] = SOURCE_MACS[port]
    if ethertype == ETHERTYPE_IPV6:
        out[at + 7] -= 1
        return bytes(out)
    before = struct.unpack_from("!H", out, at + 8)[0]
    out[at + 8] -= 1
    after = struct.unpack_from("!H", out, at + 8)[0]
    old = struct.unpack_from("!H", out, at + 10)[0]
    struct.pack_into("!H", out, at + 10, adjusted_checksum(old, before, after))
    header = bytes(out[at : at + (out[at] & 15) * 4])
    if ones_complement_sum(header) != 0xFFFF:
        raise AssertionError(f"adjusted checksum is wrong: {header.hex()}")
    return bytes(out)


def forward(frame, table):
    """One frame: ('tx', port, way out, output frame), or (drop reason, None, None, None)."""
    try:
        ethertype, at = ip_offset(frame)
        check = check_ipv4 if ethertype == ETHERTYPE_IPV4 else check_ipv6
        dst, ip_bytes = check(frame[at:])
        hop = table.lookup(dst)
        if hop == 0:
            raise Drop("no_route")
        port, mac = resolve(hop, dst, table.neighbours)
        if ip_bytes > MTU_BYTES:
            raise Drop("mtu_exceeded")
    except Drop as drop:
        return str(drop), None, None, None
    return "tx", port, hop, rewrite(frame, ethertype, at, mac, port)
