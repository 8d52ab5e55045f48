"""Latencies at fractions of what l3fwd forwards alone.

Packets are due at a fixed rate, whether the forwarder takes them or not, and the latency of each is the time from when it was due to when
it was sent, so that a forwarder that stops for a while is charged for all packets that waited. One forwarder runs at a time."""

import subprocess
import threading
import time

from . import forwarder, page

PERCENTS = (10, 50, 80, 95)
PERCENTILES = (50, 99, 99.9)
WARM_UP_S = 1.0
ENGINE_S = 1.0
START_S = 60


def alone_pps(peer, seconds):
    """Packets a second that a peer forwards alone, as fast as it can."""
    with forwarder.start(peer) as one:
        one.go_on()
        one.run.page.order(page.RUN, 1)
        one.wait_for(lambda: one.run.page.received() > 200_000, START_S)
        began, first = time.monotonic(), one.run.page.received()
        time.sleep(seconds)
        return (one.run.page.received() - first) / (time.monotonic() - began)


class EngineChanges(threading.Thread):
    """`ctl set engine` once a second until `end`. A change that fails is raised there."""

    def __init__(self, one):
        super().__init__()
        self.one, self.over, self.failure, self.changes = one, threading.Event(), None, 0

    def run(self):
        command = [self.one.run.app, "ctl", "--socket", self.one.peer.socket(), "set", "engine", self.one.peer.form]
        while not self.over.wait(ENGINE_S):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.failure = done.stdout + done.stderr
                return
            self.changes += 1

    def end(self):
        self.over.set()
        self.join()
        if self.failure is not None or self.changes == 0:
            self.one.fail(f"set engine: {self.failure or 'not once in this time'}")


def latencies(peer, base_pps, seconds, what, change_engine=False):
    """A row for each of PERCENTS; `what` says what goes on beside."""
    rows = []
    with forwarder.start(peer) as one:
        one.go_on()
        changes = EngineChanges(one) if change_engine else None
        if changes:
            changes.start()
        try:
            for epoch, percent in enumerate(PERCENTS):
                rate = int(base_pps * percent / 100)
                one.run.page.order(page.RATE, rate)
                one.run.page.order(page.EPOCH, 2 * epoch + 1)
                one.run.page.order(page.RUN, 1)
                time.sleep(WARM_UP_S)
                one.run.page.order(page.EPOCH, 2 * epoch + 2)
                began, (_, before) = time.monotonic_ns(), one.busiest_ns({})
                time.sleep(seconds)
                cpu_share = one.busiest_ns(before)[0] / (time.monotonic_ns() - began)
                one.run.page.order(page.RUN, 0)
                time.sleep(0.1)
                packets, found, most = one.run.page.latencies_ns(PERCENTILES)
                if one.process.poll() is not None or packets == 0:
                    one.fail("forwards nothing")
                row = {"name": peer.title(peer.form), "beside": what, "percent": percent, "mpps": round(rate / 1e6, 3), "packets": packets}
                # Below 1 others had the CPU meanwhile, and the latencies are theirs, too.
                row["cpu_share"] = round(cpu_share, 3)
                row.update(zip(("p50_ns", "p99_ns", "p99_9_ns"), found), max_ns=most)
                rows.append(row)
                print("  {name:<10} {beside:<28} {percent:3} %  p50 {p50_ns} p99 {p99_ns} p99.9 {p99_9_ns} max {max_ns} ns, {cpu_share:.0%} of the CPU".format(**row), flush=True)
        finally:
            if changes:
                changes.end()
    return rows
