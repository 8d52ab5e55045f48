//! Allocation and reclaim of chunks. A chunk is *new* from allocation to the next steps, *live* while the device's table
//! points to it, and in *limbo* from the update that unlinked it until no lookup can still read it.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    Free,
    New,
    Live,
    Limbo,
}

#[derive(Debug, Default)]
pub(crate) struct Chunks {
    states: Vec<ChunkState>,
    free: Vec<u32>,
    unlinked: Vec<u32>,
    limbo: VecDeque<(u64, u32)>,
    /// Allocated since the last steps; may be free again.
    fresh: Vec<u32>,
    used: u32,
}

impl Chunks {
    /// Allocates a chunk: a free one, else the next number from 0.
    pub(crate) fn allocate(&mut self) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.states.push(ChunkState::Free);
            u32::try_from(self.states.len() - 1).unwrap_or(u32::MAX)
        });
        self.states[number as usize] = ChunkState::New;
        self.fresh.push(number);
        self.used += 1;
        number
    }

    /// Frees a new chunk at once; a live one after the grace period.
    pub(crate) fn give_back(&mut self, number: u32) {
        let state = &mut self.states[number as usize];
        match *state {
            ChunkState::New => {
                *state = ChunkState::Free;
                self.free.push(number);
            }
            ChunkState::Live => {
                *state = ChunkState::Limbo;
                self.unlinked.push(number);
            }
            ChunkState::Free | ChunkState::Limbo => unreachable!("chunk {number} is given back twice"),
        }
        self.used -= 1;
    }

    /// Makes new chunks live and returns each once; chunks unlinked since the last call wait for the grace of `update`.
    pub(crate) fn publish(&mut self, update: u64) -> Vec<u32> {
        self.limbo.extend(self.unlinked.drain(..).map(|number| (update, number)));
        self.adopt()
    }

    /// Makes new chunks live after an image: [`Self::publish`] without an update for unlinked chunks, which go on waiting.
    pub(crate) fn adopt(&mut self) -> Vec<u32> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|number| {
            let state = &mut self.states[*number as usize];
            let new = *state == ChunkState::New;
            if new {
                *state = ChunkState::Live;
            }
            new
        });
        fresh
    }

    pub(crate) fn reclaim(&mut self, update: u64) {
        while let Some((unlinked, number)) = self.limbo.front().copied() {
            if unlinked > update {
                return;
            }
            self.limbo.pop_front();
            self.states[number as usize] = ChunkState::Free;
            self.free.push(number);
        }
    }

    pub(crate) fn restart(&mut self, used: u32) {
        *self = Self { states: vec![ChunkState::Live; used as usize], used, ..Self::default() };
    }

    pub(crate) fn state(&self, number: u32) -> ChunkState {
        self.states.get(number as usize).copied().unwrap_or(ChunkState::Free)
    }

    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn high_water(&self) -> usize {
        self.states.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.limbo.len() + self.unlinked.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.states.capacity() + 4 * self.free.capacity() + 16 * self.limbo.capacity()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_the_device_never_knew_of_is_free_at_once() {
        let mut chunks = Chunks::default();
        let a = chunks.allocate();
        chunks.give_back(a);
        assert_eq!(chunks.allocate(), a);
        chunks.give_back(a);
        let again = chunks.allocate();
        assert_eq!(chunks.publish(1), [again], "once, though taken three times");
    }
}
