//! `crate::datapath` around the stages: batches and slots are production code, the rest is reduced to the fate of a packet.

#[path = "../../../fwd-app/src/datapath/audit.rs"]
pub(crate) mod audit;
#[path = "../../../fwd-app/src/datapath/batch.rs"]
pub(crate) mod batch;
#[path = "../../../fwd-app/src/datapath/counters.rs"]
pub(crate) mod counters;
#[path = "../../../fwd-app/src/datapath/drop_reason.rs"]
pub(crate) mod drop_reason;
#[path = "../../../fwd-app/src/datapath/lookup.rs"]
pub(crate) mod lookup;
#[path = "../../../fwd-app/src/datapath/packet_state.rs"]
pub(crate) mod packet_state;
#[path = "../../../fwd-app/src/datapath/swap.rs"]
pub(crate) mod swap;

pub(crate) use batch::Batch;
pub(crate) use counters::{Counters, Published, StageName};
pub(crate) use drop_reason::{DropReason, Drops};

/// The port of a packet that is dropped.
pub(crate) struct Exit;

impl Exit {
    pub(crate) const DROPPED: u16 = u16::MAX;
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Egress(());
#[derive(Debug, Default)]
pub(crate) struct EgressTable;

impl EgressTable {
    pub(crate) fn counts(&self) -> Option<&HopCounts> {
        None
    }
}

pub(crate) struct HopCounts;

impl HopCounts {
    pub(crate) fn count(&self, _: usize, _: &Batch) {}
}

#[derive(Debug, Default)]
pub(crate) struct Latency;
/// No port has addresses.
#[derive(Debug)]
pub(crate) struct PuntMarker {
    pub(crate) is_elsewhere: bool,
}

impl PuntMarker {
    pub(crate) fn refresh(&mut self) {}
}

pub(crate) mod punt {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum PuntCause {
        None,
    }

    impl PuntCause {
        pub(crate) const ALL: [Self; 1] = [Self::None];
    }
}

pub(crate) mod port_queues {
    pub(crate) struct PortQueues(());
}

pub(crate) mod rx {
    use super::port_queues::PortQueues;
    use super::{Batch, Counters};
    use shuttle::rand::{Rng, thread_rng};

    /// A queue of packets, each a sequence number: 1, 2, ..
    pub(crate) struct Rx {
        pub(crate) last: u32,
        pub(crate) end: u32,
    }

    impl Rx {
        pub(crate) fn poll(&mut self, batch: &mut Batch, counters: &mut Counters) -> usize {
            let room = batch.packets.capacity() - batch.packets.len();
            let came = thread_rng().gen_range(0..=2).min(room).min((self.end - self.last) as usize);
            for _ in 0..came {
                self.last += 1;
                batch.packets.0.push(self.last);
            }
            counters.rx_packets += came as u64;
            came
        }

        pub(crate) fn exchange(&mut self, _: &mut PortQueues) {}

        /// Due when the batch is full, or at random.
        pub(crate) fn is_due(&self, batch: &Batch, _: usize) -> bool {
            let held = batch.packets.len();
            held == batch.packets.capacity() || held > 0 && thread_rng().gen_bool(0.5)
        }
    }
}

pub(crate) mod vlans {
    use super::Batch;

    /// Odd packets are in VRF 1.
    pub(crate) struct VlanSort {
        pub(crate) odd: Vec<u32>,
    }

    impl VlanSort {
        pub(crate) fn others(&self) -> usize {
            1
        }

        pub(crate) fn sort(&mut self, batch: &mut Batch) -> bool {
            assert!(self.odd.is_empty(), "packets were left behind");
            self.odd = batch.packets.0.extract_if(.., |packet| *packet % 2 == 1).collect();
            !self.odd.is_empty()
        }

        pub(crate) fn take_batch(&mut self, _: usize, batch: &mut Batch) -> bool {
            assert!(batch.packets.is_empty(), "a spare batch has packets");
            batch.packets.0.append(&mut self.odd);
            batch.vrf = 1;
            true
        }
    }
}

pub(crate) mod parse {
    use super::Batch;

    /// All packets are IPv4, with the packet number as key.
    pub(crate) fn parse(batch: &mut Batch) {
        for at in batch.parsed..batch.packets.len() {
            batch.keys4[at] = batch.packets.0[at];
            batch.v4.packets[at] = u16::try_from(at).unwrap();
            batch.indices[at] = 0;
        }
        batch.parsed = batch.packets.len();
        batch.v4.len = batch.parsed;
    }
}

pub(crate) mod verdict {
    use super::batch::NO_ENTRY;
    use super::{Batch, EgressTable, Exit};
    use crate::coop_engines::answer;

    /// Checks that every packet of the lane has the next hop of its key.
    pub(crate) fn verdict(batch: &mut Batch, _: &EgressTable) {
        for (port, index) in batch.ports.iter_mut().zip(batch.indices.iter()) {
            *port = if *index == NO_ENTRY { Exit::DROPPED } else { 0 };
        }
        for at in 0..batch.v4.len {
            assert_eq!(batch.v4.hops[at], answer(batch.keys4[at], 0), "the answer to another packet");
        }
    }
}

pub(crate) mod watch {
    #[derive(Debug, Default)]
    pub(crate) struct Watch;

    impl Watch {
        pub(crate) fn is_on(&self) -> bool {
            false
        }
        pub(crate) fn copy_matching(&self, _: &super::Batch) {}
    }
}

pub(crate) mod rewrite {
    pub(crate) fn rewrite(_: &mut super::Batch) {}
}

pub(crate) mod tx {
    use super::port_queues::PortQueues;
    use super::{Batch, Counters, Exit, Latency};
    use crate::sync::{Arc, Mutex};

    /// The sent packets: input and packet number.
    pub(crate) type Wire = Arc<Mutex<Vec<(usize, u32)>>>;

    pub(crate) struct Tx {
        pub(crate) wire: Wire,
    }

    impl Tx {
        pub(crate) fn send(&mut self, batch: &mut Batch, counters: &mut Counters) {
            let sent =
                batch.packets.0.drain(..).zip(batch.ports.iter()).filter(|(_, port)| **port != Exit::DROPPED);
            let sent: Vec<_> = sent.map(|(packet, _)| (batch.input, packet)).collect();
            counters.tx_packets += sent.len() as u64;
            counters.drops.merge(&batch.drops);
            self.wire.lock().unwrap().extend(sent);
            batch.clear();
        }
        pub(crate) fn send_held(&mut self, _: &mut Counters) -> bool {
            false
        }
        pub(crate) fn originate(&mut self, _: &mut Counters) -> bool {
            false
        }
        pub(crate) fn rest(&mut self) {}
        pub(crate) fn exchange(&mut self, _: &mut PortQueues) {}
        pub(crate) fn held(&self) -> usize {
            0
        }
        pub(crate) fn take_latency(&mut self, fresh: Option<Latency>) -> Option<Latency> {
            fresh
        }
        pub(crate) fn into_latency(self) -> Latency {
            Latency
        }
    }
}
