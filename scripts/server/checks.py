"""The checks of each driver, in this order. Every check returns its findings in a few words, or raises `Failed`.

The checks of one phase share a forwarder, so that a driver is started three times and not once a check. A check that fails leaves the
forwarder to the next ones, which may fail for the same reason. Idle lcores sleep in the long phase and poll in the others: a polling emulated
CPU takes a whole CPU of the host.
"""

import re
import time

from . import frames
from .forwarder import END_S, PROGRAM, VLAN, VRF, Forwarder
from .machine import Failed

CAPTURE_FRAMES = 20_000
PINGS, OWN_PINGS, OWN_AHEAD = 5, 1_500, 16
# IDs without a VRF: frames with these tags are forwarded as untagged ones are.
C_TAG, S_TAG = (frames.p.TPID_C, 300), (frames.p.TPID_S, 200)
QUEUES = 17
SLEEPING = ("--idle-us", "1000")
LINK_S, UNPLUG_S = 40, 40
NONE = "-"


def eventually(seconds, what, condition):
    """Waits until the condition holds, and fails with `what` if it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def both_ways(pair, make):
    """Streams between the hosts in both directions at once, with the frames that `make` returns for a target's side."""
    streams = [frames.Stream(pair.left, pair.right, make("right")), frames.Stream(pair.right, pair.left, make("left"))]
    faults = frames.exchange(streams)
    if faults:
        raise Failed("; ".join(faults))
    return f"{len(streams[0].sent)} and {len(streams[1].sent)} frames"


class Checks:
    """Checks of one kind, and their results by name; `say` prints the line of a result."""

    def __init__(self, name, say):
        self.name, self.say, self.results = name, say, {}

    def check(self, name, body):
        """Runs one check and notes its result."""
        started = time.monotonic()
        try:
            seen, result = body(), "ok"
        except (Failed, TimeoutError, OSError, ValueError, KeyError) as error:
            seen, result = str(error) or type(error).__name__, "FAILED"
        if seen == NONE:
            result = NONE
        self.results[name] = {"result": result, "seen": seen, "seconds": round(time.monotonic() - started, 1)}
        self.say(self.name, name, self.results[name])


