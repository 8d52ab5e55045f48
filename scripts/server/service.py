"""The Debian package in the guest: installed, started by systemd as its own user, hung, started again, purged.

The checks come before those of drivers, on the first pair of cards, and leave the cards on vfio-pci. The checks of
`--long` take minutes under emulation: an upgrade while packets flow, and a reboot.
"""

import re
import subprocess

from .checks import Checks, eventually
from .forwarder import ROUTES
from .machine import BOOT_S, Failed

PACKAGE = "/srv/host/fwd-app.deb"
INSTALL_S, START_S, RESTART_S = 300, 240, 120
PINGS = 3
# CAP_NET_ADMIN and CAP_NET_RAW.
CAPABILITIES = (1 << 12) | (1 << 13)
UNCOUNTED = ("/proc", "/sys", "/run", "/tmp", "/srv", "/var/log", "/var/tmp", "/var/lib/dpkg", "/var/cache", "/etc/passwd*", "/etc/group*", "/etc/shadow*", "/etc/gshadow*", "/etc/.pwd.lock")
# Stops one thread (PTRACE_ATTACH), waits for the stop, then for its end (__WALL): a traced process remains until its tracer has reaped it.
HANG = "import ctypes, os, sys; task = int(sys.argv[1]); ctypes.CDLL(None).ptrace(16, task, 0, 0); [os.waitpid(task, 1 << 30) for _ in range(2)]"


