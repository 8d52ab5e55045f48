"""Threads that lose their CPU: helper threads, worker lcores, the thread of the updates, the whole process."""

import signal
import time

from .process import take_cpu
from .round import PATIENT, START_S, TOPOLOGIES


def helpers(round):
    """A helper thread of `coop` loses its CPU, in both modes: over the caller's table, and over a separate one."""
    one, ways = round.material.small(round.seed, routes=20_000), {}
    while True:
        for topology in TOPOLOGIES:
            first = round.draw(("group", "bloom", "miht"))
            words = ["--engine", "coop", "--engine-arg", f"first={first}", "--engine-arg", f"threads={round.draw((1, 2))}", "--split", "0.5"]
            words += ["--topology", topology, "--loops", 1 << 30, "--batch", round.draw((32, 256)), "--rate", "20kpps"]
            patience = round.draw((PATIENT, ()))
            process = round.replay(first, one, *words, *patience, updates=5000)
            harass(round, process, "coop", ways)
            faults, codes = (((), (0,)) if patience else (("engine_stall",), (0, 1)))
            round.terminate(process, faults=faults, codes=codes)
        if round.is_over():
            return told(ways)


def lcores(round):
    """A worker lcore or the thread that applies updates loses its CPU; grace periods and channels wait, and go on."""
    one, ways = round.material.small(round.seed, routes=20_000), {}
    while True:
        for topology in TOPOLOGIES:
            engine = round.draw(("bloom", "host", "bloom-baseline", "miht"))
            words = ["--engine", engine, "--topology", topology, "--loops", 1 << 30, "--batch", round.draw((32, 1024))]
            words += ["--lcores", 3, "--rate", "50kpps"]
            process = round.replay(engine, one, *words, updates=20_000)
            harass(round, process, round.draw(("worker", "fwd-app")), ways)
            if round.between(0, 1):
                process.signal(signal.SIGSTOP)
                time.sleep(round.between(1, 20) / 10)
                process.signal(signal.SIGCONT)
                time.sleep(0.2)
            round.terminate(process)
        if round.is_over():
            return told(ways)


def harass(round, process, name, ways):
    """Takes the CPU of threads of this name (never of the first thread) a few times."""
    if not process.until_forwarding(START_S):
        return
    for _ in range(3):
        tids = [tid for tid in process.threads(name) if tid != process.pid]
        if tids:
            way = take_cpu(round.draw(sorted(tids)), round.draw((0.02, 0.15, 0.6, 1.5)))
            ways[way] = ways.get(way, 0) + 1
        time.sleep(0.1)


def told(ways):
    """How often threads lost their CPU, and how."""
    return ", ".join(f"{count} times {way or 'not possible'}" for way, count in sorted(ways.items()))


ROUNDS = {"helpers": helpers, "lcores": lcores}
