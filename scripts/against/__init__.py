"""Parts of scripts/against.sh: other forwarders and fwd-app on the same packets and routes, at once on one CPU.

| module | what lives there |
|---|---|
| `__main__` | command line, the order of the parts, the JSON |
| `traffic` | captures, drawn from the routes |
| `page` | the memory that `net_capture.c` shares with us: orders, counters, latencies |
| `peers` | the start of each forwarder, its expected output, its known differences |
| `forwarder` | one process: its start, its CPU time, its end |
| `check` | every packet that a forwarder sends, compared with the expected packet |
| `contest` | rates, all at once |
| `latency` | latencies at fractions of a rate, one forwarder at a time |
| `selftest` | tests of all this |
| `table` | the table in docs and the line in README.md, from the JSONs |

`net_capture.c` is the source and sink of packets, `grout_routes.c` puts routes into grout, `build.sh` builds the peers.
"""
