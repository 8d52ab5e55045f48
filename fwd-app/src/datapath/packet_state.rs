//! State of a packet between parse and tx.

use super::DropReason;
use super::punt::PuntCause;
use dpdk_ffi::simd::LengthOrMark;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketState {
    /// A valid IP packet.
    Packet {
        /// Length according to the IP header, bytes.
        ip_bytes: u32,
    },
    Dropped(DropReason),
    PuntCause(PuntCause),
}

impl From<Result<PuntCause, DropReason>> for PacketState {
    fn from(taken: Result<PuntCause, DropReason>) -> Self {
        taken.map_or_else(Self::Dropped, Self::PuntCause)
    }
}

impl PacketState {
    #[inline(always)]
    pub(crate) fn from_word(word: LengthOrMark) -> Self {
        let mark = match word.get() {
            Ok(ip_bytes) => return Self::Packet { ip_bytes },
            Err(mark) => usize::from(mark),
        };
        let punt = || mark.checked_sub(DropReason::COUNT).and_then(|at| PuntCause::ALL.get(at).copied());
        match DropReason::ALL.get(mark) {
            Some(reason) => Self::Dropped(*reason),
            // Marks are made by [`Self::word`] only.
            None => punt().map_or(Self::Dropped(DropReason::Malformed), Self::PuntCause),
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a few dozen reasons and punts")]
    pub(crate) const fn word(self) -> LengthOrMark {
        match self {
            Self::Packet { ip_bytes } => LengthOrMark::length(ip_bytes),
            Self::Dropped(reason) => LengthOrMark::mark(reason as u8),
            Self::PuntCause(punt) => LengthOrMark::mark(DropReason::COUNT as u8 + punt as u8),
        }
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_what_it_was_made_of() {
        let lengths = [0, 20, 17, 1500, 65_575].map(|ip_bytes| PacketState::Packet { ip_bytes });
        let reasons = DropReason::ALL.map(PacketState::Dropped);
        let punts = PuntCause::ALL.map(PacketState::PuntCause);
        let all = [&lengths[..], &reasons, &punts].concat();
        for (at, slot) in all.iter().enumerate() {
            assert_eq!(PacketState::from_word(slot.word()), *slot);
            assert!(all[..at].iter().all(|other| other.word() != slot.word()));
        }
    }
}
