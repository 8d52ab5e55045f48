//! VLANs in VRFs: moves the packets of other VRFs out of a batch, on ports whose VLANs are in several VRFs.
//!
//! A batch has one VRF. A queue of such a port has a [`VlanSort`] and a batch for each other VRF; before parsing, the outermost tag of each
//! packet selects the batch. Packets of one VRF stay in order of arrival; packets of different VRFs may overtake each other.

use super::batch::{Batch, Stamp};
use super::check::outer_vlan;
use dpdk_ffi::{Burst, Eal};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// VLAN ids (IEEE 802.1Q 9.6). A tag with id 0 has no VLAN; 4095 is reserved.
pub(crate) const VLAN_IDS: RangeInclusive<u16> = 1..=4094;
const IDS: usize = 1 << 12;
/// Marks a packet that stays in the port's VRF.
const STAYS: u16 = u16::MAX - 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortVrfs {
    /// VRF of the port and of packets without a tag in `vlans`.
    pub(crate) own: usize,
    /// VRFs of VLANs that differ from the port's, by VLAN id.
    pub(crate) vlans: BTreeMap<u16, usize>,
}

pub(crate) struct VlanSort {
    /// By VLAN id: an index in `vrfs`, or [`STAYS`].
    at: Box<[u16]>,
    vrfs: Vec<usize>,
    /// Target of each packet of the last batch, as in `at`.
    to: Vec<u16>,
    stamps: Vec<Stamp>,
    outs: Vec<Burst>,
    /// A target that no packet has.
    unused: Burst,
}

impl VlanSort {
    /// `None` when all packets are in the VRF of the port.
    pub(crate) fn new(eal: &Eal, vrfs: &PortVrfs, batch_max: usize) -> Option<Self> {
        let mut others: Vec<usize> = vrfs.vlans.values().copied().collect();
        others.sort_unstable();
        others.dedup();
        let mut at = vec![STAYS; IDS].into_boxed_slice();
        for (id, vrf) in &vrfs.vlans {
            let index = others.iter().position(|other| other == vrf);
            at[usize::from(*id)] = index.and_then(|index| u16::try_from(index).ok()).unwrap_or(STAYS);
        }
        let burst = |_: &usize| Burst::with_capacity(eal, batch_max);
        (!others.is_empty()).then(|| Self {
            at,
            to: vec![STAYS; batch_max],
            stamps: Vec::with_capacity(batch_max),
            outs: others.iter().map(burst).collect(),
            unused: burst(&0),
            vrfs: others,
        })
    }

    pub(crate) fn others(&self) -> usize {
        self.vrfs.len()
    }

    /// Moves packets of other VRFs out of the unparsed `batch`. Returns whether it had any. A batch that becomes empty can be reused.
    pub(crate) fn sort(&mut self, batch: &mut Batch) -> bool {
        let count = batch.packets.len();
        let mut has_others = false;
        for (place, to) in self.to[..count].iter_mut().enumerate() {
            let vlan = batch.packets.header(place).and_then(outer_vlan);
            *to = vlan.map_or(STAYS, |id| self.at[usize::from(id)]);
            has_others |= *to != STAYS;
        }
        if has_others {
            batch.packets.scatter(&self.to[..count], &mut self.outs, &mut self.unused);
            self.stamps.clear();
            self.stamps.extend_from_slice(batch.stamps());
            batch.clear();
            self.stamp(STAYS, batch);
        }
        has_others
    }

    pub(crate) fn take_batch(&mut self, index: usize, batch: &mut Batch) -> bool {
        let out = &mut self.outs[index];
        if out.is_empty() {
            return false;
        }
        batch.packets.swap(out);
        batch.vrf = self.vrfs[index];
        // Fewer than 65,536: there are 4094 VLANs.
        self.stamp(u16::try_from(index).unwrap_or(STAYS), batch);
        true
    }

