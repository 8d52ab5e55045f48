"""The packets of bad.pcap: one of every kind that a forwarder must not send, each next to a similar valid one.

A case is (note, expected verdict, frame). The expectation is written by hand; the golden forwarder must agree,
so that an error in either is found when the captures are made.
"""

import struct
from ipaddress import ip_address

from . import packets as p

SRC4, DST4 = "198.18.0.1", "100.64.0.1"
SRC6, DST6 = "fd00::1", "2001:db8::1"
V4, V6 = p.ETHERTYPE_IPV4, p.ETHERTYPE_IPV6
VLAN = [(p.TPID_C, 0x2064)]
QINQ = [(p.TPID_S, 0x00C8), (p.TPID_C, 0x0064)]


def eth4(payload=None, tags=(), **fields):
    """A frame around an IPv4 packet (or the given bytes), not padded, so that its end is the packet's end."""
    return p.ethernet(V4, p.ipv4_udp(SRC4, DST4, **fields) if payload is None else payload, tags)


def eth6(payload=None, tags=(), **fields):
    """A frame around an IPv6 packet (or the given bytes)."""
    return p.ethernet(V6, p.ipv6_udp(SRC6, DST6, **fields) if payload is None else payload, tags)


def truncated():
    """Whole frames cut at each header's boundary and inside each header."""
    shapes = [("ipv4", eth4(), (), 20), ("ipv6", eth6(), (), 40)]
    shapes += [("vlan ipv4", eth4(tags=VLAN), VLAN, 20), ("vlan ipv6", eth6(tags=VLAN), VLAN, 40)]
    shapes += [("qinq ipv4", eth4(tags=QINQ), QINQ, 20), ("qinq ipv6", eth6(tags=QINQ), QINQ, 40)]
    for name, frame, tags, ip_bytes in shapes:
        l2 = 14 + 4 * len(tags)
        yield f"{name} whole", "tx", frame
        cuts = [0, 1, 6, 12, 13] if name == "ipv4" else []
        for start in range(14, l2, 4):
            cuts += [start, start + 1, start + 2, start + 3]
        cuts += [l2, l2 + 1, l2 + 4, l2 + 10, l2 + 12, l2 + 16, l2 + ip_bytes - 1, l2 + ip_bytes, l2 + ip_bytes + 4]
        cuts += [l2 + ip_bytes + 8, len(frame) - 1]
        for cut in cuts:
            yield f"{name} cut at {cut}", "malformed", frame[:cut]
    with_options = eth4(options=bytes.fromhex("94040000"))
    for cut in (34, 37, 38):
        yield f"ipv4 with options cut at {cut}", "malformed", with_options[:cut]


def header_fields():
    """Version, IHL and the length fields, wrong one at a time."""
    for tags, name in (((), ""), (VLAN, "vlan "), (QINQ, "qinq ")):
        for version in (0, 5, 6, 15):
            yield f"{name}ipv4 version {version}", "malformed", p.pad(eth4(tags=tags, version=version, size=40))
        for version in (0, 4, 5, 15):
            yield f"{name}ipv6 version {version}", "malformed", eth6(tags=tags, version=version)
        for ihl in (0, 1, 4):
            yield f"{name}ipv4 ihl {ihl}", "malformed", p.pad(eth4(tags=tags, ihl=ihl))
        yield f"{name}ipv4 ihl beyond the frame", "malformed", eth4(tags=tags, ihl=15, size=4)
        yield f"{name}ipv4 total length 0", "malformed", p.pad(eth4(tags=tags, total_length=0))
        yield f"{name}ipv4 total length 19", "malformed", p.pad(eth4(tags=tags, total_length=19))
        yield f"{name}ipv4 total length beyond the frame", "malformed", eth4(tags=tags, total_length=47)
        yield f"{name}ipv4 total length 65535", "malformed", eth4(tags=tags, total_length=65535)
        yield f"{name}ipv6 payload length beyond the frame", "malformed", eth6(tags=tags, payload_length=27)
        yield f"{name}ipv6 payload length 65535", "malformed", eth6(tags=tags, payload_length=65535)
    yield "ipv4 total length below the header with options", "malformed", p.pad(
        eth4(options=bytes.fromhex("94040000"), total_length=20)
    )
    yield "ipv4 packet in an ipv6 frame", "malformed", p.ethernet(V6, p.ipv4_udp(SRC4, DST4, 40))
    yield "ipv6 packet in an ipv4 frame", "malformed", p.ethernet(V4, p.ipv6_udp(SRC6, DST6))


