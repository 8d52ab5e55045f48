# shellcheck shell=bash
# Sourced at the start of every smoke script: sets the program and a scratch folder, and defines the checks.
#
# FWD_APP names the program; unset, it is the release binary. Each script uses a feature as a user would, and exits 0 if all checks passed.

set -Eeuo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$TOP"

APP=${FWD_APP:-$(target_dir)/release/fwd-app}
[ -x "$APP" ] || die "no program $APP: cargo build --release -p fwd-app, or set FWD_APP"
NAME=$(basename "$0" .sh)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/fwd-smoke-$NAME.XXXXXX")

# cleanup : removes namespaces, processes and files; a script redefines it.
cleanup() { :; }
# No signal may interrupt it, and the exit code stays.
at_end() {
  local code=$?
  trap - ERR
  set +e
  cleanup "$code"
  rm -rf "$WORK"
}
trap at_end EXIT

fail() {
  printf '%s: FAILED: %s\n' "$NAME" "$*" >&2
  exit 1
}
# Names the command that ends the script. A failed command in a subshell has ended the subshell, which is the failed command here.
trap '[ "$BASH_SUBSHELL" != 0 ] || fail "${BASH_SOURCE[0]}, line $LINENO: exit code $?: $BASH_COMMAND"' ERR

skip() {
  printf '%s: SKIPPED: %s\n' "$NAME" "$*" >&2
  exit 0
}

need_af_packet() { [ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_af_packet.so" ] || skip "this DPDK has no net_af_packet"; }
need_taps() {
  [ -e /dev/net/tun ] || skip "no /dev/net/tun"
  need_af_packet
}

# idle_sleeps : idle lcores sleep, in scripts that mostly wait for daemons, the kernel or hosts, which get the CPUs; in the others they poll.
idle_sleeps() { export FWD_APP_IDLE_US="${FWD_APP_IDLE_US:-1000}"; }

expect() {
  local wanted=$1 code=0
  shift
  timeout 120 "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || code=$?
  if [ "$code" != "$wanted" ]; then
    tail -n 20 "$WORK/out" "$WORK/err" >&2
    fail "exit code $code instead of $wanted: $*"
  fi
}

says() {
  if ! grep -qE -- "$2" "$1"; then
    tail -n 20 "$1" >&2
    fail "no line matches: $2"
  fi
}

same() {
  if ! cmp -s "$1" "$2"; then
    diff -u "$1" "$2" | head -n 20 >&2
    fail "$1 and $2 differ"
  fi
}

json() {
  python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: value = value[key]
print(value)' "$@"
}

. "$(dirname "${BASH_SOURCE[0]}")/_forwarder.sh"
