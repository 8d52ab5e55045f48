//! Assigns each frame its input, its VRF and its expected result.

use super::expected::{Expected, VrfReferences};
use super::reference::checked;
use super::trace::Trace;
use crate::datapath::check::Destination;
use crate::datapath::vlans::PortVrfs;
use crate::topology::plan::Input;
use rustc_hash::FxHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// Most packets of a replay: sequence numbers must fit the tag of an mbuf.
pub(super) const PACKETS_MAX: u64 = 1 << 40;

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

    /// Selects by both addresses: a flow, its fragments included, stays on one input. Frames that are not IP go to the first.
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

#[derive(Default)]
pub(crate) struct TracePart {
    pub(crate) trace: Arc<Trace>,
    /// Number of trace frames before this part.
    pub(super) first: usize,
    pub(super) ring_of: Vec<u16>,
    pub(super) vrf_of: Vec<usize>,
    /// Correct result of each frame; `None` without `--verify`.
    pub(super) expected: Option<Expected>,
}

impl TracePart {
    pub(crate) fn new(trace: Arc<Trace>, dealer: &Dealer, tables: Option<&VrfReferences>) -> Self {
        let mut part = Self { trace, ..Self::default() };
        part.deal(dealer, tables);
        part
    }

    pub(super) fn deal(&mut self, dealer: &Dealer, tables: Option<&VrfReferences>) {
        let Self { trace, ring_of, vrf_of, expected, .. } = self;
        dealer.deal(trace, ring_of, vrf_of);
        if let Some(tables) = tables {
            expected.get_or_insert_default().judge(tables, trace, vrf_of);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NextFrame<'a> {
    /// Sequence number over all passes.
    pub(super) sequence: u64,
    /// Due time by the trace, cycles from the first frame; 0 where the trace does not set it.
    pub(super) due: u64,
    pub(super) ring: usize,
    pub(super) pool: usize,
    pub(super) bytes: &'a [u8],
}

pub(super) struct FedFrame<'a> {
    pub(super) part: &'a mut TracePart,
    pub(super) frame: usize,
}

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
