# shellcheck shell=bash
# Sourced by _init.sh and by scripts/lab.sh: a forwarder in the background. $process is its process id, $WORK/err its stderr, $ctl_socket
# its socket. The caller sets $APP, the program, and $WORK, a folder, and defines fail and skip.

process='' ctl_socket=$WORK/ctl
forwards() {
  for _ in {1..600}; do
    grep -qs "forwarding; Ctrl-C stops" "$WORK/err" && return
    kill -0 "$process" 2>/dev/null || { process= && tail -n 20 "$WORK/err" >&2 && fail "fwd-app run ended by itself"; }
    sleep 0.1
  done
  fail "fwd-app run does not forward after 60 s"
}
# stop [SIGNAL] : ends the forwarder.
stop() {
  local signal=${1:-INT} code=0
  kill "-$signal" "$process"
  wait "$process" || code=$?
  process=
  [ "$code" = 0 ] || { tail -n 20 "$WORK"/*err >&2 && fail "exit code $code after SIG$signal"; }
}
ctl() { "$APP" ctl --socket "$ctl_socket" "$@"; }

within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ -z "$process" ] || kill -0 "$process" || fail "fwd-app run ended by itself"
    [ "$SECONDS" -lt "$end" ] || { tail -n 20 "$WORK"/*err >&2 && fail "not in time: $*"; }
    sleep 0.1
  done
}
or_skip() {
  local said
  said=$("$@" 2>&1) || skip "$*: $said"
}
# eventually PATTERN WORDS.. : the answer of `ctl` must match within 10 s.
eventually() {
  local pattern=$1
  shift
  for _ in {1..100}; do
    ctl "$@" >"$WORK/answer" 2>&1 || true
    grep -qE -- "$pattern" "$WORK/answer" && return 0
    kill -0 "$process" 2>/dev/null || { tail -n 20 "$WORK/err" >&2 && fail "fwd-app run ended by itself"; }
    sleep 0.1
  done
  tail -n 20 "$WORK/answer" "$WORK/err" >&2
  fail "no line of '$*' matches: $pattern"
}
