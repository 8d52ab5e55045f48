#!/usr/bin/env bash
# `scripts/soak.sh`: two short rounds, a faulty program, and bad usage. A full run takes hours.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

soak() { FWD_APP=$APP FWD_DATA='' scripts/soak.sh --work "$WORK" "$@"; }
export -f soak
export APP WORK

expect 0 bash -c 'soak --seed 7 --seconds 0.5 --round tx-full --round nests'
says "$WORK/out" '^[0-9:]+  seed 7  tx-full +passed .* dropped as tx_full'
says "$WORK/out" '^[0-9:]+  seed 7  nests +passed .* updates'
compgen -G "$WORK/fwd-soak-*" >/dev/null && fail "the logs of rounds that passed are left behind"

# A program with the wrong exit code: the logs are kept, and the message has the command to repeat the round.
printf '#!/bin/sh\n%q "$@"; code=$?; [ "$1" = replay ] && exit 9; exit $code\n' "$APP" >"$WORK/wrong"
chmod +x "$WORK/wrong"
APP=$WORK/wrong
expect 1 bash -c 'soak --seed 7 --seconds 0.5 --round tx-full'
says "$WORK/out" '^FAILED: tx-full, seed 7: 001-slow ended with exit code 9'
says "$WORK/out" 'again: scripts/soak.sh --seed 7 --round tx-full'
[ -s "$(compgen -G "$WORK/fwd-soak-*/*/001-slow.json")" ] || fail "the logs are not there"

expect 0 bash -c 'soak --help'
expect 2 bash -c 'soak --round nonsense'
