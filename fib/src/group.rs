//! Groups: several paths for the packets of one route (ECMP).
//!
//! Groups with the same paths and weights are equal, so they are one next hop of a [`NextHopTable`](crate::NextHopTable).

use crate::next_hop::{NextHop, NextHopError};
use std::fmt;
use std::sync::Arc;

/// The maximum number of paths of a group.
pub const PATHS_MAX: usize = 64;

/// One path of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupPath {
    /// The gateway or link.
    pub hop: NextHop,
    /// Its share of the flows, relative to the other paths; at least 1.
    pub weight: u16,
}

/// Two to [`PATHS_MAX`] distinct paths, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group(Arc<[GroupPath]>);

impl Group {
    /// The next hop with these paths: the path itself if there is only one. Weights of a repeated path are added; 0 counts as 1.
    ///
    /// # Errors
    /// [`NextHopError::Paths`] for no path, and for more than [`PATHS_MAX`].
    pub fn next_hop(paths: impl IntoIterator<Item = (NextHop, u16)>) -> Result<NextHop, NextHopError> {
        let paths = paths.into_iter().map(|(hop, weight)| GroupPath { hop, weight: weight.max(1) });
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable();
        paths.dedup_by(|again, first| {
            let is_same = again.hop == first.hop;
            if is_same {
                first.weight = first.weight.saturating_add(again.weight);
            }
            is_same
        });
        match paths.len() {
            1 => Ok(paths.swap_remove(0).hop),
            2..=PATHS_MAX => Ok(NextHop::Group(Self(paths.into()))),
            paths => Err(NextHopError::Paths { paths }),
        }
    }

    /// The paths, in order.
    #[must_use]
    pub fn paths(&self) -> &[GroupPath] {
        &self.0
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, GroupPath { hop, weight }) in self.0.iter().enumerate() {
            write!(f, "{}nexthop {hop} weight {weight}", if number == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortRef;

    #[test]
    fn the_same_paths_are_the_same_group() {
        let link = |port| NextHop::Connected { port: PortRef::Index(port) };
        let group = |paths: &[(u16, u16)]| Group::next_hop(paths.iter().map(|(port, w)| (link(*port), *w)));
        let both = group(&[(1, 2), (0, 1)]).unwrap();
        assert_eq!(both.to_string(), "nexthop dev 0 weight 1 nexthop dev 1 weight 2");
        assert_eq!(group(&[(1, 1), (0, 0), (1, 1)]).unwrap(), both);
        assert_eq!(group(&[(1, 9), (1, 9)]).unwrap(), link(1));
        assert_eq!(group(&[]), Err(NextHopError::Paths { paths: 0 }));
        let many: Vec<_> = (0..65).map(|port| (port, 1)).collect();
        assert!(group(&many[..64]).is_ok());
        assert_eq!(group(&many).unwrap_err().to_string(), "a route has 1 to 64 paths, not 65");
    }
}
