#!/usr/bin/env python3
"""Makes the captures in pcap/, their route table and the golden results next to them.

Everything follows from seeds in scripts/captures/, so a second run writes the same bytes, on any host and Python from 3.9 on.
Only the standard library is used. The golden results come from scripts/captures/forwarder.py, a plain router written from the
RFCs that shares nothing with the Rust datapath.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # leave no __pycache__ in the source tree

from captures import bad, formats, forwarder, links, mix, selftest  # noqa: E402

HERE = Path(__file__).resolve().parent
EXAMPLES = """examples:
  make_captures.py                   write pcap/ anew
  make_captures.py --check           exit 1 if a file in pcap/ is not what would be written
  make_captures.py --self-test       run the script's own tests
  make_captures.py --out /tmp/x      write elsewhere
"""


def golden(name, capture_seed, records, notes, frames_in_full, routes="routes.txt"):
    """The text of a golden file: a head, then one packet a line so that a change shows in a diff."""
    if routes == "routes.txt":
        table = forwarder.Table(mix.routes())
    else:
        table = forwarder.Table(links.routes(), links.neighbours())
    packets, drops = [], {}
    sent = [{"packets": 0, "bytes": 0} for _ in range(forwarder.PORTS)]
    streams = [hashlib.sha256() for _ in range(forwarder.PORTS)]
    for index, ((_, frame, _), note) in enumerate(zip(records, notes)):
        verdict, port, hop, out = forwarder.forward(frame, table)
        entry = {"index": index, "note": note, "verdict": verdict}
        if verdict == "tx":
            entry.update(port=port, next_hop=hop if isinstance(hop, int) else None)
            entry["out_hex" if frames_in_full else "out_sha256"] = out.hex() if frames_in_full else hashlib.sha256(out).hexdigest()
            sent[port]["packets"] += 1
            sent[port]["bytes"] += len(out)
            streams[port].update(out)
        else:
            drops[verdict] = drops.get(verdict, 0) + 1
        packets.append(entry)
    head = {
        "capture": name,
        "routes": routes,
        "seed": capture_seed,
        "ports": forwarder.PORTS,
        "mtu_bytes": forwarder.MTU_BYTES,
        "source_macs": [mac.hex(":") for mac in forwarder.SOURCE_MACS],
        "totals": {"rx": len(records), "tx": sum(s["packets"] for s in sent), "drops": dict(sorted(drops.items()))},
        "tx_by_port": [{**s, "frames_sha256": h.hexdigest()} for s, h in zip(sent, streams)],
    }
    lines = json.dumps(head, indent=2)[:-2] + ',\n  "packets": [\n    '
    return lines + ",\n    ".join(json.dumps(entry) for entry in packets) + "\n  ]\n}\n"


def routes_text():
    """routes.txt: a head of comments, then `PREFIX ID` lines."""
    lines = ["# The table for the captures in this folder, written by scripts/make_captures.py.", f"# PREFIX ID; seed {mix.SEED}."]
    return "\n".join(lines + [f"{prefix} {hop}" for prefix, hop in mix.routes()]) + "\n"


def bad_records():
    """(records, notes) of bad.pcap: a millisecond apart, the last one cut by the capture and not by the sender."""
    cases = bad.cases()
    records = [(mix.START_NS + i * 1_000_000, frame, len(frame)) for i, (_, _, frame) in enumerate(cases)]
    notes = [note for note, _, _ in cases]
    whole = bad.eth4(size=600)
    records.append((mix.START_NS + len(cases) * 1_000_000, whole[:96], len(whole)))
    return records, notes + ["ipv4 of 628 bytes, 96 captured"]


def files():
    """Every file of the folder: name -> bytes."""
    records, notes = mix.mix()
    wrong, wrong_notes = bad_records()
    linked = [(mix.START_NS + i * 1_000_000, case[-1], len(case[-1])) for i, case in enumerate(links.cases())]
    link_notes = [case[0] for case in links.cases()]
    out = {
        "routes.txt": routes_text().encode(),
        "mix.pcap": formats.pcap(records),
        "mix.pcapng": formats.pcapng(records, ns=True, comments={0: "the first packet", 7: "a comment before more packets"}),
        "mix-ns.pcap": formats.pcap(records[:500], ns=True),
        "mix-be.pcap": formats.pcap(records[:200], order=">"),
        "mix-be.pcapng": formats.pcapng(records[:200], order=">"),
        "bad.pcap": formats.pcap(wrong),
        "links.txt": links.text().encode(),
        "links.pcap": formats.pcap(linked),
        "links.golden.json": golden("links.pcap", None, linked, link_notes, True, "links.txt").encode(),
        "mix.golden.json": golden("mix.pcap", mix.SEED + 1, records, notes, False).encode(),
        "bad.golden.json": golden("bad.pcap", None, wrong, wrong_notes, True).encode(),
    }
    out["README.md"] = readme(len(records), len(wrong), len(linked)).encode()
    return out


def readme(mix_count, bad_count, links_count):
    """README.md of the folder, with the counts as they are."""
    v4 = sum(":" not in prefix for prefix, _ in mix.routes())
    return f"""# Captures

