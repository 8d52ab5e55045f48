#!/usr/bin/env bash
# --metrics: promtool and PyPI's prometheus-client parse the output, a real Prometheus answers every expression of the dashboard, the alert
# rules pass their tests, garbage and thousands of connections do no harm, and the page in Chromium shows the values of ctl.

. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

need_packages curl prometheus python3-prometheus-client

prometheus=
cleanup() {
  local pid
  for pid in $prometheus $process; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
}
# Ubuntu has a snap instead of the package.
(need_packages chromium) >&2 || note "metrics: SKIPPED: this release has no package chromium: the page is not opened"
here=scripts/monitoring

"$APP" run --fib pcap/routes.txt --fpm 127.0.0.1:0 --metrics 0 --ctl "$ctl_socket" --config '(0,0,0)' -- --no-huge -m 512 --no-pci --no-shconf \
  --file-prefix "smoke-metrics-$$" -l 0 --vdev net_pcap0,rx_pcap=pcap/mix.pcap,tx_pcap=/dev/null,infinite_rx=1 --vdev net_null1,no-rx=1 \
  >/dev/null 2>"$WORK/err" &
process=$!
forwards
url=$(sed -n 's/^metrics  //p' "$WORK/err")
[ -n "$url" ] || fail "no address in: $(cat "$WORK/err")"
has_latency() { curl -sf "${url}metrics" | grep -q '^fwd_latency_seconds_count [1-9]'; }
within 60 has_latency

curl -sf "${url}metrics" >"$WORK/text"
curl -sf -H 'Accept: application/openmetrics-text' "${url}metrics" >"$WORK/open"
promtool check metrics <"$WORK/text" >"$WORK/out" 2>&1 || fail "promtool check metrics: $(cat "$WORK/out")"
promtool test rules $here/alerts_test.yml >"$WORK/out" 2>&1 || fail "promtool test rules: $(cat "$WORK/out")"
# Debian's module needs Debian's Python.
/usr/bin/python3 - "$WORK/text" "$WORK/open" <<'PYTHON' || fail "prometheus-client"
import sys
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
text, opened = (open(path).read() for path in sys.argv[1:])
names = [{sample.name for family in read(form) for sample in family.samples} for read, form in
         ((parser.text_string_to_metric_families, text), (openmetrics.text_string_to_metric_families, opened))]
assert names[0] == names[1] and len(names[0]) > 50, names[0] ^ names[1]
PYTHON

python3 - "$url" <<'PYTHON' || fail "garbage on the port"
import os, socket, sys, time, urllib.parse, urllib.request
url = sys.argv[1]
at = urllib.parse.urlsplit(url)
def scrape():
    with urllib.request.urlopen(url + "metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}
before, held = scrape()["fwd_rx_packets_total"], []
for number in range(10_000):
    connection = socket.create_connection((at.hostname, at.port), timeout=20)
    try:
        connection.send([b"", os.urandom(300), b"GET /metrics HTT", b"GET /snapshot.json HTTP/1.1\r\n\r\n"][number % 4])
    except OSError:
        pass
    held.append(connection)
    if len(held) > 500:
        held.pop(0).close()
    if number % 1000 == 0:
        scrape()
time.sleep(1.5)
after = scrape()
assert after["fwd_rx_packets_total"] > before and after["fwd_snapshot_age_seconds"] < 5, after
PYTHON
[ "$(find "/proc/$process/fd" -type l | wc -l)" -lt 200 ] || fail "connections are left open"

sed "s/127.0.0.1:9100/$(cut -d/ -f3 <<<"$url")/; s/scrape_interval: 5s/scrape_interval: 1s/" $here/prometheus.yml >"$WORK/prometheus.yml"
cp $here/alerts.yml "$WORK"
promtool check config "$WORK/prometheus.yml" >"$WORK/out" 2>&1 || fail "promtool check config: $(cat "$WORK/out")"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file "$WORK/prometheus.yml" --storage.tsdb.path "$WORK/tsdb" --web.listen-address "127.0.0.1:$port" 2>"$WORK/prometheus.err" &
prometheus=$!
python3 - $here/dashboard.json "http://127.0.0.1:$port" <<'PYTHON' || fail "expressions of the dashboard: $(tail -n 3 "$WORK/prometheus.err")"
import json, sys, time, urllib.parse, urllib.request
panels, url = json.load(open(sys.argv[1]))["panels"], sys.argv[2]
wanted = {target["expr"].replace("$__rate_interval", "15s").replace("$instance", ".*") for panel in panels for target in panel["targets"]}
end = time.monotonic() + 90
def has_answer(expression):
    try:
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return any(series["value"][1] != "NaN" for series in result)
    except OSError:
        return False
while wanted and time.monotonic() < end:
    wanted = {expression for expression in wanted if not has_answer(expression)}
    time.sleep(1)
assert not wanted, "without an answer: " + "\n".join(sorted(wanted))
PYTHON
kill "$prometheus" && wait "$prometheus" || true
prometheus=

ctl stop
is_quiet() { ctl --json show rates >"$WORK/rates" && [ "$(json "$WORK/rates" drops_1s no_route)" = 0.0 ]; }
within 30 is_quiet
if has chromium; then
  ctl --json show stats >"$WORK/stats"
  chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update \
    --disable-sync --user-data-dir="$WORK/chromium" --virtual-time-budget=4000 --enable-logging=stderr --v=0 --dump-dom "$url" \
    >"$WORK/dom" 2>"$WORK/chromium.err" || fail "chromium: $(tail -n 3 "$WORK/chromium.err")"
  grep -q 'CONSOLE' "$WORK/chromium.err" && fail "errors in the console: $(grep CONSOLE "$WORK/chromium.err")"
  python3 - "$WORK/dom" "$WORK/stats" <<'PYTHON' || fail "the page differs from ctl show stats"
import json, re, sys
page, stats = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
rows = dict(re.findall(r'<th scope="row"[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td>', page))
number = lambda name: int(re.sub(r"\D", "", rows[name]))
packets = stats["packets"]
wanted = {"received": packets["rx"], "sent": packets["tx"], "held": 0, "generation": stats["engine"]["generation"]}
wanted |= {reason: count for reason, count in packets["drops"].items() if count > 0}
found = {name: number(name) for name in wanted}
assert found == wanted, (found, wanted)
assert rows["name"] == stats["engine"]["name"] and "receiving is stopped" in page, rows
PYTHON
fi
stop
