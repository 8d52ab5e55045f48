"""Writes and reads captures: pcap in both byte orders and both resolutions, pcapng in both byte orders.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. A record is (time_ns, frame, wire_bytes): the frame as captured and
its length on the wire, which is larger where the capture cut it.
"""

import struct

LINKTYPE_ETHERNET = 1
SNAP_BYTES = 262144
MAGIC_US, MAGIC_NS = 0xA1B2C3D4, 0xA1B23C4D
NS = 1_000_000_000


def pcap(records, order="<", ns=False):
    """The bytes of a pcap file; `order` is struct's '<' or '>', `ns` chooses nanoseconds instead of microseconds."""
    out = [struct.pack(order + "IHHiIII", MAGIC_NS if ns else MAGIC_US, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_ETHERNET)]
    for time_ns, frame, wire_bytes in records:
        fraction = time_ns % NS if ns else time_ns % NS // 1000
        out += [struct.pack(order + "IIII", time_ns // NS, fraction, len(frame), wire_bytes), frame]
    return b"".join(out)


def read_pcap(data):
    """The records of a pcap file: the inverse of `pcap`, up to the resolution."""
    for order in "<>":
        magic = struct.unpack(order + "I", data[:4])[0]
        if magic in (MAGIC_US, MAGIC_NS):
            break
    else:
        raise ValueError(f"no pcap magic: {data[:4].hex()}")
    unit_ns = 1 if magic == MAGIC_NS else 1000
    at, records = 24, []
    while at < len(data):
        seconds, fraction, size, wire_bytes = struct.unpack(order + "IIII", data[at : at + 16])
        records.append((seconds * NS + fraction * unit_ns, data[at + 16 : at + 16 + size], wire_bytes))
        at += 16 + size
    return records


def _padded(data):
    return data + bytes(-len(data) % 4)


def _block(order, kind, body):
    total = 12 + len(body)
    return struct.pack(order + "II", kind, total) + body + struct.pack(order + "I", total)


def _option(order, code, value):
    return struct.pack(order + "HH", code, len(value)) + _padded(value)


def pcapng(records, order="<", ns=False, comments=()):
    """The bytes of a pcapng file.

    Section header, one interface, an enhanced packet block a record and interface statistics at the end, so that a reader meets
    options and a block that holds no packet. With `ns` the interface says if_tsresol 9, else it says nothing, which means
    microseconds. `comments` maps a record's index to a comment.
    """
    comments = dict(comments)
    end = struct.pack(order + "HH", 0, 0)
    section = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + _option(order, 4, b"make_captures.py") + end
    resolution = _option(order, 9, b"\x09") if ns else b""
    interface = struct.pack(order + "HHI", LINKTYPE_ETHERNET, 0, SNAP_BYTES) + _option(order, 2, b"port0") + resolution + end
    out = [_block(order, 0x0A0D0D0A, section), _block(order, 1, interface)]
    for index, (time_ns, frame, wire_bytes) in enumerate(records):
        ticks = time_ns if ns else time_ns // 1000
        body = struct.pack(order + "IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), wire_bytes) + _padded(frame)
        if index in comments:
            body += _option(order, 1, comments[index].encode()) + end
        out.append(_block(order, 6, body))
    last = (records[-1][0] if ns else records[-1][0] // 1000) if records else 0
    received = _option(order, 4, struct.pack(order + "Q", len(records)))
    out.append(_block(order, 5, struct.pack(order + "III", 0, last >> 32, last & 0xFFFFFFFF) + received + end))
    return b"".join(out)


def read_pcapng(data):
    """The records of a pcapng file written by `pcapng` (one section, one interface)."""
    order = "<" if data[8:12] == struct.pack("<I", 0x1A2B3C4D) else ">"
    at, unit_ns, records = 0, 1000, []
    while at < len(data):
        kind, total = struct.unpack(order + "II", data[at : at + 8])
        body = data[at + 8 : at + total - 4]
        if kind == 1 and _option(order, 9, b"\x09") in body:
            unit_ns = 1
        elif kind == 6:
            _, high, low, size, wire_bytes = struct.unpack(order + "IIIII", body[:20])
            records.append(((high << 32 | low) * unit_ns, body[20 : 20 + size], wire_bytes))
        at += total
    return records
