#!/usr/bin/env python3
"""Runs forwarders at once on one CPU and compares their rates.

usage: contend.py [--seconds S] [--json FILE] NAME=COMMAND ..

The kernel gives the CPU to one after the other, so all meet the same neighbours and the same clock, and ratios stay within a few
percent where runs in turn differ by a third. A rate is packets received for each second of CPU that the forwarder's busiest thread
got, in windows of 0.6 s; the median, the 10th and the 90th percentile and the ratio to the first forwarder are printed.

Each command has a --file-prefix of its own, and DPDK's telemetry is on: counters are read from its socket."""

import argparse
import json
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WINDOW_S = 0.6
# A forwarder that has received so many packets has its table and is under way.
STARTED_PACKETS = 200_000
START_S = 120


class Forwarder:
    def __init__(self, contender, folder):
        self.name, command = contender.split("=", 1)
        words = shlex.split(command)
        self.prefix = words[words.index("--file-prefix") + 1]
        self.log = folder / f"{self.name}.log"
        self.socket = None
        self.rates = []
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def ask(self, question):
        if self.socket is None:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.socket.settimeout(5)
            self.socket.connect(f"/var/run/dpdk/{self.prefix}/dpdk_telemetry.v2")
            self.socket.recv(1 << 16)
        self.socket.send(question.encode())
        return json.loads(self.socket.recv(1 << 16))[question.split(",")[0]]

    def received(self):
        return sum(self.ask(f"/ethdev/stats,{port}")["ipackets"] for port in self.ask("/ethdev/list"))

    def cpu_ns(self):
        """CPU time of the busiest thread, which is the lcore's."""
        times = [0]
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                times.append(int((task / "schedstat").read_text().split()[0]))
            except OSError:
                pass
        return max(times)

    def wait(self, deadline):
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{self.name} does not forward: see {self.log}\n{self.log.read_text(errors='replace')[-2000:]}")
            try:
                if self.received() > STARTED_PACKETS:
                    self.last = (self.received(), self.cpu_ns())
                    return
            except (OSError, KeyError, ValueError):
                self.socket = None
            time.sleep(0.2)

    def look(self):
        now = (self.received(), self.cpu_ns())
        packets, cpu_ns = now[0] - self.last[0], now[1] - self.last[1]
        if cpu_ns > 0:
            self.rates.append(packets / cpu_ns * 1e3)
        self.last = now

    def row(self, first):
        deciles = statistics.quantiles(self.rates, n=10)
        median = statistics.median(self.rates)
        ratio = median / statistics.median(first.rates)
        return {"name": self.name, "mpps": round(median, 2), "p10": round(deciles[0], 2), "p90": round(deciles[-1], 2), "ratio": round(ratio, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--json")
    parser.add_argument("contenders", nargs="+")
    args = parser.parse_args()
    forwarders = []
    try:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="contend-"))
        for contender in args.contenders:
            forwarders.append(Forwarder(contender, folder))
        deadline = time.monotonic() + START_S
        for one in forwarders:
            one.wait(deadline)
        for one in forwarders:
            one.look()
            one.rates.clear()
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            time.sleep(WINDOW_S)
            for one in forwarders:
                one.look()
        rows = [one.row(forwarders[0]) for one in forwarders]
        for row in rows:
            print("  {name:<16} {mpps:8.2f} Mpps a second of CPU  ({p10:.1f} to {p90:.1f})  {ratio:.2f}x".format(**row), flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="ascii")
    finally:
        for one in forwarders:
            one.process.kill()
        for one in forwarders:
            one.process.wait()


main()
