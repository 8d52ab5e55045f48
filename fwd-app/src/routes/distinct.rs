//! The distinct routes of all sources, each with its next hop.
//!
//! A full table has a few hundred. A route that names a next-hop object has a private id in the table of next hops: when the object
//! resolves differently, the next hop of that id is replaced, and every prefix of the object follows with the next egress table.

use super::feeds::{ObjectId, Route};
use fib::NextHopId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The least number of distinct routes at which unused ones are dropped.
pub(super) const UNUSED_MIN: usize = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteId(u32);

impl RouteId {
    /// No route: keeps an entry for a prefix without a file route.
    pub(super) const NOTHING: Self = Self(0);
}

pub(super) struct Known {
    /// The resolved route, if it names an object.
    pub(super) route: Arc<Route>,
    /// Its next hop; [`NextHopId::NONE`] while unresolved.
    pub(super) id: NextHopId,
    /// Whether it names an object: the id is then private, and kept when the object resolves differently.
    is_object: bool,
}

pub(crate) struct Wanted<'a> {
    pub(crate) route: &'a Route,
    /// For a route that names an object: its private id, or [`NextHopId::NONE`] before it has one. `None` for others, which share the id of
    /// their next hop.
    pub(crate) object: Option<NextHopId>,
}

pub(super) struct Distinct {
    pub(super) known: Vec<Known>,
    pub(super) by_route: FxHashMap<Arc<Route>, RouteId>,
    objects: FxHashMap<ObjectId, Arc<Route>>,
    /// Routes with a new next hop, and routes that have become usable or unusable; their prefixes are not marked yet.
    moved: FxHashSet<RouteId>,
    revalued: FxHashSet<RouteId>,
    free: Vec<RouteId>,
    pub(super) unused_at: usize,
}

impl Distinct {
    pub(super) fn new() -> Self {
        let nothing = Arc::new(Route::Hop(NextHopId::NONE));
        Self {
            known: vec![Known { route: Arc::clone(&nothing), id: NextHopId::NONE, is_object: false }],
            by_route: FxHashMap::from_iter([(nothing, RouteId::NOTHING)]),
            objects: FxHashMap::default(),
            moved: FxHashSet::default(),
            revalued: FxHashSet::default(),
            free: Vec::new(),
            unused_at: UNUSED_MIN,
        }
    }

    pub(super) fn get(&self, route: RouteId) -> &Known {
        &self.known[route.0 as usize]
    }

    /// Adds the route unless it is known; `find` resolves its next hop.
    pub(super) fn find_or_add(
        &mut self,
        route: &Arc<Route>,
        find: impl FnOnce(Wanted<'_>) -> NextHopId,
    ) -> RouteId {
        if let Some(known) = self.by_route.get(route) {
            return *known;
        }
        let (meant, is_object) = match &**route {
            // Feeds announce objects before the routes that name them.
            Route::Object(object) => (self.objects.get(object).unwrap_or(route), true),
            _ => (route, false),
        };
        let object = is_object.then_some(NextHopId::NONE);
        let known = Known { id: find(Wanted { route: meant, object }), route: Arc::clone(meant), is_object };
        let found = match self.free.pop() {
            Some(free) => {
                self.known[free.0 as usize] = known;
                free
            }
            None => {
                self.known.push(known);
                RouteId(u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_route.insert(Arc::clone(route), found);
        found
    }

    /// Whether a route has no next hop.
    pub(super) fn has_unresolved(&self) -> bool {
        self.by_route.values().any(|at| *at != RouteId::NOTHING && self.get(*at).id.is_none())
    }

    pub(super) fn of_hop(&mut self, id: NextHopId) -> RouteId {
        if id.is_none() { RouteId::NOTHING } else { self.find_or_add(&Arc::new(Route::Hop(id)), |_| id) }
    }

    pub(super) fn retain(&mut self, used: &FxHashSet<RouteId>) {
        let Self { known, by_route, moved, revalued, free, .. } = self;
        by_route.retain(|_, at| {
            let stays = *at == RouteId::NOTHING || used.contains(at);
            if !stays {
                let route = Arc::new(Route::Local);
                known[at.0 as usize] = Known { route, id: NextHopId::NONE, is_object: false };
                moved.remove(at);
                revalued.remove(at);
                free.push(*at);
            }
            stays
        });
    }

    /// Sets the resolved route of an object; `None` when no further route will name it. Returns whether routes name it.
    pub(super) fn set_object(
        &mut self,
        object: ObjectId,
        route: Option<&Arc<Route>>,
        find: impl FnOnce(Wanted<'_>) -> NextHopId,
    ) -> bool {
        let Self { known, by_route, objects, moved, .. } = self;
        let Some(route) = route else {
            objects.remove(&object);
            return false;
        };
        objects.insert(object, Arc::clone(route));
        let Some(at) = by_route.get(&Route::Object(object)) else { return false };
        let known = &mut known[at.0 as usize];
        let id = find(Wanted { route, object: Some(known.id) });
        known.route = Arc::clone(route);
        // A route without a next hop is foreign only if it has paths, so the winner may change.
        if std::mem::replace(&mut known.id, id) != id || id.is_none() {
            moved.insert(*at);
        }
        true
    }

    /// Resolves each route of feeds again with `find`, and records those with a new next hop for [`Self::take_moved`].
    pub(super) fn resolve_anew(&mut self, mut find: impl FnMut(Wanted<'_>) -> NextHopId) {
        for (number, Known { route, id, is_object }) in (0..).zip(&mut self.known) {
            if !matches!(**route, Route::Hop(_)) {
                let before = std::mem::replace(id, find(Wanted { route, object: is_object.then_some(*id) }));
                self.moved.extend((before != *id).then_some(RouteId(number)));
            }
        }
    }

    /// Records the routes whose next hop has become usable or unusable for [`Self::take_moved`].
    pub(super) fn revalue(&mut self, has_changed: impl Fn(NextHopId) -> bool) {
        let changed =
            (0..).zip(&self.known).filter(|(_, known)| !known.id.is_none() && has_changed(known.id));
        self.revalued.extend(changed.map(|(number, _)| RouteId(number)));
    }

    /// The routes with a new next hop since the last call, and those that have become usable or unusable.
    pub(super) fn take_moved(&mut self) -> (FxHashSet<RouteId>, FxHashSet<RouteId>) {
        (std::mem::take(&mut self.moved), std::mem::take(&mut self.revalued))
    }
}