def with_checksum(wanted, ttl=64):
    """An IPv4 packet whose right checksum is `wanted`: the identification field makes up the difference (RFC 1071)."""
    for ident in range(1 << 16):
        packet = p.ipv4_udp(SRC4, DST4, ident=ident, ttl=ttl)
        if packet[10:12] == struct.pack("!H", wanted):
            return packet
    raise AssertionError(f"no identification gives checksum {wanted:#06x}")


def checksums():
    """Wrong checksums, and the right ones at which a careless adjustment goes wrong."""
    good = p.ipv4_udp(SRC4, DST4)
    right = struct.unpack_from("!H", good, 10)[0]
    for name, value in (("zero", 0), ("off by one", right + 1), ("one bit off", right ^ 0x8000), ("ffff", 0xFFFF)):
        yield f"ipv4 checksum {name}", "bad_checksum", p.pad(eth4(p.with_bytes(good, 10, struct.pack("!H", value))))
    swapped = struct.pack("<H", right)
    yield "ipv4 checksum with swapped bytes", "bad_checksum", p.pad(eth4(p.with_bytes(good, 10, swapped)))
    yield "ipv4 bit flip in the destination", "bad_checksum", p.pad(eth4(p.with_bytes(good, 19, b"\x03")))
    yield "vlan ipv4 checksum off by one", "bad_checksum", eth4(p.with_bytes(good, 10, struct.pack("!H", right + 1)), VLAN)
    routed = p.ipv4_udp(SRC4, DST4, options=bytes.fromhex("94040000"))
    yield "ipv4 bad byte in the options", "bad_checksum", p.pad(eth4(p.with_bytes(routed, 22, b"\x01")))
    # RFC 1624 4: equation 2 gives ffff, equation 3 gives 0000, as a full sum does.
    yield "ipv4 checksum feff becomes 0000", "tx", p.pad(eth4(with_checksum(0xFEFF)))
    yield "ipv4 checksum fefe becomes fffe", "tx", p.pad(eth4(with_checksum(0xFEFE)))
    yield "ipv4 checksum ff00 carries", "tx", p.pad(eth4(with_checksum(0xFF00)))
    zero = with_checksum(0)
    yield "ipv4 checksum 0000", "tx", p.pad(eth4(zero))
    # Both zeros of one's complement are valid for a receiver that sums.
    yield "ipv4 checksum ffff in place of 0000", "tx", p.pad(eth4(p.with_bytes(zero, 10, b"\xff\xff")))


def lifetimes():
    """TTL and hop limit 0, 1, 2 and 255, in every layer-2 shape."""
    for tags, name in (((), ""), (VLAN, "vlan "), (QINQ, "qinq ")):
        for ttl in (0, 1, 2, 255):
            verdict = "ttl_expired" if ttl <= 1 else "tx"
            yield f"{name}ipv4 ttl {ttl}", verdict, p.pad(eth4(tags=tags, ttl=ttl))
            yield f"{name}ipv6 hop limit {ttl}", verdict, eth6(tags=tags, hop_limit=ttl)


BAD_SOURCES = [
    "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "169.254.0.0", "169.254.255.255", "224.0.0.1",
    "239.255.255.255", "240.0.0.0", "255.255.255.254", "255.255.255.255",
    "::", "::1", "fe80::", "fe80::1", "febf:ffff::1", "ff00::", "ff02::1", "ffff:ffff::1", "::ffff:0.0.0.0", "::ffff:100.64.0.1",
]  # fmt: skip
BAD_DESTINATIONS = {
    "martian": [
        "0.0.0.0", "0.255.255.255", "127.0.0.0", "127.0.0.1", "169.254.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:100.64.0.1", "::ffff:255.255.255.255",
    ],
    "multicast": ["224.0.0.0", "224.0.0.5", "232.1.1.1", "239.255.255.255", "ff00::", "ff02::1", "ff0e::1234", "ffff::ffff"],
}  # fmt: skip
# The addresses just outside each forbidden block: they pass the check and only lack a route.
NEAR_MISSES = [
    "1.0.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "223.255.255.255",
    "::2", "fe7f:ffff::1", "fec0::1", "feff::1", "::fffe:100.64.0.1", "::1:ffff:100.64.0.1",
]  # fmt: skip


def between(src, dst, **fields):
    """A frame from `src` to `dst`, whichever family they are."""
    if ip_address(src).version == 4:
        return p.pad(p.ethernet(V4, p.ipv4_udp(src, dst, **fields)))
    return p.ethernet(V6, p.ipv6_udp(src, dst, **fields))


