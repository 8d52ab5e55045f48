//! The classes of punts, and the count of those that the router did not get.

/// What punts of a kind are for. Each has a ring to the router, which takes them in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntClass {
    /// ARP and neighbour discovery.
    Resolution,
    /// Protocols of the link, and what is for the kernel.
    Local,
    /// What needs a neighbour, or an ICMP error.
    Errors,
}

impl PuntClass {
    /// All of them, in order of their discriminants.
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

/// Punts that were not handed over to the router, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost([u64; PuntClass::ALL.len()]);

impl Lost {
    /// Counts `punts` of a class.
    pub(crate) fn add(&mut self, class: PuntClass, punts: u64) {
        self.0[class as usize] += punts;
    }

    /// The count of a class.
    pub(crate) fn of(&self, class: PuntClass) -> u64 {
        self.0[class as usize]
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Every class with its count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PuntClass, u64)> {
        PuntClass::ALL.into_iter().zip(self.0)
    }
}
