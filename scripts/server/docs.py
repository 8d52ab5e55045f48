"""The commands of docs/install.md, in the order of the page: in the guest, on cards that are still bound to its kernel, and on the host at the
left card.

The guest has the program at its build path. Where this machine has FRR, the left host runs BGP as the page's neighbour.
"""

import os
import shutil
import subprocess
from pathlib import Path

import docs_check

from .hosts import run
from .machine import PAGES_2M, Failed

PAGE = docs_check.TOP / "docs/install.md"
BLOCK_S = 180
BGPD = Path("/usr/lib/frr/bgpd")
NEIGHBOUR = """router bgp 65002
 bgp router-id 198.18.1.2
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 198.18.1.1 remote-as 65001
 neighbor 198.18.1.1 timers connect 1
 address-family ipv4 unicast
  network 203.0.113.0/24
 exit-address-family
"""


def neighbour(host, work):
    """bgpd on a host, without zebra."""
    folder = work / "bgpd"
    folder.mkdir()
    (folder / "bgpd.conf").write_text(NEIGHBOUR)
    for path in work, folder, folder / "bgpd.conf":
        os.chmod(path, 0o755)
    shutil.chown(folder, "frr", "frr")
    options = ["-Z", "-u", "frr", "-g", "frr", "--vty_socket", folder, "-A", "127.0.0.1", "-P", "0", "-f", folder / "bgpd.conf", "-i", folder / "pid"]
    with open(folder / "log", "wb") as log:
        return subprocess.Popen(["ip", "netns", "exec", host.space, BGPD, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def clean_up(machine):
    """Ends what the page has started, and gives back its huge pages; the cards stay bound to user space."""
    machine.guest(
        "systemctl stop frr; kill $(pidof fwd-app); while pidof fwd-app; do sleep 0.2; done; "
        f"rm -rf /dev/hugepages/rtemap_* /etc/sysctl.d/80-hugepages.conf /root/clone && sysctl -qw vm.nr_hugepages={PAGES_2M}",
        BLOCK_S,
    )


def check(machine, pair):
    """Runs the page on the cards of the pair."""
    place = "mkdir -p /root/clone/target/release && cd /root/clone"
    machine.guest(f"{place} && cp /srv/host/fwd-app target/release/ && chmod 644 target/release/fwd-app")
    # An lcore that polls takes one of the guest's two emulated CPUs, while FRR starts.
    start = f"{place}; set -eo pipefail; export FWD_APP_IDLE_US=1000 WAN={pair.left.card.address} LAN={pair.right.card.address}\n"
    bgpd, printed = neighbour(pair.left, machine.work), None
    try:
        for block in docs_check.blocks_of(PAGE):
            text = "\n".join(block.chosen())
            if block.mark == "run: guest":
                printed = machine.guest(start + text, BLOCK_S)
            elif block.mark == "run: guest's host":
                printed = run("ip", "netns", "exec", pair.left.space, "bash", "-ec", text)
            elif block.is_a("output"):
                docs_check.check_output(block, printed)
                continue
            else:
                continue
            print(f"ok: {block.place}", flush=True)
    except docs_check.Wrong as wrong:
        raise Failed(str(wrong)) from wrong
    except Failed as failed:
        log = machine.ask("fwd-app ctl show feeds; vtysh -c 'show running-config'; tail -n 20 /var/log/fwd-app.log")[1]
        raise Failed(f"{block.place}: {failed}\n{log}") from failed
    finally:
        bgpd.kill()
        bgpd.wait()
