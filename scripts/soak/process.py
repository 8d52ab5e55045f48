"""One process under test: started with its output in files, watched, signalled, and ended within a limit.

A single thread can be stopped through ptrace, if the kernel allows it, which takes its CPU away for an exactly known time.
"""

import ctypes
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

# linux/ptrace.h, linux/wait.h
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
SAMPLE_S = 0.5


class Failed(Exception):
    """A check that failed; the text says which."""


class Sample:
    """A moment of a process: seconds since its start, kilobytes of private memory, threads, open files."""

    def __init__(self, time_s, memory_kb, threads, files):
        self.time_s, self.memory_kb, self.threads, self.files = time_s, memory_kb, threads, files


class Process:
    """A program that runs with standard output and error in FOLDER/NAME.out and .err, unless `stderr` is given."""

    def __init__(self, folder, name, command, env=None, stderr=None, limits=(), sample=False):
        self.name, self.command = name, [str(word) for word in command]
        self.is_heard = stderr is None
        self.out, self.err = Path(folder) / f"{name}.out", Path(folder) / f"{name}.err"
        (Path(folder) / f"{name}.command").write_text(
            " ".join([f"{key}={value}" for key, value in sorted((env or {}).items())] + self.command) + "\n"
        )
        self.started = time.monotonic()
        self.samples = []
        self.forwarding_s = 0.0
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err if stderr is None else stderr,
                env={**os.environ, **(env or {})},
                preexec_fn=(lambda: [resource.setrlimit(kind, (most, most)) for kind, most in limits]) if limits else None,
            )
        self.pid = self.popen.pid
        if sample:
            threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self):
        while self.popen.returncode is None:
            try:
                status = self._status("VmRSS", "RssFile", "Threads")
                files = len(os.listdir(f"/proc/{self.pid}/fd"))
            except (OSError, KeyError):
                return
            moment = time.monotonic() - self.started
            self.samples.append(Sample(moment, status["VmRSS"] - status["RssFile"], status["Threads"], files))
            time.sleep(SAMPLE_S)

    def _status(self, *names):
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = dict(re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE))
        return {name: int(found[name]) for name in names}

    def address_space_bytes(self):
        """Its current bytes of address space; 0 once it has ended."""
        try:
            return self._status("VmSize")["VmSize"] * 1024
        except (OSError, KeyError):
            return 0

    def is_running(self):
        return self.popen.poll() is None

    def threads(self, name=""):
        """Its threads whose name contains `name`, as {tid: name}."""
        found = {}
        try:
            for tid in os.listdir(f"/proc/{self.pid}/task"):
                comm = Path(f"/proc/{self.pid}/task/{tid}/comm").read_text().strip()
                if name in comm:
                    found[int(tid)] = comm
        except OSError:
            pass
        return found

    def has_open(self, path):
        """Whether it has this file open."""
        try:
            inode = os.stat(path)
            for number in os.listdir(f"/proc/{self.pid}/fd"):
                at = os.stat(f"/proc/{self.pid}/fd/{number}")
                if (at.st_dev, at.st_ino) == (inode.st_dev, inode.st_ino):
                    return True
        except OSError:
            pass
        return False

    def until(self, condition, limit_s):
        """Waits until `condition()` holds or the process ends. Returns whether the condition holds."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if condition():
                return True
            if not self.is_running():
                return False
            time.sleep(0.0005)
        return False

    def until_forwarding(self, limit_s):
        """Waits until it has threads of worker lcores. Returns whether it has."""
        is_forwarding = self.until(lambda: self.threads("worker"), limit_s)
        self.forwarding_s = time.monotonic() - self.started
        return is_forwarding

    def run_for(self, seconds):
        """Waits for `seconds`, or until its end."""
        self.until(lambda: False, seconds)

    def signal(self, number):
        if self.is_running():
            self.popen.send_signal(number)

    def wait(self, limit_s, after="its start"):
        """Its exit code. A process that does not end within the limit is killed, and that is a failure."""
        try:
            return self.popen.wait(limit_s)
        except subprocess.TimeoutExpired:
            where = self._where()
            self._stacks()
            self.kill()
            raise Failed(f"{self.name} did not end within {limit_s:.0f} s of {after}: {where}") from None

    def _where(self):
        """The state of each thread, for the message about a process that hangs."""
        told = []
        for tid, comm in sorted(self.threads().items()):
            try:
                state = Path(f"/proc/{self.pid}/task/{tid}/stat").read_text().rsplit(")", 1)[1].split()
                told.append(f"{comm}: {state[0]}, {(int(state[11]) + int(state[12])) / os.sysconf('SC_CLK_TCK'):.1f} s of CPU")
            except OSError:
                pass
        return "; ".join(told)

    def _stacks(self):
        """Writes the stack of each thread to NAME.stacks, if gdb is installed."""
        if shutil.which("gdb"):
            with open(self.out.with_suffix(".stacks"), "wb") as out:
                command = ["gdb", "-batch", "-p", str(self.pid), "-ex", "thread apply all backtrace 12"]
                subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=60, check=False)

    def kill(self):
        if self.is_running():
            self.popen.kill()
            self.popen.wait()

    def errors(self):
        """Its standard error."""
        return self.err.read_text(errors="replace") if self.err.exists() else ""


class Spinners:
    """Busy loops on one CPU, which take it from a thread."""

    def __init__(self, cpu, count):
        code = "while True: pass"
        self.all = [
            subprocess.Popen(["python3", "-c", code], preexec_fn=lambda: os.sched_setaffinity(0, {cpu})) for _ in range(count)
        ]

    def end(self):
        for spinner in self.all:
            spinner.kill()
            spinner.wait()


def stop_thread(tid, seconds):
    """Stops one thread, which must not be the first of its process, for `seconds`. Returns False if ptrace is not allowed or the thread
    has ended.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(PTRACE_SEIZE, tid, None, None) != 0:
        return False
    stopped = False
    if libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0:
        try:
            _, status = os.waitpid(tid, WALL)
            stopped = os.WIFSTOPPED(status)
        except ChildProcessError:
            return False
    if stopped:
        time.sleep(seconds)
        libc.ptrace(PTRACE_DETACH, tid, None, None)
    return stopped


def starve_thread(tid, seconds):
    """For a thread that cannot be stopped: pins it to one CPU at the lowest priority, with busy loops of normal priority."""
    try:
        before = os.sched_getaffinity(tid)
        cpu = min(before)
        os.sched_setaffinity(tid, {cpu})
        os.setpriority(os.PRIO_PROCESS, tid, 19)
    except OSError:
        return False
    spinners = Spinners(cpu, 6)
    time.sleep(seconds)
    spinners.end()
    try:
        os.sched_setaffinity(tid, before)
    except OSError:
        pass
    return True


def take_cpu(tid, seconds):
    """Takes a thread's CPU for about `seconds`. Returns how, or an empty text if that is not possible."""
    if stop_thread(tid, seconds):
        return "stopped"
    return "starved" if starve_thread(tid, seconds) else ""


def limit_address_space(pid, size_bytes):
    """Limits the address space of a running process."""
    resource.prlimit(pid, resource.RLIMIT_AS, (size_bytes, size_bytes))


def signal_name(code):
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
