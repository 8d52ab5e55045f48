"""Emulated hosts: one at each end of each pair of cards, in a network namespace of its own, which holds the TAP of the card.

The left host is 198.18.1.2 and fd00:1::2, the right one 198.18.2.2 and fd00:2::2; their default routes lead to .1 and ::1 of their links,
which are the forwarder's. They ping, and send and receive frames byte by byte (`Wire`).
"""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import threading
import time

from captures import packets

from .machine import SIDES, Failed

NUMBERS = {"left": 1, "right": 2}
# Longer than any frame of a check, so that the kernel refuses none.
TAP_MTU = 9216
# linux/if_ether.h, linux/if_packet.h, linux/sched.h, asm-generic/socket.h
ETH_P_ALL, SOL_PACKET, PACKET_AUXDATA, CLONE_NEWNET, SO_RCVBUFFORCE = 3, 263, 8, 0x40000000, 33
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
RECEIVE_BYTES = 64 << 20
TPID_C = 0x8100
# A later answer counts as lost, even on a slow machine.
REPLY_S = 20
# Pause between an answer and the next ping, since the router answers 1,000 pings of a host in a second.
PING_S = 0.002


def run(*words, check=True):
    """A command's output; its failure is one of the machine."""
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextlib.contextmanager
def inside(space):
    """Inside the block this thread is in the network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/self/task/{threading.get_native_id()}/ns/net", "rb") as ours, open(f"/run/netns/{space}", "rb") as theirs:
        if libc.setns(theirs.fileno(), CLONE_NEWNET) != 0:
            raise Failed(f"cannot enter the namespace {space}: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            libc.setns(ours.fileno(), CLONE_NEWNET)


class Wire:
    """The host's end of a cable: frames as they are, with their VLAN tags, but without what the host itself sends."""

    def __init__(self, space, interface):
        with inside(space):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            self.socket.bind((interface, ETH_P_ALL))
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        self.socket.setblocking(False)

    def fileno(self):
        """For `select`."""
        return self.socket.fileno()

    def send(self, frame):
        """Sends one frame; false where the kernel has no room for it now."""
        try:
            return self.socket.send(frame) == len(frame)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return False
            raise

    def receive(self):
        """The next frame, or None. The kernel takes the outermost VLAN tag out of a frame; here it is put back."""
        while True:
            try:
                frame, notes, _, sender = self.socket.recvmsg(1 << 16, 64)
            except BlockingIOError:
                return None
            if sender[2] == socket.PACKET_OUTGOING:
                continue
            for level, kind, data in notes:
                if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
                    status, tci, tpid = struct.unpack_from("=I12xHH", data)
                    if status & TP_STATUS_VLAN_VALID:
                        tpid = tpid if status & TP_STATUS_VLAN_TPID_VALID else TPID_C
                        frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
            return frame

    def close(self):
        """Stops receiving."""
        self.socket.close()


class Host:
    """The emulated host at the other end of a card's cable."""

    def __init__(self, card, machine_space, prefix):
        number = NUMBERS[card.side]
        self.card, self.machine_space, self.space = card, machine_space, f"{prefix}-{card.name}"
        self.ipv4, self.ipv6 = f"198.18.{number}.2", f"fd00:{number}::2"
        self.router_ipv4, self.router_ipv6 = f"198.18.{number}.1", f"fd00:{number}::1"
        self.mac = card.mac.replace("02:f0", "02:aa")

    def set_up(self):
        """Takes the TAP from the namespace of QEMU, which has opened it."""
        run("ip", "netns", "add", self.space)
        sysctls = ["net.ipv4.conf.all.forwarding=0", "net.ipv4.conf.default.forwarding=0", "net.ipv6.conf.all.accept_ra=0"]
        run("ip", "netns", "exec", self.space, "sysctl", "-qw", *sysctls)
        run("ip", "-n", self.machine_space, "link", "set", self.card.name, "netns", self.space)
        at = ["ip", "-n", self.space]
        run(*at, "link", "set", "lo", "up")
        run(*at, "link", "set", self.card.name, "address", self.mac, "mtu", str(TAP_MTU), "up")
        run(*at, "address", "add", f"{self.ipv4}/24", "dev", self.card.name)
        run(*at, "address", "add", f"{self.ipv6}/64", "dev", self.card.name, "nodad")
        run(*at, "route", "add", "default", "via", self.router_ipv4)
        run(*at, "route", "add", "default", "via", self.router_ipv6)

    def remove(self):
        """Removes the namespace, and the TAP with it."""
        run("ip", "netns", "del", self.space, check=False)

    def wire(self):
        """The host's end of the cable."""
        return Wire(self.space, self.card.name)

    def ping(self, target, count=1, size=56, wait_s=REPLY_S, ahead=1):
        """Echo requests of `size` bytes, of which `ahead` at most are not answered yet; how many were answered, up to the first that was not.

        There are fewer a second than the router answers one host.
        `ping` itself does not wait for the last answers, so that on a busy machine it counts some as lost that are only late.
        """
        is_ipv6 = ":" in target
        request, reply = (128, 129) if is_ipv6 else (8, 0)
        family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if is_ipv6 else (socket.AF_INET, socket.IPPROTO_ICMP)
        with inside(self.space):
            link = socket.socket(family, socket.SOCK_RAW, protocol)
        with link:
            sent, heard = [], set()
            for number in range(count + ahead - 1):
                if number < count:
                    rest = struct.pack("!HH", os.getpid() & 0xFFFF, number) + packets.pattern(size)
                    # The kernel computes the checksum of ICMPv6 alone.
                    sum_ = 0 if is_ipv6 else packets.checksum(bytes([request, 0, 0, 0]) + rest)
                    link.sendto(struct.pack("!BBH", request, 0, sum_) + rest, (target, 0))
                    sent.append(rest)
                first = number - ahead + 1
                if first >= 0 and not self._is_answered(link, target, bytes([reply, 0]), sent[first], heard, wait_s):
                    return first
                time.sleep(PING_S)
        return count

    @staticmethod
    def _is_answered(link, target, head, rest, heard, wait_s):
        """Whether the answer is among those `heard`, or comes in time; answers that come before it are added to `heard`."""
        end = time.monotonic() + wait_s
        while rest not in heard:
            left = end - time.monotonic()
            if left <= 0 or not select.select([link], [], [], left)[0]:
                return False
            data, sender = link.recvfrom(1 << 16)
            message = data if ":" in target else data[4 * (data[0] & 15) :]
            if sender[0] == target and message[:2] == head:
                heard.add(message[4:])
        return True


class Pair:
    """The two hosts of a driver."""

    def __init__(self, machine, driver, prefix):
        self.left, self.right = (Host(machine.card(driver, side), machine.space, prefix) for side in SIDES)

    def __iter__(self):
        return iter((self.left, self.right))
