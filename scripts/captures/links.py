"""The contents of links.txt and links.pcap: a table in iproute2's words, with gateways, neighbours, links and routes that drop.

Each line of the table has its meaning next to it, so that no parser of ours decides the golden result. A meaning is a way out as
in `forwarder.resolve`. Port numbers are the golden file's.
"""

from . import packets as p
from .bad import QINQ, SRC4, SRC6, VLAN, between

# (line, prefix, way out). One path of 203.0.113.0/24 has no neighbour, so all flows take the other.
ROUTES = [
    ("default via 198.51.100.1 dev 0 proto static", "0.0.0.0/0", ("via", "198.51.100.1", 0)),
    ("198.51.100.0/24 dev 0 proto kernel scope link src 198.51.100.254", "198.51.100.0/24", ("dev", 0)),
    ("192.0.2.0/24 via 198.51.100.2 dev 1 metric 20", "192.0.2.0/24", ("via", "198.51.100.2", 1)),
    ("192.0.2.128/25 via 198.51.100.9 dev 1", "192.0.2.128/25", ("via", "198.51.100.9", 1)),
    ("192.0.2.160/27 via 198.51.100.9", "192.0.2.160/27", ("via", "198.51.100.9", None)),
    ("192.0.2.192/27 via 198.51.100.3", "192.0.2.192/27", ("via", "198.51.100.3", None)),
    ("blackhole 192.0.2.64/26", "192.0.2.64/26", ("drop", "blackhole")),
    ("unreachable 192.0.2.96/27", "192.0.2.96/27", ("drop", "unreachable")),
    ("prohibit 192.0.2.100/32", "192.0.2.100/32", ("drop", "prohibited")),
    ("192.0.2.101/32 via 198.51.100.2 dev 1", "192.0.2.101/32", ("via", "198.51.100.2", 1)),
    ("203.0.113.0/24 proto bird metric 32", "203.0.113.0/24", ("via", "198.51.100.3", 2)),
    ("\tnexthop via 198.51.100.3 dev 2 weight 1", None, None),
    ("\tnexthop via 198.51.100.9 dev 1 weight 9", None, None),
    ("203.0.113.7 77", "203.0.113.7/32", 77),
    ("R203.0.113.128/25 3", "203.0.113.128/25", ("port", 3)),
    ("198.18.0.0/15 via inet6 fe80::3 dev 3", "198.18.0.0/15", ("via", "fe80::3", 3)),
    ("2001:db8::/32 via fe80::1 dev 0 metric 1024 pref medium", "2001:db8::/32", ("via", "fe80::1", 0)),
    ("2001:db8:1::/64 dev 1 proto kernel metric 256 pref medium", "2001:db8:1::/64", ("dev", 1)),
    ("2001:db8:2::/48 via 2001:db8:1::2 dev 1", "2001:db8:2::/48", ("via", "2001:db8:1::2", 1)),
    ("2001:db8:3::/48 via 2001:db8:1::9 dev 1", "2001:db8:3::/48", ("via", "2001:db8:1::9", 1)),
    ("2001:db8:6::/48 via 2001:db8:1::9", "2001:db8:6::/48", ("via", "2001:db8:1::9", None)),
    ("2001:db8:7::/48 via fe80::3", "2001:db8:7::/48", ("via", "fe80::3", None)),
    ("blackhole 2001:db8:4::/48", "2001:db8:4::/48", ("drop", "blackhole")),
    ("2001:db8:4::4/128 16777215", "2001:db8:4::4/128", 16777215),
    ("R2001:db8:5::/48 2", "2001:db8:5::/48", ("port", 2)),
]
NEIGHBOURS = [
    ("198.51.100.1", "02:aa:00:00:01:01", 0),
    ("198.51.100.2", "02:aa:00:00:01:02", 1),
    ("198.51.100.3", "02:aa:00:00:01:03", 2),
    ("198.51.100.77", "02:aa:00:00:01:77", 0),
    ("fe80::1", "02:aa:00:00:06:01", 0),
    ("fe80::3", "02:aa:00:00:06:03", 3),
    ("2001:db8:1::2", "02:aa:00:00:06:02", 1),
    ("2001:db8:1::77", "02:aa:00:00:06:77", 1),
]

