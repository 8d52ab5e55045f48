//! Which input each frame goes to, and which VRF it is in there.

use super::reference::checked;
use super::trace::Trace;
use crate::datapath::check::Destination;
use crate::datapath::vlans::PortVrfs;
use crate::topology::plan::Input;
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};

/// Deals frames over the inputs of their port, or over all inputs with `--spread`.
#[derive(Clone, Debug)]
pub(crate) struct Dealer {
    /// By port that a frame arrives on; with `--spread` all are at 0.
    inputs: Vec<Vec<u16>>,
    /// By input: the VRFs of its port.
    vrfs: Vec<PortVrfs>,
}

impl Dealer {
    /// Over `inputs`, whose ports have these VRFs; a port that is not there is in the first.
    pub(crate) fn new(inputs: &[Input], spread: bool, vrfs: &[PortVrfs]) -> Self {
        let group = |input: &Input| if spread { 0 } else { usize::from(input.port) };
        let mut by_port = vec![Vec::new(); inputs.iter().map(group).max().unwrap_or(0) + 1];
        for (number, input) in (0..).zip(inputs) {
            by_port[group(input)].push(number);
        }
        let vrfs_of = |input: &Input| vrfs.get(usize::from(input.port)).cloned().unwrap_or_default();
        Self { inputs: by_port, vrfs: inputs.iter().map(vrfs_of).collect() }
    }

    /// VRFs that frames can be in: their numbers are below this.
    pub(crate) fn vrfs(&self) -> usize {
        let numbers = self.vrfs.iter().flat_map(|vrfs| vrfs.vlans.values().chain([&vrfs.own]));
        1 + numbers.copied().max().unwrap_or(0)
    }

    /// Writes the input of each frame of `trace` to `ring_of`, and its VRF's number to `vrf_of`.
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

    /// The input of a frame that arrives on `port`: by its addresses, so that a flow (fragments included) stays in one; what is no IP packet
    /// goes to the first.
    fn input(&self, frame: &[u8], port: u16) -> u16 {
        let inputs = &self.inputs[usize::from(port)];
        let addresses = if inputs.len() > 1 { addresses(frame) } else { None };
        let Some(addresses) = addresses else { return inputs[0] };
        let mut hasher = FxHasher::default();
        addresses.hash(&mut hasher);
        // The upper bits are the good ones of this hash.
        let at = (u128::from(hasher.finish()) * inputs.len() as u128) >> 64;
        inputs[usize::try_from(at).unwrap_or(0)]
    }
}

/// Source and destination of an IP packet, as they are in the frame.
fn addresses(frame: &[u8]) -> Option<&[u8]> {
    let checked = checked(frame).ok()?;
    let ip_at = usize::from(checked.ip_at);
    match checked.destination {
        Destination::V4(_) => frame.get(ip_at + 12..ip_at + 20),
        Destination::V6(_) => frame.get(ip_at + 8..ip_at + 40),
    }
}

/// The VLAN id of the tag that follows the MACs of a frame (IEEE 802.1Q 9.6): the outermost one.
fn vlan(frame: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from(*frame.get(at)?) << 8 | u16::from(*frame.get(at + 1)?));
    matches!(word(12)?, 0x8100 | 0x88a8 | 0x9100).then(|| word(14))?.map(|tci| tci % 4096)
}
