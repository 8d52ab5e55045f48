#!/usr/bin/env bash
# Compares `fwd-app run` with other forwarders, on the same packets and routes, all at once on one CPU.
#
#   scripts/against.sh PEER.. [options]     PEER: l3fwd, l3fwd-256 (bursts of 256), testpmd, grout, vpp
#   scripts/against.sh --table [--check]    writes the tables of docs/peers.md and the line of README.md from lpm-bench/results; --check: compares
#   scripts/against.sh --driver [--source dpdk=..]    builds only the driver net_capture; the last line is its path
#
#   --source NAME=FOLDER[@REVISION]  a folder or git repository to build from: grout needs dpdk, grout and libecoli, vpp needs dpdk and vpp.
#                    l3fwd takes dpdk if it is given and is of the installed version, else the distribution's source package
#   --form FORM      best (tuned for this work, the default), stock (as its documentation starts it) or both; testpmd always runs its three modes
#   --engines LIST   engines of fwd-app (default host,bloom)
#   --traffic LIST   v4, v6 and mix (default all three)
#   --packets LIST   packets in the capture: 4096 fit a cache, 65536 do not (default 4096)
#   --burst N        burst size of fwd-app and testpmd (default 256); the others have a fixed one
#   --ports N        ports; the first one receives, all ports send (default 4)
#   --hops N         next hops of fwd-app's routes, a random one for each prefix, spread over the ports (default: one a port, as the others)
#   --seconds S      time of one comparison (default 24)
#   --cpu N          the CPU that all forwarders share (default 1); their control threads use another one
#   --fib FILE       l3fwd rules of one family for these ports, IPv4 first; not with --hops (default: generated full tables)
#   --latency        latencies of l3fwd and fwd-app in turn, instead of rates, at 10, 50, 80 and 95 % of the rate that l3fwd reaches alone
#   --updates FILE   an update stream: also latencies of fwd-app during 10,000 updates a second
#   --machine NAME   name of this machine in the tables (default: the CPU's name)
#   --json FILE      the report (default lpm-bench/results/against-PEERS-CPU.json)
#
# First every sent packet is compared with the packet that a router should send; the report also says which invalid packets each forwarder
# forwards. The script ends with an error at a difference that is not listed for the peer.
#
# Needs root and free pages of 2 MB: 500 an engine, 1,350 for l3fwd, 1,300 for grout, 1,400 for VPP, 900 for testpmd (missing pages are
# reserved until the end). Everything is built in target/peers: l3fwd in a minute, grout and VPP in ten each.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

HERE=$TOP/scripts/against
declare -A SOURCES=()
PEERS=() DRIVER='' ENGINES=host,bloom CPU=1 HOPS=0 PORTS=4 FORM=best JSON='' MACHINE='' LATENCY='' UPDATES='' FIB=() PASSED=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --table) cd "$TOP" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts exec python3 -m against.table "${@:2}" ;;
    --latency) LATENCY=1 && PASSED+=("$1") && shift && continue ;;
    --driver) DRIVER=1 && shift && continue ;;
    --*) [ $# -ge 2 ] || die "$1 needs a value; see --help" ;;&
    --source)
      [[ $2 == *=* && " dpdk grout libecoli vpp " == *" ${2%%=*} "* ]] || die "--source: wanted NAME=FOLDER with the name dpdk, grout, libecoli or vpp"
      SOURCES[${2%%=*}]=${2#*=}
      ;;
    --form) FORM=$2 ;;
    --engines) ENGINES=$2 ;;
    --ports) PORTS=$2 ;;
    --hops) HOPS=$2 ;;
    --cpu) CPU=$2 ;;
    --fib) FIB+=("$2") ;;
    --machine) MACHINE=$2 ;;
    --json) JSON=$(realpath -m "$2") ;;
    --updates) UPDATES=$(realpath "$2") ;;
    --traffic | --packets | --burst | --seconds) PASSED+=("$1" "$2") ;;
    l3fwd | l3fwd-256 | testpmd | grout | vpp) PEERS+=("$1") && shift && continue ;;
    *) die "unknown argument $1; see --help" ;;
  esac
  shift 2
