"""A device that fails, stalls, comes back, or has no memory: GPU engines over the mock driver, in both topologies, with and without a
CPU engine as the fallback.
"""

from . import judge
from .process import Failed
from .round import END_S, PATIENT, START_S, TOPOLOGIES

ENGINES = ("gamt", "gale", "sail-gpu")
MODES = ("auto", "copy", "mapped", "persistent")
CALLS = (
    "cuLaunchKernel",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemAlloc_v2",
    "cuStreamQuery",
    "cuEventQuery",
    "cuEventRecord",
)
# An illegal address (700) and a failed launch (719) end the context; no memory (2) and an invalid value (1) do not.
CODES = (700, 719, 2, 1)
# Allowed growth: tables of this size are allocated and freed in tens of kilobytes.
GROWTH_BYTES = 2 << 20


def made(round):
    """A small set: the mock interprets every instruction."""
    return round.material.small(round.seed, routes=1500, updates=2000, frames=600)


def fault(round):
    """Switches of the mock for one randomly drawn fault."""
    kind = round.between(0, 3)
    if kind == 0:
        # One call or several in a row fail; later calls succeed, so the device comes back.
        return {"MOCKCUDA_FAIL_AT": f"{round.between(20, 4000)}:{round.draw(CODES)}:{round.draw((1, 1, 5, 100))}"}
    if kind == 1:
        return {"MOCKCUDA_FAIL_CALL": f"{round.draw(CALLS)}:{round.between(0, 60)}:{round.draw(CODES)}"}
    if kind == 2:
        return {"MOCKCUDA_FAIL_OPERATION": f"{round.between(0, 2000)}:{round.draw((700, 719))}"}
    return {"MOCKCUDA_FAIL_AT": f"{round.between(0, 60)}:{round.draw(CODES)}"}


def common(round):
    """Randomly drawn options of every run."""
    return ["--batch", round.draw((1, 32, 64, 200)), "--loops", round.between(2, 8), "--ports", round.draw((1, 4, 7))]


def moved(process, found, engine):
    """Checks that the report names the engine in service and no error. Returns whether the fallback is in service."""
    report = found["engine"]
    fallback = report["fallback"]
    wanted = "bloom" if fallback["in_service"] else engine
    if report["name"] != wanted or report["error"]:
        raise Failed(f"{process.name}: engine {report['name']}, error {report['error']}, in service: {fallback['in_service']}")
    return fallback["in_service"]


def lost(process, code, found):
    """Without a fallback: packets dropped as engine_stall, or a reported error, need an exit code other than 0."""
    if found is None:
        return
    stalled, report = found["packets"]["drops"]["engine_stall"], found["engine"]
    told = report["error"] or report.get("update_error")
    if stalled and not report["error"] and code == 0:
        raise Failed(f"{process.name}: {stalled} packets dropped as engine_stall, and exit code 0")
    if told and code == 0:
        raise Failed(f"{process.name}: error {told}, and exit code 0")


def fails(round):
    """Driver calls and operations that fail, once or for a while."""
    one, moves = made(round), 0
    while True:
        for topology in TOPOLOGIES:
            engine = round.draw(ENGINES)
            words = ["--engine", engine, "--topology", topology, *common(round), *PATIENT]
            with_fallback = round.replay("fallback", one, *words, "--fallback", "bloom", updates=2000, mock=fault(round))
            found = round.finish(with_fallback, START_S)
            moves += moved(with_fallback, found, engine)
            alone = round.replay("alone", one, *words, updates=2000, mock=fault(round))
            code = alone.wait(START_S)
            lost(alone, code, round.judged(alone, code, codes=(0, 1, 3), faults=("engine_stall",)))
        if round.is_over():
            return f"{moves} moved to the fallback"


