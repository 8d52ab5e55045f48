"""Parts of scripts/server.sh: a server under emulation, with the cards that DPDK's drivers are for, and checks of a forwarder in it.

| file | what lives there |
|---|---|
| `image.sh` | the guest's root file system, kernel and initrd, cached between runs |
| `agent.py`, `agent.service` | in the guest: runs what the host says |
| `machine` | the guest and its cards in QEMU: boots, runs commands in it, talks to QEMU's monitor |
| `hosts` | the emulated hosts at the other ends of its cables |
| `frames`, `selftest` | frames, what must become of them, and their comparison; tests of that |
| `forwarder` | one forwarder in the guest |
| `docs` | the commands of docs/install.md |
| `checks` | what is checked of each driver |
| `service` | what is checked of the Debian package and its service |
| `__main__` | command line, the order of drivers, the table at the end |

`machine` and `hosts` know nothing of the checks, so that other checks of a server can stand on them. Only the standard library is used.
"""