`scripts/make_captures.py` writes all files of this folder, this page included, with the same bytes every time;
`scripts/make_captures.py --check` compares them. All packets are synthetic. Addresses are from the ranges for documentation,
benchmarks and private use.

| file | packets | seed | contents |
|---|---|---|---|
| `routes.txt` | | {mix.SEED} | {len(mix.routes())} routes ({v4} IPv4, {len(mix.routes()) - v4} IPv6), `PREFIX ID`, nested, up to /32 and /128, without a default route |
| `mix.pcap` | {mix_count} | {mix.SEED + 1} | IPv4 and IPv6, UDP and TCP, 60 to 1514 bytes plus tags, some with VLAN or QinQ tags, fragments, options or no route; exponential gaps, 100 kpps; microseconds |
| `mix.pcapng` | {mix_count} | {mix.SEED + 1} | the same as pcapng with nanoseconds, two comments and an interface statistics block |
| `mix-ns.pcap` | 500 | {mix.SEED + 1} | the first packets of `mix.pcap`, nanoseconds |
| `mix-be.pcap` | 200 | {mix.SEED + 1} | the first packets of `mix.pcap`, big-endian |
| `mix-be.pcapng` | 200 | {mix.SEED + 1} | the first packets of `mix.pcap`, big-endian pcapng with microseconds |
| `bad.pcap` | {bad_count} | none | one packet of every kind that is not forwarded, each next to a similar one that is; the notes in the golden file name them |
| `links.txt` | | none | {len(links.routes())} routes in iproute2's syntax: gateways, links, blackholes and other routes that drop, a multipath route, default routes, l3fwd rules; {len(links.NEIGHBOURS)} neighbours |
| `links.pcap` | {links_count} | none | packets for `links.txt`: to every kind of next hop, with and without a neighbour or a port, plain and tagged |

Each `*.golden.json` has the correct result for each packet, with the table, the source MACs, the {forwarder.PORTS} ports and the MTU of {forwarder.MTU_BYTES} bytes
given in its head. `verdict` is `tx` or a drop reason. For `tx` there are the egress `port`, the `next_hop` id (null for a gateway, whose
id is assigned by the reader of the table) and the frame sent (`out_hex`, or its hash `out_sha256`). `tx_by_port[].frames_sha256` is the
hash over all frames of a port, in order of arrival. The first 500 or 200 entries of `mix.golden.json` also apply to the shorter files.

The results come from `scripts/captures/forwarder.py`, which was written from RFC 791, 1071, 1624, 1812, 4291 and 8200 and shares no code
with the datapath. Every verdict of `bad.pcap` and `links.pcap` was also written down by hand (`scripts/captures/bad.py`, `links.py`), and
the two must agree.
"""


def check(folder):
    """True where `folder` holds exactly what would be written."""
    wanted, good = files(), True
    for name, data in wanted.items():
        path = folder / name
        if not path.is_file():
            print(f"{path}: missing", file=sys.stderr)
            good = False
        elif path.read_bytes() != data:
            print(f"{path}: differs from what scripts/make_captures.py writes", file=sys.stderr)
            good = False
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        if path.name not in wanted:
            print(f"{path}: not written by scripts/make_captures.py", file=sys.stderr)
            good = False
    return good


def main():
    """Reads the command line; exit 0 done, 1 a difference, a failed test or a file that cannot be written, 2 bad usage."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", metavar="DIR", type=Path, default=HERE.parent / "pcap", help="the folder (default: pcap/)")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="compare DIR with what would be written, write nothing")
    action.add_argument("--self-test", action="store_true", help="run the script's own tests, write nothing")
    options = parser.parse_args()
    if options.self_test:
        return 0 if selftest.run() else 1
    if options.check:
        good = check(options.out)
        print(f"{options.out}: {'up to date' if good else 'not up to date'}")
        return 0 if good else 1
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name, data in files().items():
            (options.out / name).write_bytes(data)
            print(f"{options.out / name}: {len(data)} bytes")
    except OSError as error:
        print(f"make_captures.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
