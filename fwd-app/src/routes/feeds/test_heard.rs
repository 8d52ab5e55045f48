//! For tests: the routes that a feed has announced, as a plain list.

use super::{FeedEvent, ObjectId, Route};
use fib::IpPrefix;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The announced routes, with whether they are stale, and the resolved objects.
#[derive(Default)]
pub(super) struct HeardRoutes(BTreeMap<(IpPrefix, u32), (Arc<Route>, bool)>, BTreeMap<ObjectId, Arc<Route>>);

impl HeardRoutes {
    pub(super) fn apply(&mut self, events: &[FeedEvent]) {
        for event in events {
            match event {
                FeedEvent::Announce { prefix, metric, route, .. } => {
                    self.0.insert((*prefix, *metric), (Arc::clone(route), false));
                }
                FeedEvent::Object { object, route: Some(route) } => {
                    self.1.insert(*object, Arc::clone(route));
                }
                FeedEvent::Withdraw { prefix, metric, .. } => {
                    self.0.remove(&(*prefix, *metric));
                }
                FeedEvent::Stale => self.0.values_mut().for_each(|(_, is_stale)| *is_stale = true),
                FeedEvent::Sweep => self.0.retain(|_, (_, is_stale)| !*is_stale),
                _ => {}
            }
        }
    }

    /// The route of a prefix with the lowest metric.
    pub(super) fn best(&self, prefix: IpPrefix) -> Option<&Route> {
        let mut all = self.0.range((prefix, 0)..=(prefix, u32::MAX));
        all.next().map(|(_, (route, _))| self.meant(route))
    }

    pub(super) fn all(&self) -> BTreeMap<IpPrefix, &Route> {
        // The last entry of a prefix remains.
        self.0.iter().rev().map(|((prefix, _), (route, _))| (*prefix, self.meant(route))).collect()
    }

    fn meant<'a>(&'a self, route: &'a Route) -> &'a Route {
        if let Route::Object(object) = route { &self.1[object] } else { route }
    }
}
