"""The tables of docs/peers.md and the line of README.md, from the reports in lpm-bench/results.

usage: python3 -m against.table [--check]     --check: exit 1 if they are not as the reports say"""

import json
import sys
from pathlib import Path

RESULTS, PAGE, README = Path("lpm-bench/results"), Path("docs/peers.md"), Path("README.md")
TRAFFIC = {"v4": "IPv4", "v6": "IPv6", "mix": "both"}
BEGIN, END = "<!-- written by scripts/against.sh --table -->", "<!-- end of generated text -->"
ENGINE = "host"
NAMES = {"l3fwd": "l3fwd", "l3fwd-256": "l3fwd in bursts of 256", "testpmd": "testpmd", "grout": "grout", "vpp": "VPP"}


def table(heads, rows):
    """A table of Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


def rates_of(report):
    """Mpps of each peer's form: {(title, packets): {traffic: (peer, ours)}}. Ours is from the same comparison."""
    found = {}
    group = []
    for row in report.get("rows", []) + [None]:
        if row is None or (group and row["peer"] != "fwd-app" and group[-1]["peer"] == "fwd-app"):
            ours = next((r["mpps"] for r in group if r["peer"] == "fwd-app" and r["form"] == ENGINE), None)
            for one in group:
                if one["peer"] != "fwd-app" and ours:
                    found.setdefault((one["name"], one["packets"]), {})[one["traffic"]] = (one["mpps"], ours)
            group = []
        if row is not None:
            group.append(row)
    return found


def peer_of(report, title):
    return next(row["peer"] for row in report["rows"] if row["name"] == title)


def rate_table(reports):
    """`ratio (ours / peer)` by traffic."""
    rows = []
    for report in reports:
        for (title, packets), by_traffic in rates_of(report).items():
            cells = []
            for kind in TRAFFIC:
                peer, ours = by_traffic.get(kind, (None, None))
                cells.append(f"**{ours / peer:.1f}** ({ours:.1f} / {peer:.1f})" if peer else "")
            ports, hops = report.get("ports", 4), report.get("next_hops", 4)
            burst = report["burst"]
            order = (list(NAMES).index(title.split()[0]), title, report["machine"], ports, packets, burst)
            rows.append((order, [title, report["machine"], f"{packets:,}", f"{ports}", f"{hops:,}", f"{burst}", *cells]))
    return table(["forwarder", "machine", "packets", "ports", "next hops", "burst", *TRAFFIC.values()], [row for _, row in sorted(rows)])


def check_table(reports):
    """The checked packets of each form, from the newest report with a check of that form."""
    checks = {}
    for report in reports:
        for title, check in report.get("checks", {}).items():
            checks[title] = check
    rows = []
    order = list(NAMES)
    for title, check in sorted(checks.items(), key=lambda item: order.index(item[0].split()[0]) if item[0].split()[0] in order else -1):
        differences = ", ".join(f"{what}: {count:,}" for what, count in check["differences"].items()) or "none"
        forwards = ", ".join(check["forwards"]) or "nothing"
        if title.startswith("testpmd"):
            forwards = "no lookup: forwards everything"
        rows.append([title, f"{check['right']:,} of {check['packets']:,}", differences, forwards])
    return table(["forwarder", "right", "differences", "forwards in error"], rows) if rows else ""


def latency_table(reports):
    """Percentiles in microseconds."""
    rows = []
    for report in reports:
        for row in report.get("latency", {}).get("rows", []):
            figures = [row[key] for key in ("p50_ns", "p99_ns", "p99_9_ns", "max_ns")]
            figures += [row["of_a_second"][key] for key in ("p99_9_ns", "max_ns")]
            cells = [f"{figure / 1e3:,.1f}" for figure in figures]
            share = f"{row['percent']} % ({row['mpps']:.2f} Mpps)"
            rows.append([row["name"], report["machine"], row["beside"], share, *cells, f"{row['cpu_share']:.1%}"])
    heads = ("p50", "p99", "p99.9", "greatest", "p99.9 of a second", "greatest of a second", "share of the CPU")
    return table(["forwarder", "machine", "control load", "load", *heads], rows) if rows else ""


def built_table(reports):
    """The version of each form, and how it is started."""
    rows = {}
    for report in reports:
        for title, note in report.get("forms", {}).items():
            name = title.split()[0]
            version = report.get(name, f"DPDK {report['dpdk']}" if name in ("l3fwd", "l3fwd-256", "testpmd") else "")
            rows[title] = [title, version, note]
    return table(["forwarder", "version", "started with"], list(rows.values())) if rows else ""


def of_reports(reports):
    """All tables that these reports give."""
    found = {
        "Ratio of `host` to each forwarder, and both rates in Mpps per CPU": rate_table([report for report in reports if "rows" in report]),
        "Every packet of a check": check_table(reports),
        "Latencies in µs; load in percent of the rate that l3fwd reaches alone": latency_table(reports),
        "The forwarders": built_table(reports),
    }
    return "\n\n".join(f"### {head}\n\n{text}" for head, text in found.items() if text and text.count("\n") > 1)


def sentence(reports):
    """For README.md: the least and the greatest ratio to the faster form of each forwarder that looks routes up, by machine."""
    least, ratios = {}, {}
    for report in (report for report in reports if "rows" in report):
        where = (report["machine"], report.get("ports"), report.get("next_hops"))
        for (title, packets), by_traffic in rates_of(report).items():
            for kind, (peer, ours) in by_traffic.items():
                at = (peer_of(report, title), *where, packets, kind)
                least[at] = min(ours / peer, least.get(at, ours / peer))
    for (peer, machine, *_), ratio in least.items():
        ratios.setdefault((peer, machine), []).append(ratio)
    parts = []
    for peer, name in NAMES.items():
        machines = [f"{min(v):.1f} to {max(v):.1f} on {machine}" for (p, machine), v in sorted(ratios.items()) if p == peer]
        if machines and peer != "testpmd":
            parts.append(f"{name} {', '.join(machines)}")
    return f"`{ENGINE}` forwards this many times as much, by traffic: {'; '.join(parts)}."


def put(path, text):
    """Replaces the text between the two marks of the file."""
    old = path.read_text(encoding="utf-8")
    before, rest = old.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return old, f"{before}{BEGIN}\n{text}\n{END}{after}"


def main():
    if "--check" in sys.argv:
        from . import selftest  # it tests this module, too

        selftest.run()
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("against-*.json"))]
    failed = 0
    for path, text in ((PAGE, "\n" + of_reports(reports) + "\n"), (README, sentence(reports))):
        old, new = put(path, text)
        if "--check" in sys.argv:
            if old != new:
                print(f"{path} differs from the reports in {RESULTS}: run scripts/against.sh --table")
                failed = 1
        else:
            path.write_text(new, encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