# (destination, verdict, port, destination MAC), worked out by hand.
DESTINATIONS = [
    ("8.8.8.8", "tx", 0, "02:aa:00:00:01:01"),
    ("198.51.100.77", "tx", 0, "02:aa:00:00:01:77"),
    ("198.51.100.78", "no_neighbour", None, None),
    ("192.0.2.1", "tx", 1, "02:aa:00:00:01:02"),
    ("192.0.2.63", "tx", 1, "02:aa:00:00:01:02"),
    ("192.0.2.64", "blackhole", None, None),
    ("192.0.2.95", "blackhole", None, None),
    ("192.0.2.96", "unreachable", None, None),
    ("192.0.2.100", "prohibited", None, None),
    ("192.0.2.101", "tx", 1, "02:aa:00:00:01:02"),
    ("192.0.2.128", "no_neighbour", None, None),
    ("192.0.2.255", "no_neighbour", None, None),
    ("192.0.2.161", "no_neighbour", None, None),
    ("192.0.2.193", "tx", 2, "02:aa:00:00:01:03"),
    ("203.0.113.1", "tx", 2, "02:aa:00:00:01:03"),
    ("203.0.113.7", "tx", 0, "02:00:00:00:00:4d"),
    ("203.0.113.127", "tx", 2, "02:aa:00:00:01:03"),
    ("203.0.113.128", "tx", 3, "02:00:00:00:00:04"),
    ("198.19.255.255", "tx", 3, "02:aa:00:00:06:03"),
    ("2001:db8::1", "tx", 0, "02:aa:00:00:06:01"),
    ("2001:db8:1::77", "tx", 1, "02:aa:00:00:06:77"),
    ("2001:db8:1::78", "no_neighbour", None, None),
    ("2001:db8:2:ffff::", "tx", 1, "02:aa:00:00:06:02"),
    ("2001:db8:3::1", "no_neighbour", None, None),
    ("2001:db8:6::1", "no_neighbour", None, None),
    ("2001:db8:7::1", "tx", 3, "02:aa:00:00:06:03"),
    ("2001:db8:4::1", "blackhole", None, None),
    ("2001:db8:4::4", "tx", 2, "02:00:00:ff:ff:ff"),
    ("2001:db8:5::5", "tx", 2, "02:00:00:00:00:03"),
    ("2001:db9::1", "no_route", None, None),
]


def routes():
    """(prefix, way out) pairs for `forwarder.Table`."""
    return [(prefix, way) for _, prefix, way in ROUTES if prefix]


def neighbours():
    """Address -> (MAC, port), as `forwarder.resolve` wants it."""
    return {address: (bytes.fromhex(mac.replace(":", "")), port) for address, mac, port in NEIGHBOURS}


def text():
    """links.txt."""
    lines = ["# The table for links.pcap, written by scripts/make_captures.py: what `ip route` prints, `neigh` lines, bare ids, l3fwd rules."]
    lines += [line for line, _, _ in ROUTES]
    lines += [f"neigh {address} lladdr {mac} dev {port}" for address, mac, port in NEIGHBOURS]
    return "\n".join(lines) + "\n"


def cases():
    """(note, verdict, port, destination MAC, frame): every destination plain and behind one and two tags, and two too large."""
    out = []
    for dst, verdict, port, mac in DESTINATIONS:
        frame = between(SRC6 if ":" in dst else SRC4, dst)
        ethertype, packet = int.from_bytes(frame[12:14], "big"), frame[14:]
        for name, tags in (("", ()), ("vlan ", VLAN), ("qinq ", QINQ)):
            out.append((f"{name}to {dst}", verdict, port, mac, p.pad(p.ethernet(ethertype, packet, tags))))
    for dst, verdict in (("192.0.2.1", "mtu_exceeded"), ("192.0.2.64", "blackhole"), ("192.0.2.128", "no_neighbour")):
        out.append((f"1501 bytes to {dst}", verdict, None, None, between(SRC4, dst, size=1473, flags_offset=0x4000)))
    return out
