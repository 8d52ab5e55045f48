#!/usr/bin/env bash
# Builds a DPDK from its sources into a separate folder, and runs the tests on it. The host's DPDK is not changed.
#
#   scripts/dpdk.sh [--drivers LIST] VERSION SOURCE                 builds it, then runs the tests of the crates that use DPDK
#   scripts/dpdk.sh [--drivers LIST] VERSION SOURCE -- COMMAND..    runs a command with it instead, such as cargo build --release -p fwd-app
#
#   VERSION          the release of SOURCE, or its beginning: 24.11 for 24.11.6
#   SOURCE           a folder of DPDK's sources: an unpacked archive, a checked-out tag, or the result of `apt-get source dpdk`
#   --drivers LIST   more drivers, in the form of meson's enable_drivers of this release: net/vmxnet3,net/intel/*
#
# Everything is in target/dpdk/RELEASE: DPDK in prefix, cargo's output in cargo. DPDK is rebuilt when SOURCE or --drivers change; remove
# the folder after a change in the sources. Run a program built with it with LD_LIBRARY_PATH=target/dpdk/RELEASE/prefix/lib.
# docs/drivers.md lists the tested releases.
#
# Installs meson and ninja if missing. FWD_REQUIRE as in scripts/test.sh, by default dpdk. Exit 0: all tests passed. Exit 1: a test failed,
# or DPDK could not be built. Exit 2: bad usage. With a command, its exit code.

set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

DRIVERS=bus/pci,bus/vdev,mempool/ring,mempool/stack,net/af_packet,net/af_xdp,net/failsafe,net/memif,net/null,net/pcap,net/ring,net/tap,net/virtio

bad_usage() {
  printf '%s: %s; see --help\n' "$(basename "$0")" "$*" >&2
  exit 2
}

while [[ ${1:-} = -* ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --drivers) [ $# -ge 2 ] || bad_usage "--drivers needs a list" && DRIVERS+=,$2 && shift 2 ;;
    *) bad_usage "unknown argument $1" ;;
  esac
done
[ $# -ge 2 ] || bad_usage "VERSION and SOURCE are missing"
VERSION=$1 SOURCE=$2
shift 2
if [ $# -gt 0 ]; then
  [ "$1" = -- ] && [ $# -ge 2 ] || bad_usage "a command comes after --"
  shift
fi
[ -f "$SOURCE/VERSION" ] && [ -f "$SOURCE/meson.build" ] || die "$SOURCE has no sources of DPDK"
SOURCE=$(cd "$SOURCE" && pwd)
RELEASE=$(<"$SOURCE/VERSION")
[[ $RELEASE = "$VERSION" || $RELEASE = "$VERSION"[.-]* ]] || die "$SOURCE has DPDK $RELEASE, wanted $VERSION"
need_all meson ninja-build python3-pyelftools libpcap-dev libnuma-dev

PLACE=$(target_dir)/dpdk/$RELEASE
PREFIX=$PLACE/prefix

# Debian's meson needs /usr/bin/python3. The generic platform runs on other hosts, too.
build_dpdk() {
  local build=$PLACE/build
  rm -rf "$build" "$PREFIX" "$PLACE/made-of"
  (
    export PATH=/usr/bin:$PATH
    meson setup "$build" "$SOURCE" --prefix="$PREFIX" --libdir=lib --buildtype=release --default-library=shared -Dplatform=generic \
      -Dtests=false -Ddisable_apps='*' -Denable_drivers="$DRIVERS" && ninja -C "$build" install
  ) >"$PLACE/build.log" 2>&1 || { tail -n 30 "$PLACE/build.log" >&2 && die "DPDK $RELEASE was not built; see $PLACE/build.log"; }
  rm -rf "$build"
  printf '%s\n' "$SOURCE $DRIVERS" >"$PLACE/made-of"
}

mkdir -p "$PLACE"
if [ "$(cat "$PLACE/made-of" 2>/dev/null)" != "$SOURCE $DRIVERS" ]; then
  say "building DPDK $RELEASE from $SOURCE"
  build_dpdk
fi
export PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CARGO_TARGET_DIR=$PLACE/cargo FWD_REQUIRE=${FWD_REQUIRE:-dpdk}
say "DPDK $(pkg-config --modversion libdpdk) in $PREFIX"
[ $# -eq 0 ] || exec "$@"

cd "$TOP"
FEATURES=dpdk-ffi/testing,fib/testing,fwd-app/testing,lpm-core/testing,lpm-gpu/testing,lpm-bench/dpdk
TEST=(cargo test)
! has cargo-nextest || TEST=(cargo nextest run)
"${TEST[@]}" -p dpdk-ffi -p fwd-app -p lpm-bench --features "$FEATURES" --no-fail-fast
"$CARGO_TARGET_DIR/debug/fwd-app" --version
