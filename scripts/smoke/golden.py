#!/usr/bin/env python3
"""Compares the packets and counters of a forwarder with a golden file: `golden.py GOLDEN DIR [REPORT] [--any-source]`.

DIR holds port0.pcap, port1.pcap ..; every frame of every port has to be the golden one, in order of arrival. REPORT is the
forwarder's JSON; its packets.rx, packets.tx and packets.drops have to be the golden totals. With --any-source the source MACs
may be others than the golden file's (`run` uses the ports' own), as long as a port has one.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from captures import formats  # noqa: E402


def wrong_frames(golden, folder, any_source):
    """The faults of the captures, one line each."""
    for port in range(golden["ports"]):
        path = folder / f"port{port}.pcap"
        frames = [frame for _, frame, _ in formats.read_pcap(path.read_bytes())] if path.is_file() else []
        wanted = [entry for entry in golden["packets"] if entry.get("port") == port]
        if len(frames) != len(wanted):
            yield f"{path}: {len(frames)} frames, golden {len(wanted)}"
            continue
        if any_source:
            if len({frame[6:12] for frame in frames}) > 1:
                yield f"{path}: more than one source MAC"
            source = bytes.fromhex(golden["source_macs"][port].replace(":", ""))
            frames = [frame[:6] + source + frame[12:] for frame in frames]
        for frame, entry in zip(frames, wanted):
            good = frame.hex() == entry["out_hex"] if "out_hex" in entry else hashlib.sha256(frame).hexdigest() == entry["out_sha256"]
            if not good:
                yield f"{path}: packet {entry['index']} ({entry['note']}) came out as {frame.hex()}"
                break


def wrong_totals(golden, report):
    """The faults of the counters."""
    packets, totals = report["packets"], golden["totals"]
    drops = {reason: count for reason, count in packets["drops"].items() if count}
    for name, got, wanted in (
        ("rx", packets["rx"], totals["rx"]), ("tx", packets["tx"], totals["tx"]), ("drops", drops, totals["drops"]),
    ):  # fmt: skip
        if got != wanted:
            yield f"packets.{name}: {got}, golden {wanted}"


def main():
    """Exit 0 equal, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("report", type=Path, nargs="?")
    parser.add_argument("--any-source", action="store_true")
    options = parser.parse_args()
    golden = json.loads(options.golden.read_text())
    faults = list(wrong_frames(golden, options.folder, options.any_source))
    if options.report:
        faults += wrong_totals(golden, json.loads(options.report.read_text()))
    for line in faults:
        print(line, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
