"""The order of the parts and the JSON. Started by scripts/against.sh, which has built everything and reserved the pages."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from . import check, contest, latency, selftest, table, traffic
from .forwarder import Failed
from .page import Page
from .peers import PEERS, FwdApp, Testpmd


@dataclass
class Run:
    """The resources of one process of a forwarder."""

    name: str
    app: Path
    folder: Path
    scratch: Path
    page: Page
    capture: Path
    packets: int
    ports: int
    cpu: int
    other_cpu: int
    rules: list
    route_words: list
    hops: int
    burst: int
    sent: Path = None
    paced: bool = False
    more_words: tuple = ()


class Order:
    """The command line."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        others = sorted(os.sched_getaffinity(0) - {options.cpu})
        routes = options.routes or options.rules
        self.base = Run(
            name="", app=options.app, folder=options.folder, scratch=scratch, page=None, capture=None, packets=0, ports=options.ports,
            cpu=options.cpu, other_cpu=others[0] if others else options.cpu, rules=options.rules,
            route_words=[word for path in routes for word in ("--fib", path)], hops=options.hops, burst=options.burst,
        )  # fmt: skip

    def peer(self, kind, form, capture, packets, **more):
        """A peer with a separate page."""
        name = form if kind is FwdApp else f"{kind.name}-{form}"
        run = replace(self.base, name=name, page=Page(self.scratch / f"{name}.page"), capture=capture, packets=packets, **more)
        return kind(form, run)

    def contenders(self):
        """Lists of (class, form), each of which runs at once."""
        forms = ("best", "stock") if self.options.form == "both" else (self.options.form,)
        ours = [(FwdApp, engine) for engine in self.options.engines]
        groups = []
        for form in forms:
            group = []
            for kind in (PEERS[name] for name in self.options.peers):
                if kind is not Testpmd:
                    group.append((kind, form))
                elif form == forms[0]:
                    group += [(kind, mode) for mode in kind.forms]
            if group:
                groups.append(group + ours)
        return groups

    def checks(self):
        """Every packet of each, once. Returns the reports by name."""
        found = {}
        materials = {}
        for kind, form in dict.fromkeys(contender for group in self.contenders() for contender in group):
            capture = self.scratch / ("bad.pcap" if kind.looks_up else "good.pcap")
            if kind.looks_up not in materials:
                materials[kind.looks_up] = check.capture_of(capture, self.base.rules, self.options.check_packets, kind.looks_up)
            sent = self.scratch / f"sent-{kind.name}-{form}"
            sent.mkdir()
            count = len(traffic.read(capture))
            found[kind.title(form)] = check.check(self.peer(kind, form, capture, count, sent=sent), materials[kind.looks_up])
        return found

    def rates(self):
        """Rows of all contests."""
        rows = []
        rules = {"v4": self.base.rules[:1], "v6": self.base.rules[1:], "mix": self.base.rules}
        for packets in self.options.packets:
            for kind_of_traffic in self.options.traffic:
                capture = self.scratch / f"{kind_of_traffic}-{packets}.pcap"
                traffic.write(capture, traffic.frames(rules[kind_of_traffic], packets))
                for group in self.contenders():
                    print(f"\n== {kind_of_traffic}, {packets} packets of 64 bytes, {self.base.ports} ports", flush=True)
                    contenders = [self.peer(kind, form, capture, packets) for kind, form in group]
                    for (kind, form), row in zip(group, contest.contest(contenders, self.options.seconds)):
                        row.update(name=kind.title(form), peer=kind.name, form=form)
                        rows.append({"traffic": kind_of_traffic, "packets": packets, **row})
        return rows

    def latencies(self):
        """Rows of l3fwd and of ours at fractions of the rate that l3fwd reaches alone."""
        capture, packets, seconds = self.scratch / "latency.pcap", self.options.packets[0], self.options.seconds
        traffic.write(capture, traffic.frames(self.base.rules, packets))
        l3fwd = PEERS["l3fwd"]
        base_pps = latency.alone_pps(self.peer(l3fwd, "best", capture, packets), seconds)
        print(f"\n== latencies, mix, {packets} packets of 64 bytes; l3fwd alone forwards {base_pps / 1e6:.2f} Mpps", flush=True)
        rows = latency.latencies(self.peer(l3fwd, "best", capture, packets, paced=True), base_pps, seconds, "nothing")
        for engine in self.options.engines:
            rows += latency.latencies(self.peer(FwdApp, engine, capture, packets, paced=True), base_pps, seconds, "nothing")
            if self.options.updates:
                words = ("--updates", self.options.updates, "--update-rate", "10000", "--update-loops", "1000000")
                peer = self.peer(FwdApp, engine, capture, packets, paced=True, more_words=words)
                rows += latency.latencies(peer, base_pps, seconds, "10,000 updates a second")
            peer = self.peer(FwdApp, engine, capture, packets, paced=True)
            rows += latency.latencies(peer, base_pps, seconds, "set engine every second", latency.change_engine)
        return {"traffic": "mix", "packets": packets, "l3fwd_alone_mpps": round(base_pps / 1e6, 2), "rows": rows}


def words(text):
    return text.split(",")


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(prog="against", description=__doc__)
    parser.add_argument("peers", nargs="+", choices=PEERS)
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of the peers from build.sh")
    parser.add_argument("--rules", type=Path, nargs=2, required=True)
    parser.add_argument("--routes", type=Path, nargs=2)
    parser.add_argument("--form", choices=("best", "stock", "both"), default="best")
    parser.add_argument("--engines", type=words, default=["host"])
    parser.add_argument("--traffic", type=words, default=["v4", "v6", "mix"])
    parser.add_argument("--packets", type=numbers, default=[4096])
    parser.add_argument("--check-packets", type=int, default=4096)
    parser.add_argument("--burst", type=int, default=256)
    parser.add_argument("--ports", type=int, default=4)
    parser.add_argument("--hops", type=int, default=0)
    parser.add_argument("--cpu", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--updates", type=Path)
    parser.add_argument("--facts", type=json.loads, default={}, help="facts about host and build for the report")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    unknown = set(options.traffic) - {"v4", "v6", "mix"}
    if unknown:
        parser.error(f"--traffic: v4, v6 and mix are wanted, not {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse()
    selftest.run()
    for old in options.folder.glob("run-*"):
        shutil.rmtree(old)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=options.folder))
    order = Order(options, scratch)
    print("\n== every packet of each", flush=True)
    try:
        report = {"kind": "against", "peers": options.peers, **options.facts, "burst": options.burst, "ports": options.ports}
        report.update(next_hops=options.hops or options.ports, frame_bytes=64, seconds=options.seconds)
        report["forms"] = {PEERS[name].title(form): note for name in options.peers for form, note in PEERS[name].notes.items()}
        report["checks"] = order.checks()
        if options.latency:
            report["latency"] = order.latencies()
        else:
            report["rows"] = order.rates()
    except Failed as failed:
        print(f"against: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for path in scratch.iterdir():
        if path.suffix in (".pcap", ".page"):
            path.unlink()
    options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table.of_reports([report])}\nthe report: {options.json}; logs: {scratch}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
