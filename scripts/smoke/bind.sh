#!/usr/bin/env bash
# The script that hands NICs to DPDK (fwd-app-bind@), in private namespaces with interfaces of the kernel and fake files of a PCI device.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

if [ "${1:-}" != inside ]; then
  unshare -mn ip link add nic0 type veth 2>/dev/null || skip "needs root, ip, namespaces and veth interfaces"
  made=no
  cleanup() { [ "$made" = no ] || rmdir /dev/vfio; }
  [ -d /dev/vfio ] || { mkdir /dev/vfio && made=yes; }
  unshare -mn "$0" inside || exit
  exit 0
fi

pci=/sys/bus/pci address=0000:03:00.0 device=/sys/bus/pci/devices/0000:03:00.0
mount -t sysfs none /sys
mount -t tmpfs none "$pci"
mount -t tmpfs none /run
mkdir "$WORK/vfio" "$WORK/bin"
mount --bind "$WORK/vfio" /dev/vfio
mkdir -p "$device/net" "$pci"/drivers/{ixgbe,vfio-pci}
ln -s ../../drivers/ixgbe "$device/driver"
ln -s ../../../groups/7 "$device/iommu_group"
: >"$device/driver_override"
touch /dev/vfio/7 /dev/vfio/8
ip link add nic0 type veth peer name far0
ip link set nic0 up
ip link set far0 up
ln -s /sys/class/net/nic0 "$device/net/nic0"

