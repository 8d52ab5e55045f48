#!/usr/bin/env python3
"""Captures for comparing forwarders: UDP packets to destinations drawn evenly over the routes of l3fwd rule files.

usage: traffic.py --packets N --size BYTES --seed S OUT.pcap RULES..

The rule file is drawn for each packet, so that several families come in no order. A destination is a route's prefix with random host bits. BYTES count the frame's
check sequence, as the 64 of the smallest frame do."""

import argparse
import ipaddress
import random
import struct

SOURCES = {4: ipaddress.IPv4Address("192.0.2.1"), 6: ipaddress.IPv6Address("2001:db8::1")}
ETHERNET = bytes.fromhex("020000000001" "020000000099")
CHECK_SEQUENCE_BYTES = 4


def prefixes(path):
    with open(path, encoding="ascii") as rules:
        return [line[1:].split()[0] for line in rules if line.startswith("R")]


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(network, number, size, rng):
    host = rng.getrandbits(network.max_prefixlen - network.prefixlen) if network.prefixlen < network.max_prefixlen else 0
    destination = network.network_address + host
    source = SOURCES[network.version]
    fixed = len(ETHERNET) + 2 + CHECK_SEQUENCE_BYTES
    if network.version == 4:
        length = max(8, size - fixed - 20)
        fields = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, number & 0xFFFF, 0, 64, 17, 0) + source.packed + destination.packed
        header = b"\x08\x00" + fields[:10] + struct.pack("!H", checksum(fields)) + fields[12:]
    else:
        length = max(8, size - fixed - 40)
        header = b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, length, 17, 64) + source.packed + destination.packed
    return ETHERNET + header + struct.pack("!HHHH", 1024, 9, length, 0) + bytes(length - 8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=4096)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("out")
    parser.add_argument("rules", nargs="+")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    tables = [prefixes(path) for path in args.rules]
    with open(args.out, "wb") as capture:
        capture.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(args.packets):
            packet = frame(ipaddress.ip_network(rng.choice(rng.choice(tables))), number, args.size, rng)
            capture.write(struct.pack("<IIII", number // 1_000_000, number % 1_000_000, len(packet), len(packet)) + packet)


main()
