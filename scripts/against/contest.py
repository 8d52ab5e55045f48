"""Rates of forwarders at once on one CPU.

The kernel shares the CPU among all, so all run with the same clock and cache competitors, and ratios stay within a few percent, where runs
in turn differ by a third. A rate is the packets received for each second of CPU of the forwarder's thread, in windows of
0.6 s."""

import contextlib
import statistics
import time

from . import forwarder, page

WINDOW_S = 0.6
STARTED_PACKETS = 200_000
START_S = 60
# A busy host may leave a forwarder without CPU for a window: windows go on until each has this many, at most for a minute.
LEAST_WINDOWS = 5
LONGER_S = 60


def contest(contenders, seconds):
    """A row for each of the peers; the ratios are to the first one."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(forwarder.start(peer)) for peer in contenders]
        for one in running:
            one.go_on()
            one.run.page.order(page.RUN, 1)
        for one in running:
            one.wait_for(lambda one=one: one.run.page.received() > STARTED_PACKETS, START_S)
        rates = {one.name: [] for one in running}
        last = {one.name: (one.run.page.received(), one.run.page.sent(), one.cpu_ns()) for one in running}
        first = dict(last)
        end = time.monotonic() + seconds
        while time.monotonic() < end or min(map(len, rates.values())) < LEAST_WINDOWS:
            if time.monotonic() > end + LONGER_S:
                raise forwarder.Failed("this host is too busy: a forwarder got next to no CPU time")
            time.sleep(WINDOW_S)
            for one in running:
                received, sent = one.run.page.received(), one.run.page.sent()
                busy_ns, now = one.busiest_ns(last[one.name][2])
                if busy_ns > 0:
                    rates[one.name].append((received - last[one.name][0]) / busy_ns * 1e3)
                last[one.name] = (received, sent, now)
                if one.process.poll() is not None:
                    one.fail(f"has ended with code {one.process.returncode}")
        medians = {name: statistics.median(values) for name, values in rates.items()}
        rows = []
        for one in running:
            deciles = statistics.quantiles(rates[one.name], n=10)
            ratio = medians[one.name] / medians[running[0].name]
            received, sent = (last[one.name][k] - first[one.name][k] for k in (0, 1))
            rows.append(
                {
                    "name": one.name,
                    "mpps": round(medians[one.name], 2),
                    "p10": round(deciles[0], 2),
                    "p90": round(deciles[-1], 2),
                    "ratio": round(ratio, 3),
                    "sent_share": round(sent / received, 4),
                }
            )
            print("  {name:<16} {mpps:8.2f} Mpps a second of CPU  ({p10:.1f} to {p90:.1f})  {ratio:.2f}x".format(**rows[-1]), flush=True)
        return rows