class Driver(Checks):
    """The checks of one driver, on a machine whose cards are bound to user space."""

    def __init__(self, machine, pair, name, binding, say):
        super().__init__(name, say)
        self.machine, self.pair, self.binding = machine, pair, binding
        self.forwarder = None
        self.jumbo_mtu = pair.left.card.model.jumbo_mtu

    def run(self):
        """All checks."""
        self.check("ready", self.is_ready)
        self.phase(SLEEPING, {"ping": self.ping, "capture": self.capture, "vlan": self.vlan, "link": self.link, "own": self.own, "sigterm": self.sigterm})
        self.check("queues", self.queues)
        jumbo = [word for port in range(2) for word in ("--mtu", f"{port}={self.jumbo_mtu}")]
        self.phase([*jumbo, *VRF], {"jumbo": self.jumbo, "vrf": self.vrf, "unplug": self.unplug})

    def phase(self, options, checks):
        """Runs checks with one forwarder; if it does not start, every check fails for that reason."""
        with Forwarder(self.machine, self.pair, options) as self.forwarder:
            try:
                self.forwarder.wait_until_it_forwards()
            except Failed as error:
                reason = str(error)

                def fails():
                    raise Failed(reason)

                checks = dict.fromkeys(checks, fails)
            for name, body in checks.items():
                self.check(name, body)

    def is_ready(self):
        """`fwd-app check` finds the host ready, DPDK's drivers, and both cards in the hands of user space."""
        code, said = self.machine.ask(f"{PROGRAM} check")
        if code != 0 or "\nready" not in said:
            raise Failed(f"fwd-app check: exit code {code}: " + "; ".join(line for line in said.splitlines() if line.startswith("FAIL")))
        for host in self.pair:
            if f"{host.card.address} ({self.binding}" not in said:
                raise Failed(f"fwd-app check does not know {host.card.address} with {self.binding}: {said}")
        return f"{self.binding}: " + ", ".join(host.card.address for host in self.pair)

    def must_answer(self, host, target, count=PINGS, **options):
        """Every ping must be answered, the first included."""
        answered = host.ping(target, count, **options)
        if answered < count:
            raise Failed(f"ping {answered + 1} of {count} from the {host.card.side} host to {target} is not answered")
        return answered

    def ping(self):
        """Both families: the router's two addresses and the host beyond, from each side."""
        count = 0
        for host, other in ((self.pair.left, self.pair.right), (self.pair.right, self.pair.left)):
            for target in (host.router_ipv4, host.router_ipv6, other.router_ipv4, other.router_ipv6, other.ipv4, other.ipv6):
                count += self.must_answer(host, target)
        return f"{count} of {count} answered"

    def capture(self):
        """The bundled capture in both directions at once."""
        without = [frames.p.TPID_C] if self.pair.left.card.model.filters_vlans else []
        return both_ways(self.pair, lambda side: frames.capture(side, CAPTURE_FRAMES, without))

    def vlan(self):
        """One tag and two, from the smallest frame to the largest of the MTU."""
        sizes = [*range(28, 1500, 59), 1500]
        stacks = [[S_TAG, C_TAG]] if self.pair.left.card.model.filters_vlans else [[C_TAG], [S_TAG, C_TAG]]
        return both_ways(self.pair, lambda side: frames.sizes(side, sizes, stacks))

    def jumbo(self):
        """IP packets from 1,500 bytes up to the MTU, and by ping."""
        # A new forwarder keeps only a few packets for an unresolved host.
        self.ping()
        sizes = [*range(1500, self.jumbo_mtu, 41), self.jumbo_mtu]
        seen = both_ways(self.pair, lambda side: frames.sizes(side, sizes, [[]]))
        self.must_answer(self.pair.left, self.pair.right.ipv4, size=self.jumbo_mtu - 28)
        self.must_answer(self.pair.left, self.pair.left.router_ipv6, size=self.jumbo_mtu - 48)
        return seen

    def vrf(self):
        """Frames of a VLAN in a separate VRF: cards that filter VLANs must be set to receive it."""
        sizes = [*range(28, self.jumbo_mtu, 211), self.jumbo_mtu]
        return both_ways(self.pair, lambda side: frames.sizes(side, sizes, [[(frames.p.TPID_C, VLAN)]]))

    def link(self):
        """The right cable off and on: the forwarder sees both, drops what would leave there, and forwards again."""
        port, card = 1, self.pair.right.card
        eventually(LINK_S, "the link is up at the start", lambda: self.forwarder.link(port) == "up")
        before = self.forwarder.drops().get("no_neighbour", 0)
        self.machine.monitor("set_link", name=card.name, up=False)
        try:
            eventually(LINK_S, "the link is down once the cable is off", lambda: self.forwarder.link(port) == "down")
            self.pair.left.ping(self.pair.right.ipv4, wait_s=1)
            dropped = self.forwarder.drops().get("no_neighbour", 0) - before
        finally:
            self.machine.monitor("set_link", name=card.name, up=True)
        if dropped < 1:
            raise Failed(f"nothing was dropped as no_neighbour while the link was down: {self.forwarder.drops()}")
        eventually(LINK_S, "the link is up once the cable is on", lambda: self.forwarder.link(port) == "up")
        eventually(LINK_S, "pings pass again", lambda: self.pair.left.ping(self.pair.right.ipv4, wait_s=2) == 1)
        self.must_answer(self.pair.left, self.pair.right.ipv6)
        return f"seen, {dropped} dropped"

    def own(self):
        """3,000 pings of the router alone, half of them on each port, sixteen at a time: answers must not run out of mbufs."""
        for host in self.pair:
            self.must_answer(host, host.router_ipv4, OWN_PINGS, ahead=OWN_AHEAD)
        self.must_answer(self.pair.left, self.pair.right.ipv4)
        return f"{2 * OWN_PINGS} of {2 * OWN_PINGS} answered"

    def sigterm(self):
        """Ends with exit code 0 and a report in which every packet is accounted for."""
        return self.ends_well("TERM")

    def ends_well(self, signal):
        """The forwarder's end after a signal, in words."""
        code, report = self.forwarder.end(signal)
        if code != 0:
            raise Failed(f"exit code {code} after SIG{signal}: {self.forwarder.errors()}")
        if report is None:
            raise Failed(f"no report after SIG{signal}")
        packets = report["packets"]
        came = packets["rx"] + packets["originated"]
        gone = packets["tx"] + packets["punted"] + sum(packets["drops"].values()) + packets["held"]
        if came != gone or packets["rx"] == 0:
            raise Failed(f"{came} packets came, {gone} are accounted for: {packets}")
        return f"{packets['rx']} packets received, all accounted for"

    def queues(self):
        """More queues than the card has are refused with exit code 2, and the message names the number."""
        with Forwarder(self.machine, self.pair, queues=QUEUES) as self.forwarder:
            eventually(END_S, "it ends by itself", lambda: not self.forwarder.runs())
            code, _ = self.forwarder.end(None)
            said = self.forwarder.errors()
        last = said.splitlines()[-1] if said else ""
        if code != 2 or "queue" not in last or "panicked" in said:
            raise Failed(f"exit code {code} with {QUEUES} queues: {said}")
        return last

    def unplug(self):
        """The right card is taken out: the guest's kernel gets it back, and the forwarder goes on with the other one."""
        card = self.pair.right.card
        if not card.model.can_unplug:
            return NONE
        self.machine.monitor("device_del", id=card.name)
        eventually(UNPLUG_S, "the card is let go", lambda: self.machine.has_event("DEVICE_DELETED", card.name))
        if not self.forwarder.runs():
            raise Failed(f"the forwarder has ended: {self.forwarder.errors()}")
        self.must_answer(self.pair.left, self.pair.left.router_ipv4)
        said = self.forwarder.errors()
        if not re.search(rf"{re.escape(card.address)}.*\b(removed|unplugged|gone|taken out)\b", said):
            raise Failed(f"the forwarder does not report it: {said}")
        self.ends_well("TERM")
        return "the card is let go, the other port goes on"
