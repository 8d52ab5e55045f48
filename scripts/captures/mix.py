"""The contents of routes.txt and mix.pcap: a small table with deep nesting, and traffic for such a table.

Addresses are from the ranges for documentation, benchmarks and private use (RFC 1918, 2544, 3849, 4193, 5180, 5737, 6598, 9637).
Without a default route some traffic has none.
"""

from decimal import Decimal
from ipaddress import ip_network

from . import packets as p

SEED = 20240117
MIX_PACKETS = 2000
MEAN_GAP_NS = 10_000
START_NS = 1_704_067_200 * 1_000_000_000  # 2024-01-01 00:00:00 UTC
MAX_HOP = (1 << 24) - 1

# Chains of nested prefixes, with every length at which a lookup structure is likely to change its level.
CHAIN_V4 = [8, 9, 12, 15, 16, 17, 19, 20, 21, 22, 23, 24, 25, 27, 28, 30, 31, 32]
CHAIN_V6 = [20, 24, 28, 32, 36, 40, 44, 47, 48, 49, 52, 56, 60, 63, 64, 65, 72, 80, 96, 112, 120, 126, 127, 128]
BLOCKS_V4 = ["100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"]
BLOCKS_V6 = ["2001:2::/48", "2001:db8::/32", "fd00::/8"]
# Lengths of the random prefixes inside each block, with their shares in today's Internet exaggerated at both ends.
LENGTHS_V4 = [16, 18, 20, 22, 23, 24, 24, 24, 26, 29, 30, 32] * 3
LENGTHS_V6 = [32, 40, 44, 48, 48, 48, 56, 64, 64, 96, 127, 128] * 4
# Never routed: two blocks for documentation, 6to4 of the first, and the well-known translation prefix (RFC 6052).
UNROUTED = ["192.0.2.0/24", "203.0.113.0/24", "2002:c000:200::/48", "64:ff9b::/96"]


def inside(rng, net):
    """A random address of `net`."""
    return net[rng.below(net.num_addresses)]


def holding(address, length):
    """The prefix of this length that holds `address`."""
    return ip_network((str(address), length), strict=False)


def routes():
    """The table: (prefix, next-hop id) pairs in the order of the file, IPv4 first."""
    rng = p.SplitMix64(SEED)
    nets = {holding("10.85.170.165", n) for n in CHAIN_V4} | {holding("3fff:5a5:a5a5:5a5a:a5a5:5a5a:a5a5:5a5a", n) for n in CHAIN_V6}
    for net in sorted(nets, key=lambda n: (n.version, n)):
        if net.prefixlen in (24, 25, 32, 48, 64, 65, 128):
            nets.add(ip_network((int(net.network_address) ^ 1 << (net.max_prefixlen - net.prefixlen), net.prefixlen)))
    for blocks, lengths in ((BLOCKS_V4, LENGTHS_V4), (BLOCKS_V6, LENGTHS_V6)):
        for parent in map(ip_network, blocks):
            nets.add(parent)
            nets |= {holding(inside(rng, parent), n) for n in lengths if n > parent.prefixlen}
    ordered = sorted(nets, key=lambda n: (n.version, n))
    special = {0: 1, 1: MAX_HOP, 2: MAX_HOP - 1, 3: 256, 4: 255, 5: 65536, 6: 0x123456}
    return [(str(net), special.get(i % 40) or 1 + rng.below(64)) for i, net in enumerate(ordered)]


def flow_addresses(rng, table_routes):
    """(source, destination) of every flow: each route's first, last and a random address once, and some that have no route."""
    nets = [ip_network(prefix) for prefix, _ in table_routes]
    destinations = []
    for net in nets:
        destinations += [net[0], net[-1], inside(rng, net)]
    for prefix in UNROUTED:
        destinations += [inside(rng, ip_network(prefix)) for _ in range(15)]
    sources = {4: [ip_network(b) for b in BLOCKS_V4], 6: [ip_network(b) for b in BLOCKS_V6]}
    flows = [(str(inside(rng, rng.choice(sources[d.version]))), str(d)) for d in destinations]
    rng.shuffle(flows)
    return flows


