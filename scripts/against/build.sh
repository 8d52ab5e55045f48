# shellcheck shell=bash
# Sourced by scripts/against.sh: builds the peers in $FOLDER, from their sources (`source_of NAME`).

FLAVOUR=(-Dbuildtype=release -Dwerror=false)
# Debian's Python modules need Debian's python3, not one that is first in PATH.
SYSTEM_PATH=/usr/sbin:/usr/bin:/sbin:/bin

source_of() { printf '%s' "${SOURCES[$1]:-}" | sed 's/@[^@/]*$//'; }
revision_of() { printf '%s' "${SOURCES[$1]:-}" | sed -n 's/.*@\([^@/]*\)$/\1/p'; }
need_source() { [ -n "${SOURCES[$1]:-}" ] || die "--source $1=FOLDER is needed: $2"; }

is_repository() { [ -e "$1/.git" ] || { [ -f "$1/HEAD" ] && [ -d "$1/objects" ]; }; }

version_of() {
  local folder revision
  folder=$(source_of "$1")
  revision=$(revision_of "$1")
  if is_repository "$folder"; then
    git -C "$folder" describe --tags --match 'v[0-9]*' --always "${revision:-HEAD}"
  else
    head -n 1 "$folder/VERSION" 2>/dev/null || basename "$folder"
  fi
}

copy_of() { printf '%s/src/%s-%s' "$FOLDER" "$1" "$(version_of "$1")"; }

copy_source() {
  local folder copy revision
  folder=$(source_of "$1")
  [ -d "$folder" ] || die "--source $1: there is no folder $folder"
  copy=$(copy_of "$1")
  [ -d "$copy" ] && return
  say "the source of $1 $(version_of "$1")"
  rm -rf "$copy.part"
  mkdir -p "$copy.part"
  if is_repository "$folder"; then
    revision=$(revision_of "$1")
    git -C "$folder" archive "${revision:-HEAD}" | tar -x -C "$copy.part"
  else
    cp -r "$folder/." "$copy.part"
  fi
  mv "$copy.part" "$copy"
}

begin() {
  local build=$FOLDER/build-$1 wanted=''
  for one in "$@"; do wanted+="$one $(version_of "$one"), "; done
  wanted+=$CC
  [ "$(cat "$build.of" 2>/dev/null)" = "$wanted" ] || rm -rf "$build"
  printf '%s' "$wanted" >"$build.of"
  say "$wanted"
}

need_c23() {
  local one
  for one in ${CC:-} gcc gcc-{16..13} clang-{23..18} clang; do
    if has "$one" && printf 'enum e : unsigned char { A };\nint main(void) { return A; }\n' | "$one" -std=gnu2x -x c -fsyntax-only - 2>/dev/null; then
      CC=$(command -v "$one")
      export CC
      return
    fi
  done
  die "grout and VPP need a compiler for C23, gcc 13 or clang 18 or newer; name one with CC"
}

fetch_dpdk_source() {
  mkdir -p "$FOLDER/package"
  apt_source "$FOLDER/package" "dpdk=$(dpkg-query -W -f '${source:Version}' libdpdk-dev)"
}

# The driver as a plugin of the installed DPDK, for fwd-app, l3fwd and testpmd.
build_driver() {
  local source=$1 flags libraries
  read -r -a flags <<<"$(pkg-config --cflags libdpdk)"
  read -r -a libraries <<<"$(pkg-config --libs libdpdk)"
  gcc -O3 -shared -fPIC -o "$FOLDER/librte_net_capture.so" "$HERE/net_capture.c" "${flags[@]}" -DALLOW_INTERNAL_API \
    -DALLOW_EXPERIMENTAL_API -I"$source/lib/ethdev" -I"$source/drivers/bus/vdev" -I"$source/lib/eal/include" \
    -Wno-zero-length-bounds "${libraries[@]}" -lrte_bus_vdev
}

