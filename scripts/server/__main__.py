"""Command line of scripts/server.sh: boots the guest, binds its cards, runs the checks of each driver, prints the table."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import docs, selftest
from .checks import Driver
from .forwarder import PROGRAM
from .hosts import Pair, run
from .machine import MODELS, Failed, Machine
from .service import Service

BIND_S = 600
HELP = """A line is a shell command in the guest; the program is /usr/local/bin/fwd-app. Lines that begin with a colon:
  :monitor NAME [JSON]   a command of QEMU's monitor, as  :monitor set_link {"name": "virtio-r", "up": false}
  :hosts                 how to run commands on the emulated hosts
  :quit                  ends the machine"""


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="server.sh", add_help=False)
    parser.add_argument("mode", nargs="?", choices=["check", "docs", "shell"], default="check")
    parser.add_argument("--image", required=True)
    parser.add_argument("--app", required=True)
    parser.add_argument("--drivers")
    parser.add_argument("--deb")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--no-iommu", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--work")
    chosen = parser.parse_args()
    chosen.drivers = chosen.drivers.split(",") if chosen.drivers else ["virtio"] if chosen.mode == "docs" else list(MODELS)
    for driver in chosen.drivers:
        if driver not in MODELS:
            parser.error(f"no driver {driver}: there are {', '.join(MODELS)}")
    return chosen


def mount(machine):
    """Mounts the folder of this host that has the program."""
    options = "trans=virtio,version=9p2000.L,msize=262144,cache=mmap"
    machine.guest(f"mkdir -p /srv/host && modprobe 9pnet_virtio && mount -t 9p -o {options} host /srv/host", BIND_S)


def bind(machine, binding):
    """Puts the program into the guest, and hands all cards to user space."""
    machine.guest(f"cp /srv/host/fwd-app {PROGRAM}", BIND_S)
    bind_cards(machine, binding)


def bind_cards(machine, binding):
    """Hands all cards to user space in one call, since each call takes seconds."""
    addresses = " ".join(card.address for card in machine.cards)
    machine.guest(f"modprobe {binding} && dpdk-devbind.py -b {binding} {addresses}", BIND_S)


def shell(machine, pairs):
    """Commands by hand, until the end of the input."""
    print(HELP, flush=True)
    while True:
        print("server# ", end="", flush=True)
        line = sys.stdin.readline()
        words = line.split(maxsplit=2)
        if not line or words == [":quit"]:
            return
        try:
            if words == [":hosts"]:
                for host in (host for pair in pairs for host in pair):
                    print(f"ip netns exec {host.space} ..  # {host.ipv4}, {host.ipv6}, the {host.card.side} one of {host.card.driver}: {host.card.address}")
            elif words[:1] == [":monitor"] and len(words) > 1:
                print(json.dumps(machine.monitor(words[1], **json.loads(words[2] if len(words) > 2 else "{}"))))
            elif words:
                code, output = machine.ask(line, 600)
                print(output, end="" if output.endswith("\n") or not output else "\n")
                if code:
                    print(f"exit code {code}")
        except (Failed, TimeoutError, ValueError, IndexError) as error:
            print(error)


def table(results):
    """Checks in rows, drivers in columns."""
    rows = [["check", *results]]
    for name in next(iter(results.values()), {}):
        rows.append([name, *(checks[name]["result"] for checks in results.values())])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows)


def say(driver, check, result):
    """The line of one check."""
    print(f"{driver:8} {check:8} {result['result']:6} {result['seconds']:5.1f} s  {result['seen']}", flush=True)


def serve(chosen, machine, pairs, binding):
    """Runs the guest and the requested parts; the exit code."""
    started = time.monotonic()
    machine.start()
    for pair in pairs.values():
        for host in pair:
            host.set_up()
    uptime_s = machine.wait_for_boot()
    mount(machine)
    if chosen.docs or chosen.mode == "docs":
        # First, while the guest's kernel still has the cards.
        docs.check(machine, pairs.get("virtio") or next(iter(pairs.values())))
        if chosen.mode == "docs":
            return 0
        docs.clean_up(machine)
    bind(machine, binding)
    seen = f"Linux {machine.guest('uname -r').strip()}, {run('qemu-system-x86_64', '--version').splitlines()[0]}"
    print(f"ready after {time.monotonic() - started:.0f} s, booted in {uptime_s:.0f} s: {seen}", flush=True)
    if chosen.mode == "shell":
        shell(machine, pairs.values())
        return 0
    results, service = {}, {}
    if chosen.deb:
        package = Service(machine, next(iter(pairs.values())), say, lambda: bind_cards(machine, binding), chosen.long)
        package.run()
        service = package.results
    for name, pair in pairs.items():
        driver = Driver(machine, pair, name, binding, say)
        driver.run()
        results[name] = driver.results
    failed = sum(check["result"] == "FAILED" for checks in [service, *results.values()] for check in checks.values())
    seconds = round(time.monotonic() - started)
    print(f"\n{table(results)}\n{'all checks passed' if not failed else f'{failed} checks FAILED'}, {seconds} s", flush=True)
    if chosen.json:
        record = {"machine": seen, "binding": binding, "seconds": seconds, "failed": failed, "service": service, "drivers": results}
        Path(chosen.json).write_text(json.dumps(record, indent=1) + "\n")
    if chosen.keep:
        shell(machine, pairs.values())
    return 1 if failed else 0


def main():
    """Makes the machine and the hosts, and removes them at the end."""
    chosen = arguments()
    selftest.run()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix="fwd-server.", dir=chosen.work))
    space = f"server-{os.getpid()}"
    machine = Machine(work=work, image=chosen.image, drivers=chosen.drivers, space=space, has_iommu=not chosen.no_iommu, may_reboot=chosen.long)
    pairs = {driver: Pair(machine, driver, space) for driver in chosen.drivers}
    run("strip", "--strip-debug", "-o", str(machine.share / "fwd-app"), chosen.app)
    if chosen.deb:
        shutil.copy(chosen.deb, machine.share / "fwd-app.deb")
    run("ip", "netns", "add", space)
    code = 1
    try:
        code = serve(chosen, machine, pairs, "vfio-pci" if machine.has_iommu else "uio_pci_generic")
    except (Failed, TimeoutError, OSError, subprocess.CalledProcessError) as error:
        print(f"server.sh: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    finally:
        machine.stop()
        for host in (host for pair in pairs.values() for host in pair):
            host.remove()
        run("ip", "netns", "del", space, check=False)
        shutil.rmtree(machine.share)
    if code:
        print(f"server.sh: logs are in {work}", file=sys.stderr)
    else:
        shutil.rmtree(work)
    return code


if __name__ == "__main__":
    sys.exit(main())
