#!/usr/bin/env bash
# `fwd-app check`: reports the readiness of this host as text and as JSON.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

code=0
"$APP" check >"$WORK/out" 2>"$WORK/err" || code=$?
[ "$code" -le 1 ] || fail "exit code $code"
says "$WORK/out" 'OK'
says "$WORK/out" '[Hh]uge'
grep -q FAIL "$WORK/out" && [ "$code" = 0 ] && fail "a FAIL line and exit code 0"
"$APP" check --json >"$WORK/out" 2>"$WORK/err" || true
python3 -m json.tool "$WORK/out" >/dev/null || fail "check --json is not JSON"

for command in run replay lookup fib 'fib stat' 'fib convert' 'fib generate' check; do
  # shellcheck disable=SC2086 # words of one command
  expect 0 "$APP" $command --help
  says "$WORK/out" 'fwd-app '
done
