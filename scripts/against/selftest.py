"""Tests of the comparison itself, which need no forwarder: a wrong packet must not pass, and percentiles are correct. Run at
each start, and by `scripts/against.sh --table --check`."""

import ipaddress
import random
import tempfile
from pathlib import Path

from . import check, page, peers, table, traffic

# A textbook's IPv4 header, with TTL 64 and checksum b861; decrementing the TTL adds one to its high byte (RFC 1624).
BEFORE = bytes.fromhex("45000073000040004011b861c0a80001c0a800c7")
AFTER = bytes.fromhex("45000073000040003f11b961c0a80001c0a800c7")


def slot_of(cycles):
    """The same as in net_capture.c."""
    if cycles < 1 << page.SLOT_BITS:
        return cycles
    shift = cycles.bit_length() - 1 - page.SLOT_BITS
    return ((shift + 1) << page.SLOT_BITS) + (cycles >> shift) - (1 << page.SLOT_BITS)


def must(condition, what):
    """Fails with `what`."""
    if not condition:
        raise AssertionError(f"self-test of against: {what}")


def of_headers():
    must(traffic.checksum(BEFORE) == 0, "a right checksum")
    must(traffic.forwarded(traffic.TYPES[4] + BEFORE) == traffic.TYPES[4] + AFTER, "a forwarded IPv4 header")
    v6 = traffic.frame(ipaddress.ip_address("2001:db8::9").packed, ttl=9)
    must(traffic.forwarded(v6[12:]) == v6[12:21] + b"\x08" + v6[22:], "a forwarded IPv6 header")


def of_differences():
    """Each change of a forwarded packet is seen, and has its name."""
    for address, changes in (
        ("192.0.2.9", {0: "wrong destination MAC", 6: "wrong source MAC", 22: "wrong TTL", 24: "wrong checksum"}),
        ("2001:db8::9", {0: "wrong destination MAC", 6: "wrong source MAC", 21: "wrong hop limit"}),
    ):
        frame = traffic.frame(ipaddress.ip_address(address).packed, 7)
        right = bytes(6) + peers.port_mac(1) + traffic.forwarded(frame[12:])
        must(check.differences((1, right), 1, right) == set(), "a right packet is right")
        must(check.differences((1, right), 2, right) == {"wrong port"}, "a wrong port is seen")
        for at, name in changes.items():
            wrong = right[:at] + bytes((right[at] ^ 0x80,)) + right[at + 1 :]
            must(name in check.differences((1, right), 1, wrong), name)
            must(check.key(wrong) == check.key(right), "what is changed by a forwarder is not in the key")
        must(check.key(right[:-1] + b"\x01") != check.key(right), "the payload is in the key")
    kept = traffic.frame(ipaddress.ip_address("2001:db8::9").packed)
    right = kept[:12] + traffic.forwarded(kept[12:])
    must(check.differences((1, right), 1, kept) == {"hop limit kept"}, "a hop limit that is kept")


def of_routes():
    """The same answers as a search of all routes."""
    rng = random.Random(3)
    routes = {}
    for _ in range(300):
        length = rng.randrange(0, 25)
        routes[ipaddress.ip_network((rng.getrandbits(32) >> (32 - length) << (32 - length), length))] = rng.randrange(4)
    addresses = [traffic.destination(str(rng.choice(list(routes))), rng) for _ in range(200)] + [rng.randbytes(4) for _ in range(200)]
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules")
        rules.write_text("".join(f"R{prefix} {port}\n" for prefix, port in routes.items()), encoding="ascii")
        found = check.Routes([rules], addresses)
    for address in addresses:
        matching = [prefix for prefix in routes if ipaddress.ip_address(address) in prefix]
        wanted = routes[max(matching, key=lambda prefix: prefix.prefixlen)] if matching else None
        must(found.port(address) == wanted, f"the port of {address.hex()}")


def of_latencies():
    """Slots follow each other without a gap, and their upper ends are within 1.6 % of the latencies in them."""
    slots = [slot_of(cycles) for cycles in range(5000)]
    must(all(b - a in (0, 1) for a, b in zip(slots, slots[1:])), "slots have no gap")
    for cycles in [*range(5000), (1 << 63) + 12345, (1 << 64) - 1]:
        upper = page.upper_cycles(slot_of(cycles))
        must(cycles <= upper <= cycles * 1.016 + 1, f"the slot of {cycles} cycles")
    with tempfile.TemporaryDirectory() as folder:
        one = page.Page(Path(folder, "page"))
        one.order(page.TSC_HZ, 10**9)
        for cycles, count in ((10, 90), (20, 9), (40, 1)):
            one.words[page.FIRST_SLOT + slot_of(cycles)] = count
        must(one.percentiles_ns(one.latencies(), (50, 99, 99.9)) == [10, 20, 40, 40], "percentiles")


def of_tables():
    """A ratio is of ours in the same comparison."""
    row = {"packets": 4096, "traffic": "v4"}
    first = [{**row, "name": "l3fwd best", "peer": "l3fwd", "form": "best", "mpps": 10.0}, {**row, "name": "host", "peer": "fwd-app", "form": "host", "mpps": 15.0}]
    second = [{**row, "name": "l3fwd stock", "peer": "l3fwd", "form": "stock", "mpps": 5.0}, {**row, "name": "host", "peer": "fwd-app", "form": "host", "mpps": 20.0}]
    report = {"machine": "M", "dpdk": "1", "burst": 256, "rows": first + second}
    wanted = {("l3fwd best", 4096): {"v4": (10.0, 15.0)}, ("l3fwd stock", 4096): {"v4": (5.0, 20.0)}}
    must(table.rates_of(report) == wanted, "rates of two comparisons")
    must("l3fwd 1.5 to 1.5 on M" in table.sentence([report]), "the line of README.md is about the faster form")


def run():
    """All tests."""
    for test in (of_headers, of_differences, of_routes, of_latencies, of_tables):
        test()
