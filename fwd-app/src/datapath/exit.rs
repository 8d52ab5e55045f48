//! Exits of packets: a port, a drop reason, or one of a few others, in the word of a port number.

use super::DropReason;
/// Action for the packets of one next hop. Its port is the word of an [`Exit`]. The MTU is 65,535 in an entry that drops.
pub(crate) use dpdk_ffi::simd::Entry as Egress;
use dpdk_ffi::simd::LengthOrMark;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Port(u16),
    /// The packet exceeds the MTU of its port. No entry has this exit.
    TooLong,
    Drop(DropReason),
    /// The destination is on a directly connected link: its neighbour entry decides.
    Connected,
    Local,
    /// The next hop is a group: the first bytes of the entry are the index of its [`Ways`](super::egress::ways::Ways).
    Group,
    /// The packet leaves as fragments by the port of its entry.
    Fragment,
    /// Dropped and already counted.
    Dropped,
}

impl Exit {
    const REASONS: u16 = Egress::TOO_LONG + 1;
    const CONNECTED: u16 = 0xff80;
    const LOCAL: u16 = 0xff81;
    const GROUP: u16 = 0xff82;
    const FRAGMENT: u16 = 0xff83;

    /// The word of this exit; a port's word is its number.
    #[inline(always)]
    pub(crate) const fn word(self) -> u16 {
        match self {
            Self::Port(port) => port,
            Self::TooLong => Egress::TOO_LONG,
            Self::Drop(reason) => Self::REASONS + reason as u16,
            Self::Connected => Self::CONNECTED,
            Self::Local => Self::LOCAL,
            Self::Group => Self::GROUP,
            Self::Fragment => Self::FRAGMENT,
            Self::Dropped => u16::MAX,
        }
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u16) -> Self {
        match word {
            ..Egress::CODES => Self::Port(word),
            Egress::TOO_LONG => Self::TooLong,
            Self::CONNECTED => Self::Connected,
            Self::LOCAL => Self::Local,
            Self::GROUP => Self::Group,
            Self::FRAGMENT => Self::Fragment,
            u16::MAX => Self::Dropped,
            // Words are made by [`Self::word`] only.
            _ => {
                let reason = DropReason::ALL.get(usize::from(word - Self::REASONS)).copied();
                Self::Drop(reason.unwrap_or(DropReason::EngineStall))
            }
        }
    }

    #[inline(always)]
    pub(crate) const fn is_port(word: u16) -> bool {
        word < Egress::CODES
    }

    /// The word of a packet with this entry, which may be too long for its port.
    #[inline(always)]
    pub(crate) fn for_length(entry: Egress, slot: LengthOrMark) -> u16 {
        let is_long = slot.get().is_ok_and(|ip_bytes| ip_bytes > u32::from(entry.mtu_bytes));
        if is_long { entry.port.max(Self::TooLong.word()) } else { entry.port }
    }

    pub(crate) const fn drop_reason(self) -> Option<DropReason> {
        match self {
            Self::Drop(reason) => Some(reason),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_has_a_word_of_its_own() {
        let ports = [0, 1, Egress::CODES - 1].map(Exit::Port);
        let reasons = DropReason::ALL.map(Exit::Drop);
        let others =
            [Exit::TooLong, Exit::Connected, Exit::Local, Exit::Group, Exit::Fragment, Exit::Dropped];
        for exit in [&ports[..], &reasons, &others].concat() {
            assert_eq!(
                (Exit::from_word(exit.word()), Exit::is_port(exit.word())),
                (exit, ports.contains(&exit))
            );
        }
    }
}
