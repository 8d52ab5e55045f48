"""Compares every packet that a forwarder sends with the expected packet, and finds which invalid packets it forwards.

A capture is received once: packets to routes of the table, and a few of each kind of invalid packet. net_capture.c writes the packets sent
by each port to a file. Lookups are done by a second implementation here, from the rule files."""

import collections
import random
import socket
import time

from . import forwarder, page, traffic

EACH = 16
SETTLED_S = 1.0
WAIT_S = 60


class Routes:
    """The longest prefixes of rule files that match some addresses, and their ports. Only what these addresses need is kept."""

    def __init__(self, rules, addresses):
        wanted = collections.defaultdict(list)
        for address in set(addresses):
            value, bits = int.from_bytes(address, "big"), len(address) * 8
            for length in range(bits + 1):
                wanted[bits, length, value >> (bits - length)].append(address)
        self.found = {}
        for path in rules:
            with open(path, encoding="ascii") as lines:
                for line in lines:
                    if not line.startswith("R"):
                        continue
                    prefix, port = line[1:].split()[:2]
                    text, length = prefix.split("/")
                    packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
                    bits, length = len(packed) * 8, int(length)
                    for address in wanted.get((bits, length, int.from_bytes(packed, "big") >> (bits - length)), ()):
                        if length >= self.found.get(address, (-1, 0))[0]:
                            self.found[address] = (length, int(port))

    def port(self, address):
        """The port, or None without a route."""
        return self.found[address][1] if address in self.found else None


def destination(frame):
    """The destination address of an IP packet, packed."""
    return frame[30:34] if frame[12:14] == traffic.TYPES[4] else frame[38:54]


def with_header(frame, offset, changed, sum_again=True):
    """The frame with other bytes in its IP header."""
    frame = frame[: 14 + offset] + changed + frame[14 + offset + len(changed) :]
    if sum_again and frame[12:14] == traffic.TYPES[4]:
        header = frame[14:24] + b"\0\0" + frame[26:34]
        frame = frame[:24] + traffic.checksum(header).to_bytes(2, "big") + frame[26:]
    return frame


def bad_frames(rules, routes_of, rng):
    """Packets that a router must not forward, by their fault."""
    v4, v6 = traffic.prefixes(rules[0]), traffic.prefixes(rules[1])

    def some(prefixes, number, **options):
        return traffic.frame(traffic.destination(rng.choice(prefixes), rng), number, **options)

    bad = {}
    for k in range(EACH):
        n = 100_000 + k * 100
        good4, good6 = some(v4, n), some(v6, n)
        frames = {
            "IPv4 checksum is wrong": good4[:24] + bytes((good4[24] ^ 0x55,)) + good4[25:],
            "TTL is 1": some(v4, n + 1, ttl=1),
            "TTL is 0": some(v4, n + 2, ttl=0),
            "hop limit is 1": some(v6, n + 3, ttl=1),
            "IPv4 length is beyond the frame": with_header(some(v4, n + 4), 2, b"\x05\xdc"),
            "IPv6 length is beyond the frame": with_header(some(v6, n + 5), 4, b"\x05\xdc"),
            "IP version is 5": with_header(some(v4, n + 6), 0, b"\x55"),
            "IPv4 header is too short": with_header(some(v4, n + 7), 0, b"\x44", sum_again=False),
            "source is 127.0.0.1": some(v4, n + 8, source=socket.inet_aton("127.0.0.1")),
            "source is multicast": some(v4, n + 9, source=socket.inet_aton("224.0.0.5")),
            "source is link-local": some(v6, n + 10, source=socket.inet_pton(socket.AF_INET6, "fe80::9")),
            "destination MAC is another's": some(v4, n + 11, router=bytes.fromhex("0200000000aa")),
            "frame is not IP": good6[:12] + b"\x88\xb5" + good6[14:],
        }
        for what, frame in frames.items():
            bad.setdefault(what, []).append(frame)
    candidates = [bytes((rng.randrange(1, 126),)) + rng.randbytes(3) for _ in range(4096)]
    candidates += [b"\x20\x01" + rng.randbytes(14) for _ in range(256)]
    known = routes_of(candidates)
    missing = [address for address in candidates if known.port(address) is None]
    bad["there is no route"] = [traffic.frame(address, 200_000 + k) for k, address in enumerate(missing[:EACH])]
    return {what: frames for what, frames in bad.items() if frames}


