//! Forms of the next-hop codes in cells.
//!
//! A code has 8, 16 or 32 bits, the same in a whole table. If every id is small enough, codes are the ids; otherwise next hops are
//! numbered ([`HopCodes`]), and a lookup ends with one more load, from an array of ids by code. The forwarder numbers its next hops from
//! 1, so codes are usually ids of 8 or 16 bits. A table that runs out of codes is rebuilt; no table is rebuilt for narrower codes.

use crate::codes::HopCodes;
use fib::{NextHopId, Prefix4};
use rustc_hash::FxHashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    Bits8,
    Bits16,
    Bits32,
}

impl Width {
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Bits8 => 8,
            Self::Bits16 => 16,
            Self::Bits32 => 32,
        }
    }

    /// The code of a /24 with longer routes: all ones.
    pub(crate) const fn escape(self) -> u32 {
        u32::MAX >> (32 - self.bits())
    }

    const fn code_max(self) -> u32 {
        match self {
            Self::Bits32 => NextHopId::MAX.get(),
            _ => self.escape() - 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) width: Width,
    pub(crate) is_indexed: bool,
}

impl Form {
    /// With codes of at least `width_min`: ids of 8 or 16 bits if they fit, else indices: their extra load costs as much as wider ids.
    pub(super) fn for_routes(routes: &[(Prefix4, NextHopId)], width_min: Width) -> Self {
        let narrow = [Width::Bits8, Width::Bits16].into_iter().filter(|width| *width >= width_min);
        let id_max = routes.iter().map(|(_, next_hop)| next_hop.get()).max().unwrap_or(0);
        if let Some(width) = narrow.clone().find(|width| id_max <= width.code_max()) {
            return Self { width, is_indexed: false };
        }
        let distinct = routes.iter().map(|(_, next_hop)| *next_hop).collect::<FxHashSet<_>>().len();
        match narrow.clone().find(|width| distinct <= width.code_max() as usize) {
            Some(width) => Self { width, is_indexed: true },
            None => Self { width: Width::Bits32, is_indexed: false },
        }
    }

    /// Entries of the array of ids: one for each code, including the escape, which kernels may look up too.
    pub(super) const fn ids(self) -> usize {
        if self.is_indexed { self.width.escape() as usize + 1 } else { 0 }
    }
}

impl HopCodes {
    /// The codes of an IPv4 table. Code 0 is "no route but the default".
    pub(super) fn for_form(form: Form) -> Self {
        let code_max = form.width.code_max();
        if form.is_indexed {
            Self::indexed(code_max, "next hops of an IPv4 table")
        } else {
            Self::Ids(code_max)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_ids_and_their_number() {
        let form = |ids: std::ops::RangeInclusive<u32>, least| {
            let routes: Vec<_> =
                ids.map(|id| (Prefix4::truncating(id << 8, 24), NextHopId::from_answer(id))).collect();
            let form = Form::for_routes(&routes, least);
            (form.width.bits(), form.is_indexed)
        };
        assert_eq!(form(1..=254, Width::Bits8), (8, false));
        assert_eq!(form(2..=255, Width::Bits8), (16, false));
        assert_eq!(form(70_000..=70_253, Width::Bits8), (8, true));
        assert_eq!(form(70_000..=70_254, Width::Bits8), (16, true));
        assert_eq!(form(1..=255, Width::Bits8), (16, false));
        assert_eq!(form(1..=9, Width::Bits16), (16, false));
        assert_eq!(form(70_000..=70_009, Width::Bits16), (16, true));
        assert_eq!(form(1..=65_534, Width::Bits8), (16, false));
        assert_eq!(form(2..=65_535, Width::Bits8), (16, true));
        assert_eq!(form(1..=65_535, Width::Bits8), (32, false));
        assert_eq!(form(1..=9, Width::Bits32), (32, false));
        assert_eq!((Width::Bits8.escape(), Width::Bits16.escape()), (255, 65_535));
    }
}
