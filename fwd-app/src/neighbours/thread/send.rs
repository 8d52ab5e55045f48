//! Output of the router's thread: frames to a TX stage, events to the control thread.

use super::{HEADER_BYTES, RouterLoop, SHORT, Waiting};
use crate::datapath::check::FRAME_BYTES_MIN;
use crate::datapath::fragment::Cut;
use crate::datapath::punt::{PuntCause, PuntTag};
use crate::datapath::rewrite::hop;
use crate::datapath::watch::PacketOrigin;
use crate::datapath::{DropReason, check};
use crate::neighbours::Action;
use crate::neighbours::action::Unsent;
use crate::neighbours::entries::Key;
use crate::neighbours::icmp_errors::Cause;
use crate::neighbours::limiter::{LimitRate, Pace};
use crate::notice;
use crate::ports::InterfaceId;
use crossbeam_channel::TrySendError;
use dpdk_ffi::{DpdkError, Mbuf, Mempool};
use fib::MacAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TAP_BURST: usize = 32;

const MOVES: LimitRate = LimitRate { per_second: 1, burst: 10 };

impl RouterLoop {
    pub(super) fn act(&mut self) {
        let (now, mut actions) = (self.now(), std::mem::take(&mut self.actions));
        for action in actions.drain(..) {
            match action {
                Action::Send { interface, frame } => self.send(interface.0, &frame),
                Action::Resolved { key, mac } => self.learned.set(now, key, Some(mac)),
                Action::Changed { key, old, new } => {
                    self.learned.set(now, key, Some(new));
                    self.notice_move(now, key, (old, new));
                }
                Action::Lost { key, .. } => self.learned.set(now, key, None),
                Action::Release { key, mac, packets } => {
                    for waiting in packets {
                        self.forward(key.interface, mac, waiting);
                    }
                }
                Action::Dropped { why, packets, .. } => {
                    for Waiting { packet, tag } in packets {
                        let is_full = why == Unsent::AllFull;
                        let reason = if is_full { DropReason::WaitingFull } else { DropReason::NoNeighbour };
                        self.drop_packet(tag, &packet, reason);
                        if why == Unsent::Unreachable {
                            self.tell_sender(tag, &packet, Cause::AddressUnreachable);
                        }
                    }
                }
                Action::Conflict { key: Key { interface, address, .. }, mac } => notice::warn(format_args!(
                    "{}: {mac} uses {address}, which is an address of this router",
                    self.ports.load().title(interface.0)
                )),
            }
        }
        self.actions = actions;
    }

    fn forward(&mut self, by: InterfaceId, mac: MacAddr, waiting: Waiting) {
        let Waiting { mut packet, tag } = waiting;
        let checked = check::check(packet.data(), packet.pkt_len());
        let (Some(interface), Ok(checked)) = (self.router.ports().interface(by), checked) else {
            return self.drop_packet(tag, &packet, DropReason::NoNeighbour);
        };
        let (mtu_bytes, source) = (interface.mtu_bytes, interface.mac);
        let ip_at = usize::from(checked.ip_at);
        let is_long = checked.ip_bytes > u32::from(mtu_bytes);
        if is_long && Cut::new(packet.data(), ip_at, mtu_bytes).is_none() {
            let tag = PuntTag { cause: PuntCause::MtuExceeded, ..tag };
            return self.refuse(tag, &packet, Cause::TooBig { mtu_bytes });
        }
        let data = packet.data_mut();
        data[..6].copy_from_slice(&mac.0);
        data[6..12].copy_from_slice(&source.0);
        let is_v6 = matches!(checked.destination, check::Destination::V6(_));
        hop(&mut data[ip_at..], is_v6);
        match Cut::new(packet.data(), ip_at, mtu_bytes).filter(|_| is_long) {
            None => self.go(by.0, packet),
            Some(cut) => self.go_in_pieces(by.0, &packet, cut),
        }
    }

    /// Sends the fragments of a packet. Stops at the first one without an mbuf.
    fn go_in_pieces(&mut self, port: u16, packet: &Mbuf, mut cut: Cut) {
        self.counters.punted += 1;
        self.counters.fragmented += 1;
        while let Some((headers, payload)) = cut.next() {
            self.counters.originated += 1;
            match packet.piece(headers, &payload) {
                Some(piece) => self.go(port, piece),
                None => return self.counters.drops.add(DropReason::TxFull, 1),
            }
        }
    }

