"""One forwarder's process: its start, its CPU time, its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import peers

READY_POLLS = 1000


class Failed(Exception):
    """A check of a forwarder failed; the text says which."""


class Forwarder:
    """A process of a peer. `with` ends it."""

    def __init__(self, peer):
        self.peer, self.run = peer, peer.run
        self.name = peer.run.name
        self.log = peer.run.scratch / f"{self.name}.log"
        self.command = [str(word) for word in peer.command()]
        with open(self.log, "wb") as log:
            # EAL also looks for a -d name without a folder in the current one. Some programs end when their input does.
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, cwd="/", env={**os.environ, **peer.environment()}
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.peer.clean_up()

    def fail(self, what):
        raise Failed(f"{self.name}: {what}; its log is {self.log}\n{self.log.read_text(errors='replace')[-3000:]}")

    def tool(self, command):
        """Runs a configuration program of this forwarder."""
        command = [str(word) for word in command]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **self.peer.environment()})
        if done.returncode != 0:
            self.fail(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}\n")
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(done.stdout[-4000:] + done.stderr[-4000:])

    def wait_for(self, condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                self.fail(f"has ended with code {self.process.returncode}")
            if time.monotonic() > end:
                self.fail(f"not ready after {seconds} s")
            time.sleep(0.1)

    def wait_for_line(self, text, seconds):
        self.wait_for(lambda: text in self.log.read_text(errors="replace"), seconds)

    def wait_for_answer(self, command, seconds):
        """Until a program that asks this forwarder succeeds."""
        command = [str(word) for word in command]
        environment = {**os.environ, **self.peer.environment()}
        self.wait_for(lambda: subprocess.run(command, capture_output=True, check=False, env=environment).returncode == 0, seconds)

    def prepare(self):
        """Waits until it has its table and polls for packets, which it does not get yet."""
        self.peer.set_up(self)
        first = self.run.page.polls()
        self.wait_for(lambda: self.run.page.polls() > first + READY_POLLS, peers.START_S)

    def pause(self):
        """Stops the process, so that it takes no CPU while it waits for others."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def cpu_ns(self):
        """The CPU time of each thread that may run on the measured CPU alone."""
        times = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                status = (task / "status").read_text()
                if f"\nCpus_allowed_list:\t{self.run.cpu}\n" in status:
                    times[task.name] = int((task / "schedstat").read_text().split()[0])
            except OSError:
                pass
        return times

    def busiest_ns(self, before):
        """The CPU time since `before` of the busiest thread, which is the forwarding one, and the times now."""
        now = self.cpu_ns()
        return max((time_ns - before.get(thread, 0) for thread, time_ns in now.items()), default=0), now


def start(peer):
    """A forwarder that is ready and paused."""
    forwarder = Forwarder(peer)
    try:
        forwarder.prepare()
        forwarder.pause()
    except BaseException:
        forwarder.__exit__()
        raise
    print(f"  {forwarder.name} is ready", file=sys.stderr, flush=True)
    return forwarder