# l3fwd with tables and mempool for full tables, without offloads that a port lacks; once more with bursts of 256.
build_l3fwd() {
  local source=$1
  (
    cd "$source/examples/l3fwd" || exit
    sed -i -E 's/(config_ipv4\.max_routes) = .*;/\1 = 1 << 21;/; s/(config\.max_routes) = .*;/\1 = 1 << 19;/
      s/(config_ipv4\.dir24_8\.num_tbl8) = .*;/\1 = 1 << 16;/
      s/(config\.trie\.num_tbl8) = .*;/\1 = 1 << 19;/' l3fwd_fib.c
    sed -i -E 's/(_L3FWD_LPM_MAX_RULES +).*/\11048576/; s/(IPV4_L3FWD_LPM_NUMBER_TBL8S +).*/\165536/
      s/(IPV6_L3FWD_LPM_NUMBER_TBL8S +).*/\1262144/' l3fwd_lpm.c
    sed -i -E 's/\(unsigned\)8192\)/(unsigned)131072)/
      s/(rxq_conf\.offloads = port_conf\.rxmode\.offloads);/\1 \& dev_info.rx_offload_capa;/
      s/^(\t*)(ret = rte_eth_dev_configure\(portid, nb_rx_queue,)/\1local_port_conf.rxmode.offloads \&= dev_info.rx_offload_capa;\n\1\2/' main.c
    for burst in 32 256; do
      sed -i -E "s/(define MAX_PKT_BURST +).*/\\1$burst/" l3fwd.h
      make -s clean
      make -s shared
      cp -L build/l3fwd "$FOLDER/l3fwd-$burst"
    done
  )
  mv "$FOLDER/l3fwd-32" "$FOLDER/l3fwd"
}

build_dpdk() {
  need_source dpdk "grout and VPP are built with a separate DPDK, 25.11 or newer"
  copy_source dpdk
  local source build=$FOLDER/build-dpdk
  source=$(copy_of dpdk)
  local -x PATH=$SYSTEM_PATH
  mkdir -p "$source/drivers/net/capture"
  cmp -s "$HERE/net_capture.c" "$source/drivers/net/capture/net_capture.c" || cp "$HERE/net_capture.c" "$source/drivers/net/capture/"
  printf "sources = files('net_capture.c')\nrequire_iova_in_mbuf = false\n" >"$source/drivers/net/capture/meson.build"
  grep -q "'capture'" "$source/drivers/net/meson.build" || sed -i "s/^        'cnxk',/        'capture',\n        'cnxk',/" "$source/drivers/net/meson.build"
  begin dpdk
  [ -f "$build/build.ninja" ] || meson setup "$build" "$source" --prefix="$FOLDER/dpdk" --libdir=lib "${FLAVOUR[@]}" -Ddefault_library=static -Db_staticpic=true \
    -Dc_std=c11 -Dtests=false -Denable_docs=false -Ddeveloper_mode=disabled -Ddisable_apps='*' -Dcpu_instruction_set=native -Denable_driver_sdk=true \
    -Denable_libs=cryptodev,dmadev,fib,graph,gso,hash,pcapng,rib,security,vhost,timer,pci,net,meter \
    -Denable_drivers=bus/pci,bus/vdev,bus/vmbus,mempool/ring,net/null,net/tap,net/vhost,net/virtio,net/capture >"$FOLDER/dpdk.log" || broken DPDK dpdk
  ninja -C "$build" install >>"$FOLDER/dpdk.log" || broken DPDK dpdk
}

broken() {
  tail -n 30 "$FOLDER/$2.log" >&2
  die "$1 does not build: $FOLDER/$2.log"
}

# grout, its command line, and grout_routes. With GROUT_RX_BURST the receiving port gets whole vectors for any number of ports.
build_grout() {
  need_source grout "a folder of grout's source"
  need_source libecoli "a folder of libecoli's source, which grout's command line is made with"
  copy_source grout
  copy_source libecoli
  local source build=$FOLDER/build-grout ecoli file includes flags
  local -x PATH=$SYSTEM_PATH PKG_CONFIG_PATH=$FOLDER/dpdk/lib/pkgconfig
  source=$(copy_of grout)
  ecoli=$source/subprojects/$(sed -n 's/^directory *= *//p' "$source/subprojects/ecoli.wrap")
  rm -rf "$ecoli"
  cp -r "$(copy_of libecoli)" "$ecoli"
  file=$source/modules/infra/control/graph.c
  if ! grep -q GROUT_RX_BURST "$file"; then
    sed -i 's/burst_size = RTE_MAX(1u, \(.*\));/burst_size = getenv("GROUT_RX_BURST") ? atoi(getenv("GROUT_RX_BURST")) : RTE_MAX(1u, \1);/
      s/^#include <rte_graph.h>/#include <stdlib.h>\n&/' "$file"
    grep -q GROUT_RX_BURST "$file" || die "grout: $file has no line for the burst that is known here"
  fi
  begin grout libecoli dpdk
  [ -f "$build/build.ninja" ] || GROUT_VERSION=$(version_of grout) meson setup "$build" "$source" --wrap-mode=nodownload "${FLAVOUR[@]}" \
    -Dfrr=disabled -Dtests=disabled -Ddocs=disabled >"$FOLDER/grout.log" || broken grout grout
  ninja -C "$build" grout grcli >>"$FOLDER/grout.log" || broken grout grout
  mkdir -p "$FOLDER/grout/bin"
  cp "$build/grout" "$build/grcli" "$FOLDER/grout/bin/"
  mapfile -t includes < <(find "$source" -path "$source/subprojects" -prune -o -name 'gr_*.h' -printf '-I%h\n' | sort -u)
  read -r -a flags <<<"$(pkg-config --cflags libdpdk)"
  "$CC" -std=gnu2x -O2 -D_GNU_SOURCE -DALLOW_EXPERIMENTAL_API -fms-extensions -Wno-microsoft -o "$FOLDER/grout/bin/grout_routes" "$HERE/grout_routes.c" \
    "${includes[@]}" -I"$build" -I"$build/api" "${flags[@]}"
}

# VPP with the dpdk plugin alone, for this CPU. It runs from its build folder.
build_vpp() {
  need_source vpp "a folder of VPP's source"
  copy_source vpp
  local source build=$FOLDER/build-vpp plugin version arch=native
  local -x PATH=$SYSTEM_PATH PKG_CONFIG_PATH=$FOLDER/dpdk/lib/pkgconfig
  source=$(copy_of vpp)
  plugin=$source/src/plugins/dpdk/CMakeLists.txt
  # Its rule for an external DPDK expects a shared one.
  # shellcheck disable=SC2016
  sed -i 's/set(DPDK_LINK_FLAGS ${DPDK_LDFLAGS})/string(REPLACE ";" " " DPDK_LINK_FLAGS "${DPDK_STATIC_LDFLAGS}")/' "$plugin"
  grep -q DPDK_STATIC_LDFLAGS "$plugin" || die "VPP: $plugin has no line for the system's DPDK that is known here"
  version=$(version_of vpp)
  [[ $version = *-g* ]] || version+=-0-g0
  printf '%s\n' "$version" >"$source/src/scripts/.version"
  grep -qw avx512f /proc/cpuinfo && arch+=" -mprefer-vector-width=512"
  begin vpp dpdk
  [ -f "$build/build.ninja" ] || cmake -G Ninja -S "$source/src" -B "$build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_BUILD_TYPE=release \
    -DVPP_USE_LTO=OFF -DVPP_BUILD_NATIVE_ONLY=ON "-DVPP_BUILD_NATIVE_ARCH=$arch" -DVPP_PLUGINS=dpdk -DVPP_TOOLS=vppctl -DVPP_DRIVERS=none \
    -DVPP_CRYPTO_ENGINES=none -DVPP_TESTS=none -DVPP_USE_SYSTEM_DPDK=ON >"$FOLDER/vpp.log" 2>&1 || broken VPP vpp
  ninja -C "$build" vpp vppctl dpdk_plugin >>"$FOLDER/vpp.log" || broken VPP vpp
}
