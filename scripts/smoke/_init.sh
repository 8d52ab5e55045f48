# shellcheck shell=bash
# Sourced at the start of every smoke script: sets the program under test and a scratch folder, and defines the checks.
#
# FWD_APP names the program; if unset, it is the release binary in the target folder. Each script uses a visible feature as a user
# would, and exits 0 if all checks passed.

set -Eeuo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$TOP"

APP=${FWD_APP:-$(target_dir)/release/fwd-app}
[ -x "$APP" ] || die "no program $APP: cargo build --release -p fwd-app, or set FWD_APP"
NAME=$(basename "$0" .sh)
WORK=$(mktemp -d "${TMPDIR:-/tmp}/fwd-smoke-$NAME.XXXXXX")

# cleanup : removes namespaces, processes and files of a script, which redefines it.
cleanup() { :; }
# Nothing may stop it half-way, and the exit code stays.
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
# A command that fails ends the script and is named. That of a subshell has ended the subshell, which is then the command that fails.
trap '[ "$BASH_SUBSHELL" != 0 ] || fail "${BASH_SOURCE[0]}, line $LINENO: exit code $?: $BASH_COMMAND"' ERR

skip() {
  printf '%s: SKIPPED: %s\n' "$NAME" "$*" >&2
  exit 0
}

# need_af_packet, need_taps : skip the script where it cannot be done: ports on interfaces, and TAPs of these.
need_af_packet() { [ -e "$(pkg-config --variable=libdir libdpdk)/librte_net_af_packet.so" ] || skip "this DPDK has no net_af_packet"; }
need_taps() {
  [ -e /dev/net/tun ] || skip "no /dev/net/tun"
  need_af_packet
}

# expect CODE COMMAND.. : the exit code must be CODE. Output goes to $WORK/out and $WORK/err.
expect() {
  local wanted=$1 code=0
  shift
  timeout 120 "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || code=$?
  if [ "$code" != "$wanted" ]; then
    tail -n 20 "$WORK/out" "$WORK/err" >&2
    fail "exit code $code instead of $wanted: $*"
  fi
}

# says FILE PATTERN : the extended regular expression must match a line of FILE.
says() {
  if ! grep -qE -- "$2" "$1"; then
    tail -n 20 "$1" >&2
    fail "no line matches: $2"
  fi
}

# same A B : the two files must be equal.
same() {
  if ! cmp -s "$1" "$2"; then
    diff -u "$1" "$2" | head -n 20 >&2
    fail "$1 and $2 differ"
  fi
}

# json FILE KEY.. : prints one value of a report.
json() {
  python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: value = value[key]
print(value)' "$@"
}

. "$(dirname "${BASH_SOURCE[0]}")/_forwarder.sh"
