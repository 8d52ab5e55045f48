"""Latencies at fractions of the rate that l3fwd reaches alone.

Packets are due at a fixed rate, whether or not the forwarder takes them. Latency counts from the due time to the sending, so a pause is
charged to all packets that waited. One forwarder runs at a time.

A virtual machine may pause for milliseconds, which is no property of a forwarder. So the percentiles of each second are computed, too, with
one change of the engine in each second where engines change, and reported as medians."""

import statistics
import time

from . import forwarder, page

PERCENTS = (10, 50, 80, 95)
PERCENTILES = (50, 99, 99.9)
FIGURES = ("p50_ns", "p99_ns", "p99_9_ns", "max_ns")
WARM_UP_S = 1.0
WINDOW_S = 1.0
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


def change_engine(one):
    """The same engine again, with a new table."""
    one.tool([one.run.app, "ctl", "--socket", one.peer.socket(), "set", "engine", one.peer.form])


def windows_ns(one, seconds, beside):
    """The percentiles and the greatest latency of each second; calls `beside` in each."""
    found, last = [], [0] * page.SLOTS
    for _ in range(max(1, round(seconds / WINDOW_S))):
        end = time.monotonic() + WINDOW_S
        beside(one)
        time.sleep(max(0, end - time.monotonic()))
        counts = one.run.page.latencies()
        if counts == last:
            one.fail("forwards nothing")
        found.append(one.run.page.percentiles_ns([count - before for count, before in zip(counts, last)], PERCENTILES))
        last = counts
    return found


def latencies(peer, base_pps, seconds, what, beside=lambda one: None):
    """A row for each of PERCENTS; `what` names the control load, `beside` causes it in each second."""
    rows = []
    with forwarder.start(peer) as one:
        one.go_on()
        for epoch, percent in enumerate(PERCENTS):
            rate = int(base_pps * percent / 100)
            one.run.page.order(page.RATE, rate)
            one.run.page.order(page.EPOCH, 2 * epoch + 1)
            one.run.page.order(page.RUN, 1)
            time.sleep(WARM_UP_S)
            one.run.page.order(page.EPOCH, 2 * epoch + 2)
            began, (_, before) = time.monotonic_ns(), one.busiest_ns({})
            windows = windows_ns(one, seconds, beside)
            cpu_share = one.busiest_ns(before)[0] / (time.monotonic_ns() - began)
            one.run.page.order(page.RUN, 0)
            time.sleep(0.1)
            counts = one.run.page.latencies()
            row = {"name": peer.title(peer.form), "beside": what, "percent": percent, "mpps": round(rate / 1e6, 3), "packets": sum(counts)}
            # Below 1 other processes had the CPU meanwhile, which adds to the latencies.
            row["cpu_share"] = round(cpu_share, 3)
            row.update(zip(FIGURES, one.run.page.percentiles_ns(counts, PERCENTILES)))
            row["of_a_second"] = dict(zip(FIGURES, map(round, map(statistics.median, zip(*windows)))))
            rows.append(row)
            print("  {name:<10} {beside:<28} {percent:3} %  p50 {p50_ns} p99 {p99_ns} p99.9 {p99_9_ns} max {max_ns} ns, {cpu_share:.0%} of the CPU;".format(**row), end="  ")
            print("of a second p99.9 {p99_9_ns} max {max_ns}".format(**row["of_a_second"]), flush=True)
    return rows
