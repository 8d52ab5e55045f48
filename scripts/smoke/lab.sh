#!/usr/bin/env bash
# `scripts/lab.sh` as a new user runs it, without and with FRR, at a terminal and elsewhere. However it ends, it must leave nothing behind.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"
idle_sleeps

# In separate namespaces with a separate /run, so that any leftover is the lab's.
if [ -z "${LAB_ALONE:-}" ]; then
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  need_packages iproute2 iputils-ping ethtool
  or_skip unshare --net --mount --pid --fork --mount-proc true
  # shellcheck disable=SC2016 # the inner shell expands it
  LAB_ALONE=yes FWD_APP=$APP unshare --net --mount --pid --fork --kill-child --mount-proc \
    bash -c 'mount -t tmpfs none /run && "$0"; exit $?' "scripts/smoke/lab.sh"
  exit
fi
export FWD_APP=$APP TMPDIR=$WORK/tmp
mkdir "$TMPDIR"

# `ip netns` and FRR keep their folders, so these must exist before.
ip netns add first && ip netns del first
need_packages frr
for folder in /run/frr /var/lib/frr /var/tmp/frr; do
  install -d -o frr -g frr "$folder"
  mount -t tmpfs none "$folder"
  chown frr:frr "$folder"
done
state() {
  ip netns list
  ip -br link | awk '{ print $1 }'
  find /run "$TMPDIR" ${frr:+/var/lib/frr /var/tmp/frr} | sort
  ps -eo args= | grep -vE '^(ps -eo|awk |grep |sort)'
}
state >"$WORK/before"
gone() {
  for _ in {1..20}; do
    state >"$WORK/after"
    cmp -s "$WORK/before" "$WORK/after" && return 0
    sleep 0.1
  done
  diff -u "$WORK/before" "$WORK/after" >&2
  fail "$1: this is left"
}

expect 0 scripts/lab.sh
for address in 198.18.2.2 fd00:2::2; do says "$WORK/out" "^64 bytes from $address: .*ttl=63"; done
says "$WORK/out" '^198.18.2.0/24 .*dev 1'
gone "without a terminal"

expect 2 scripts/lab.sh --nonsense
expect 1 env FWD_APP=/bin/false scripts/lab.sh
says "$WORK/err" 'ended by itself'
gone "a forwarder that does not start"

begin() {
  local pattern=$1
  shift
  : >"$WORK/out"
  env --default-signal=INT,HUP setsid scripts/lab.sh "$@" >"$WORK/out" 2>"$WORK/err" </dev/null &
  started=$!
  for _ in {1..200}; do grep -qE -- "$pattern" "$WORK/out" && return 0; sleep 0.05; done
  tail "$WORK/out" "$WORK/err" >&2
  fail "the lab did not print: $pattern"
}
ended() {
  local code=0
  wait "$started" || code=$?
  [ "$code" = "$1" ] || { tail "$WORK/out" "$WORK/err" >&2 && fail "$2: exit code $code instead of $1"; }
  gone "$2"
}
begin 'two hosts and a router'
kill -INT -- "-$started"
ended 130 "Ctrl-C while namespaces are made"
begin '64 bytes from'
kill -INT -- "-$started"
ended 130 "Ctrl-C while it pings"
begin 'starting the forwarder'
kill -TERM "$started"
ended 143 "SIGTERM to the script alone"
begin '64 bytes from'
kill -KILL "$started"
wait "$started" 2>/dev/null || true
expect 0 scripts/lab.sh
says "$WORK/out" '^a killed lab has left'
gone "SIGKILL, and the next lab"

# At a terminal: the prompt answers, and Ctrl-D or the end of the terminal ends the lab.
cat >"$WORK/terminal.py" <<'PYTHON'
import os, pty, signal, sys, time
script, close = sys.argv[1], sys.argv[2] == "close"
child, terminal = pty.fork()
if child == 0:
    os.execv(script, [script])
seen = b""
def until(text):
    global seen
    end = time.monotonic() + 30
    while text not in seen:
        assert time.monotonic() < end, seen.decode(errors="replace")
        seen += os.read(terminal, 4096)
    seen = seen[seen.index(text) + len(text):]
until(b"in other terminals")
until(b"fwd-app> ")
os.write(terminal, b"show neigh\r")
until(b"198.18.2.2")
if close:
    os.close(terminal)
else:
    until(b"fwd-app> ")
    os.write(terminal, b"\x04")
    until(b"the lab is gone")
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status in ((0,) if not close else (-signal.SIGHUP, 0, 1, 129)), status
PYTHON
for end in leave close; do
  expect 0 python3 "$WORK/terminal.py" scripts/lab.sh "$end"
  gone "a terminal: $end"
done

[ -c /dev/net/tun ] || skip "with FRR: no /dev/net/tun"
expect 0 scripts/lab.sh --frr
says "$WORK/out" '^fpm +.*connected; [1-9][0-9]* routes'
says "$WORK/out" '^203.0.113.0/24 .*via 198.18.2.2 dev 1'
for address in 203.0.113.1 2001:db8:9::1; do says "$WORK/out" "^64 bytes from $address: .*ttl=63"; done
[ ! -s "$WORK/err" ] || { cat "$WORK/err" >&2 && fail "it says something on stderr"; }
gone "with FRR"
begin 'BGP between' --frr
sleep 1
kill -INT -- "-$started"
ended 130 "Ctrl-C while FRR starts"