    fn stamp(&self, wanted: u16, batch: &mut Batch) {
        let mut rest = &self.to[..];
        for stamp in &self.stamps {
            let (burst, later) = rest.split_at(stamp.packets as usize);
            rest = later;
            let packets = burst.iter().map(|to| u32::from(*to == wanted)).sum();
            if packets > 0 {
                batch.stamp(stamp.tsc, packets);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_frames::{self, V4, V6};
    use super::*;
    use dpdk_ffi::testing;
    use proptest::prelude::*;

    fn frame(number: u8, tags: &[(u16, u16)]) -> Vec<u8> {
        let types: Vec<_> = tags.iter().map(|(ethertype, _)| *ethertype).collect();
        let mut frame = if number.is_multiple_of(3) {
            let mut destination = V6::default().destination;
            destination[15] = number;
            V6 { destination, ..V6::default() }.tagged(&types)
        } else {
            V4 { destination: [198, 51, 100, number], ..V4::default() }.tagged(&types)
        };
        for (i, (_, tci)) in tags.iter().enumerate() {
            frame[14 + 4 * i..][..2].copy_from_slice(&tci.to_be_bytes());
        }
        frame
    }

    fn frames_of(batch: &Batch) -> Vec<Vec<u8>> {
        batch.packets.iter().map(|packet| packet.data().to_vec()).collect()
    }

    fn any_tag() -> impl Strategy<Value = (u16, u16)> {
        let ethertype = prop_oneof![Just(0x8100_u16), Just(0x88a8), Just(0x9100), Just(0x9200)];
        // Priority and drop eligibility are not part of the id.
        let tci = (0..6_u16, 0..16_u16).prop_map(|(id, bits)| bits << 12 | if id == 5 { 4094 } else { id });
        (ethertype, tci)
    }

    proptest! {
        #[test]
        fn each_packet_goes_to_the_vrf_of_its_outermost_tag(
            tags in proptest::collection::vec(proptest::collection::vec(any_tag(), 0..3), 1..100),
            parts in proptest::collection::vec(1..40_u32, 1..6),
        ) {
            let Some(eal) = testing::eal() else { return Ok(()) };
            let vrfs = PortVrfs { own: 3, vlans: BTreeMap::from([(1, 5), (2, 4), (4, 5), (4094, 9)]) };
            let mut sort = VlanSort::new(eal, &vrfs, 128).unwrap();
            prop_assert_eq!(sort.others(), 3);
            let frames: Vec<_> = (0..).zip(&tags).map(|(number, tags)| frame(number, tags)).collect();
            let mut batch = test_frames::batch(&frames).unwrap();
            let (mut left, mut received) = (u32::try_from(frames.len()).unwrap(), Vec::new());
            for (tsc, most) in (10..).zip(parts.iter().copied().chain([u32::MAX])) {
                let packets = most.min(left);
                left -= packets;
                if packets > 0 {
                    batch.stamp(tsc, packets);
                    received.extend(std::iter::repeat_n(tsc, packets as usize));
                }
            }
            // By definition: 802.1Q 9.6 and the three types that parse accepts as tags.
            let vrf = |tags: &[(u16, u16)]| match tags {
                [(0x8100 | 0x88a8 | 0x9100, tci), ..] => match tci & 0xfff { 1 | 4 => 5, 2 => 4, 4094 => 9, _ => 3 },
                _ => 3,
            };
            let of = |number: usize| -> (Vec<_>, Vec<_>) {
                let which = (0..frames.len()).filter(|at| vrf(&tags[*at]) == number);
                which.map(|at| (frames[at].clone(), received[at])).unzip()
            };
            let has_others = sort.sort(&mut batch);
            prop_assert_eq!(has_others, tags.iter().any(|tags| vrf(tags) != 3));
            let mut seen = 0;
            let mut check = |batch: &Batch, number: usize| {
                let (wanted, when) = of(number);
                seen += wanted.len();
                prop_assert_eq!(frames_of(batch), wanted);
                let stamps = batch.stamps().iter();
                let stamped: Vec<_> =
                    stamps.flat_map(|stamp| std::iter::repeat_n(stamp.tsc, stamp.packets as usize)).collect();
                prop_assert_eq!(stamped, when);
                Ok(())
            };
            check(&batch, 3)?;
            for (index, number) in [4, 5, 9].into_iter().enumerate() {
                let mut part = test_frames::batch(&[]).unwrap();
                if has_others && sort.take_batch(index, &mut part) {
                    prop_assert_eq!(part.vrf, number);
                }
                check(&part, number)?;
                prop_assert!(!sort.take_batch(index, &mut part));
            }
            prop_assert_eq!(seen, frames.len());
        }
    }

    #[test]
    fn short_frames_and_ports_with_one_vrf_are_not_sorted() {
        let Some(eal) = testing::eal() else { return };
        assert!(VlanSort::new(eal, &PortVrfs { own: 1, ..PortVrfs::default() }, 32).is_none());
        let vrfs = PortVrfs { own: 0, vlans: BTreeMap::from([(100, 1)]) };
        let mut sort = VlanSort::new(eal, &vrfs, 32).unwrap();
        let tagged = V4::default().tagged(&[0x8100]);
        let mut batch =
            test_frames::batch(&[tagged[..15].to_vec(), Vec::new(), V4::default().frame()]).unwrap();
        batch.stamp(1, 3);
        assert!(!sort.sort(&mut batch));
        assert_eq!((batch.packets.len(), batch.stamps().len()), (3, 1));
    }
}
