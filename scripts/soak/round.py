"""The context of a round: its seed, folder and program, and helpers that run and judge a replay."""

import signal
import time

from captures.packets import SplitMix64

from . import judge
from .process import Failed, Process

# A process must end within this time after its last packet or a SIGTERM. The harness itself abandons packets after 30 s.
END_S = 90
START_S = 180
# A stall limit far above the time of a batch on a busy host, so that only injected stalls occur.
PATIENT = ("--stall-us", "60000000")
TOPOLOGIES = ("run-to-completion", "pipeline")


class Round:
    """One round. `seconds`: its approximate time."""

    processes = []

    def __init__(self, name, seed, seconds, folder, app, mock, material):
        self.name, self.seed, self.seconds = name, seed, seconds
        self.folder, self.app, self.mock, self.material = folder, app, mock, material
        self.rng = SplitMix64(seed * 1_000_003 + sum(ord(letter) << (index % 7 * 8) for index, letter in enumerate(name)))
        self.started = time.monotonic()
        self.runs = self.packets = 0
        self.mine = []
        folder.mkdir(parents=True)

    def is_over(self):
        """Whether the round's time is used up; running processes are still waited for."""
        return self.left_s() <= 0

    def left_s(self):
        """The seconds left of the round's time."""
        return self.seconds - (time.monotonic() - self.started)

    def draw(self, items):
        """One of `items`."""
        return self.rng.choice(list(items))

    def between(self, low, high):
        """A number from `low` to `high`."""
        return low + self.rng.below(high - low + 1)

    def start(self, name, *arguments, mock=None, **more):
        """Starts the program with these arguments. `mock`: switches of the mock driver, which is then preloaded."""
        self.runs += 1
        env = dict(more.pop("env", {}))
        if mock is not None:
            env |= {"LD_PRELOAD": str(self.mock), "MOCKCUDA_REPORT": "1", **{key: str(value) for key, value in mock.items()}}
        process = Process(self.folder, f"{self.runs:03}-{name}", [self.app, *arguments], env=env, **more)
        self.mine.append(process)
        Round.processes.append(process)
        return process

    def replay(self, name, made, *arguments, updates=None, **more):
        """Starts a replay of a set with `--verify`. `updates`: updates per second, from the set's stream, which is looped."""
        words = ["replay", *made.arguments(), "--no-huge", "--verify", "--json", self.folder / f"{self.runs + 1:03}-{name}.json"]
        if updates:
            words += ["--updates", made.updates, "--update-rate", updates, "--update-loops", 1 << 40]
        return self.start(name, *words, *arguments, **more)

    def report(self, process):
        """The report of a replay or a run that has ended; None if it wrote none."""
        return judge.report(self.folder / f"{process.name}.json")

    def judged(self, process, code, codes=(0,), faults=()):
        """Judges a process that has ended with `code`, which must be one of `codes`. Returns its report, which may be missing
        unless it ended with 0."""
        judge.no_crash(process, code, codes)
        found = self.report(process)
        if code not in codes:
            raise Failed(f"{process.name}: exit code {code}: {judge.last_line(process.errors())}")
        if found is None:
            if code == 0 or not process.is_heard:
                raise Failed(f"{process.name} ended with {code} and wrote no report")
            if "fwd-app: " not in process.errors() and code > 0:
                raise Failed(f"{process.name} ended with {code} and did not say why")
            return None
        judge.accounted(process.name, found, faults)
        if found["command"] == "replay":
            judge.verified(process.name, found)
        self.packets += found["packets"]["rx"]
        return found

    def finish(self, process, limit_s=END_S, **rules):
        """Waits for the end of a process, and judges it."""
        return self.judged(process, process.wait(limit_s), **rules)

    def terminate(self, process, limit_s=END_S, number=signal.SIGTERM, **rules):
        """Sends a process the signal `number`, waits for its end, and judges it."""
        process.signal(number)
        return self.judged(process, process.wait(limit_s, f"signal {number.name}"), **rules)

    def kill(self):
        """Kills the processes that a failure has left running."""
        for process in self.mine:
            process.kill()
            Round.processes.remove(process)
        self.mine.clear()

    @staticmethod
    def kill_all():
        """The same for all rounds."""
        for process in Round.processes:
            process.kill()

    def said(self):
        """A summary of the round in a few words."""
        return f"{self.runs} runs, {self.packets:,} packets"
