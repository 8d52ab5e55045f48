#!/usr/bin/env bash
# `fwd-app fib`: generate is repeatable, convert loses nothing, stat counts correctly.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

for family in v4 v6; do
  expect 0 "$APP" fib generate --family "$family" --routes 20000 --seed 7 -o "$WORK/$family.txt"
  expect 0 "$APP" fib generate --family "$family" --routes 20000 --seed 7 -o "$WORK/again.txt"
  same "$WORK/$family.txt" "$WORK/again.txt"
  expect 0 "$APP" fib generate --family "$family" --routes 20000 --seed 8 -o "$WORK/other.txt"
  cmp -s "$WORK/$family.txt" "$WORK/other.txt" && fail "seeds 7 and 8 give the same $family table"
  [ "$(grep -c '^[0-9a-f]' "$WORK/$family.txt")" = 20000 ] || fail "$family: $(wc -l <"$WORK/$family.txt") lines instead of 20000 routes"
done
expect 0 "$APP" fib stat "$WORK/v4.txt" "$WORK/v6.txt"
says "$WORK/out" '20[,_ ]?000'
expect 0 "$APP" fib stat --json "$WORK/v4.txt"
python3 -m json.tool "$WORK/out" >/dev/null || fail "fib stat --json is not JSON"

# Text is the complete form, so converting to text gives the same routes, also from a compressed file. The other forms must not be empty.
expect 0 "$APP" fib convert "$WORK/v4.txt" --to text -o "$WORK/v4.copy"
sort "$WORK/v4.txt" | grep -v '^#' >"$WORK/a"
sort "$WORK/v4.copy" | grep -v '^#' >"$WORK/b"
same "$WORK/a" "$WORK/b"
for tool in gzip bzip2 xz; do
  if has "$tool"; then
    "$tool" -c "$WORK/v6.txt" >"$WORK/v6.$tool"
    expect 0 "$APP" fib convert "$WORK/v6.$tool" --to text -o "$WORK/v6.copy"
    sort "$WORK/v6.copy" | grep -v '^#' >"$WORK/b"
    sort "$WORK/v6.txt" | grep -v '^#' >"$WORK/a"
    same "$WORK/a" "$WORK/b"
  else
    note "fib: SKIPPED: $tool is not installed"
  fi
done
for form in iproute2 l3fwd json; do
  expect 0 "$APP" fib convert pcap/routes.txt --to "$form" -o "$WORK/routes.$form"
  [ -s "$WORK/routes.$form" ] || fail "convert --to $form wrote nothing"
done
expect 1 "$APP" fib stat "$WORK/absent"
expect 2 "$APP" fib generate --family v5
