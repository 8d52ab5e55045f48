//! Rates: packets and bits a second, in frames (layer 2) and on the wire (layer 1).

use crate::datapath::Counters;
use serde::Serialize;

/// Bytes of a frame on the wire that are not in memory: preamble 7, start 1, checksum 4, gap 12.
pub(super) const WIRE_BYTES: u64 = 24;

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct PacketRate {
    /// Packets received and completed, millions a second.
    pub(crate) mpps: f64,
    /// Gbit/s sent, frames without checksum (layer 2).
    pub(crate) gbps: f64,
    /// Gbit/s sent including checksum, preamble and gap (layer 1).
    pub(crate) gbps_l1: f64,
    /// Packets per second of lcore time spent on packets, millions.
    pub(crate) mpps_busy: f64,
    pub(crate) duration_s: f64,
}

impl PacketRate {
    /// From counts over `duration_s` seconds and the lcores' busy cycles on a clock of `tsc_hz`.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub(crate) fn new(counters: &Counters, duration_s: f64, tsc_hz: u64) -> Self {
        let per = |count: u64, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let Counters { rx_packets, tx_packets, tx_bytes, busy_cycles, .. } = *counters;
        Self {
            mpps: per(rx_packets, duration_s) / 1e6,
            gbps: per(tx_bytes * 8, duration_s) / 1e9,
            gbps_l1: per((tx_bytes + tx_packets * WIRE_BYTES) * 8, duration_s) / 1e9,
            mpps_busy: per(rx_packets, busy_cycles as f64 / tsc_hz as f64) / 1e6,
            duration_s,
        }
    }
}
