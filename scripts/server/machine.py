"""The guest: QEMU without KVM, a shell in it, and QEMU's monitor. It knows nothing of what is tested in it.

Cards come in pairs, left and right, of which each has a TAP of its own in the network namespace of an emulated host (`hosts`).
"""

import json
import re
import select
import socket
import subprocess
import time
from pathlib import Path

BOOT_S, MONITOR_S, STOP_S = 600, 60, 20
MEMORY_MB, PAGES_2M, CPUS = 2048, 360, 2
SIDES = ("left", "right")


class Failed(Exception):
    """A check that failed, or a machine that does not work; the text says how."""


class Model:
    """A card that QEMU emulates: its device and options, the pairs of queues of its TAP, and its differences from others."""

    def __init__(self, device, options="", queues=1, can_unplug=True, filters_vlans=False, jumbo_mtu=9000):
        self.device, self.options, self.queues = device, options, queues
        self.can_unplug, self.filters_vlans, self.jumbo_mtu = can_unplug, filters_vlans, jumbo_mtu


# e1000 is a conventional PCI device, attached to the CPU: only devices in a root port of PCI Express can be unplugged.
# QEMU's virtio-net drops 802.1Q frames of every VLAN that the driver has not requested, once the driver can request (its CTRL_VLAN).
# DPDK's vmxnet3 leaves maxNumRxSG at 0, which QEMU takes for one buffer a frame, so frames above an mbuf are lost.
MODELS = {
    "e1000": Model("e1000", can_unplug=False),
    "e1000e": Model("e1000e"),
    # Behind the IOMMU like other devices: without this option it would bypass it, and vfio-pci refuses it.
    "virtio": Model("virtio-net-pci", "disable-legacy=on,iommu_platform=on,mq=on,vectors=6", queues=2, filters_vlans=True),
    "vmxnet3": Model("vmxnet3", jumbo_mtu=2000),
}


class Lines:
    """A socket with one JSON value a line."""

    def __init__(self, path):
        self.socket, self.pending = socket.socket(socket.AF_UNIX), b""
        self.socket.connect(str(path))

    def put(self, value):
        """Sends one value."""
        self.socket.sendall((json.dumps(value) + "\n").encode())

    def get(self, timeout_s):
        """The next value; `TimeoutError` if it does not come in time."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError(f"nothing came within {timeout_s:.0f} s")
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise Failed("QEMU has ended")
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)


class Card:
    """One card of the guest: `name` is the name of its TAP and of its device in the monitor."""

    def __init__(self, driver, side, number):
        self.driver, self.side, self.model = driver, side, MODELS[driver]
        self.name = f"{driver}-{side[0]}"
        self.mac = f"02:f0:00:00:{number:02x}:01"
        self.address = None

    def arguments(self, number, has_iommu):
        """QEMU's arguments for the card. A ROM to boot from would take time only."""
        queues = f",queues={self.model.queues}" if self.model.queues > 1 else ""
        options = self.model.options if has_iommu else self.model.options.replace("iommu_platform=on,", "")
        device = f"{self.model.device},netdev={self.name}-tap,id={self.name},mac={self.mac},romfile=" + (options and f",{options}")
        root_port = []
        if self.model.can_unplug:
            root_port = ["-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}"]
            device += f",bus=port{number}"
        else:
            device += ",bus=pcie.0"
        tap = f"tap,id={self.name}-tap,ifname={self.name},script=no,downscript=no{queues}"
        return [*root_port, "-netdev", tap, "-device", device]


