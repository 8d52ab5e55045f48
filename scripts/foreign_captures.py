#!/usr/bin/env python3
"""Replays every capture of some folders with --verify and sorts them by result; see foreign-captures.sh.

`captures.forwarder`, which shares no code with the forwarder and its oracle, checks every packet as received (--save-trace), too: the
packets sent by each port (--out), in order and byte for byte, and the drops.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from captures.formats import read_pcap
from captures.forwarder import PORTS, Table, forward, ip_offset
from captures.packets import ETHERTYPE_IPV4

# A capture of a test suite has few packets; a longer run hangs.
LIMIT_S = 120
CAPTURES = {".pcap", ".pcapng", ".cap", ".dmp", ".gz", ".bz2", ".xz", ".zst"}
ROUTES = [
    ("0.0.0.0/1", 1),
    ("128.0.0.0/1", 2),
    ("10.0.0.0/8", 3),
    ("192.168.0.0/16", 4),
    ("192.168.1.0/24", 5),
    ("::/0", 2),
    ("fe80::/10", 3),
    ("2001::/16", 4),
]
REFUSALS = [
    (r"link type (-?\d+)( \([^)]*\))?", "link type {0}{1}"),
    (r"this is no capture", "no pcap or pcapng"),
    (r"the file is empty", "no pcap or pcapng"),
    (r"there is no packet in it", "no packet in it"),
    (r"cut short within its first packet", "cut short in its first packet"),
    (r"the next block is damaged", "a damaged block"),
    (r"a block of more than", "a damaged block"),
]


def may_be_cut(frame):
    """Whether a packet above the MTU may leave as fragments, which `captures.forwarder` does not make: "don't fragment" is not set."""
    ethertype, at = ip_offset(frame)
    return ethertype == ETHERTYPE_IPV4 and not frame[at + 6] & 0x40


def second_opinion(received, sent, drops, table):
    """The differences of `captures.forwarder` to the packets sent, by port, and the drops; None if it agrees, or cannot judge fragments."""
    wanted, wanted_drops = [[] for _ in range(PORTS)], Counter()
    for _, frame, _ in read_pcap(received.read_bytes()):
        verdict, port, _, out = forward(frame, table)
        if verdict == "tx":
            wanted[port].append(out)
        elif verdict == "mtu_exceeded" and may_be_cut(frame):
            return None
        else:
            wanted_drops[verdict] += 1
    for port in range(PORTS):
        frames = [frame for _, frame, _ in read_pcap((sent / f"port{port}.pcap").read_bytes())]
        if frames != wanted[port]:
            return f"port {port} sent {len(frames)} packets that are not the {len(wanted[port])} of captures.forwarder"
    counted = {reason: count for reason, count in drops.items() if count}
    return None if counted == wanted_drops else f"dropped {counted}; captures.forwarder drops {dict(wanted_drops)}"


def outcome(app, capture, routes, table, stream):
    """The result of a capture: a kind, details, and the number of checked packets."""
    with tempfile.TemporaryDirectory() as folder:
        report, received, sent = (Path(folder) / name for name in ("report.json", "received.pcap", "sent"))
        command = [app, "replay", capture, "--fib", routes, "--no-huge", "--verify", "--json", report, "--out", sent]
        command += ["--stream", "always"] if stream else ["--save-trace", received]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "FAULT", f"runs for more than {LIMIT_S} s", 0
        said = ran.stderr.strip()
        if ran.returncode not in (0, 1):
            return "FAULT", f"exit code {ran.returncode}: {said}", 0
        if report.exists():
            summary = json.loads(report.read_text())
            packets, verify = summary["packets"], summary["verify"]
            if verify["mismatches"] or packets["held"] or verify["checked"] < packets["rx"]:
                return "FAULT", said or f"{verify}", verify["checked"]
            other = None if stream else second_opinion(received, sent, packets["drops"], table)
            if other:
                return "FAULT", other, packets["rx"]
            stream_error = (summary["trace"].get("stream") or {}).get("error")
            if stream_error and packets["rx"]:
                return "forwarded up to its damage", refusal(stream_error) or stream_error, packets["rx"]
            if not stream_error and (ran.returncode == 0 or "nothing was sent" in said):
                kind = "forwarded" if packets["tx"] else "all dropped, as the reference says"
                return kind, "cut short at its end" if summary["truncated"] else "", packets["rx"]
    why = refusal(said)
    return ("refused", why, 0) if why and ran.returncode == 1 else ("FAULT", f"exit code {ran.returncode}: {said}", 0)


def refusal(said):
    """The reason in a message, in short; `None` for an unknown one."""
    for pattern, short in REFUSALS:
        if found := re.search(pattern, said):
            return short.format(*(group or "" for group in found.groups()))
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", required=True)
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    results, kinds, faults, table = [], Counter(), 0, Table(ROUTES)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as routes:
        routes.writelines(f"{prefix} {hop}\n" for prefix, hop in ROUTES)
        routes.flush()
        for folder in arguments.folders:
            files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix in CAPTURES)
            for file in files:
                kind, detail, packets = outcome(arguments.app, str(file), routes.name, table, arguments.stream)
                results.append({"capture": str(file), "outcome": kind, "detail": detail, "packets": packets})
                kinds[kind, detail if kind != "FAULT" else ""] += 1
                if kind == "FAULT":
                    faults += 1
                    print(f"FAULT  {file}: {detail}", file=sys.stderr)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    packets = sum(result["packets"] for result in results)
    print(f"{len(results)} captures, {packets} packets checked against the reference, {faults} faults\n")
    totals = Counter()
    for (kind, _), count in kinds.items():
        totals[kind] += count
    for kind, total in totals.most_common():
        print(f"{total:6}  {kind}")
        for (of, detail), count in kinds.most_common():
            if of == kind and detail:
                print(f"        {count:6}  {detail}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
