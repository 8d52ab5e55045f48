"""Frames that hosts send, and what the forwarder must make of each: byte by byte, in order, between two hosts.

What must arrive is computed here from the frame that was sent, and with nothing of the forwarder: MAC addresses, TTL or hop limit, and the
checksum of the IPv4 header, anew. All other bytes are as sent.
"""

import ipaddress
import select
import time
from pathlib import Path

from captures import formats
from captures import packets as p

# Frames on their way in each direction at most: fewer than a ring, a TAP or a card's queue holds. The longest fill five of a ring's 1,024 buffers.
WINDOW = 128
# Nothing arrives any more. Machines are slow under emulation.
SILENCE_S = 20
PCAP = Path(__file__).resolve().parents[2] / "pcap" / "mix.pcap"
LINKS = [ipaddress.ip_network(net) for net in ("198.18.1.0/24", "198.18.2.0/24", "fd00:1::/64", "fd00:2::/64")]
TPIDS = {p.TPID_C, p.TPID_S, p.TPID_OLD}


def ip_start(frame):
    """(EtherType behind all VLAN tags, where it ends)."""
    at = 12
    while int.from_bytes(frame[at : at + 2], "big") in TPIDS:
        at += 4
    return int.from_bytes(frame[at : at + 2], "big"), at + 2


def destination(frame):
    """The IP address that a frame is for."""
    ethertype, at = ip_start(frame)
    where = (at + 16, at + 20) if ethertype == p.ETHERTYPE_IPV4 else (at + 24, at + 40)
    return ipaddress.ip_address(frame[where[0] : where[1]])


def side_of(address):
    """The side of the host that the forwarder's routes send this address to."""
    return "right" if address.packed[0] >= 128 else "left"


def is_neighbourly(frame):
    """Whether it is ARP, or ICMPv6 about links and groups (130 to 143): what hosts and router say of themselves."""
    ethertype, at = ip_start(frame)
    if ethertype != p.ETHERTYPE_IPV6:
        return ethertype != p.ETHERTYPE_IPV4
    # Reports of groups have a hop-by-hop header in front.
    icmp = at + 48 if frame[at + 6] == 0 and frame[at + 40] == 58 else at + 40
    return (frame[at + 6] == 58 or icmp == at + 48) and 130 <= frame[icmp] <= 143


def forwarded(frame, source_mac, target_mac):
    """The frame that must arrive."""
    ethertype, at = ip_start(frame)
    out = bytearray(target_mac + source_mac + frame[12:])
    if ethertype == p.ETHERTYPE_IPV4:
        header = 4 * (out[at] & 15)
        out[at + 8] -= 1
        out[at + 10 : at + 12] = bytes(2)
        out[at + 10 : at + 12] = p.checksum(bytes(out[at : at + header])).to_bytes(2, "big")
    else:
        out[at + 7] -= 1
    return bytes(out)


def mac_bytes(text):
    """The six bytes of a MAC."""
    return bytes.fromhex(text.replace(":", ""))


class Stream:
    """Frames from one host to the other: each as it is sent and as it must arrive."""

    def __init__(self, source, target, frames):
        head = mac_bytes(source.card.mac) + mac_bytes(source.mac)
        pairs = {}
        for frame in set(frames):
            sent = head + frame[12:]
            pairs[frame] = (sent, forwarded(sent, mac_bytes(target.card.mac), mac_bytes(target.mac)))
        self.name = f"{source.card.side} to {target.card.side}"
        self.router_mac = mac_bytes(target.card.mac)
        self.sent, self.wanted = ([pairs[frame][n] for frame in frames] for n in (0, 1))
        self.source, self.target = source, target
        self.next = self.arrived = 0
        self.lost, self.wrong = 0, []

    def is_done(self):
        """Whether every frame has arrived, or one behind it."""
        return self.arrived == len(self.wanted)

    def send(self, wire):
        """Sends as many frames as the window permits; returns whether it sent any."""
        before = self.next
        while self.next < min(len(self.sent), self.arrived + WINDOW) and wire.send(self.sent[self.next]):
            self.next += 1
        return self.next > before

    def take(self, frame):
        """Compares a frame that has arrived with the next one that must."""
        if frame[6:12] != self.router_mac or is_neighbourly(frame):
            return
        for place in range(self.arrived, self.next):
            if self.wanted[place] == frame:
                self.lost += place - self.arrived
                self.arrived = place + 1
                return
        self.wrong.append(frame)

    def faults(self):
        """What was not as it must be, in words; empty if all was."""
        lost, faults = self.lost + len(self.wanted) - self.arrived, []
        if self.wrong:
            wanted = self.wanted[min(self.arrived, len(self.wanted) - 1)]
            faults.append(f"{len(self.wrong)} frames {self.name} are wrong, as {self.wrong[0][:80].hex()} near {wanted[:80].hex()}")
        if lost:
            faults.append(f"{lost} of {len(self.wanted)} frames {self.name} did not arrive")
        return faults


def exchange(streams):
    """Sends all streams at once and compares what arrives. What was wrong, in words; empty if nothing was."""
    wires = {stream.source: stream.source.wire() for stream in streams} | {stream.target: stream.target.wire() for stream in streams}
    try:
        heard = time.monotonic()
        while not all(stream.is_done() for stream in streams) and time.monotonic() < heard + SILENCE_S:
            is_busy = any([stream.send(wires[stream.source]) for stream in streams])
            select.select([wires[stream.target] for stream in streams], [], [], 0 if is_busy else 0.2)
            for stream in streams:
                while (frame := wires[stream.target].receive()) is not None:
                    stream.take(frame)
                    heard = time.monotonic()
    finally:
        for wire in wires.values():
            wire.close()
    return [fault for stream in streams for fault in stream.faults()]


def outer_tpid(frame):
    """The EtherType of a frame, or the TPID of its first VLAN tag."""
    return int.from_bytes(frame[12:14], "big")


def capture(side, count, without=()):
    """`count` frames of the bundled mix for hosts beyond this side, over and over; none is for a host on the two links, or has a first
    VLAN tag with one of these TPIDs."""
    records = formats.read_pcap(PCAP.read_bytes())
    chosen = [frame for _, frame, _ in records if side_of(destination(frame)) == side and outer_tpid(frame) not in without]
    chosen = [frame for frame in chosen if not any(destination(frame) in net for net in LINKS)]
    return (chosen * (count // len(chosen) + 1))[:count]


def sizes(side, bytes_range, stacks):
    """UDP of both families with IP packets of these sizes, with each stack of VLAN tags."""
    ipv4, ipv6 = ("203.0.113.9", "fd00:9::9") if side == "right" else ("100.64.9.9", "2001:db8:9::9")
    frames = []
    for number, size in enumerate(bytes_range):
        for tags in stacks:
            packet = p.ipv4_udp("192.168.7.7", ipv4, size - 28, ident=number)
            frames.append(p.pad(p.ethernet(p.ETHERTYPE_IPV4, packet, tags)))
            if size >= 68:
                packet = p.ipv6_udp("fd00:7::7", ipv6, size - 48, flow_label=number)
                frames.append(p.pad(p.ethernet(p.ETHERTYPE_IPV6, packet, tags)))
    return frames