def frame_size(rng):
    """Bytes of an untagged frame without FCS: half of them the smallest, a tail up to the largest, as in an Internet mix."""
    share = rng.below(100)
    if share < 50:
        return 60
    if share < 75:
        return 60 + rng.below(140)
    if share < 90:
        return 590
    return 60 + rng.below(1455) if share < 96 else 1514


def ip_packet(rng, src, dst, index, size):
    """(IP packet, note): UDP or TCP, now and then with IPv4 options, as a fragment or behind IPv6 extension headers."""
    v4 = ":" not in dst
    kind = rng.below(100)
    transport, proto, header = (p.tcp, p.TCP, 20) if rng.below(10) < 6 else (p.udp, p.UDP, 8)
    extra, note = b"", "tcp" if proto == p.TCP else "udp"
    if kind < 4:
        # Router Alert (RFC 2113) and a padded Record Route (RFC 791); an IPv6 hop-by-hop header with PadN (RFC 8200 4.2).
        extra = rng.choice([bytes.fromhex("94040000"), bytes.fromhex("0707040000000001")]) if v4 else bytes([proto, 0, 1, 4, 0, 0, 0, 0])
        note += " options" if v4 else " hop-by-hop"
    space = size - 14 - (20 if v4 else 40) - len(extra)
    sport = 1024 + rng.below(60000)
    segment = transport(src, dst, p.pattern(max(0, space - header)), sport=sport)
    ttl = 2 + rng.below(254)
    if v4:
        flags = 0x4000
        if 4 <= kind < 8:
            flags = rng.choice([0x2000, 0x2000 | 185, 370])
            note += " fragment"
        return p.ipv4(src, dst, segment, proto=proto, ttl=ttl, ident=index, flags_offset=flags, options=extra), note
    if 4 <= kind < 8 and space >= header + 8:
        extra = bytes([proto, 0]) + rng.choice([b"\x00\x01", b"\x05\xc9", b"\x0b\x90"]) + index.to_bytes(4, "big")
        segment, note = segment[: space - 8], note + " fragment"
        return p.ipv6(src, dst, extra + segment, next_header=44, hop_limit=ttl), note
    return p.ipv6(src, dst, extra + segment, next_header=0 if extra else proto, hop_limit=ttl, flow_label=index), note


def gap_ns(rng):
    """An exponentially distributed gap. `Decimal.ln` is rounded correctly by definition, `math.log` depends on the C library."""
    uniform = Decimal(rng.below((1 << 32) - 1) + 1) / (1 << 32)
    return int(-uniform.ln() * MEAN_GAP_NS)


def mix():
    """The records and notes of mix.pcap: every flow once, then flows again with the first ones the most popular."""
    rng = p.SplitMix64(SEED + 1)
    flows = flow_addresses(rng, routes())
    records, notes, now = [], [], START_NS
    for index in range(MIX_PACKETS):
        again = min(rng.below(len(flows)) for _ in range(3))
        src, dst = flows[index] if index < len(flows) else flows[again]
        packet, note = ip_packet(rng, src, dst, index, frame_size(rng))
        tags, draw = [], rng.below(100)
        if draw < 4:
            tags, note = [(p.TPID_C, 1 + rng.below(4094))], note + " vlan"
        elif draw < 7:
            outer = rng.choice([p.TPID_S, p.TPID_OLD, p.TPID_C])
            tags, note = [(outer, 1 + rng.below(4094)), (p.TPID_C, rng.below(1 << 16))], note + " qinq"
        ethertype = p.ETHERTYPE_IPV6 if ":" in dst else p.ETHERTYPE_IPV4
        frame = p.pad(p.ethernet(ethertype, packet, tags))
        now += gap_ns(rng)
        records.append((now, frame, len(frame)))
        notes.append(("ipv6 " if ":" in dst else "ipv4 ") + note)
    return records, notes
