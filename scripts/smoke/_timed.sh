#!/usr/bin/env bash
# Runs the smoke script SCRIPT, then prints its output and result.
#
#   scripts/smoke/_timed.sh SCRIPT

set -uo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

if printed=$(bash "$1" 2>&1); then result=ok; else result=FAILED; fi
[ -z "$printed" ] || printf '%s\n' "$printed" >&2
note "$result: $1, $SECONDS s"
[ "$result" = ok ]