class Machine:
    """A guest that runs from `start` to `stop`. `work` is a folder for its sockets and logs, `work/share` is /srv/host in the guest."""

    def __init__(self, image, work, drivers, space, has_iommu=True, may_reboot=False):
        self.image, self.work, self.space, self.has_iommu, self.may_reboot = Path(image), Path(work), space, has_iommu, may_reboot
        self.share = self.work / "share"
        self.share.mkdir()
        pairs = [(driver, side) for driver in drivers for side in SIDES]
        self.cards = [Card(driver, side, number) for number, (driver, side) in enumerate(pairs)]
        self.process = self.agent = self.qmp = None
        self.events = []

    def card(self, driver, side):
        """The driver's card of this side."""
        return next(card for card in self.cards if (card.driver, card.side) == (driver, side))

    def arguments(self):
        """QEMU's command line."""
        kernel = f"console=ttyS0 quiet rw root=/dev/vda hugepages={PAGES_2M} mitigations=off transparent_hugepage=never"
        # On a busy host the guest's timers are late, which must not count as broken. A panic ends QEMU.
        kernel += " no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1 panic=-1 systemd.show_status=0"
        kernel += " intel_iommu=on iommu=pt" if self.has_iommu else ""
        disk = f"file={self.image}/root.ext4,format=raw,if=virtio,snapshot=on,cache=unsafe"
        words = ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS), "-m", str(MEMORY_MB)]
        words += ["-nodefaults", "-no-user-config", "-display", "none", *([] if self.may_reboot else ["-no-reboot"]), "-serial", f"file:{self.work}/console"]
        words += ["-kernel", f"{self.image}/vmlinuz", "-initrd", f"{self.image}/initrd.img", "-append", kernel]
        if self.has_iommu:
            # Before the devices that it translates for.
            words += ["-device", "intel-iommu,intremap=on,caching-mode=on,aw-bits=48"]
        words += ["-drive", disk, "-object", "rng-random,id=random,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=random"]
        words += ["-virtfs", f"local,path={self.share},mount_tag=host,security_model=none,readonly=on"]
        words += ["-qmp", f"unix:{self.work}/qmp,server=on,wait=off", "-device", "virtio-serial-pci"]
        words += ["-chardev", f"socket,id=agent,path={self.work}/agent,server=on,wait=off", "-device", "virtserialport,chardev=agent,name=agent"]
        for number, card in enumerate(self.cards):
            words += card.arguments(number, self.has_iommu)
        return words

    def start(self):
        """Starts QEMU in its namespace, where it opens its TAPs; they may be moved to others once this returns."""
        (self.work / "command").write_text(" ".join(self.arguments()) + "\n")
        for card in self.cards:
            queues = ["multi_queue"] if card.model.queues > 1 else []
            subprocess.run(["ip", "-n", self.space, "tuntap", "add", card.name, "mode", "tap", *queues], check=True)
        with open(self.work / "qemu", "wb") as log:
            command = ["ip", "netns", "exec", self.space, *self.arguments()]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + MONITOR_S
        while self.qmp is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed("QEMU does not start: " + (self.work / "qemu").read_text()[-2000:])
            try:
                self.qmp = Lines(self.work / "qmp")
            except OSError:
                time.sleep(0.05)
        self.qmp.get(MONITOR_S)
        self.monitor("qmp_capabilities")
        self.agent = Lines(self.work / "agent")

    def wait_for_boot(self):
        """Waits until the guest takes commands, and looks up where its cards are; the seconds since its kernel's start."""
        try:
            uptime_s = self.agent.get(BOOT_S)["uptime"]
        except (TimeoutError, Failed) as error:
            raise Failed(f"the guest does not boot: {error}: {(self.work / 'console').read_text(errors='replace')[-2000:]}") from error
        listing = self.guest(
            "udevadm settle; for n in /sys/class/net/*; do [ -e $n/device ] && echo $(cat $n/address) $(readlink -f $n/device); done; true", 120
        )
        places = dict(line.split() for line in listing.splitlines())
        for card in self.cards:
            if card.mac not in places:
                raise Failed(f"the guest's kernel does not see {card.name}: it has {listing}")
            # A virtio device is below its PCI device.
            card.address = re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", places[card.mac])[-1]
        return uptime_s

    def ask(self, command, timeout_s=180):
        """(exit code, output) of a shell command in the guest."""
        self.agent.put({"command": command, "timeout": timeout_s})
        answer = self.agent.get(timeout_s + 60)
        return answer["code"], answer["output"]

    def guest(self, command, timeout_s=180):
        """The output of a shell command in the guest, which must succeed."""
        code, output = self.ask(command, timeout_s)
        if code != 0:
            raise Failed(f"exit code {code} in the guest: {command}: {output[-2000:]}")
        return output

    def monitor(self, command, **arguments):
        """The result of a command of QEMU's monitor. Events that arrive meanwhile are kept."""
        self.qmp.put({"execute": command, "arguments": arguments})
        while True:
            answer = self.qmp.get(MONITOR_S)
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise Failed(f"QEMU's monitor refuses {command}: {answer['error']['desc']}")
            else:
                return answer["return"]

    def has_event(self, name, device):
        """Whether QEMU has reported this about the device."""
        # Pending events arrive before the next answer.
        self.monitor("query-status")
        return any(event["event"] == name and event["data"].get("device") == device for event in self.events)

    def stop(self):
        """Ends QEMU in any state of the guest."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
