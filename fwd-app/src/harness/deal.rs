//! Assigns each frame its input and its VRF.

use super::reference::checked;
use super::trace::Trace;
use crate::datapath::check::Destination;
use crate::datapath::vlans::PortVrfs;
use crate::topology::plan::Input;
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};

/// Distributes frames over the inputs of their port, or over all inputs with `--spread`.
#[derive(Clone, Debug)]
pub(crate) struct Dealer {
    /// Inputs by arrival port; with `--spread` entry 0 holds them all.
    inputs: Vec<Vec<u16>>,
    vrfs: Vec<PortVrfs>,
}

impl Dealer {
    /// `vrfs` is indexed by port; a port beyond its end uses the default VRF.
    pub(crate) fn new(inputs: &[Input], spread: bool, vrfs: &[PortVrfs]) -> Self {
        let group = |input: &Input| if spread { 0 } else { usize::from(input.port) };
        let mut by_port = vec![Vec::new(); inputs.iter().map(group).max().unwrap_or(0) + 1];
        for (number, input) in (0..).zip(inputs) {
            by_port[group(input)].push(number);
        }
        let vrfs_of = |input: &Input| vrfs.get(usize::from(input.port)).cloned().unwrap_or_default();
        Self { inputs: by_port, vrfs: inputs.iter().map(vrfs_of).collect() }
    }

    /// VRF numbers are below this.
    pub(crate) fn vrfs(&self) -> usize {
        let numbers = self.vrfs.iter().flat_map(|vrfs| vrfs.vlans.values().chain([&vrfs.own]));
        1 + numbers.copied().max().unwrap_or(0)
    }

    /// Replaces `ring_of` by the input of each frame of `trace`, and `vrf_of` by the number of its VRF.
    pub(crate) fn deal(&self, trace: &Trace, ring_of: &mut Vec<u16>, vrf_of: &mut Vec<usize>) {
        ring_of.clear();
        vrf_of.clear();
        for i in 0..trace.len() {
            let frame = trace.frame(i);
            let input = self.input(frame, trace.port(i));
            ring_of.push(input);
            let PortVrfs { own, vlans } = &self.vrfs[usize::from(input)];
            vrf_of.push(vlan(frame).and_then(|id| vlans.get(&id)).copied().unwrap_or(*own));
        }
    }

    /// Selects the input by source and destination address, so that a flow, its fragments included, stays on one input. Frames that are
    /// not IP go to the first input.
    fn input(&self, frame: &[u8], port: u16) -> u16 {
        let inputs = &self.inputs[usize::from(port)];
        let addresses = if inputs.len() > 1 { addresses(frame) } else { None };
        let Some(addresses) = addresses else { return inputs[0] };
        let mut hasher = FxHasher::default();
        addresses.hash(&mut hasher);
        // FxHash mixes its upper bits best.
        let at = (u128::from(hasher.finish()) * inputs.len() as u128) >> 64;
        inputs[usize::try_from(at).unwrap_or(0)]
    }
}

/// Source and destination address of an IP packet, in network byte order.
fn addresses(frame: &[u8]) -> Option<&[u8]> {
    let checked = checked(frame).ok()?;
    let ip_at = usize::from(checked.ip_at);
    match checked.destination {
        Destination::V4(_) => frame.get(ip_at + 12..ip_at + 20),
        Destination::V6(_) => frame.get(ip_at + 8..ip_at + 40),
    }
}

/// The id of the outermost VLAN tag (IEEE 802.1Q 9.6).
fn vlan(frame: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from(*frame.get(at)?) << 8 | u16::from(*frame.get(at + 1)?));
    matches!(word(12)?, 0x8100 | 0x88a8 | 0x9100).then(|| word(14))?.map(|tci| tci % 4096)
}
