//! The distinct routes of all sources, each once with its next hop.
//!
//! A full table has a few hundred. A route that names a next-hop object has an id of its own in the table of next hops: when the object
//! amounts to something else, the next hop of that id is replaced, and every prefix of the object follows with the next egress table.

use super::feeds::{ObjectId, Route};
use fib::NextHopId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The least number of distinct routes at which unused ones are looked for.
pub(super) const UNUSED_MIN: usize = 1 << 10;

/// A distinct route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteId(u32);

impl RouteId {
    /// No route: files have none of a prefix whose entry has not ended yet.
    pub(super) const NOTHING: Self = Self(0);
}

/// A distinct route.
pub(super) struct Known {
    /// What becomes of its packets: of a route that names an object, what that amounts to.
    pub(super) route: Arc<Route>,
    /// Its next hop; [`NextHopId::NONE`] while it has none.
    pub(super) id: NextHopId,
    /// Whether it names an object: then the id is its alone, and stays when the route is replaced by another one with a next hop.
    is_object: bool,
}

/// A route whose next hop is looked for.
pub(crate) struct Wanted<'a> {
    /// What becomes of its packets.
    pub(crate) route: &'a Route,
    /// The next hop before, or [`NextHopId::NONE`], of a route that names an object: it has an id of its own. `None` of others, which share
    /// that of their next hop.
    pub(crate) object: Option<NextHopId>,
}

/// Distinct routes, each once.
pub(super) struct Distinct {
    /// By [`RouteId`].
    pub(super) known: Vec<Known>,
    pub(super) by_route: FxHashMap<Arc<Route>, RouteId>,
    /// What the objects amount to that routes may name.
    objects: FxHashMap<ObjectId, Arc<Route>>,
    /// Routes that have another next hop than before, and routes that have become usable or unusable, whose prefixes are to be looked for.
    moved: FxHashSet<RouteId>,
    revalued: FxHashSet<RouteId>,
    /// Entries of `known` that are not in use.
    free: Vec<RouteId>,
    /// The number of distinct routes at which unused ones are looked for.
    pub(super) unused_at: usize,
}

impl Distinct {
    /// No route but [`RouteId::NOTHING`].
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

    /// A route.
    pub(super) fn get(&self, route: RouteId) -> &Known {
        &self.known[route.0 as usize]
    }

    /// The route, with its next hop from `find` unless it is known.
    pub(super) fn find_or_add(
        &mut self,
        route: &Arc<Route>,
        find: impl FnOnce(Wanted<'_>) -> NextHopId,
    ) -> RouteId {
        if let Some(known) = self.by_route.get(route) {
            return *known;
        }
        let (meant, is_object) = match &**route {
            // Objects are said before the routes that name them.
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

    /// The route of a next hop.
    pub(super) fn of_hop(&mut self, id: NextHopId) -> RouteId {
        if id.is_none() { RouteId::NOTHING } else { self.find_or_add(&Arc::new(Route::Hop(id)), |_| id) }
    }

    /// Forgets routes that are not in `used`.
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

    /// An object amounts to `route` from now on; without one no further route will name it. If routes name it, `find` finds its next hop:
    /// see [`Self::take_moved`]. Returns whether any do.
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
        // Without a next hop it matters whether there are paths.
        if std::mem::replace(&mut known.id, id) != id || id.is_none() {
            moved.insert(*at);
        }
        true
    }

    /// Finds the next hop of each route of feeds anew, with `find`: see [`Self::take_moved`].
    pub(super) fn resolve_anew(&mut self, mut find: impl FnMut(Wanted<'_>) -> NextHopId) {
        for (number, Known { route, id, is_object }) in (0..).zip(&mut self.known) {
            if !matches!(**route, Route::Hop(_)) {
                let before = std::mem::replace(id, find(Wanted { route, object: is_object.then_some(*id) }));
                self.moved.extend((before != *id).then_some(RouteId(number)));
            }
        }
    }

    /// The routes have become usable or unusable of whose next hop `has_changed` says so: see [`Self::take_moved`].
    pub(super) fn revalue(&mut self, has_changed: impl Fn(NextHopId) -> bool) {
        let changed =
            (0..).zip(&self.known).filter(|(_, known)| !known.id.is_none() && has_changed(known.id));
        self.revalued.extend(changed.map(|(number, _)| RouteId(number)));
    }

    /// The routes with another next hop since the last call, and those that have become usable or unusable.
    pub(super) fn take_moved(&mut self) -> (FxHashSet<RouteId>, FxHashSet<RouteId>) {
        (std::mem::take(&mut self.moved), std::mem::take(&mut self.revalued))
    }
}
