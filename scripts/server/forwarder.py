"""One forwarder in the guest, on the two cards of a driver: its start, what `fwd-app ctl` says of it, its end and its report."""

import json
import shlex

from .machine import SIDES, Failed

PROGRAM = "/usr/local/bin/fwd-app"
FOLDER = "/run/forwarder"
START_S, END_S = 180, 90
ROUTES = """0.0.0.0/1 via 198.18.1.2 dev 0
128.0.0.0/1 via 198.18.2.2 dev 1
::/1 via fd00:1::2 dev 0
8000::/1 via fd00:2::2 dev 1
"""
VLAN = 100
VRF = ("--vrf", f"blue=0.{VLAN},1.{VLAN}", "--vrf-fib", f"blue={FOLDER}/routes", "--vrf-fib", f"blue={FOLDER}/neighbours")


class Forwarder:
    """A forwarder with `options`; its port 0 is the left card. Used with `with`: it runs inside, and is killed at the end if it still does."""

    def __init__(self, machine, pair, options=(), queues=1):
        self.machine = machine
        words = [PROGRAM, "run", "--fib", f"{FOLDER}/routes", "--ctl", f"{FOLDER}/ctl", "--json", f"{FOLDER}/report.json"]
        for port, host in enumerate(pair):
            words += ["--address", f"{port}={host.router_ipv4}/24", "--address", f"{port}={host.router_ipv6}/64"]
        # All queues on the second CPU: the first one runs the guest.
        words += ["--config", ",".join(f"({port},{queue},1)" for port in range(len(SIDES)) for queue in range(queues))]
        words += [*options, "--", "-l", "1", "--file-prefix", "forwarder"]
        for host in pair:
            words += ["-a", host.card.address]
        self.command = shlex.join(words)
        # A VLAN has no address to resolve with.
        hosts = [(port, address, host.mac) for port, host in enumerate(pair) for address in (host.ipv4, host.ipv6)]
        self.neighbours = "".join(f"neigh {address} lladdr {mac} dev {port}\n" for port, address, mac in hosts)

    def __enter__(self):
        # The file with the exit code is written last.
        script = f"rm -rf {FOLDER}; mkdir {FOLDER}; cd {FOLDER}; printf '{ROUTES}' >routes; printf '{self.neighbours}' >neighbours; "
        script += f"({self.command} >out 2>err & echo $! >pid; wait $!; echo $? >code.new; mv code.new code) >/dev/null 2>&1 &"
        self.machine.guest(script)
        return self

    def __exit__(self, *_):
        self.machine.ask(f"cd {FOLDER}; [ -e code ] || kill -9 $(cat pid); until [ -e code ]; do sleep 0.1; done")

    def wait_until_it_forwards(self):
        """Waits for its first packet; it must not end."""
        tries = START_S * 5
        script = f"cd {FOLDER}; for i in $(seq {tries}); do grep -q 'forwarding; Ctrl-C' err && exit; [ -e code ] && exit 1; sleep 0.2; done; exit 2"
        if self.machine.ask(script, START_S * 4)[0] != 0:
            raise Failed(f"the forwarder does not forward: {self.errors()}")
        return self

    def errors(self):
        """The end of its stderr."""
        return self.machine.ask(f"grep -v '^EAL: \\(Detected\\|Multi\\|Selected\\|VFIO\\|Using\\)' {FOLDER}/err | tail -n 12")[1].strip()

    def runs(self):
        """Whether it has not ended."""
        return self.machine.ask(f"[ ! -e {FOLDER}/code ]")[0] == 0

    def ctl(self, words):
        """The answer of `fwd-app ctl`, as JSON."""
        return json.loads(self.machine.guest(f"{PROGRAM} ctl --socket {FOLDER}/ctl --json {words}"))

    def link(self, port):
        """The state of a port's link, as shown."""
        return next(info["link"] for info in self.ctl("show port info") if info["port"] == port)

    def drops(self):
        """Packets dropped so far by reason, without the reasons that none was dropped for."""
        return {reason: count for reason, count in self.ctl("show drops").items() if count}

    def end(self, signal="TERM"):
        """(exit code, report) after the signal, or after its own end without a signal; the report is None if it wrote none."""
        tries = END_S * 5
        script = f"cd {FOLDER}; " + (f"kill -{signal} $(cat pid); " if signal else "")
        script += f"for i in $(seq {tries}); do [ -e code ] && break; sleep 0.2; done; cat code && cat report.json 2>/dev/null; true"
        code, _, report = self.machine.guest(script, END_S * 4).partition("\n")
        if not code.isdigit():
            raise Failed(f"the forwarder has not ended {END_S} s after {signal}: {self.errors()}")
        return int(code), json.loads(report) if report else None