    pub(super) fn send(&mut self, port: u16, frame: &[u8]) {
        self.counters.originated += 1;
        match padded(&self.pool, frame) {
            Ok(packet) => self.go(port, packet),
            Err(_) => self.drop_frame(frame, DropReason::TxFull),
        }
    }

    fn drop_frame(&mut self, frame: &[u8], reason: DropReason) {
        self.counters.drops.add(reason, 1);
        if self.watch.is_on() {
            let frame_bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            self.watch.dropped((frame, frame_bytes), PacketOrigin::UNKNOWN, reason);
        }
    }

    fn go(&mut self, port: u16, mut packet: Mbuf) {
        packet.set_tag(port.into());
        if self.going.room() == 0 {
            self.flush();
        }
        // `flush` has made room.
        drop(self.going.push(packet));
    }

    pub(super) fn flush(&mut self) {
        if self.going.is_empty() {
            return;
        }
        if self.pool.available() < SHORT {
            self.is_short.store(true, Ordering::Relaxed);
        }
        self.to.enqueue_burst(&mut self.going);
        self.counters.drops.add(DropReason::TxFull, self.going.len() as u64);
        if self.watch.is_on() {
            self.watch.refused(self.going.iter(), PacketOrigin::UNKNOWN, DropReason::TxFull);
        }
        self.going.free_all();
    }

    pub(super) fn tell(&mut self) {
        let (now, events) = (self.now(), &self.events);
        self.learned.report_due(now, |event| !matches!(events.try_send(event), Err(TrySendError::Full(_))));
    }

    /// Logs a gateway's changed MAC, at a limited rate.
    fn notice_move(&mut self, now: Duration, key: Key, (old, new): (MacAddr, MacAddr)) {
        let Some(taken) = self.pinned.contains(&key).then(|| Pace::new(MOVES).taken(self.moves, now)) else {
            return;
        };
        if let Some(rest) = taken {
            self.moves = rest;
            let (port, address) = (self.ports.load().title(key.interface.0), key.address);
            notice::post(format_args!("{port}: the MAC of gateway {address} is {new} now, and was {old}"));
        }
    }

    /// Sends frames from the TAPs while the TX stage has room. Returns whether any frame was found.
    pub(super) fn take_from_kernel(&mut self) -> bool {
        let mut room = self.originated.capacity().saturating_sub(self.originated.count() + self.going.len());
        let ids: Vec<InterfaceId> = self.taps.ids().collect();
        let mut frame = std::mem::take(&mut self.frame);
        let mut any = false;
        for id in ids {
            for _ in 0..TAP_BURST.min(room) {
                let Some(bytes) = self.taps.recv(id, &mut frame) else { break };
                (any, room) = (true, room - 1);
                let mtu_bytes = self.router.ports().interface(id).map_or(0, |interface| interface.mtu_bytes);
                // The TAP's MTU may have been raised; a frame that fills the buffer was truncated.
                if bytes > usize::from(mtu_bytes) + HEADER_BYTES {
                    self.counters.originated += 1;
                    self.drop_frame(&frame[..bytes.min(frame.len())], DropReason::MtuExceeded);
                    continue;
                }
                self.to_kernel.sends(self.now(), id, &frame[..bytes]);
                self.send(id.0, &frame[..bytes]);
            }
        }
        self.frame = frame;
        any
    }
}

/// Copies `frame` and pads it with zeros to the shortest length, since not every driver pads.
fn padded(pool: &Mempool, frame: &[u8]) -> Result<Mbuf, DpdkError> {
    let mut packet = pool.copy(frame)?;
    packet.append(&[0; FRAME_BYTES_MIN][frame.len().min(FRAME_BYTES_MIN)..], pool)?;
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpdk_ffi::MempoolConfig;

    #[test]
    fn frames_are_padded_with_zeros() {
        let Some(eal) = dpdk_ffi::testing::eal() else { return };
        let pool = Mempool::new(eal, "padded", &MempoolConfig::default()).unwrap();
        for bytes in [14, 42, 59, 60, 61, 3000] {
            let frame = vec![0xff; bytes];
            let mut whole = Vec::new();
            padded(&pool, &frame).unwrap().copy_to(&mut whole);
            assert_eq!((whole.len(), &whole[..bytes]), (bytes.max(60), &frame[..]));
            assert!(whole[bytes..].iter().all(|byte| *byte == 0));
        }
    }
}
