"""Parts of scripts/server.sh: a server under emulation, with the cards that DPDK's drivers are for, and checks of a forwarder in it.

| file | what lives there |
|---|---|
| `image.sh` | the guest's root file system, kernel and initrd, cached between runs |
| `agent.py`, `agent.service` | in the guest: runs the host's commands |
| `machine` | the guest and its cards in QEMU: boots, runs commands in it, talks to QEMU's monitor |
| `hosts` | the emulated hosts at the other ends of its cables |
| `frames`, `selftest` | frames, the expected frames, and their comparison; tests of that |
| `forwarder` | one forwarder in the guest |
| `docs` | the commands of docs/install.md |
| `checks` | the checks of each driver |
| `service` | the checks of the Debian package and its service |
| `__main__` | command line, the order of drivers, the table at the end |

`machine` and `hosts` do not depend on the checks, so that other checks can use them. Only the standard library is used.
"""
