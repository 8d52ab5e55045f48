"""Memory that runs out: a limit on tables or on the address space, at the start and while routes change."""

import resource
import signal

from . import judge
from .process import Failed, limit_address_space
from .round import START_S, TOPOLOGIES

# Rust's message when a small allocation fails, before it aborts.
ALLOCATION = "memory allocation of"


def tables(round):
    """`--table-memory` below what the table, or what the updates make of it, needs."""
    one, refused = round.material.growing(round.seed, routes=5000, more=60_000), 0
    while True:
        for topology in TOPOLOGIES:
            engine = round.draw(("bloom", "host", "bloom-baseline", "miht", "coop"))
            words = ["--engine", engine, "--topology", topology, "--table-memory", f"{1 << round.between(12, 17)}K"]
            process = round.replay(engine, one, *words, "--loops", 40, "--rate", "20kpps", updates=50_000)
            found = round.finish(process, START_S, codes=(0, 1))
            refused += found is None or bool(found["engine"].get("update_error"))
        if round.is_over():
            return f"{refused} refused"


def address_space(round):
    """An address-space limit a little above the current size: from its start, or from some moment of its updates on."""
    one = round.material.growing(round.seed, routes=5000, more=150_000)
    counts = {"went on": 0, "said so": 0, "aborted for want of memory": 0}
    while True:
        for engine in ("bloom", "host", "bloom-baseline", "miht"):
            words = ["--engine", engine, "--topology", round.draw(TOPOLOGIES), "--loops", 80, "--rate", "20kpps"]
            if round.between(0, 2):
                process = round.replay(engine, one, *words, updates=50_000)
                if process.until_forwarding(START_S):
                    process.run_for(round.between(0, 20) / 10)
                    size = process.address_space_bytes()
                    if size:
                        limit_address_space(process.pid, size + (round.draw((0, 0, 1, 4, 16)) << 20))
            else:
                limits = [(resource.RLIMIT_AS, round.between(1, 12) * (64 << 20))]
                process = round.replay(engine, one, *words, updates=50_000, limits=limits)
            counts[outcome(round, process)] += 1
        if round.is_over():
            return ", ".join(f"{count} {what}" for what, count in counts.items())


def outcome(round, process):
    """How the process ended: as usual, with an error message, or by the allocator's abort, whose message names the size."""
    code = process.wait(START_S)
    if code == -signal.SIGABRT:
        if ALLOCATION not in process.errors():
            raise Failed(f"{process.name} aborted: {judge.last_line(process.errors())}")
        return "aborted for want of memory"
    found = round.judged(process, code, codes=(0, 1))
    return "went on" if code == 0 and found else "said so"


ROUNDS = {"table-memory": tables, "address-space": address_space}
