#!/usr/bin/env bash
# `fwd-app lookup`: known answers, agreement of engines on the bundled table and on a generated one, and clear refusals.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

cat >"$WORK/small" <<'ROUTES'
# nested, with default routes
0.0.0.0/0 9
10.0.0.0/8 1
10.1.0.0/16 2
10.1.2.3/32 3
::/0 8
2001:db8::/32 4
2001:db8::1/128 16777215
ROUTES
for engine in oracle bloom auto; do
  expect 0 "$APP" lookup --fib "$WORK/small" --engine "$engine" 10.2.0.1 10.1.2.4 10.1.2.3 192.0.2.1 2001:db8::2 2001:db8::1 2002::
  printf '%s\t%s\n' 10.2.0.1 1 10.1.2.4 2 10.1.2.3 3 192.0.2.1 9 2001:db8::2 4 2001:db8::1 16777215 2002:: 8 >"$WORK/wanted"
  same "$WORK/out" "$WORK/wanted"
done

: >"$WORK/empty"
expect 0 "$APP" lookup --fib "$WORK/empty" 192.0.2.1 2001:db8::
printf '192.0.2.1\t0\n2001:db8::\t0\n' >"$WORK/wanted"
same "$WORK/out" "$WORK/wanted"

python3 - pcap/routes.txt "$WORK" <<'PYTHON'
import ipaddress, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts")
from captures.forwarder import Table
routes = [line.split() for line in open(sys.argv[1]) if not line.startswith("#")]
table, keys = Table([(prefix, int(hop)) for prefix, hop in routes]), []
for prefix, _ in routes:
    net = ipaddress.ip_network(prefix)
    first, last, kind = int(net[0]), int(net[-1]), type(net[0])
    keys += [kind(n) for n in (first - 1, first, (first + last) // 2, last, last + 1) if 0 <= n < 1 << net.max_prefixlen]
keys = [key for key in keys if key.version == 4 or int(key) >> 32]
open(sys.argv[2] + "/keys", "w").write("".join(f"{key}\n" for key in keys))
open(sys.argv[2] + "/wanted", "w").write("".join(f"{key}\t{table.lookup(key)}\n" for key in keys))
PYTHON
isas=(scalar)
if grep -qw avx512f /proc/cpuinfo; then isas+=(avx512f); else note "lookup: SKIPPED: avx512f, this CPU has none"; fi
"$APP" lookup --fib pcap/routes.txt --engine oracle <"$WORK/keys" >"$WORK/oracle"
same "$WORK/oracle" "$WORK/wanted"
for isa in "${isas[@]}"; do
  "$APP" lookup --fib pcap/routes.txt --engine bloom --isa "$isa" <"$WORK/keys" >"$WORK/bloom"
  same "$WORK/bloom" "$WORK/wanted"
done

sed '4s/.*/10.1.0.0\/33 2/' "$WORK/small" >"$WORK/broken"
expect 1 "$APP" lookup --fib "$WORK/broken" 10.0.0.1
says "$WORK/err" 'broken.*4'
expect 2 "$APP" lookup --fib "$WORK/small" 10.0.0.256
says "$WORK/err" '10\.0\.0\.256'
expect 1 "$APP" lookup --fib "$WORK" 10.0.0.1
expect 1 "$APP" lookup --fib "$WORK/absent" 10.0.0.1
expect 2 "$APP" lookup --fib "$WORK/small" --engine nonsense 10.0.0.1
says "$WORK/err" 'bloom'
expect 2 "$APP" lookup --fib "$WORK/small" --isa nonsense 10.0.0.1
expect 2 "$APP" lookup --no-such-option
