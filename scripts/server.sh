#!/usr/bin/env bash
# A server with NICs, under emulation: a Debian guest in QEMU with two CPUs, systemd, huge pages, an IOMMU, and pairs of cards with DPDK
# drivers. `fwd-app run` forwards in it between two emulated hosts, once for each driver, and every check prints a line: pings, a capture
# compared byte by byte, VLANs, jumbo frames, link down and up, pings of the router alone, signals, hot unplug.
#
#   scripts/server.sh                        all drivers, and a table of drivers and checks
#   scripts/server.sh --drivers e1000,virtio some of e1000, e1000e, virtio, vmxnet3
#   scripts/server.sh --keep                 then a prompt for commands in the guest; `:hosts` names the emulated hosts
#   scripts/server.sh shell                  the prompt without the checks
#   scripts/server.sh docs                   the commands of docs/install.md in the guest, on virtio, else the first named driver
#   scripts/server.sh build                  makes the guest's image, and prints its folder
#
#   --docs        first the commands of docs/install.md, as `docs` alone
#   --no-package  without the checks of the Debian package and its service, which come first
#   --long        also upgrades the package while packets flow, and reboots
#   --json FILE   the findings of each check and its time
#   --no-iommu    a guest without IOMMU; its cards are on uio_pci_generic, since Debian's kernel has no vfio there
#   --work DIR    folder of logs [TMPDIR, else /tmp]; logs of a run without failures are removed
#
# Needs root and a Debian on x86-64; installs packages. The image (400 MB) stays in ~/.cache/fwd-app/server, or FWD_SERVER_CACHE. KVM is
# not used. FWD_APP names the program and FWD_DEB the package; unset, they are built. Prints SKIPPED and why if QEMU is not available.
# Exit 0: all checks passed, or SKIPPED. Exit 1: one failed. Exit 2: bad usage.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

skip() {
  note "SKIPPED: scripts/server.sh: $*"
  exit 0
}

arguments=() package=yes
for argument in "$@"; do
  case "$argument" in
    -h | --help) usage && exit 0 ;;
    # Without an IOMMU only root may use the cards, so there is no service.
    --no-iommu) package=no && arguments+=("$argument") ;;
    --no-package) package=no ;;
    *) arguments+=("$argument") ;;
  esac
done
set -- "${arguments[@]}"
[ "$(id -u)" = 0 ] || skip "needs root, for network namespaces and the guest's file system"
[ "$(uname -m)" = x86_64 ] || skip "emulates a server like this host, and this one is $(uname -m)"
# The program is linked to this host's DPDK, so the guest has the same release.
[ "$(. /etc/os-release 2>/dev/null && printf '%s' "${ID:-}")" = debian ] || skip "the guest is made of this host's release, for Debian only"
[ -c /dev/net/tun ] || skip "this kernel has no TAPs"
need_packages qemu-system-x86 mmdebstrap busybox-static e2fsprogs kmod iproute2 iputils-ping >&2
space=server-$$-try
said=$(ip netns add "$space" 2>&1) || skip "no network namespace: $said"
said=$(ip -n "$space" tuntap add try mode tap 2>&1) || { ip netns del "$space" && skip "no TAP: $said"; }
ip netns del "$space"

cd "$TOP"
if [ -z "${FWD_APP:-}" ]; then
  need_rust
  cargo build --release -p fwd-app >&2 || die "the build failed"
  FWD_APP=$(target_dir)/release/fwd-app
fi
[ -x "$FWD_APP" ] || die "no program $FWD_APP"
image=$(scripts/server/image.sh "$FWD_APP") || die "the guest's image could not be made"
if [ "${1:-}" = build ]; then
  note "$image"
  exit 0
fi
if [ "$package" = yes ] && [[ " $* " != *" shell "* && " $* " != *" docs "* ]]; then
  deb=${FWD_DEB:-$(FWD_APP=$FWD_APP scripts/deb.sh)} || die "the package could not be built"
  set -- "$@" --deb "$deb"
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts exec python3 -m server --image "$image" --app "$FWD_APP" "$@"