def addresses():
    """Forbidden sources and destinations, and the addresses just outside them."""
    for src in BAD_SOURCES:
        yield f"source {src}", "martian", between(src, DST6 if ":" in src else DST4)
    for verdict, destinations in BAD_DESTINATIONS.items():
        for dst in destinations:
            yield f"destination {dst}", verdict, between(SRC6 if ":" in dst else SRC4, dst)
    for near in NEAR_MISSES:
        yield f"source {near}, just outside", "tx", between(near, DST6 if ":" in near else DST4)
        yield f"destination {near}, just outside", "no_route", between(SRC6 if ":" in near else SRC4, near)
    yield "vlan ipv4 source 127.0.0.1", "martian", p.ethernet(V4, p.ipv4_udp("127.0.0.1", DST4), VLAN)
    yield "qinq ipv6 destination ff02::1", "multicast", p.ethernet(V6, p.ipv6_udp(SRC6, "ff02::1"), QINQ)


def layer2():
    """Frames that are not IP, any number of tags, and MACs that do not matter."""
    arp = struct.pack("!HHBBH", 1, V4, 6, 4, 1) + p.SENDER_MAC + bytes([198, 18, 0, 1]) + bytes(6) + bytes([198, 18, 0, 2])
    good4, good6 = p.ipv4_udp(SRC4, DST4), p.ipv6_udp(SRC6, DST6)
    yield "arp request", "not_ip", p.pad(p.ethernet(p.ETHERTYPE_ARP, arp, dst=b"\xff" * 6))
    yield "vlan arp", "not_ip", p.pad(p.ethernet(p.ETHERTYPE_ARP, arp, VLAN))
    for name, ethertype in (
        ("llc length 46", 46), ("llc length 1500", 1500), ("ethertype 05ff", 0x05FF), ("ethertype 0600", 0x0600),
        ("rarp", 0x8035), ("mpls", 0x8847), ("pppoe", 0x8864), ("lldp", 0x88CC), ("macsec", 0x88E5), ("ethertype 0000", 0),
        ("ethertype ffff", 0xFFFF), ("ipv4 ethertype with swapped bytes", 0x0008), ("ethertype 0801", 0x0801),
    ):  # fmt: skip
        yield name, "not_ip", p.pad(p.ethernet(ethertype, good4))
    yield "nothing behind an unknown ethertype", "not_ip", p.ethernet(0x88CC, b"")
    yield "qinq lldp", "not_ip", p.pad(p.ethernet(0x88CC, b"", QINQ))
    for outer in (p.TPID_C, p.TPID_S, p.TPID_OLD):
        yield f"one tag {outer:04x}", "tx", p.pad(p.ethernet(V4, good4, [(outer, 1)]))
        for inner in (p.TPID_C, p.TPID_S, p.TPID_OLD):
            yield f"tags {outer:04x} {inner:04x}", "tx", p.ethernet(V6, good6, [(outer, 0xFFFF), (inner, 0)])
    yield "three tags ipv4", "not_ip", p.pad(p.ethernet(V4, good4, QINQ + VLAN))
    yield "three tags ipv6", "not_ip", p.ethernet(V6, good6, QINQ + VLAN)
    yield "three tags, cut behind the second", "not_ip", p.ethernet(V4, b"", QINQ + VLAN)[:22]
    yield "broadcast mac, good ipv4", "tx", p.pad(p.ethernet(V4, good4, dst=b"\xff" * 6))
    yield "multicast mac, good ipv6", "tx", p.ethernet(V6, good6, dst=bytes.fromhex("333300000001"))
    yield "mac of all zeros, good ipv4", "tx", p.pad(p.ethernet(V4, good4, dst=bytes(6), src=bytes(6)))


