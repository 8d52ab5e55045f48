#!/usr/bin/env bash
# Runs the smoke script SCRIPT, prints at its end what it printed, and whether it passed.
#
#   scripts/smoke/_timed.sh SCRIPT

set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

if printed=$(bash "$1" 2>&1); then result=ok; else result=FAILED; fi
[ -z "$printed" ] || printf '%s\n' "$printed" >&2
note "$result: $1, $SECONDS s"
[ "$result" = ok ]