def stalls(round):
    """A device that keeps batches too long and gives them back, and one that keeps them for ever."""
    one, stalled = made(round), 0
    while True:
        for topology in TOPOLOGIES:
            delay_us = round.draw((20_000, 200_000))
            switches = {"MOCKCUDA_SEED": round.between(1, 99)}
            if round.between(0, 2):
                switches["MOCKCUDA_DELAY_US"] = delay_us
            else:
                switches |= {"MOCKCUDA_STALL_AT": round.between(100, 600), "MOCKCUDA_WAIT_MS": 2000}
            # With another mode the measurement of mode=auto does not meet the stall.
            words = ["--engine", "gamt", "--engine-arg", "mode=copy", "--topology", topology, *common(round)]
            words += ["--stall-us", round.draw((500, 1000, 5000)), "--loops", 30, "--rate", "20kpps"]
            words = drop_first(words, "--loops")
            updates = round.draw((None, 500))
            if round.between(0, 1):
                process = round.replay("fallback", one, *words, "--fallback", "bloom", updates=updates, mock=switches)
                moved(process, round.finish(process, START_S), "gamt")
                continue
            process = round.replay("alone", one, *words, updates=updates, mock=switches)
            if round.between(0, 1) and process.until_forwarding(START_S):
                process.run_for(0.3)
                found = round.terminate(process, codes=(0, 1, 3), faults=("engine_stall",))
            else:
                found = round.finish(process, START_S, codes=(0, 1, 3), faults=("engine_stall",))
            stalled += found["packets"]["drops"]["engine_stall"] if found else 0
        if round.is_over():
            return f"{stalled:,} packets dropped as engine_stall"


def drop_first(words, name):
    """Removes the first `name` and its value from options, so that the second one counts."""
    at = words.index(name)
    return words[:at] + words[at + 2 :]


def memory(round):
    """A device with too little memory, at the start and for updates."""
    one, refused = round.material.growing(round.seed, routes=500, more=8000, frames=600), 0
    while True:
        for topology in TOPOLOGIES:
            engine = round.draw(ENGINES)
            switches = {"MOCKCUDA_MEMORY_BYTES": 1 << round.between(16, 28)}
            if round.between(0, 1):
                switches = {"MOCKCUDA_FAIL_CALL": f"cuMemAlloc_v2:{round.between(0, 30)}:2"}
            words = ["--engine", engine, "--topology", topology, *common(round), *PATIENT]
            if engine == "gamt":
                words += ["--engine-arg", f"mode={round.draw(MODES)}"]
            process = round.replay("fallback", one, *words, "--fallback", "bloom", updates=20_000, mock=switches)
            moved(process, round.finish(process, START_S), engine)
            process = round.replay("alone", one, *words, updates=20_000, mock=switches)
            code = process.wait(START_S)
            found = round.judged(process, code, codes=(0, 1, 3), faults=("engine_stall",))
            lost(process, code, found)
            refused += found is None
        if round.is_over():
            return f"{refused} refused at the start"


def growth(round):
    """Every mode of the device with a table that grows and shrinks without end: the memory of its tables comes back."""
    one = round.material.growing(round.seed, routes=500, more=10_000, frames=600, back=True)
    mode = MODES[round.seed % len(MODES)]
    words = ["--engine", "gamt", "--engine-arg", f"mode={mode}", "--batch", "64", "--rate", "5kpps", "--loops", 1 << 30]
    # Deltas of a few changes are applied in place, large ones by building a new table.
    updates, batch = round.draw(((20_000, 64), (100_000, 5000), (10_000_000, 5000)))
    words += ["--update-batch", batch, *PATIENT]
    process = round.replay(mode, one, *words, updates=updates, mock={"MOCKCUDA_LOG": 0}, sample=True)
    if not process.until_forwarding(START_S):
        round.finish(process, END_S)
    process.run_for(round.seconds)
    found = round.terminate(process)
    return f"mode={mode}, {found['engine']['updates_applied']:,} updates, {judge.no_growth(process, GROWTH_BYTES)}"


ROUNDS = {"device-fails": fails, "device-stalls": stalls, "device-memory": memory, "device-growth": growth}
