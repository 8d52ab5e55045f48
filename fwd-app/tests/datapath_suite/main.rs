//! `replay` and `run` from outside: the program is started, fed captures and signalled, and its files and JSON are checked.
//!
//! | module | tests |
//! |---|---|
//! | `golden` | the golden results in `pcap/`, packet by packet |
//! | `rewriter` | byte-exact output captures, against an independent rewriter |
//! | `topologies` | both topologies, batch sizes, more lcores than CPUs, order, a slow TX side |
//! | `pacing` | rates, latency from the intended send time, the report's files |
//! | `made` | generated packets, and changed traces |
//! | `trials` | warm-up, ramps, rates in percent, and searches for a rate |
//! | `reports` | contents of reports, and comparisons of reports |
//! | `audit` | `--audit`: no false alarm while routes change, a wrong word on a device |
//! | `updates` | routes that change while packets flow |
//! | `signals` | SIGTERM drains, a second one ends at once |
//! | `terminal` | a closed or blocked stderr or stdout |
//! | `refusals` | requests that cannot be fulfilled: messages and exit codes |
//! | `run` | `run` over `net_null` and `net_pcap` ports |
//! | `forwarder` | helper: a running forwarder that tests control |
//! | `rates` | `show rates` against the packet counters |
//! | `metrics` | `--metrics` against `ctl` |
//! | `routes` | lists and comparisons of the routes in service |
//! | `reload` | an MTU that changes while packets flow |
//! | `sockets` | garbage on every socket while packets flow, and routes over FPM |
//! | `stream` | a real update stream at 100,000 updates a second with each engine, if `FWD_DATA` names its folder |
//! | `streaming` | traces that are read while they are replayed, and interfaces of captures |
//! | `ports` | the ports of `run`: queues, mbufs, chains, neighbours; the DPDK release |
//! | `fragments` | IPv4 packets above the MTU of a port |
//! | `taps` | `--tap`: frames to and from the kernel |
//! | `vrfs` | VRFs with separate routes, all changing |
//! | `gpu` | GPU engines over the mock driver: both topologies, updates, faults, `--fallback` |
//! | `full_tables` | full-size tables, if `FWD_DATA` names their folder |

#[cfg(test)]
mod audit;
#[cfg(test)]
mod forwarder;
#[cfg(test)]
mod fragments;
#[cfg(test)]
mod full_tables;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod gpu;
#[cfg(test)]
mod made;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod pacing;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod rewriter;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod run;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod steer;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod support;
#[cfg(test)]
mod taps;
#[cfg(test)]
mod terminal;
#[cfg(test)]
#[path = "../../src/routes/feeds/test_peers.rs"]
mod test_peers;
#[cfg(test)]
mod topologies;
#[cfg(test)]
mod trials;
#[cfg(test)]
mod updates;
#[cfg(test)]
mod vrfs;