def good_but_odd():
    """Packets that look strange and are forwarded as they are: sizes, options, fragments, extension headers."""
    yield "ipv4 no payload", "tx", p.pad(eth4(p.ipv4(SRC4, DST4, b"")))
    yield "ipv4 no payload, not padded", "tx", eth4(p.ipv4(SRC4, DST4, b""))
    yield "ipv4 udp of zero bytes", "tx", p.pad(eth4(size=0))
    yield "ipv4 padding that is not zero", "tx", eth4(size=0) + b"\xee" * 18
    yield "ipv6 no payload", "tx", p.pad(eth6(p.ipv6(SRC6, DST6, b"", next_header=59)))
    yield "ipv6 no payload, not padded", "tx", eth6(p.ipv6(SRC6, DST6, b"", next_header=59))
    yield "ipv6 with bytes behind its payload", "tx", eth6() + b"\xee" * 7
    jumbo = bytes([p.UDP, 0, 0xC2, 4]) + (70000).to_bytes(4, "big")
    yield "ipv6 payload length 0 with a jumbo option", "tx", eth6(p.ipv6(SRC6, DST6, jumbo, next_header=0, payload_length=0))
    for name, options in (
        ("router alert", "94040000"), ("record route", "0707040000000001"), ("loose source route", "8307040a00000101"),
        ("end of options", "00000000"), ("unknown option", "9e040000"), ("40 bytes of no-operation", "01" * 40),
    ):  # fmt: skip
        yield f"ipv4 options: {name}", "tx", p.pad(eth4(options=bytes.fromhex(options)))
    yield "vlan ipv4 options", "tx", p.pad(eth4(tags=VLAN, options=bytes.fromhex("94040000")))
    for name, flags in (("first", 0x2000), ("middle", 0x2000 | 185), ("last", 370), ("do not fragment", 0x4000), ("evil", 0x8000)):
        yield f"ipv4 fragment: {name}", "tx", p.pad(eth4(flags_offset=flags, ident=7))
    datagram = p.udp(SRC6, DST6, p.pattern(18))
    for name, kind, header in (
        ("hop-by-hop", 0, "1100010400000000"), ("routing", 43, "1100030000000000"), ("destination options", 60, "1100010400000000"),
        ("first fragment", 44, "1100000100000007"), ("last fragment", 44, "11000b9000000007"), ("authentication", 51, "11" + "00" * 11),
    ):  # fmt: skip
        yield f"ipv6 extension: {name}", "tx", eth6(p.ipv6(SRC6, DST6, bytes.fromhex(header) + datagram, next_header=kind))
    yield "ipv4 of 1500 bytes", "tx", eth4(size=1472)
    yield "qinq ipv4 of 1500 bytes", "tx", eth4(tags=QINQ, size=1472)
    yield "ipv4 of 1501 bytes, do not fragment", "mtu_exceeded", eth4(size=1473, flags_offset=0x4000)
    yield "ipv6 of 1500 bytes", "tx", eth6(size=1452)
    yield "vlan ipv6 of 1501 bytes", "mtu_exceeded", eth6(tags=VLAN, size=1453)
    yield "ipv4 of 1480 bytes with 30 bytes behind", "tx", eth4(size=1452) + bytes(30)
    yield "ipv4 without a route", "no_route", between(SRC4, "203.0.113.7")
    yield "ipv6 without a route", "no_route", between(SRC6, "2002:c000:204::1")


def two_faults():
    """Packets with two faults: the earlier check names the drop."""
    wrong = p.with_bytes(p.ipv4_udp("127.0.0.1", "224.0.0.1", ttl=0), 10, b"\x12\x34")
    yield "checksum before addresses and ttl", "bad_checksum", p.pad(eth4(wrong))
    short = p.with_bytes(p.ipv4_udp(SRC4, DST4, total_length=400), 10, b"\x12\x34")
    yield "total length before checksum", "malformed", p.pad(eth4(short))
    yield "source before destination, ipv4", "martian", between("127.0.0.1", "224.0.0.1")
    yield "source before destination, ipv6", "martian", between("::1", "ff02::1")
    yield "multicast both, ipv4", "martian", between("224.0.0.1", "224.0.0.1")
    yield "multicast both, ipv6", "martian", between("ff02::1", "ff02::1")
    yield "multicast before ttl, ipv4", "multicast", between(SRC4, "224.0.0.1", ttl=1)
    yield "multicast before hop limit, ipv6", "multicast", between(SRC6, "ff02::1", hop_limit=1)
    yield "martian before ttl, ipv4", "martian", between(SRC4, "127.0.0.1", ttl=0)
    yield "martian before hop limit, ipv6", "martian", between("fe80::1", DST6, hop_limit=0)
    yield "ttl before route, ipv4", "ttl_expired", between(SRC4, "203.0.113.7", ttl=1)
    yield "hop limit before route, ipv6", "ttl_expired", between(SRC6, "2002:c000:204::1", hop_limit=1)
    yield "ttl before mtu, ipv4", "ttl_expired", eth4(size=1473, ttl=1)
    yield "route before mtu, ipv4", "no_route", between(SRC4, "203.0.113.7", size=1473, flags_offset=0x4000)
    yield "payload length before addresses, ipv6", "malformed", between("::1", "ff02::1", payload_length=900)


def cases():
    """All cases in the order of bad.pcap."""
    groups = (truncated, header_fields, checksums, lifetimes, addresses, layer2, good_but_odd, two_faults)
    return [case for group in groups for case in group()]