def key(frame):
    """The part of a packet that forwarding keeps: everything after the Ethernet header except TTL or hop limit and checksum."""
    if frame[12:14] == traffic.TYPES[4]:
        return frame[12:22] + frame[23:24] + frame[26:]
    return frame[12:21] + frame[22:]


def differences(wanted, port, frame, is_next_hop=lambda mac, port: None):
    """The faults of a packet sent by `port`. `wanted` is the result of `Peer.expected`."""
    wanted_port, expected = wanted
    found = set()
    if port != wanted_port:
        found.add("wrong port")
    known_mac = is_next_hop(frame[:6], port)
    if not (frame[:6] == expected[:6] if known_mac is None else known_mac):
        found.add("wrong destination MAC")
    if frame[6:12] != expected[6:12]:
        found.add("wrong source MAC")
    if frame[12:14] == traffic.TYPES[4]:
        if frame[22] != expected[22]:
            found.add("wrong TTL")
        if traffic.checksum(frame[14:34]) != 0:
            found.add("wrong checksum")
    elif frame[21] != expected[21]:
        found.add("hop limit kept" if frame[21] == expected[21] + 1 else "wrong hop limit")
    if not found and frame[12:] != expected[12:]:
        found.add("changed otherwise")
    return found


def capture_of(path, rules, packets, with_bad):
    """Writes the capture of a check. Returns the valid packets, the invalid ones by their fault, and the routes that they need."""
    good = traffic.frames(rules, packets)
    bad = bad_frames(rules, lambda addresses: Routes(rules, addresses), random.Random(2)) if with_bad else {}
    every, frames = packets // (1 + sum(map(len, bad.values()))), list(good)
    for number, frame in enumerate(frame for some in bad.values() for frame in some):
        frames.insert(number * (every + 1), frame)
    traffic.write(path, frames)
    return good, bad, Routes(rules, [destination(frame) for frame in good])


def check(peer, material):
    """Runs a peer over the capture of `capture_of`. Returns its part of the report."""
    good, bad, routes = material
    with forwarder.start(peer) as one:
        one.go_on()
        one.run.page.order(page.RUN, 1)
        count = len(good) + sum(map(len, bad.values()))
        one.wait_for(lambda: one.run.page.received() >= count, WAIT_S)
        last = -1
        while last != one.run.page.sent():
            last = one.run.page.sent()
            time.sleep(SETTLED_S)
        sent = [(port, frame) for port in range(peer.run.ports) for frame in read_port(peer.run.sent, port)]
    wanted = collections.defaultdict(list)
    for frame in good:
        expected = peer.expected(frame, routes.port(destination(frame)))
        wanted[key(expected[1])].append(expected)
    bad_keys = {}
    for what, frames in bad.items():
        for frame in frames:
            bad_keys[key(frame)] = what
    report = {"packets": len(good), "right": 0, "differences": collections.Counter(), "forwards": collections.Counter(), "of_its_own": 0}
    for port, frame in sent:
        expected = wanted.get(key(frame))
        if expected:
            found = differences(expected.pop(), port, frame, peer.is_next_hop)
            report["differences"].update(found)
            report["right"] += not found
        elif key(frame) in bad_keys:
            report["forwards"][bad_keys[key(frame)]] += 1
        else:
            report["of_its_own"] += 1
    lost = sum(map(len, wanted.values()))
    if lost:
        report["differences"]["lost"] = lost
    report["differences"], report["forwards"] = dict(report["differences"]), dict(sorted(report["forwards"].items()))
    unknown = set(report["differences"]) - peer.known
    print(f"  {peer.run.name}: {report['right']} of {len(good)} packets right, {report['differences'] or 'no differences'}", flush=True)
    if peer.looks_up:
        print(f"    forwards in error: {', '.join(report['forwards']) or 'nothing'}", flush=True)
    if unknown:
        raise forwarder.Failed(f"{peer.run.name} forwards wrongly: {report['differences']}; what it sent is in {peer.run.sent}")
    return report


def read_port(folder, port):
    """The packets sent by a port."""
    path = folder / f"port{port}.pcap"
    return traffic.read(path) if path.exists() else []
