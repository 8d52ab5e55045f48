#!/usr/bin/env python3
"""Replays every capture of some folders with --verify and sorts them by what came of it; see foreign-captures.sh."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# A capture of a test suite has a few packets; one that takes longer hangs.
LIMIT_S = 120
# What captures are called; a folder of tests has more than captures.
CAPTURES = {".pcap", ".pcapng", ".cap", ".dmp", ".gz", ".bz2", ".xz", ".zst"}
# All addresses have a route; some of them several.
ROUTES = "0.0.0.0/1 1\n128.0.0.0/1 2\n10.0.0.0/8 3\n192.168.0.0/16 4\n192.168.1.0/24 5\n::/0 2\nfe80::/10 3\n2001::/16 4\n"
# A refusal, by what its message says; the first that fits.
REFUSALS = [
    (r"link type (-?\d+)( \([^)]*\))?", "link type {0}{1}"),
    (r"this is no capture", "no pcap or pcapng"),
    (r"the file is empty", "no pcap or pcapng"),
    (r"there is no packet in it", "no packet in it"),
    (r"cut short within its first packet", "cut short in its first packet"),
    (r"the next block is damaged", "a damaged block"),
    (r"a block of more than", "a damaged block"),
]


def outcome(app, capture, routes, stream):
    """What came of a capture: a kind, details, and the packets that were checked."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [app, "replay", capture, "--fib", routes, "--no-huge", "--verify", "--json", report.name]
        command += ["--stream", "always"] if stream else []
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "FAULT", f"runs for more than {LIMIT_S} s", 0
        # It was replaced as a whole.
        text = Path(report.name).read_text()
    said = ran.stderr.strip()
    if ran.returncode not in (0, 1):
        return "FAULT", f"exit code {ran.returncode}: {said}", 0
    if text:
        summary = json.loads(text)
        packets, verify = summary["packets"], summary["verify"]
        if verify["mismatches"] or packets["held"] or verify["checked"] < packets["rx"]:
            return "FAULT", said or f"{verify}", verify["checked"]
        stream_error = (summary["trace"].get("stream") or {}).get("error")
        if stream_error and packets["rx"]:
            return "forwarded up to its damage", refusal(stream_error) or stream_error, packets["rx"]
        if not stream_error and (ran.returncode == 0 or "nothing was sent" in said):
            kind = "forwarded" if packets["tx"] else "all dropped, as the reference says"
            return kind, "cut short at its end" if summary["truncated"] else "", packets["rx"]
    why = refusal(said)
    return ("refused", why, 0) if why and ran.returncode == 1 else ("FAULT", f"exit code {ran.returncode}: {said}", 0)


def refusal(said):
    """The reason in a message, in short; `None` for one that is not known."""
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
    results, kinds, faults = [], Counter(), 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as routes:
        routes.write(ROUTES)
        routes.flush()
        for folder in arguments.folders:
            files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix in CAPTURES)
            for file in files:
                kind, detail, packets = outcome(arguments.app, str(file), routes.name, arguments.stream)
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
