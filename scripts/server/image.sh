#!/usr/bin/env bash
# Builds the disk image, kernel and initrd of the guest of scripts/server.sh unless they exist, and prints their folder.
#
#   scripts/server/image.sh PROGRAM
#
# root.ext4 is Debian of this host's release with systemd, PROGRAM's libraries and DPDK's drivers, all from runtime packages, as on a machine
# with PROGRAM alone. PROGRAM itself is not in it, so a new build needs no new image. vmlinuz comes from linux-image-amd64, initrd.img mounts
# the root. The folder is below FWD_SERVER_CACHE, else XDG_CACHE_HOME, else ~/.cache; its name has a hash of the packages, the kernel and the
# files of this folder in the image.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

PARTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${FWD_SERVER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fwd-app/server}
ROOT_MB=1200

SYSTEM=(systemd-sysv udev kmod iproute2 iputils-ping procps pciutils python3 dpdk frr)
DRIVERS=(bus-pci bus-vdev mempool-ring net-e1000- net-virtio net-vmxnet3- net-tap net-af-packet net-null net-ring)
# Modules for the disk, in the initrd; then for NICs, for files from the host, and for further checks.
DISK_MODULES=(virtio_pci virtio_blk ext4)
MODULES=(virtio_pci virtio_console virtio_rng 9p 9pnet_virtio autofs4 vfio-pci vfio_iommu_type1 uio_pci_generic e1000 e1000e virtio_net
  vmxnet3 tun veth dummy tcp_diag)
# Services of a booting server that are not needed: they take a third of the boot time under emulation.
UNWANTED=(apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
  systemd-timesyncd.service systemd-pstore.service systemd-logind.service systemd-journal-flush.service getty@tty1.service dpdk.service
  systemd-update-utmp.service systemd-tmpfiles-clean.timer systemd-binfmt.service getty-static.service sys-kernel-debug.mount
  sys-kernel-tracing.mount systemd-sysusers.service)