# Plays the kernel: carries out earlier writes to the files above before a link is read. vfio-pci takes the device if $WORK/takes exists.
cat >"$WORK/bin/readlink" <<END
#!/bin/sh
for driver in "$pci"/drivers/*; do
  [ ! -s "\$driver/unbind" ] || { rm -f "$device/driver" && : >"\$driver/unbind"; }
done
if [ -s "$pci/drivers_probe" ] && [ ! -e "$device/driver" ]; then
  case "\$(cat "$device/driver_override")" in
    vfio-pci) [ ! -e "$WORK/takes" ] || ln -s ../../drivers/vfio-pci "$device/driver" ;;
    *) ln -s ../../drivers/ixgbe "$device/driver" ;;
  esac
fi
: >"$pci/drivers_probe"
exec /usr/bin/readlink "\$@"
END
printf '#!/bin/sh\n' >"$WORK/bin/modprobe"
printf '#!/bin/sh\necho "$@" >>%s/udevadm\n' "$WORK" >"$WORK/bin/udevadm"
printf '#!/bin/sh\ncat %s/system\n' "$WORK" >"$WORK/bin/systemctl"
echo running >"$WORK/system"
chmod +x "$WORK"/bin/*
export STATE_DIRECTORY=$WORK/state
export PATH=$WORK/bin:$PATH

bind() { expect "$1" scripts/package/bind "$address" "${@:2}"; }
driver_is() { [ "$(basename "$(readlink "$device/driver")")" = "$1" ] || fail "the driver is $(readlink "$device/driver" || echo none), not $1"; }

refused() {
  local why=$1 code=0
  shift
  "$@" 2>"$WORK/said" || code=$?
  if [ "$code" = 2 ] && grep -qE 'Unknown device type|not supported' "$WORK/said"; then
    note "bind: SKIPPED: $why: this kernel has no such interfaces"
    return
  fi
  [ "$code" = 0 ] || fail "$(cat "$WORK/said")"
  bind 1 ''
  says "$WORK/err" "$why"
  driver_is ixgbe
  ip link del up1 2>/dev/null || true
  ip link del up0 2>/dev/null || true
  ip route flush table 77 2>/dev/null || true
  ip route flush table 78 2>/dev/null || true
  ip address flush dev nic0
}
touch "$WORK/takes"
vlan() { ip link add link nic0 name up0 type vlan id 7 && ip link set up0 up && ip address add 192.0.2.1/24 dev up0; }
macvlan() { ip link add link nic0 name up0 type macvlan mode bridge && ip link set up0 up && ip -6 address add 2001:db8::1/64 dev up0 nodad; }
bridged() {
  ip link add link nic0 name up0 type macvlan mode bridge && ip link add up1 type bridge && ip link set up0 master up1 &&
    ip link set up0 up && ip link set up1 up && ip address add 192.0.2.1/24 dev up1
}
other_table() { ip route add default dev nic0 table 77; }
several_paths() {
  ip address add 198.51.100.1/32 dev nic0 && ip route add default table 78 nexthop dev far0 weight 1 nexthop dev nic0 weight 1
}
plain() { ip address add 192.0.2.1/24 dev nic0; }
refused 'routes over nic0' plain
refused 'routes over up0' vlan
refused 'routes over up0' macvlan
refused 'routes over up1' bridged
refused 'routes over nic0' other_table
refused 'routes over nic0' several_paths

# While the host boots there are no routes yet: a NIC is taken if a start has taken it before, and none was refused since.
mac=$(cat /sys/class/net/nic0/address)
host_is() { echo "$1" >"$WORK/system"; }
back() {
  host_is stopping
  bind 0
  driver_is ixgbe
}
for state in initializing starting; do
  host_is "$state"
  bind 1 ''
  says "$WORK/err" 'a NIC that this unit has not taken before'
  driver_is ixgbe
done
# Its kernel driver has not made the interface yet.
mv "$device/net" "$device/later"
bind 1 ''
says "$WORK/err" 'a NIC that this unit has not taken before'
mv "$device/later" "$device/net"
host_is degraded
bind 0 ''
[ "$(cat "$WORK/state/$address")" = "$mac" ] || fail "the NIC that was taken: $(cat "$WORK/state/$address"), not $mac"
back
host_is starting
bind 0 ''
driver_is vfio-pci
back
host_is starting
ip link set nic0 address 02:00:00:00:00:07
bind 1 ''
says "$WORK/err" "the MAC 02:00:00:00:00:07, but the NIC that this unit took before has $mac"
driver_is ixgbe
# Who writes an empty file means whichever it is.
: >"$WORK/state/$address"
bind 0 ''
back
host_is running
refused 'routes over nic0' plain
host_is starting
bind 1 ''
says "$WORK/err" 'that this unit has not taken before'
host_is running
bind 0 ''
bind 0
host_is starting
bind 1 ''
says "$WORK/err" 'that this unit has not taken before'
host_is running

# The host is not reached by a NIC that has the driver before the unit starts.
rm -f "$device/driver"
ln -s ../../drivers/vfio-pci "$device/driver"
bind 0 ''
back
host_is starting
bind 0 ''
back
host_is running

# A driver that does not take the device: the old driver comes back.
rm "$WORK/takes"
bind 1 ''
says "$WORK/err" 'vfio-pci does not take'
driver_is ixgbe
[ -z "$(cat "$device/driver_override")" ] || fail "an override stays: $(cat "$device/driver_override")"
[ ! -e /run/fwd-app-bind/7 ] || fail "the group of a NIC that was not bound is the service's"

# A bound device: its group belongs to the service, and no other group does.
touch "$WORK/takes"
bind 0 ''
driver_is vfio-pci
[ "$(ls /run/fwd-app-bind)" = 7 ] || fail "groups of the service: $(ls /run/fwd-app-bind)"
says "$WORK/udevadm" 'trigger .*/sys/class/vfio/7$'
says scripts/package/debian/fwd-app.udev 'TEST=="/run/fwd-app-bind/%k"'
touch /run/fwd-app-bind/7/0000:03:00.1
chmod 660 /dev/vfio/7
bind 0
driver_is ixgbe
[ "$(stat -c %a /dev/vfio/7)" = 660 ] || fail "a group with another device is taken from the service"
rm /run/fwd-app-bind/7/0000:03:00.1
bind 0
[ "$(stat -c %a /dev/vfio/7)" = 600 ] || fail "a group without devices stays the service's"