done
[ ${#PEERS[@]} != 0 ] || [ -n "$DRIVER" ] || die "no peer is given: wanted l3fwd, l3fwd-256, testpmd, grout or vpp; see --help"
[[ $FORM =~ ^(best|stock|both)$ ]] || die "--form: wanted best, stock or both, not $FORM"
is_peer() { [[ " ${PEERS[*]} " == *" $1 "* ]]; }
[ -z "$LATENCY" ] || [ "${PEERS[*]}" = l3fwd ] || die "--latency is only for l3fwd"
if [ -n "$UPDATES" ]; then
  [ -n "$LATENCY" ] || die "--updates needs --latency"
  PASSED+=(--updates "$UPDATES")
fi
[ -n "$DRIVER" ] || [ "$(id -u)" = 0 ] || die "needs root: DPDK's hugepages are root's"
packages=(dpkg-dev make)
if is_peer grout || is_peer vpp; then packages+=(meson ninja-build libnuma-dev python3-pyelftools); fi
if is_peer grout; then packages+=(libevent-dev libedit-dev libmnl-dev); fi
if is_peer vpp; then packages+=(cmake python3-ply uuid-dev libelf-dev libssl-dev); fi
need_all "${packages[@]}"

FOLDER=$(target_dir)/peers
mkdir -p "$FOLDER"
# shellcheck source=scripts/against/build.sh
. "$HERE/build.sh"

DPDK=$(pkg-config --modversion libdpdk)
driver=$FOLDER/librte_net_capture.so
wants_l3fwd() { [ -z "$DRIVER" ] && [ ! -x "$FOLDER/l3fwd-256" ]; }
if wants_l3fwd || [ ! "$driver" -nt "$HERE/net_capture.c" ]; then
  if [ -n "${SOURCES[dpdk]:-}" ] && [[ $(version_of dpdk) =~ ^v?$DPDK$ ]]; then
    copy_source dpdk
    source=$(copy_of dpdk)
  else
    compgen -G "$FOLDER/package/dpdk-*/lib" >/dev/null || fetch_dpdk_source
    source=$(echo "$FOLDER"/package/dpdk-*/)
  fi
  say "the driver for DPDK $DPDK"
  build_driver "$source"
  ! wants_l3fwd || { say l3fwd && build_l3fwd "$source"; }
fi
[ -z "$DRIVER" ] || { echo "$driver" && exit; }
BUILT="\"dpdk\": \"$DPDK\""
if is_peer grout || is_peer vpp; then
  need_c23
  build_dpdk
  BUILT+=", \"peers_dpdk\": \"$(version_of dpdk)\", \"compiler\": \"$("$CC" --version | head -n 1)\""
fi
for peer in grout vpp; do
  is_peer $peer || continue
  "build_$peer"
  BUILT+=", \"$peer\": \"$(version_of $peer)\""
done

say "fwd-app"
APP=${FWD_APP:-$(target_dir)/release/fwd-app}
[ -n "${FWD_APP:-}" ] || (cd "$TOP" && cargo build --release -p fwd-app)

say "routes"
# The same routes for all: rules that name a port; with --hops, fwd-app's routes name ids of next hops.
if [ ${#FIB[@]} = 0 ]; then
  table=$FOLDER/hops-$HOPS
  for family in v4 v6; do
    if [ ! -s "$table-$family.txt" ]; then
      "$APP" fib generate --family "$family" -o "$table-$family.txt"
      # The generator favours few next hops, so each prefix gets a random one.
      [ "$HOPS" = 0 ] || awk -v hops="$HOPS" 'BEGIN { srand(1) } /^[0-9a-f]/ { $2 = 1 + int(rand() * hops) } 1' "$table-$family.txt" \
        >"$table-$family.part"
      [ "$HOPS" = 0 ] || mv "$table-$family.part" "$table-$family.txt"
    fi
    rules=$table-ports-$PORTS-$family.rules
    [ -s "$rules" ] || "$APP" fib convert "$table-$family.txt" --to l3fwd --ports "$PORTS" -o "$rules"
    FIB+=("$rules")
  done
elif [ "$HOPS" != 0 ]; then
  die "--hops: the routes of --fib have their own next hops"
fi
[ ${#FIB[@]} = 2 ] || die "--fib: wanted two files, IPv4 and IPv6"
RULES=("$(realpath "${FIB[0]}")" "$(realpath "${FIB[1]}")")
[ "$HOPS" = 0 ] || PASSED+=(--routes "$table-v4.txt" "$table-v6.txt")

# Pages: the forwarders of one comparison run at once, with --latency one at a time.
declare -A EACH=([l3fwd]=1350 [l3fwd-256]=1350 [grout]=1300 [vpp]=1400 [testpmd]=900)
IFS=, read -r -a engines <<<"$ENGINES"
wanted=$((500 * ${#engines[@]}))
for peer in "${PEERS[@]}"; do wanted=$((wanted + ${EACH[$peer]})); done
[ -z "$LATENCY" ] || wanted=1350
PAGES=/proc/sys/vm/nr_hugepages
before=$(cat $PAGES)
if [ "$(free_hugepage_mb)" -lt $((wanted * 2)) ]; then
  trap 'echo "$before" >$PAGES' EXIT
  echo $((before + wanted - $(free_hugepage_mb) / 2)) >$PAGES
  [ "$(free_hugepage_mb)" -ge $((wanted * 2)) ] || die "$wanted free pages of 2 MB are needed, which this host cannot provide"
fi

model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
name=$(tr -cs 'A-Za-z0-9\n' - <<<"${MACHINE:-$model}" | tr 'A-Z' 'a-z' | sed 's/-*$//')
peers=$(IFS=- && printf '%s' "${PEERS[*]}")
JSON=${JSON:-$TOP/lpm-bench/results/against-$peers${LATENCY:+-latency}-$name.json}
commit=$("$APP" --version | sed -n 's/.*commit \([0-9a-f]*\).*/\1/p')
facts="{\"machine\": \"${MACHINE:-$model}\", \"cpu\": \"$model\", \"commit\": \"${commit:-unknown}\", $BUILT}"
cd "$TOP"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=scripts python3 -m against "${PEERS[@]}" --app "$APP" --folder "$FOLDER" --rules "${RULES[@]}" --form "$FORM" \
  --engines "$ENGINES" --cpu "$CPU" --ports "$PORTS" --hops "$HOPS" --facts "$facts" --json "$JSON" "${PASSED[@]}"
