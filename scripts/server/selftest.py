"""Tests of the comparison itself, which need no machine: a frame that is wrong, missing or out of order must not pass. Run at each start."""

from types import SimpleNamespace

from . import frames
from .machine import Failed

# A textbook's IPv4 header, with TTL 64 and checksum b861; decrementing the TTL adds one to its high byte (RFC 1624).
BEFORE = bytes.fromhex("45000073000040004011b861c0a80001c0a800c7")
AFTER = bytes.fromhex("45000073000040003f11b961c0a80001c0a800c7")


def host(side, number):
    """As much of a host as a stream needs."""
    card = SimpleNamespace(side=side, mac=f"02:f0:00:00:0{number}:01")
    return SimpleNamespace(card=card, mac=f"02:aa:00:00:0{number}:01")


def stream(count):
    """A stream of `count` frames, of which all are on their way."""
    made = frames.Stream(host("left", 0), host("right", 1), frames.sizes("right", range(100, 100 + count), [[]])[:count])
    made.next = count
    return made


def must(condition, what):
    """Fails with `what`."""
    if not condition:
        raise Failed(f"self-test: {what}")


def run():
    """All tests."""
    head = bytes.fromhex("02f00000000102aa000000010800")
    sent = frames.forwarded(head + BEFORE + bytes(26), b"\x01" * 6, b"\x02" * 6)
    must(sent == b"\x02" * 6 + b"\x01" * 6 + b"\x08\x00" + AFTER + bytes(26), f"the checksum of {sent.hex()}")
    whole = stream(8)
    for frame in whole.wanted:
        whole.take(frame)
    must(whole.is_done() and not whole.faults(), "what arrives whole has no faults")
    for place in (0, 15, 22, 70):
        spoilt = stream(8)
        frame = bytearray(spoilt.wanted[0])
        frame[place] ^= 1
        for arrived in [bytes(frame), *spoilt.wanted[1:]]:
            spoilt.take(arrived)
        must(len(spoilt.wrong) == 1 and len(spoilt.faults()) == 2, f"byte {place} is not compared")
    swapped = stream(8)
    for place in (1, 0, 2, 3, 4, 5, 6, 7):
        swapped.take(swapped.wanted[place])
    must(swapped.faults(), "order is not compared")
    short = stream(8)
    for frame in short.wanted[:-1]:
        short.take(frame)
    must(not short.is_done() and short.faults(), "a lost frame is not noticed")
