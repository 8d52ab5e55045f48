//! Which chunks are in use, and when one may be used again.
//!
//! A chunk is *new* from when it is taken to the next steps, *live* while the device's table leads to it, and in *limbo*
//! from the update that unlinked it until no lookup can still be in it.

use std::collections::VecDeque;

/// What a chunk is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Nobody's.
    Free,
    /// Taken since the last steps: the device knows nothing of it.
    New,
    /// The device's table leads to it.
    Live,
    /// Unlinked: lookups may still be in it.
    Limbo,
}

/// The chunks of one array.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// One for each chunk ever taken since the last rebuild.
    states: Vec<Chunk>,
    free: Vec<u32>,
    /// Unlinked since the last steps.
    unlinked: Vec<u32>,
    /// Update and chunk, in order of updates.
    limbo: VecDeque<(u64, u32)>,
    /// Taken since the last steps; some may be free again.
    fresh: Vec<u32>,
    used: u32,
}

impl Chunks {
    /// Takes a chunk; numbers count up from 0, those free first.
    pub(crate) fn take(&mut self) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.states.push(Chunk::Free);
            u32::try_from(self.states.len() - 1).unwrap_or(u32::MAX)
        });
        self.states[number as usize] = Chunk::New;
        self.fresh.push(number);
        self.used += 1;
        number
    }

    /// Gives back a chunk: at once if the device never knew of it.
    pub(crate) fn give_back(&mut self, number: u32) {
        let state = &mut self.states[number as usize];
        match *state {
            Chunk::New => {
                *state = Chunk::Free;
                self.free.push(number);
            }
            Chunk::Live => {
                *state = Chunk::Limbo;
                self.unlinked.push(number);
            }
            Chunk::Free | Chunk::Limbo => unreachable!("chunk {number} is given back twice"),
        }
        self.used -= 1;
    }

    /// The chunks taken since the last call and still in use, each once, which are live from now on; those unlinked since
    /// then wait for the grace of `update`.
    pub(crate) fn publish(&mut self, update: u64) -> Vec<u32> {
        self.limbo.extend(self.unlinked.drain(..).map(|number| (update, number)));
        self.adopt()
    }

    /// As [`Self::publish`], but the unlinked go on waiting for their update: the device got an image.
    pub(crate) fn adopt(&mut self) -> Vec<u32> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|number| {
            let state = &mut self.states[*number as usize];
            let new = *state == Chunk::New;
            if new {
                *state = Chunk::Live;
            }
            new
        });
        fresh
    }

    /// Those unlinked by `update` and before may be used again.
    pub(crate) fn reclaim(&mut self, update: u64) {
        while let Some((unlinked, number)) = self.limbo.front().copied() {
            if unlinked > update {
                return;
            }
            self.limbo.pop_front();
            self.states[number as usize] = Chunk::Free;
            self.free.push(number);
        }
    }

    /// Starts anew with `used` live chunks, numbered from 0.
    pub(crate) fn restart(&mut self, used: u32) {
        *self = Self { states: vec![Chunk::Live; used as usize], used, ..Self::default() };
    }

    pub(crate) fn state(&self, number: u32) -> Chunk {
        self.states.get(number as usize).copied().unwrap_or(Chunk::Free)
    }

    /// Chunks in use.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    /// One more than the largest number in use or once used.
    pub(crate) fn high_water(&self) -> usize {
        self.states.len()
    }

    /// Chunks that wait for lookups to end.
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
        let a = chunks.take();
        chunks.give_back(a);
        assert_eq!(chunks.take(), a);
        chunks.give_back(a);
        let again = chunks.take();
        assert_eq!(chunks.publish(1), [again], "once, though taken three times");
    }
}
