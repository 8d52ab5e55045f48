"""The order of the rounds, a line for each, and the table at the end. Started by scripts/soak.sh."""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from . import datapath, device, inputs, memory, threads
from .material import Material, data_folder
from .process import Failed
from .round import Round

CYCLE_S = 300
# The approximate time of a round; it finishes its last step. Growth of memory shows only in the longer times.
ROUND_S = 12
LONGER_S = {"growth": 60, "device-growth": 60, "steady": 60}
BESIDE = "steady"
# `steady` gets this much less than a cycle, which it needs to load full tables and to be judged.
BESIDE_LESS_S = 15

ROUNDS = {**datapath.ROUNDS, **device.ROUNDS, **threads.ROUNDS, **memory.ROUNDS, **inputs.ROUNDS}
NEED_MOCK = set(device.ROUNDS)


class Soak:
    """Runs rounds and keeps their results."""

    def __init__(self, options):
        self.app, self.mock = options.app, options.mock
        self.folder = Path(tempfile.mkdtemp(prefix="fwd-soak-", dir=options.work))
        self.data, self.keep = data_folder(), options.keep
        self.lock = threading.Lock()
        self.results = []
        self.failures = []

    def run(self, name, seed, seconds):
        """Runs a round and prints its line."""
        if name in NEED_MOCK and self.mock is None:
            self.note(name, seed, "SKIPPED", 0, "no libmockcuda.so: cargo build --release -p mockcuda")
            return
        before = time.monotonic()
        folder = self.folder / f"{len(self.results):04}-{name}-{seed}"
        material = Material(self.app, self.folder / f"material-{name}-{seed}", self.data)
        one = Round(name, seed, seconds, folder, self.app, self.mock, material)
        try:
            words = ROUNDS[name](one)
            result = "passed"
        except Failed as failed:
            result, words = "FAILED", str(failed)
        except Exception as error:  # pylint: disable=broad-except
            result, words = "FAILED", f"{type(error).__name__}: {error}"
            (folder / "traceback").write_text(traceback.format_exc())
        one.kill()
        seconds = time.monotonic() - before
        if result == "passed":
            words = "; ".join(part for part in (one.said(), words) if part)
            if not self.keep:
                shutil.rmtree(folder)
                shutil.rmtree(material.folder)
        self.note(name, seed, result, seconds, words, folder)

    def note(self, name, seed, result, seconds, words, folder=None):
        with self.lock:
            self.results.append((name, result, seconds))
            print(f"{time.strftime('%H:%M:%S')}  seed {seed}  {name:<14} {result:<7} {seconds:6.1f} s  {words}", flush=True)
            if result == "FAILED":
                self.failures.append((name, seed, words, folder))
                print(f"{'':10}logs: {folder}\n{'':10}again: scripts/soak.sh --seed {seed} --round {name}", flush=True)

    def cycles(self, minutes, seed):
        """Runs all rounds in turn for `minutes`, with `steady` at the same time."""
        start = time.monotonic()
        others = [name for name in ROUNDS if name != BESIDE]
        turn, total_s = 0, minutes * 60
        while (left_s := total_s - (time.monotonic() - start)) > 0:
            cycle_s = min(CYCLE_S, left_s)
            end = time.monotonic() + cycle_s
            print(f"\n-- seed {seed}, {cycle_s:.0f} s", flush=True)
            beside = threading.Thread(target=self.run, args=(BESIDE, seed, max(cycle_s - BESIDE_LESS_S, 1)))
            beside.start()
            while (time_s := end - time.monotonic()) > 0:
                name = others[turn % len(others)]
                self.run(name, seed, min(round_s(name), time_s))
                turn += 1
            beside.join()
            seed += 1

    def summary(self):
        """Prints the table at the end. Returns whether all rounds passed."""
        print(f"\n{'round':<16}{'times':>6}{'passed':>8}{'FAILED':>8}{'SKIPPED':>9}{'seconds':>10}")
        for name in ROUNDS:
            mine = [(result, seconds) for other, result, seconds in self.results if other == name]
            if mine:
                counts = [sum(1 for result, _ in mine if result == wanted) for wanted in ("passed", "FAILED", "SKIPPED")]
                total_s = sum(seconds for _, seconds in mine)
                print(f"{name:<16}{len(mine):>6}{counts[0]:>8}{counts[1]:>8}{counts[2]:>9}{total_s:>10.1f}")
        for name, seed, words, folder in self.failures:
            print(f"\nFAILED: {name}, seed {seed}: {words}\n  logs: {folder}\n  again: scripts/soak.sh --seed {seed} --round {name}")
        if not self.failures and not self.keep:
            shutil.rmtree(self.folder)
        elif self.folder.exists():
            print(f"\nlogs: {self.folder}")
        return not self.failures


def round_s(name):
    """The time of a round, unless --seconds gives another."""
    return LONGER_S.get(name, ROUND_S)


def options():
    """The command line; scripts/soak.sh has printed the help already, if that was asked for."""
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", add_help=False)
    parser.add_argument("minutes", nargs="?", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--round", action="append", choices=list(ROUNDS), dest="rounds")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--work")
    parser.add_argument("--app", type=Path)
    parser.add_argument("--mock", type=Path)
    return parser.parse_args()


def main():
    """Exit code 0: all passed, 1: one did not."""
    chosen = options()
    if chosen.list:
        print("\n".join(f"{name:<16}{' '.join(function.__doc__.split())}" for name, function in ROUNDS.items()))
        return 0
    # These signals interrupt the main loop, which kills its processes. A shell makes background jobs ignore SIGINT, and children inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    soak = Soak(chosen)
    print(f"{soak.app}; seed {chosen.seed}; {os.cpu_count()} CPUs; tables: {soak.data or 'generated'}; logs in {soak.folder}", flush=True)
    try:
        if chosen.rounds:
            for name in chosen.rounds:
                soak.run(name, chosen.seed, chosen.seconds or round_s(name))
        else:
            soak.cycles(chosen.minutes, chosen.seed)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        soak.summary()
        Round.kill_all()
        os._exit(1)
    return 0 if soak.summary() else 1


if __name__ == "__main__":
    sys.exit(main())
