//! Classes of punts, and counts of lost punts.

/// Class of a punt. Each has a ring; the router drains the rings in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntClass {
    Resolution,
    /// Link protocols, and packets for the kernel.
    Local,
    /// Packets that need a neighbour or an ICMP error.
    Errors,
}

impl PuntClass {
    /// In the order of the discriminants.
    pub(crate) const ALL: [Self; 3] = [Self::Resolution, Self::Local, Self::Errors];

    /// The name in every output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Resolution => "resolution",
            Self::Local => "local",
            Self::Errors => "errors",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost([u64; PuntClass::ALL.len()]);

impl Lost {
    pub(crate) fn add(&mut self, class: PuntClass, punts: u64) {
        self.0[class as usize] += punts;
    }

    pub(crate) fn of(&self, class: PuntClass) -> u64 {
        self.0[class as usize]
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PuntClass, u64)> {
        PuntClass::ALL.into_iter().zip(self.0)
    }
}