# packages PROGRAM : the packages of its libraries and of its DPDK's drivers, one a line.
packages() {
  local library eal abi
  printf '%s\n' "${SYSTEM[@]}"
  ldd "$1" | awk '/=> \// {print $3}' | while read -r library; do
    # Debian's packages list a library by its path before or after the merge of /lib into /usr/lib.
    dpkg-query -S "$(readlink -f "$library")" 2>/dev/null || dpkg-query -S "$library" 2>/dev/null || dpkg-query -S "*/$(basename "$library")"
  done | cut -d: -f1
  eal=$(ldd "$1" | grep -o 'librte_eal\.so\.[0-9]*') || die "$1 is not linked to DPDK's shared libraries"
  abi=${eal##*.}
  # The ABI follows the name, after a hyphen where the name ends in a digit.
  printf 'librte-%s\n' "${DRIVERS[@]/%/$abi}"
}

depends_on() { apt-cache depends "$1" 2>/dev/null | awk -v wanted="$2" '$1 == "Depends:" && $2 ~ wanted {print $2}'; }
# kernel_packages : of the newest kernel, the image first. After Debian 13 it is in two other packages, and in the folder of the modules.
kernel_packages() {
  local name image
  image=$(depends_on linux-image-amd64 '^linux-image-' | head -n 1)
  [ -n "$image" ] || return 1
  for name in "$image" $(depends_on "$image" '^linux-(base|binary|modules)-[0-9]'); do
    printf '%s=%s\n' "$name" "$(apt-cache policy "$name" | awk '$1 == "Candidate:" {print $2}')"
  done
}

# unpack_kernel FOLDER PACKAGE.. : unpacks the packages. Modules are in /lib or, from Debian 13 on, in /usr/lib; a link makes both paths work.
unpack_kernel() {
  local folder=$1 file
  shift
  mkdir -p "$folder/usr/lib"
  ln -s usr/lib "$folder/lib"
  (
    cd "$folder"
    apt-get -qq -o APT::Sandbox::User=root download "$@"
    for file in ./linux-*.deb; do dpkg-deb --fsys-tarfile "$file" | tar -x --keep-directory-symlink && rm "$file"; done
  )
  depmod -b "$folder" "$VERSION"
}

modules_with_needs() {
  local folder=$1
  shift
  for module in "$@"; do
    modprobe -d "$folder" -S "$VERSION" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" {print $2}'
  done | awk '!seen[$0]++' | sed "s,^$folder/,,"
}

make_root() {
  local root=$1 unit options=()
  # A stale mirror of the host is stale for the guest, too.
  [ "$(apt-config dump --format '%v' Acquire::Check-Valid-Until)" != false ] || options=(--aptopt='Acquire::Check-Valid-Until "false"')
  mmdebstrap --quiet --variant=minbase --include="$2" --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$CODENAME" "$root"
  modules_with_needs "$WORK/kernel" "${MODULES[@]}" | (cd "$WORK/kernel" && xargs cp --parents -t "$root")
  cp "$WORK/kernel/lib/modules/$VERSION"/modules.{builtin,builtin.modinfo,order} "$root/lib/modules/$VERSION/"
  depmod -b "$root" "$VERSION"

  install -m 755 "$PARTS/agent.py" "$root/usr/local/sbin/agent"
  install -m 644 "$PARTS/agent.service" "$root/etc/systemd/system/"
  mkdir -p "$root/etc/systemd/system/sysinit.target.wants" "$root/srv/host"
  ln -s ../agent.service "$root/etc/systemd/system/sysinit.target.wants/"
  rm -f "$root/etc/systemd/system/multi-user.target.wants/frr.service"
  for unit in "${UNWANTED[@]}"; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
  printf 'server\n' >"$root/etc/hostname"
  printf '127.0.0.1 localhost server\n' >"$root/etc/hosts"
  printf '/dev/vda / ext4 noatime 0 0\n' >"$root/etc/fstab"
  printf '0123456789abcdef0123456789abcdef\n' >"$root/etc/machine-id"
  chroot "$root" passwd -q -d root
  truncate -s "${ROOT_MB}M" "$WORK/root.ext4"
  mke2fs -q -t ext4 -O ^has_journal -d "$root" "$WORK/root.ext4"
}

make_initrd() {
  local folder=$1 module
  mkdir -p "$folder"/{bin,dev,modules,new}
  cp "$(command -v busybox)" "$folder/bin/busybox"
  {
    printf '#!/bin/busybox sh\n/bin/busybox mount -t devtmpfs dev /dev\n'
    modules_with_needs "$WORK/kernel" "${DISK_MODULES[@]}" | while read -r module; do
      cp "$WORK/kernel/$module" "$folder/modules/"
      printf '/bin/busybox insmod /modules/%s\n' "${module##*/}"
    done
    cat <<'END'
n=0; while [ ! -b /dev/vda ] && [ $n -lt 100 ]; do /bin/busybox sleep 0.1; n=$((n+1)); done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /new || exec /bin/busybox sh
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /sbin/init
END
  } >"$folder/init"
  chmod +x "$folder/init"
  (cd "$folder" && find . | busybox cpio -o -H newc) >"$WORK/initrd.img" 2>"$WORK/cpio.log"
}

PROGRAM=${1:?the program}
CODENAME=$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")
LIST=$(packages "$PROGRAM" | sort -u | paste -sd,)
if ! KERNEL=$(kernel_packages); then
  as_root apt-get -o DPkg::Lock::Timeout=300 -qq update || true
  KERNEL=$(kernel_packages) || die "apt knows no linux-image-amd64"
fi
VERSION=${KERNEL%%=*}
VERSION=${VERSION#linux-image-}
KEY=$({ printf '%s\n' "$CODENAME" "$LIST" "$KERNEL" && cat "$PARTS"/{image.sh,agent.py,agent.service}; } | sha256sum | cut -c1-12)
IMAGE=$CACHE/$CODENAME-$VERSION-$KEY
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9
if [ ! -e "$IMAGE/initrd.img" ]; then
  # On the same file system as the result, for an atomic rename.
  WORK=$(mktemp -d "$CACHE/building.XXXXXX")
  trap 'rm -rf "$WORK"' EXIT
  note "building the guest: $CODENAME with Linux $VERSION" >&2
  mkdir "$WORK/kernel"
  mapfile -t parts <<<"$KERNEL"
  unpack_kernel "$WORK/kernel" "${parts[@]}"
  make_root "$WORK/root" "$LIST" >&2
  make_initrd "$WORK/initrd"
  mkdir "$WORK/image"
  mv "$WORK/root.ext4" "$WORK/initrd.img" "$WORK/image/"
  kernel=$WORK/kernel/boot/vmlinuz-$VERSION
  [ -e "$kernel" ] || kernel=$WORK/kernel/lib/modules/$VERSION/vmlinuz
  mv "$kernel" "$WORK/image/vmlinuz"
  mv -T "$WORK/image" "$IMAGE"
fi
touch "$IMAGE"
find "$CACHE" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} +
printf '%s\n' "$IMAGE"
