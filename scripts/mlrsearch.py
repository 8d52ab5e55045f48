#!/usr/bin/env python3
"""Checks `replay --search` against links of a known rate, and against the package MLRsearch of PyPI over the same trials.

  scripts/mlrsearch.py PROGRAM [--seeds N] [--trial SECONDS] [--tolerance PART]

For each seed a link of a random rate (--tx-rate) takes the forwarder's packets; the rate found must be that rate within the tolerance. Then
the package searches, and each of its trials is answered from the program's trials: its conditional throughput must be the same
within the width of the search. It takes about 20 s a seed. Without the package (`pip install MLRsearch`) the second part is SKIPPED.

Exit 0: success. Exit 1: a difference. Exit 2: bad usage. A busy host does not keep the rate: as root the program takes the highest
priority of normal scheduling.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
except ImportError:
    MultipleLossRatioSearch = None

TOP = Path(__file__).resolve().parent.parent
GOALS = (0.0, 0.001)
# Packets a second: a queue of 1024 packets is 1 % of a trial of a second at the lowest, and 5 ms, more than a time slice, at the highest.
RATES = (100_000, 200_000)


def take_priority():
    """Has this process and those that it starts go before others, where that is allowed."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20")
    except OSError as error:
        print(f"SKIPPED: a higher priority: {error}", file=sys.stderr)


def search(program, rate, trial_s, folder):
    """Runs a search with a link of this rate; returns the summary."""
    path = Path(folder) / "search.json"
    command = [program, "replay", TOP / "pcap/mix.pcap", "--fib", TOP / "pcap/routes.txt", "--ports", "1"]
    command += ["--tx-rate", f"{rate}pps", "--search", ",".join(map(str, GOALS)), "--search-trial", str(trial_s)]
    command += ["--search-sum", str(3 * trial_s), "--json", path]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr}")
    return json.loads(path.read_text())


def wanted_pps(summary, rate):
    """The load whose packets the link can take: packets that the forwarder drops by its rules do not reach it."""
    packets = summary["packets"]
    ruled_out = sum(count for reason, count in packets["drops"].items() if reason not in ("tx_full", "engine_stall"))
    return rate / (1 - ruled_out / packets["rx"])


def recorded(report):
    """A measurer that answers from the trials of a search, each once, in their order."""

    class Recorded(AbstractMeasurer):
        def __init__(self):
            self.trials = list(report["trials"])
            self.strange = 0

        def measure(self, intended_duration, intended_load):
            def is_same(trial):
                near = abs(trial["offered_pps"] / intended_load - 1) < 1e-6
                return near and abs(trial["duration_s"] / intended_duration - 1) < 1e-6

            at = next((at for at, trial in enumerate(self.trials) if is_same(trial)), None)
            if at is None:
                self.strange += 1
                trial = min(report["trials"], key=lambda trial: abs(trial["offered_pps"] - intended_load))
            else:
                trial = self.trials.pop(at)
            offered = trial["fed"] + trial["missed"]
            return MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=offered,
                loss_count=trial["lost"],
                intended_count=offered + trial["unsent"],
            )

    return Recorded()


def by_package(report):
    """The package's results by goal; the number of unused trials, and of trials that the program did not make."""
    config = Config()
    config.min_load = report["min_pps"]
    config.max_load = report["max_pps"]
    config.warmup_duration = None
    config.goals = [
        SearchGoal(
            loss_ratio=goal["loss"],
            exceed_ratio=report["exceed_ratio"],
            relative_width=report["width"],
            initial_trial_duration=report["initial_trial_s"],
            final_trial_duration=report["final_trial_s"],
            duration_sum=report["duration_sum_s"],
            fail_fast=False,
        )
        for goal in report["goals"]
    ]
    measurer = recorded(report)
    results = MultipleLossRatioSearch(config=config).search(measurer=measurer, debug=lambda text: None)
    found = [results[goal].conditional_throughput for goal in config.goals]
    return [None if rate is None else float(rate) for rate in found], len(measurer.trials), measurer.strange


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trial", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=0.02)
    args = parser.parse_args()
    take_priority()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            rate = random.Random(seed).randint(*RATES)
            summary = search(args.program, rate, args.trial, folder)
            report, wanted = summary["search"], wanted_pps(summary, rate)
            parts = [goal["rate_pps"] / (wanted / (1 - goal["loss"])) - 1 for goal in report["goals"]]
            shown = ", ".join(f"{part:+.2%} with a loss of {goal:.1%}" for part, goal in zip(parts, GOALS))
            print(f"seed {seed}: {rate} pps: {shown}; {len(report['trials'])} trials, {report['duration_s']:.0f} s", end="")
            if any(abs(part) > args.tolerance for part in parts):
                wrong.append(f"seed {seed}: more than {args.tolerance:.0%} from {rate} pps")
            if MultipleLossRatioSearch:
                rates, left, strange = by_package(report)
                differences = [abs(found / goal["rate_pps"] - 1) for found, goal in zip(rates, report["goals"])]
                print(f"; MLRsearch: {max(differences):.2%} apart, {left} trials fewer, {strange} others", end="")
                if max(differences) > report["width"]:
                    wrong.append(f"seed {seed}: MLRsearch finds {rates}")
            print(f"; {report['paused_s']:.2f} s without a CPU", flush=True)
    if not MultipleLossRatioSearch:
        print("SKIPPED: the package MLRsearch is not there (pip install MLRsearch)")
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
