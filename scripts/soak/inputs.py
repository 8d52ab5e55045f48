"""Outside events at the wrong moment: files that change while they are read, signals, a standard error without a reader."""

import os
import shutil
import signal
import subprocess
import time

from . import judge
from .process import Failed
from .round import END_S, START_S, TOPOLOGIES


def files(round):
    """A route file that is cut, rewritten, appended to or replaced while it is read: the old table, the new one, or an error."""
    old = round.material.table(round.seed, 250_000)
    new = round.material.table(round.seed + 1, 240_000)
    other = new.read_bytes()
    lengths = {sum(1 for line in path.read_bytes().splitlines() if line[:1] != b"#") for path in (old, new)}
    counts = {"refused": 0, "read": 0}
    while True:
        for change in (cut, empty, rewrite, append, garbage, replace):
            for form in ("plain", "gzip"):
                path = round.folder / "routes"
                shutil.copy(old, path)
                if form == "gzip":
                    subprocess.run(["gzip", "-1", "-f", path], check=True)
                    path.with_suffix(".gz").rename(path)
                process = round.start(f"{change.__name__}-{form}", "fib", "stat", "--json", path)
                process.until(lambda: process.has_open(path), 5)
                time.sleep(round.between(0, 25) / 100)
                change(round, path, other)
                code = process.wait(END_S)
                judge.no_crash(process, code)
                counts[table_or_error(process, code, path, lengths)] += 1
        streams(round)
        if round.is_over():
            return ", ".join(f"{count} {what}" for what, count in counts.items())


def table_or_error(process, code, path, lengths):
    """Checks for exit code 1 with the file's name, or 0 with as many routes as one of the two contents has."""
    if code != 0:
        if path.name not in process.errors():
            raise Failed(f"{process.name}: exit code {code}, and the file is not named: {judge.last_line(process.errors())}")
        return "refused"
    report = judge.report(process.out)
    routes = report["routes"]
    if routes not in lengths:
        raise Failed(f"{process.name}: {routes} routes, wanted one of {sorted(lengths)}")
    return "read"


def cut(round, path, _other):
    with open(path, "r+b") as file:
        file.truncate(round.between(1, os.path.getsize(path) - 1))


def empty(_round, path, _other):
    with open(path, "r+b") as file:
        file.truncate(0)


def rewrite(_round, path, other):
    path.write_bytes(other)


def append(_round, path, _other):
    with open(path, "ab") as file:
        file.write(b"192.0.2.0/24 1\n" * 3)


def garbage(round, path, _other):
    with open(path, "r+b") as file:
        file.seek(round.between(0, os.path.getsize(path) - 1))
        file.write(bytes(round.between(0, 255) for _ in range(4096)))


def replace(_round, path, other):
    fresh = path.with_suffix(".new")
    fresh.write_bytes(other)
    fresh.rename(path)


def streams(round):
    """An update stream and a capture that change during a replay: it continues with the data it has read, or reports the error."""
    one = round.material.small(round.seed)
    for change in (cut, empty, garbage, replace):
        updates, capture = round.folder / "updates", round.folder / "capture"
        shutil.copy(one.updates, updates)
        shutil.copy(one.capture, capture)
        words = ["replay", capture, "--fib", one.tables[0], "--no-huge", "--verify", "--engine", "bloom", "--loops", 20]
        words += ["--updates", updates, "--update-rate", 20_000, "--update-loops", 100]
        json = round.folder / f"{round.runs + 1:03}-{change.__name__}.json"
        process = round.start(change.__name__, *words, "--json", json)
        process.run_for(round.between(0, 60) / 100)
        change(round, updates, one.updates.read_bytes())
        change(round, capture, one.capture.read_bytes())
        round.finish(process, codes=(0, 1))


def signals(round):
    """SIGUSR1 by the hundred, SIGTERM at any moment, SIGINT twice, a standard error that is closed or full."""
    one = round.material.small(round.seed)
    while True:
        for topology in TOPOLOGIES:
            words = ["--engine", "bloom", "--topology", topology, "--loops", 1 << 30, "--stats-period", "0.05"]
            stormed(round, one, words)
            early(round, one, words)
            twice(round, one, words)
            for how in (closed, blocked):
                for command in (unread_replay, unread_run):
                    command(round, one, words, topology, how)
        if round.is_over():
            return ""


def storm(process, seconds):
    """Sends SIGUSR1 without pause."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.is_running():
        for _ in range(50):
            process.signal(signal.SIGUSR1)
        time.sleep(0.001)


def stormed(round, one, words):
    process = round.replay("storm", one, *words, updates=5000)
    if process.until_forwarding(START_S):
        storm(process, 1)
    round.terminate(process)


def early(round, one, words):
    """SIGTERM while the process loads, starts or forwards: it ends by the default action or in order."""
    process = round.replay("early", one, *words, updates=5000)
    process.run_for(round.between(0, 150) / 100)
    round.terminate(process, codes=(0, 1, -signal.SIGTERM))


def twice(round, one, words):
    """A second SIGINT ends the process at once."""
    process = round.replay("twice", one, *words)
    if process.until_forwarding(START_S):
        process.signal(signal.SIGINT)
    process.signal(signal.SIGINT)
    code = process.wait(END_S, "SIGINT twice")
    judge.no_crash(process, code, (-signal.SIGINT,))


def closed():
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer, None


def blocked():
    """A full pipe without a reader."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\n" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    return writer, reader


def unread(round, process, how, reader):
    """The process forwards although its output is not read, and ends on a signal."""
    if process.until_forwarding(START_S):
        storm(process, 0.5)
    elif process.is_running():
        raise Failed(f"{process.name} did not start forwarding within {START_S} s with a standard error that is {how.__name__}")
    try:
        round.terminate(process, codes=(0, 1))
    finally:
        if reader is not None:
            os.close(reader)


def unread_replay(round, one, words, _topology, how):
    writer, reader = how()
    process = round.replay(f"replay-{how.__name__}", one, *words, updates=5000, stderr=writer)
    os.close(writer)
    unread(round, process, how, reader)


def unread_run(round, _one, _words, topology, how):
    writer, reader = how()
    json = round.folder / f"{round.runs + 1:03}-run-{how.__name__}.json"
    words = ["run", "--fib", "pcap/routes.txt", "--engine", "bloom", "--topology", topology, "--stats-period", "0.05", "--json", json]
    lcores = "0@0" if round.between(0, 1) and topology == "run-to-completion" else "0@0,1@0,2@0,3@0"
    worker = "0" if lcores == "0@0" else "1"
    words += ["--config", f"(0,0,{worker})", "--", "--no-huge", "-m", 256, "--no-pci", "--no-shconf", "--no-telemetry"]
    # EAL's log at the start would block for ever: its C code writes to stderr directly.
    words += ["--log-level", "error"]
    words += ["--file-prefix", f"soak-{round.seed}-{round.runs}", "--lcores", lcores, "--vdev", "net_null0"]
    process = round.start(f"run-{how.__name__}", *words, stderr=writer)
    os.close(writer)
    if lcores == "0@0":
        # Without worker lcores no thread shows that it forwards.
        process.run_for(3)
        storm(process, 0.5)
        try:
            round.terminate(process, codes=(0, 1))
        finally:
            if reader is not None:
                os.close(reader)
        return
    unread(round, process, how, reader)


ROUNDS = {"files": files, "signals": signals}
