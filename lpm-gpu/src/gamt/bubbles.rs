//! The write bubble table: units that the device does not have yet (GAMT, section 3.2). Each level lists the locations of
//! its changed units; a bitmap keeps a unit from being listed twice. Bubbles take their values from the trie when they are
//! made (Algorithm 2), so a unit that changed ten times is written once. New (*fresh*) nodes are listed whole and written
//! first, since no pointer on the device leads to them; the bitmap marks their units, too.

/// A memory modification `<stage, location, value>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bubble {
    /// The level, from 1.
    pub stage: u32,
    /// The unit within the level.
    pub location: u32,
    /// Its code.
    pub value: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct BubbleRow {
    listed: Vec<u64>,
    locations: Vec<u32>,
    fresh: Vec<u32>,
}

impl BubbleRow {
    pub(super) fn new(units: usize) -> Self {
        Self { listed: vec![0; units.div_ceil(64)], locations: Vec::new(), fresh: Vec::new() }
    }

    /// Lists a unit, except units beyond the room: the device has no place for them.
    #[inline]
    pub(super) fn mark(&mut self, location: u32) {
        let Some(word) = self.listed.get_mut((location / 64) as usize) else { return };
        let bit = 1 << (location % 64);
        if *word & bit == 0 {
            *word |= bit;
            self.locations.push(location);
        }
    }

    pub(super) fn mark_fresh(&mut self, node: u32, units: u32) {
        for location in node..node + units {
            if let Some(word) = self.listed.get_mut((location / 64) as usize) {
                *word |= 1 << (location % 64);
            }
        }
        self.fresh.push(node);
    }

    /// Unlists a node that was unlinked: no lookup needs its pending writes, and a lookup still inside must not see them.
    pub(super) fn forget(&mut self, node: u32, units: u32) {
        for location in node..node + units {
            self.unlist(location);
        }
    }

    fn unlist(&mut self, location: u32) -> bool {
        let Some(word) = self.listed.get_mut((location / 64) as usize) else { return false };
        let bit = 1 << (location % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    /// Listed units, an upper bound: forgotten ones count until the next bubbles are made.
    pub(super) fn len(&self, node_units: u32) -> u64 {
        self.locations.len() as u64 + self.fresh.len() as u64 * u64::from(node_units)
    }

    pub(super) fn clear(&mut self, node_units: u32) {
        for location in std::mem::take(&mut self.locations) {
            self.unlist(location);
        }
        for node in std::mem::take(&mut self.fresh) {
            self.forget(node, node_units);
        }
    }

    pub(super) fn take_fresh(&mut self, stage: u32, units: &[u32], node_units: u32, out: &mut Vec<Bubble>) {
        for node in std::mem::take(&mut self.fresh) {
            for location in node..node + node_units {
                if self.unlist(location) {
                    out.push(Bubble { stage, location, value: units[location as usize] });
                }
            }
        }
    }

    /// Algorithm 2 for one stage: moves a bubble for each listed unit to `out`, with its latest value.
    pub(super) fn take_changed(&mut self, stage: u32, units: &[u32], out: &mut Vec<Bubble>) {
        let mut locations = std::mem::take(&mut self.locations);
        for location in locations.drain(..) {
            if self.unlist(location) {
                out.push(Bubble { stage, location, value: units[location as usize] });
            }
        }
        self.locations = locations;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locations(bubbles: &[Bubble]) -> Vec<u32> {
        bubbles.iter().map(|bubble| bubble.location).collect()
    }

    #[test]
    fn a_location_is_listed_once_and_gets_the_latest_value() {
        let (mut stage, mut units, mut out) = (BubbleRow::new(64), [0; 64], Vec::new());
        for value in [7, 9] {
            for location in [5, 6, 5] {
                units[location as usize] = value;
                stage.mark(location);
            }
        }
        stage.take_changed(2, &units, &mut out);
        assert_eq!(out, [5, 6].map(|location| Bubble { stage: 2, location, value: 9 }));
        out.clear();
        stage.take_changed(2, &units, &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn fresh_nodes_come_as_a_whole_and_forgotten_ones_not_at_all() {
        let mut stage = BubbleRow::new(64);
        let units = [1; 64];
        stage.mark_fresh(8, 4);
        stage.mark(9); // within the fresh node, so already listed
        stage.mark(2);
        stage.mark_fresh(12, 4);
        stage.forget(12, 4);
        let (mut fresh, mut rest) = (Vec::new(), Vec::new());
        stage.take_fresh(1, &units, 4, &mut fresh);
        stage.take_changed(1, &units, &mut rest);
        assert_eq!((locations(&fresh), locations(&rest)), (vec![8, 9, 10, 11], vec![2]));
        stage.mark(2); // can be listed again
        assert_eq!(stage.len(4), 1);
        stage.clear(4);
        rest.clear();
        stage.take_changed(1, &units, &mut rest);
        assert!(rest.is_empty());
    }
}
