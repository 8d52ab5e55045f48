"""The datapath under load: hours of updates in one process, a slow link, too few mbufs."""

import re

from . import judge
from .process import Failed
from .round import END_S, START_S, TOPOLOGIES

STEADY_MIN_S = 60
CPU_ENGINES = ("bloom", "host", "bloom-baseline", "bloom-naive", "miht", "coop")


def steady(round):
    """One process for the whole time: full tables, the whole update stream again and again, memory that does not grow."""
    one = round.material.full(round.seed, routes=300_000, updates=150_000)
    topology, rate = round.draw(TOPOLOGIES), round.draw((5_000, 20_000, 50_000))
    words = ["--engine", round.draw(("host", "bloom")), "--topology", topology, "--lcores", round.draw((1, 3)), "--loops", 1 << 30, "--rate", "50kpps"]
    process = round.replay("steady", one, *words, updates=rate, sample=True)
    if not process.until_forwarding(2 * START_S):
        round.finish(process, END_S)
        raise Failed(f"{process.name} ended by itself")
    # On a busy host loading the tables takes most of a cycle.
    process.run_for(max(round.left_s(), STEADY_MIN_S if round.seconds > STEADY_MIN_S else 0))
    found = round.terminate(process)
    updates = found["engine"]["updates_applied"]
    return f"{updates:,} updates in {updates / one.update_count:.1f} loops, {topology}, {judge.no_growth(process)}"


def nests(round):
    """Nested routes that come and go above the addresses that packets go to, as fast as the engine takes them; every engine."""
    one, updates = round.material.small(round.seed, routes=20_000, updates=3000, frames=1000), 0
    turns = 0
    while True:
        engine = CPU_ENGINES[(round.seed + turns) % len(CPU_ENGINES)]
        words = ["--engine", engine, "--topology", round.draw(TOPOLOGIES), "--batch", round.draw((1, 32, 256)), "--loops", 1 << 30]
        words += ["--lcores", round.draw((1, 2)), "--update-batch", round.draw((1, 1, 4, 64, 1024))]
        process = round.replay(engine, one, *words, updates=round.draw((20_000, 100_000, 10_000_000)))
        if process.until_forwarding(START_S):
            process.run_for(round.seconds / 4)
        found = round.terminate(process)
        updates += found["engine"]["updates_applied"]
        turns += 1
        if round.is_over():
            return f"{updates:,} updates"


def growth(round):
    """A table that grows and shrinks without end, in the CPU engines."""
    one = round.material.growing(round.seed, routes=2000, more=30_000, back=True)
    engine = CPU_ENGINES[round.seed % len(CPU_ENGINES)]
    words = ["--engine", engine, "--topology", round.draw(TOPOLOGIES), "--loops", 1 << 30, "--rate", "20kpps"]
    process = round.replay(engine, one, *words, updates=20_000, sample=True)
    process.until_forwarding(START_S)
    process.run_for(round.seconds)
    found = round.terminate(process)
    return f"{engine}, {found['engine']['updates_applied']:,} updates, {judge.no_growth(process)}"


def tx_full(round):
    """A link that takes packets too slowly: it costs packets, and nothing else."""
    one, full = round.material.small(round.seed), 0
    while True:
        for topology in TOPOLOGIES:
            words = ["--topology", topology, "--tx-slow", round.draw((20, 100, 1000)), "--loops", round.between(50, 150)]
            words += ["--batch", round.draw((1, 128, 4096)), "--engine", "bloom", "--lcores", round.draw((1, 2, 4))]
            if round.between(0, 1):
                words += ["--spread"]
            process = round.replay("slow", one, *words, updates=5000)
            found = round.finish(process, START_S, faults=("tx_full",))
            full += found["packets"]["drops"]["tx_full"]
        if round.is_over():
            break
    if not full:
        raise Failed("no TX queue was ever full")
    return f"{full:,} packets dropped as tx_full"


def mbufs(round):
    """Fewer mbufs than packets in flight need: packets wait, and only a packet whose fragments find no mbuf is lost."""
    one = round.material.small(round.seed)
    while True:
        for topology in TOPOLOGIES:
            lcores = round.draw((1, 2, 3))
            least = 384 * (lcores + 1) + 256
            words = ["--topology", topology, "--lcores", lcores, "--mbufs", least + round.draw((0, 1, 100))]
            words += ["--batch", round.draw((32, 1024, 4096)), "--flush-us", round.draw((0, 20, 2000)), "--engine", "bloom"]
            process = round.replay("few", one, *words, "--loops", round.between(20, 60), updates=5000)
            packets = round.finish(process, START_S, faults=("tx_full",))["packets"]
            if not packets["tx"]:
                raise Failed(f"{process.name}: nothing was sent")
            # Each loop of the trace has three packets that leave as fragments.
            lost, fragmented = packets["drops"]["tx_full"], packets["fragmented"]
            if lost > fragmented // 10:
                raise Failed(f"{process.name}: {lost} packets dropped as tx_full, {fragmented} were fragmented")
        starved_port(round)
        if round.is_over():
            return ""


def starved_port(round):
    """The same for `run`, whose port takes the mbufs itself: the smallest accepted pool, with most mbufs in batches that are being filled."""
    for topology in TOPOLOGIES:
        batch, mbufs = round.draw((128, 512)), 1023
        for _ in range(2):
            json = round.folder / f"{round.runs + 1:03}-port.json"
            words = ["run", "--fib", "pcap/routes.txt", "--engine", "bloom", "--topology", topology, "--duration", 1, "--mbufs", mbufs]
            words += ["--rx-queue-size", 64, "--tx-queue-size", 64, "--batch", batch, "--flush-us", 100_000]
            words += ["--config", "(0,0,1)", "--json", json, "--"]
            words += ["--no-huge", "-m", 256, "--no-pci", "--no-shconf", "--no-telemetry"]
            words += ["--file-prefix", f"soak-{round.seed}-{round.runs}", "--lcores", "0@0,1@0,2@0,3@0", "--vdev", "net_null0,size=64"]
            process = round.start("port", *words)
            found = round.finish(process, START_S, codes=(0, 2))
            if found:
                if not found["packets"]["rx"]:
                    raise Failed(f"{process.name}: nothing was received")
                break
            enough = re.search(r"at least (\d+)", process.errors())
            if enough is None or mbufs != 1023:
                raise Failed(f"{process.name}: {judge.last_line(process.errors())}")
            mbufs = int(enough[1])


ROUNDS = {"steady": steady, "nests": nests, "growth": growth, "tx-full": tx_full, "mbufs": mbufs}
