//! BCN, BN24 and N32 on the host, and drawing routes over them.

use super::BCN_UNITS;
use crate::direct::{CHUNK_STEP, CHUNK_UNITS, Chunks, Draw, Unit};
use fib::Prefix4;

/// A word of one of the arrays, ordered by array, then index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordPlace {
    Bcn(u32),
    Bn24(u32),
    N32(u32),
}

impl WordPlace {
    pub(super) const fn chunk(self) -> u32 {
        match self {
            Self::Bcn(at) | Self::Bn24(at) | Self::N32(at) => at / CHUNK_STEP,
        }
    }
}

#[derive(Debug)]
pub(super) struct SailArrays {
    pub(super) bcn: Vec<u32>,
    pub(super) bn24: Vec<u32>,
    pub(super) n32: Vec<u32>,
    pub(super) chunks24: Chunks,
    pub(super) chunks32: Chunks,
}

impl SailArrays {
    pub(super) fn new() -> Self {
        Self {
            bcn: vec![0; BCN_UNITS],
            bn24: Vec::new(),
            n32: Vec::new(),
            chunks24: Chunks::default(),
            chunks32: Chunks::default(),
        }
    }

    pub(super) fn word(&self, place: WordPlace) -> u32 {
        match place {
            WordPlace::Bcn(at) => self.bcn[at as usize],
            WordPlace::Bn24(at) => self.bn24[at as usize],
            WordPlace::N32(at) => self.n32[at as usize],
        }
    }

    /// Writes a word; lists it in `wrote` if lookups can see the difference.
    fn set(&mut self, place: WordPlace, unit: Unit, wrote: &mut Vec<WordPlace>) {
        let word = match place {
            WordPlace::Bcn(at) => &mut self.bcn[at as usize],
            WordPlace::Bn24(at) => &mut self.bn24[at as usize],
            WordPlace::N32(at) => &mut self.n32[at as usize],
        };
        let old = std::mem::replace(word, unit.0);
        if Unit(old).value() != unit.value() || Unit(old).to_chunk().is_some() != unit.to_chunk().is_some() {
            wrote.push(place);
        }
    }

    /// The chunk at `place`; otherwise a new one, filled with the unit there.
    pub(super) fn extend(&mut self, place: WordPlace, wrote: &mut Vec<WordPlace>) -> u32 {
        let under = Unit(self.word(place));
        if let Some(chunk) = under.to_chunk() {
            return chunk;
        }
        let (chunks, words) = match place {
            WordPlace::Bcn(_) => (&mut self.chunks24, &mut self.bn24),
            WordPlace::Bn24(_) | WordPlace::N32(_) => (&mut self.chunks32, &mut self.n32),
        };
        let chunk = chunks.allocate();
        let first = chunk as usize * CHUNK_UNITS;
        words.resize(words.len().max(first + CHUNK_UNITS), 0);
        words[first..first + CHUNK_UNITS].fill(under.0);
        self.set(place, Unit::chunk(chunk), wrote);
        chunk
    }

    pub(super) fn fold(&mut self, place: WordPlace, wrote: &mut Vec<WordPlace>) {
        let Some(chunk) = Unit(self.word(place)).to_chunk() else { return };
        let first = chunk as usize * CHUNK_UNITS;
        let (chunks, words) = match place {
            WordPlace::Bcn(_) => (&mut self.chunks24, &self.bn24),
            WordPlace::Bn24(_) | WordPlace::N32(_) => (&mut self.chunks32, &self.n32),
        };
        chunks.give_back(chunk);
        let unit = Unit(words[first]);
        self.set(place, unit, wrote);
    }

    pub(super) fn place24(&self, address: u32) -> Option<WordPlace> {
        let chunk = Unit(self.bcn[(address >> 16) as usize]).to_chunk()?;
        Some(WordPlace::Bn24(chunk * CHUNK_STEP + (address >> 8 & 0xff)))
    }

    fn place32(&self, address: u32) -> Option<WordPlace> {
        let chunk = Unit(self.word(self.place24(address)?)).to_chunk()?;
        Some(WordPlace::N32(chunk * CHUNK_STEP + (address & 0xff)))
    }

    pub(super) fn draw(&mut self, prefix: Prefix4, draw: Draw, wrote: &mut Vec<WordPlace>) {
        let address = prefix.address();
        let (level, place) = match prefix.len() {
            0..=16 => (16, Some(WordPlace::Bcn(address >> 16))),
            17..=24 => (24, self.place24(address)),
            _ => (32, self.place32(address)),
        };
        // The caller has made the chunks that the route's level needs.
        if let Some(place) = place {
            self.draw_run(place, 1 << (level - prefix.len()), draw, wrote);
        }
    }

    fn draw_run(&mut self, first: WordPlace, count: u32, draw: Draw, wrote: &mut Vec<WordPlace>) {
        for n in 0..count {
            let place = match first {
                WordPlace::Bcn(at) => WordPlace::Bcn(at + n),
                WordPlace::Bn24(at) => WordPlace::Bn24(at + n),
                WordPlace::N32(at) => WordPlace::N32(at + n),
            };
            let unit = Unit(self.word(place));
            match (unit.to_chunk(), place) {
                (Some(chunk), WordPlace::Bcn(_)) => {
                    self.draw_run(WordPlace::Bn24(chunk * CHUNK_STEP), CHUNK_STEP, draw, wrote);
                }
                (Some(chunk), _) => {
                    self.draw_run(WordPlace::N32(chunk * CHUNK_STEP), CHUNK_STEP, draw, wrote);
                }
                (None, _) if draw.hits(unit) => self.set(place, draw.unit, wrote),
                (None, _) => {}
            }
        }
    }

    /// Renumbers the chunks by address, without gaps; all are live then.
    pub(super) fn pack(&mut self) {
        let mut packed = Self::new();
        for (at, word) in self.bcn.iter().enumerate() {
            packed.bcn[at] = match Unit(*word).to_chunk() {
                Some(chunk) => packed.pack24(self, chunk).0,
                None => *word,
            };
        }
        let count = |words: &[u32]| u32::try_from(words.len() / CHUNK_UNITS).unwrap_or(u32::MAX);
        packed.chunks24.restart(count(&packed.bn24));
        packed.chunks32.restart(count(&packed.n32));
        *self = packed;
    }

    fn pack24(&mut self, from: &Self, chunk: u32) -> Unit {
        let to = self.bn24.len();
        self.bn24.extend_from_slice(chunk_words(&from.bn24, chunk));
        for word in &mut self.bn24[to..] {
            if let Some(chunk) = Unit(*word).to_chunk() {
                *word = Unit::chunk(u32::try_from(self.n32.len() / CHUNK_UNITS).unwrap_or(u32::MAX)).0;
                self.n32.extend_from_slice(chunk_words(&from.n32, chunk));
            }
        }
        Unit::chunk(u32::try_from(to / CHUNK_UNITS).unwrap_or(u32::MAX))
    }

    pub(super) fn bytes(&self) -> u64 {
        let words = self.bcn.capacity() + self.bn24.capacity() + self.n32.capacity();
        4 * words as u64 + self.chunks24.bytes() + self.chunks32.bytes()
    }
}

fn chunk_words(words: &[u32], chunk: u32) -> &[u32] {
    let first = chunk as usize * CHUNK_UNITS;
    &words[first..first + CHUNK_UNITS]
}
