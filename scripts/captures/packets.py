"""Builds frames byte by byte: Ethernet, VLAN tags, IPv4, IPv6, UDP, TCP.

Every builder writes a right packet; the bad ones are made from a right one by `with_bytes` or by handing a builder a field
that lies. Nothing here decides what a forwarder does with a packet.
"""

import struct
from ipaddress import ip_address

# The router's MAC address for senders. A forwarder configured as a router ignores it.
ROUTER_MAC = bytes.fromhex("02f000000000")
SENDER_MAC = bytes.fromhex("02aa00000001")

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_ARP = 0x0806
ETHERTYPE_IPV6 = 0x86DD
# C-tag (IEEE 802.1Q), S-tag (802.1ad), and the value used for stacked tags before 802.1ad.
TPID_C, TPID_S, TPID_OLD = 0x8100, 0x88A8, 0x9100

TCP, UDP = 6, 17


class SplitMix64:
    """Vigna's SplitMix64: 64 bits of state, the same numbers for ever.

    Python promises its own generator's sequence only for `random()`, and the captures must not change with Python's version.
    """

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = seed & self.MASK

    def next(self):
        """The next 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        return z ^ (z >> 31)

    def below(self, bound):
        """A number in 0..bound; `bound` may be wider than 64 bits. The modulo's bias is of no interest here."""
        return (self.next() << 64 | self.next()) % bound

    def choice(self, items):
        """One of `items`."""
        return items[self.below(len(items))]

    def shuffle(self, items):
        """Fisher and Yates, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]


def ones_complement_sum(data):
    """RFC 1071: the 16-bit one's complement sum of big-endian words, an odd last byte padded with zero."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data):
    """RFC 1071: the complement of the sum, to be put where `data` holds zero."""
    return ~ones_complement_sum(data) & 0xFFFF


def pattern(size):
    """A payload that says its offset: 00 01 02 .. ff 00 .., so that a shifted byte is seen at once, and git packs it well."""
    return bytes(i & 0xFF for i in range(size))


def with_bytes(packet, offset, new):
    """`packet` with the bytes at `offset` replaced by `new`."""
    return packet[:offset] + new + packet[offset + len(new) :]


def pad(packet, size=60):
    """`packet` padded with zeros to an Ethernet frame's smallest size: 64 bytes with the FCS, which captures do not hold."""
    return packet + bytes(max(0, size - len(packet)))


def ethernet(ethertype, payload, tags=(), dst=ROUTER_MAC, src=SENDER_MAC):
    """A frame; `tags` are (TPID, TCI) pairs from the outermost to the innermost."""
    head = dst + src
    for tpid, tci in tags:
        head += struct.pack("!HH", tpid, tci)
    return head + struct.pack("!H", ethertype) + payload


def ipv4(src, dst, payload, proto=UDP, ttl=64, ident=0, flags_offset=0, options=b"", **lies):
    """An IPv4 packet. `lies` may replace version, ihl (words), total_length and checksum by a wrong value."""
    ihl = lies.get("ihl", 5 + len(options) // 4)
    total = lies.get("total_length", 20 + len(options) + len(payload))
    head = struct.pack("!BBHHHBBH", lies.get("version", 4) << 4 | ihl, 0, total, ident, flags_offset, ttl, proto, 0)
    head += ip_address(src).packed + ip_address(dst).packed + options
    # The checksum covers IHL words, so that a wrong IHL is the packet's only fault where possible.
    covered = (head + payload)[: ihl * 4] if ihl >= 5 else head
    value = lies.get("checksum", checksum(covered))
    return with_bytes(head, 10, struct.pack("!H", value)) + payload


def ipv6(src, dst, payload, next_header=UDP, hop_limit=64, flow_label=0, **lies):
    """An IPv6 packet. `lies` may replace version and payload_length by a wrong value."""
    first = lies.get("version", 6) << 28 | flow_label
    length = lies.get("payload_length", len(payload))
    return (
        struct.pack("!IHBB", first, length, next_header, hop_limit)
        + ip_address(src).packed
        + ip_address(dst).packed
        + payload
    )


def pseudo_header(src, dst, proto, size):
    """The part that UDP and TCP checksums cover besides the datagram or segment: RFC 768, RFC 9293 3.1, RFC 8200 8.1."""
    addresses = ip_address(src).packed + ip_address(dst).packed
    if len(addresses) == 8:
        return addresses + struct.pack("!BBH", 0, proto, size)
    return addresses + struct.pack("!I3xB", size, proto)


def udp(src, dst, payload=b"", sport=4096, dport=9):
    """A UDP datagram with its checksum; a computed zero is sent as ffff (RFC 768)."""
    size = 8 + len(payload)
    data = struct.pack("!HHHH", sport, dport, size, 0) + payload
    value = checksum(pseudo_header(src, dst, UDP, size) + data) or 0xFFFF
    return with_bytes(data, 6, struct.pack("!H", value))


def tcp(src, dst, payload=b"", sport=4096, dport=80, seq=0, flags=0x10):
    """A TCP segment without options, with its checksum."""
    data = struct.pack("!HHIIBBHHH", sport, dport, seq, 0, 5 << 4, flags, 65535, 0, 0) + payload
    value = checksum(pseudo_header(src, dst, TCP, len(data)) + data)
    return with_bytes(data, 16, struct.pack("!H", value))


def ipv4_udp(src, dst, size=18, **fields):
    """An IPv4 packet with a UDP datagram of `size` payload bytes."""
    return ipv4(src, dst, udp(src, dst, pattern(size)), **fields)


def ipv6_udp(src, dst, size=18, **fields):
    """An IPv6 packet with a UDP datagram of `size` payload bytes."""
    return ipv6(src, dst, udp(src, dst, pattern(size)), **fields)