class Service(Checks):
    """The checks of the package, on a machine with the package at `PACKAGE`."""

    def __init__(self, machine, pair, say, bind_again, is_long):
        super().__init__("service", say)
        self.machine, self.pair, self.bind_again, self.is_long = machine, pair, bind_again, is_long

    def run(self):
        """All checks."""
        checks = {"install": self.install, "bind": self.bind, "start": self.start, "user": self.user, "forward": self.forward, "watchdog": self.watchdog}
        if self.is_long:
            checks |= {"upgrade": self.upgrade, "reboot": self.reboot}
        for name, body in (checks | {"stop": self.stop, "purge": self.purge}).items():
            self.check(name, body)

    def list_files(self, name):
        """Lists all files of the guest that a package might leave, in a file of this name in /var/tmp."""
        prune = " -o ".join(f"-path '{path}'" for path in UNCOUNTED)
        self.machine.guest(f"(find / -xdev \\( {prune} \\) -prune -o -print; ls -d /dev/hugepages/* /run/fwd-app 2>/dev/null) | sort >/var/tmp/{name}", INSTALL_S)

    def unit(self, name):
        """A property of the service."""
        return self.machine.guest(f"systemctl show --value -p {name} fwd-app").strip()

    def install(self):
        """The package installs, its units are accepted, and no service starts."""
        self.list_files("before")
        self.machine.guest(f"DEBIAN_FRONTEND=noninteractive dpkg -i {PACKAGE}", INSTALL_S)
        self.machine.guest("systemd-analyze verify --man=no /lib/systemd/system/fwd-app.service /lib/systemd/system/fwd-app-bind@.service 2>&1", INSTALL_S)
        if self.unit("ActiveState") != "inactive":
            raise Failed(f"the service is {self.unit('ActiveState')}")
        exposure = self.machine.guest("systemd-analyze security --no-pager fwd-app.service | tail -n 1", INSTALL_S).strip()
        return f"{self.machine.guest('fwd-app --version').strip()}; {exposure.partition(':')[2].strip()}"

    def bind(self):
        """The unit takes a card that the kernel has, and one that is on vfio; their groups become the service's then, and not before."""
        ready, address = (host.card.address for host in self.pair)

        def state(address):
            driver = self.machine.guest(f"basename $(readlink /sys/bus/pci/devices/{address}/driver)").strip()
            group = self.machine.guest(f"stat -c '%G %a' /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/{address}/iommu_group))").strip()
            return f"{driver}, {group}"

        if state(ready) != "vfio-pci, root 600":
            raise Failed(f"{ready}, which was not bound for the service, has {state(ready)}")
        self.machine.guest(f"/usr/lib/fwd-app/bind {address}; systemctl is-system-running --wait; systemctl start fwd-app-bind@{address} fwd-app-bind@{ready}", INSTALL_S)
        for each in (address, ready):
            if state(each) != "vfio-pci, fwd-app 660":
                raise Failed(f"{each} has {state(each)}")
        return state(address)

    def start(self):
        """systemd gets READY and a status."""
        # An lcore that polls takes a CPU of this host, and the guest's start, hang and purge take minutes.
        options = "--fib /etc/fwd-app/routes --config (0,0,1),(1,0,1) --idle-us 1000"
        for port, host in enumerate(self.pair):
            options += f" --address {port}={host.router_ipv4}/24 --address {port}={host.router_ipv6}/64"
        eal = "--huge-dir /dev/hugepages/fwd-app -l 0,1" + "".join(f" -a {host.card.address}" for host in self.pair)
        self.machine.guest(
            f"printf '{ROUTES}' >/etc/fwd-app/routes; "
            f"sed -i 's|^OPTIONS=.*|OPTIONS=\"{options}\"|; s|^EAL=.*|EAL=\"{eal}\"|' /etc/default/fwd-app"
        )
        code, said = self.machine.ask("systemctl enable --now fwd-app 2>&1 || journalctl -u fwd-app -o cat -n 20", START_S)
        if code != 0 or self.unit("ActiveState") != "active":
            raise Failed(f"the service is {self.unit('ActiveState')}: {said}")
        eventually(START_S, "a status of two ports that are up", lambda: self.unit("StatusText").endswith("2 of 2 ports up"))
        return self.unit("StatusText")

    def user(self):
        """Every thread is the user's, with two capabilities and no way to more."""
        wanted = ("Uid", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs")
        threads = self.machine.guest(f"cat /proc/{self.unit('MainPID')}/task/*/status").split("Name:")[1:]
        for thread in threads:
            fields = dict(re.findall(r"^(\w+):\s*(.*)$", thread, re.MULTILINE))
            uid, *caps, no_more = (fields[name].split()[0] for name in wanted)
            if uid == "0" or no_more != "1" or any(int(value, 16) != CAPABILITIES for value in caps):
                raise Failed(f"thread {thread.split()[0]}: {[fields[name] for name in wanted]}")
        return f"{len(threads)} threads of fwd-app, CAP_NET_ADMIN and CAP_NET_RAW"

    def forward(self):
        """Both families pass in both directions."""
        for host, other in ((self.pair.left, self.pair.right), (self.pair.right, self.pair.left)):
            for target in (other.ipv4, other.ipv6):
                answered = host.ping(target, PINGS)
                if answered < PINGS:
                    raise Failed(f"ping {answered + 1} of {PINGS} from the {host.card.side} host to {target} is not answered")
        return "both families, both directions"

    def watchdog(self):
        """One lcore is stopped: the journal names it, systemd starts the forwarder again, and packets pass."""
        task = self.machine.guest(f"grep -lxE '(rte|lcore|dpdk)-worker-?1' /proc/{self.unit('MainPID')}/task/*/comm").strip()
        self.machine.guest(f"python3 -c '{HANG}' {task.split('/')[-2]} >/dev/null 2>&1 &")
        eventually(RESTART_S, "the service is started again", lambda: self.unit("NRestarts") == "1" and self.unit("ActiveState") == "active")
        journal = self.machine.guest("journalctl -u fwd-app -o cat")
        said = re.search(r"stuck for [0-9]* ms: .*lcore 1.*", journal)
        if said is None or "watchdog" not in journal.lower():
            raise Failed(f"the journal does not say that lcore 1 is stuck: {journal[-2000:]}")
        self.forward()
        return said[0]

    def upgrade(self):
        """The package is installed again while an emulated host pings ten times a second: the longest time without an answer."""
        left, right = self.pair
        words = ["ip", "netns", "exec", left.space, "ping", "-n", "-D", "-i", "0.1", right.ipv4]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as pings:
            try:
                self.machine.guest(f"dpkg -i {PACKAGE}", INSTALL_S)
                eventually(RESTART_S, "the service is active", lambda: self.unit("ActiveState") == "active")
                self.forward()
            finally:
                pings.terminate()
            times = [float(time) for time in re.findall(r"^\[([\d.]+)\].*bytes from", pings.stdout.read(), re.MULTILINE)]
        gap_ms = max(after - before for before, after in zip(times, times[1:])) * 1000
        return f"no answer for {gap_ms:.0f} ms"

    def reboot(self):
        """After a reboot the service starts, with its card bound."""
        address = self.pair.left.card.address
        self.machine.guest(f"systemctl enable fwd-app-bind@{address} fwd-app-bind@{self.pair.right.card.address}")
        self.machine.guest("(sleep 1; systemctl reboot) >/dev/null 2>&1 &")
        self.machine.agent.get(BOOT_S)
        eventually(START_S, "the service is active", lambda: self.unit("ActiveState") == "active")
        self.forward()
        return self.unit("StatusText")

    def stop(self):
        """It drains and ends well."""
        self.machine.guest("systemctl stop fwd-app", INSTALL_S)
        if self.unit("Result") != "success":
            raise Failed(f"{self.unit('Result')}: {self.machine.guest('journalctl -u fwd-app -o cat -n 30')}")
        return "drained"

    def purge(self):
        """The service ends, and the files of the package are gone."""
        self.machine.guest("systemctl start fwd-app; dpkg --purge fwd-app", START_S)
        self.list_files("after")
        left = self.machine.guest("comm -13 /var/tmp/before /var/tmp/after").split()
        units = self.machine.guest("systemctl list-units --all --no-legend 'fwd-app*'").strip()
        self.bind_again()
        if left or units:
            raise Failed(f"left behind: {' '.join(left[:20])} {units}")
        return "nothing is left"
