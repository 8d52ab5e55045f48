"""Captures for comparing forwarders: UDP packets to destinations drawn evenly over the routes of l3fwd rule files.

A destination is a route's prefix with random host bits. The rule file is drawn for each packet, so families are mixed."""

import ipaddress
import random
import struct

SOURCES = {4: ipaddress.IPv4Address("192.0.2.1").packed, 6: ipaddress.IPv6Address("2001:db8::1").packed}
ROUTER, NEIGHBOUR = bytes.fromhex("020000000100"), bytes.fromhex("020000000099")
TYPES = {4: b"\x08\x00", 6: b"\x86\xdd"}
CHECK_SEQUENCE_BYTES = 4
ETHERNET_BYTES = 14
UDP_BYTES = 8
HEAD = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


def prefixes(path):
    """The prefixes of an l3fwd rule file, as text."""
    with open(path, encoding="ascii") as rules:
        return [line[1:].split()[0] for line in rules if line.startswith("R")]


def checksum(header):
    """The Internet checksum of a header of an even length, 0 for one that has the right one in it."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(destination, number=0, size=64, ttl=64, source=None, router=ROUTER):
    """A UDP packet to this address (packed bytes); `size` counts the frame's check sequence."""
    version = 4 if len(destination) == 4 else 6
    source = source or SOURCES[version]
    header_bytes = 20 if version == 4 else 40
    length = max(UDP_BYTES, size - ETHERNET_BYTES - CHECK_SEQUENCE_BYTES - header_bytes)
    if version == 4:
        fields = struct.pack("!BBHHHBBH", 0x45, 0, header_bytes + length, number & 0xFFFF, 0, ttl, 17, 0) + source + destination
        header = fields[:10] + struct.pack("!H", checksum(fields)) + fields[12:]
    else:
        header = struct.pack("!IHBB", 6 << 28, length, 17, ttl) + source + destination
    udp = struct.pack("!HHHH", 1024 + (number >> 16), 9, length, 0) + bytes(length - UDP_BYTES)
    return router + NEIGHBOUR + TYPES[version] + header + udp


def forwarded(packet):
    """A router's output for a type and the packet after it: the TTL or hop limit less one, and the matching IPv4 checksum."""
    packet = bytearray(packet)
    if packet[:2] == TYPES[4]:
        packet[10] -= 1
        packet[12:14] = b"\0\0"
        packet[12:14] = struct.pack("!H", checksum(bytes(packet[2:22])))
    else:
        packet[9] -= 1
    return bytes(packet)


def destination(prefix, rng):
    """An address of a prefix, packed."""
    network = ipaddress.ip_network(prefix)
    free = network.max_prefixlen - network.prefixlen
    return (network.network_address + (rng.getrandbits(free) if free else 0)).packed


def write(path, frames):
    """Writes a capture."""
    with open(path, "wb") as capture:
        capture.write(HEAD)
        for number, one in enumerate(frames):
            capture.write(struct.pack("<IIII", number // 1_000_000, number % 1_000_000, len(one), len(one)) + one)


def read(path):
    """The frames of a capture that `write` or net_capture.c wrote."""
    data, at, found = path.read_bytes(), len(HEAD), []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def frames(rules, packets, size=64, seed=1):
    """So many packets to routes of these rule files."""
    rng = random.Random(seed)
    tables = [prefixes(path) for path in rules]
    return [frame(destination(rng.choice(rng.choice(tables)), rng), number, size) for number in range(packets)]
