//! Next-hop objects and groups of a feed, and the routes that name them.
//!
//! A route that names an object leaves the feed as [`Route::Object`]; the object's resolution follows as [`FeedEvent::Object`], so a change
//! of a group is one event for all its routes. A route of an unknown object is held, and the prefix keeps its earlier announcement, since a
//! withdrawal would leave a gap. For the same reason a removed object withdraws nothing: its source withdraws or replaces the routes. An
//! object has a resolved route if it and all members of a group are known, or have been.
//!
//! A restarted source renumbers its objects. A new object that resolves like an old one takes over its id, so that the routes stay equal
//! when announced again. If it changes while old routes remain, it gets a new id: old routes keep their resolution until announced again.

use super::netlink::{NextHopObject, RouteSays};
use super::{FeedCounts, FeedEvent, FeedId, ObjectId, Path, Route};
use fib::{IpPrefix, Key, Prefix};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The most objects kept. FRR has some thousands for a full table.
const OBJECTS_MAX: usize = 1 << 16;
/// The most members of all groups together.
const MEMBERS_MAX: usize = 1 << 20;

/// Identifies a route of a feed; `P` is [`IpPrefix`], or the prefix of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteKey<P = IpPrefix> {
    pub(super) vrf: usize,
    pub(super) prefix: P,
    pub(super) metric: u32,
}

impl<P> RouteKey<P> {
    pub(super) fn with_prefix<Q>(&self, prefix: Q) -> RouteKey<Q> {
        RouteKey { vrf: self.vrf, prefix, metric: self.metric }
    }
}

pub(super) type KeyOf<K> = RouteKey<Prefix<K>>;

impl<K: Key> KeyOf<K> {
    pub(super) fn wrap(&self) -> RouteKey {
        self.with_prefix(K::wrap(self.prefix))
    }
}

/// The next hop of a route, as its source names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Never [`Route::Object`].
    Is(Arc<Route>),
    Object(u32),
}

impl Told {
    /// The route of a message; `None` when no path is alive.
    pub(super) fn from_message(says: RouteSays, counts: &mut FeedCounts) -> Option<Self> {
        match says {
            RouteSays::Is(route) => Some(Self::Is(Arc::new(route))),
            RouteSays::Object(id) => Some(Self::Object(id)),
            RouteSays::Encapsulated => {
                counts.unsupported += 1;
                Some(Self::Is(Arc::new(Route::Unreachable)))
            }
            RouteSays::Dead | RouteSays::Unnamed => None,
        }
    }
}

struct ObjectEntry {
    object: NextHopObject,
    route: Option<Arc<Route>>,
    /// [`Route::Object`] with its id, once it has been resolved.
    named: Option<(ObjectId, Arc<Route>)>,
}

#[derive(Default)]
struct Users<K: Key> {
    object: FxHashMap<KeyOf<K>, u32>,
    routes: FxHashMap<u32, FxHashSet<KeyOf<K>>>,
}

impl<K: Key> Users<K> {
    fn set(&mut self, key: KeyOf<K>, id: u32) {
        match self.object.insert(key, id) {
            Some(before) if before == id => return,
            Some(before) => self.unlink(key, before),
            None => {}
        }
        self.routes.entry(id).or_default().insert(key);
    }

    fn remove(&mut self, key: KeyOf<K>) {
        if let Some(before) = self.object.remove(&key) {
            self.unlink(key, before);
        }
    }

    fn unlink(&mut self, key: KeyOf<K>, id: u32) {
        if let Some(routes) = self.routes.get_mut(&id) {
            routes.remove(&key);
            if routes.is_empty() {
                self.routes.remove(&id);
            }
        }
    }

    fn routes_of(&self, id: u32) -> impl Iterator<Item = RouteKey> {
        let routes = self.routes.get(&id).into_iter().flatten();
        routes.map(KeyOf::wrap)
    }

    fn announce(&self, id: u32, route: &Arc<Route>, out: &mut Vec<FeedEvent>) {
        out.extend(self.routes_of(id).map(|RouteKey { vrf, prefix, metric }| FeedEvent::Announce {
            vrf,
            prefix,
            metric,
            route: Arc::clone(route),
        }));
    }
}

pub(super) struct NextHops {
    feed: FeedId,
    /// How often [`Self::clear`] was called.
    epoch: u32,
    objects: FxHashMap<u32, ObjectEntry>,
    /// Objects from before the last [`Self::clear`], by resolved route.
    stale: FxHashMap<Arc<Route>, ObjectId>,
    /// Whether routes from before then may remain: until [`Self::sweep`].
    has_stale: bool,
    /// The groups that have an object as a member.
    groups: FxHashMap<u32, FxHashSet<u32>>,
    members: usize,
    v4: Users<u32>,
    v6: Users<u128>,
    routes_max: usize,
}

/// A limit on objects, members or routes was reached, and the item left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl NextHops {
    pub(super) fn new(feed: FeedId, routes_max: usize) -> Self {
        Self {
            feed,
            epoch: 0,
            objects: FxHashMap::default(),
            stale: FxHashMap::default(),
            has_stale: false,
            groups: FxHashMap::default(),
            members: 0,
            v4: Users::default(),
            v6: Users::default(),
            routes_max,
        }
    }

    /// Discards all objects; announced routes stay.
    pub(super) fn clear(&mut self, out: &mut Vec<FeedEvent>) {
        let stale = std::mem::take(&mut self.stale).into_iter();
        let named = self.objects.drain().filter_map(|(_, entry)| Some((entry.route, entry.named?.0)));
        let mut next =
            Self { epoch: self.epoch + 1, has_stale: true, ..Self::new(self.feed, self.routes_max) };
        for (route, object) in stale.map(|(route, object)| (Some(route), object)).chain(named) {
            let before = match route {
                Some(route) if next.stale.len() < OBJECTS_MAX => next.stale.insert(route, object),
                _ => Some(object),
            };
            out.extend(before.map(|object| FeedEvent::Object { object, route: None }));
        }
        *self = next;
    }

    /// Ends the reuse of ids from before the last [`Self::clear`]: the old routes are withdrawn.
    pub(super) fn sweep(&mut self, out: &mut Vec<FeedEvent>) {
        self.has_stale = false;
        let gone = std::mem::take(&mut self.stale).into_values();
        out.extend(gone.map(|object| FeedEvent::Object { object, route: None }));
    }

    /// Sets the next hop of a route, or with `None` withdraws the route.
    pub(super) fn put(
        &mut self,
        key: RouteKey,
        told: Option<Told>,
        counts: &mut FeedCounts,
        out: &mut Vec<FeedEvent>,
    ) {
        if let Some(Told::Object(id)) = told {
            counts.over_limit += u64::from(self.set_route(key, id, out).is_err());
            return;
        }
        self.remove_route(key);
        let RouteKey { vrf, prefix, metric } = key;
        out.push(match told {
            Some(Told::Is(route)) => FeedEvent::Announce { vrf, prefix, metric, route },
            _ => FeedEvent::Withdraw { vrf, prefix, metric },
        });
    }

    fn set_route(&mut self, key: RouteKey, id: u32, out: &mut Vec<FeedEvent>) -> Result<(), Full> {
        let is_known = match key.prefix {
            IpPrefix::V4(prefix) => self.v4.object.contains_key(&key.with_prefix(prefix)),
            IpPrefix::V6(prefix) => self.v6.object.contains_key(&key.with_prefix(prefix)),
        };
        if !is_known && self.v4.object.len() + self.v6.object.len() >= self.routes_max {
            return Err(Full);
        }
        match key.prefix {
            IpPrefix::V4(prefix) => self.v4.set(key.with_prefix(prefix), id),
            IpPrefix::V6(prefix) => self.v6.set(key.with_prefix(prefix), id),
        }
        let known = self.objects.get(&id).filter(|entry| entry.route.is_some());
        if let Some((_, named)) = known.and_then(|entry| entry.named.as_ref()) {
            let RouteKey { vrf, prefix, metric } = key;
            out.push(FeedEvent::Announce { vrf, prefix, metric, route: Arc::clone(named) });
        }
        Ok(())
    }

    fn remove_route(&mut self, key: RouteKey) {
        match key.prefix {
            IpPrefix::V4(prefix) => self.v4.remove(key.with_prefix(prefix)),
            IpPrefix::V6(prefix) => self.v6.remove(key.with_prefix(prefix)),
        }
    }

    pub(super) fn set(
        &mut self,
        id: u32,
        object: NextHopObject,
        out: &mut Vec<FeedEvent>,
    ) -> Result<(), Full> {
        let members = if let NextHopObject::Group(members) = &object { members.len() } else { 0 };
        let before = self.objects.get(&id);
        if before.is_some_and(|entry| entry.object == object) {
            return Ok(());
        }
        let before_members = before.map_or(0, ObjectEntry::members);
        if before.is_none() && self.objects.len() >= OBJECTS_MAX
            || self.members - before_members + members > MEMBERS_MAX
        {
            return Err(Full);
        }
        self.unlink_members(id);
        if let NextHopObject::Group(members) = &object {
            self.members += members.len();
            for (member, _) in members {
                self.groups.entry(*member).or_default().insert(id);
            }
        }
        let before = self.objects.remove(&id).map(|entry| (entry.route, entry.named));
        let (route, named) = before.unwrap_or_default();
        self.objects.insert(id, ObjectEntry { object, route, named });
        self.resolve_again(id, out);
        Ok(())
    }

    /// Removes an object. Routes that name it stay announced, and its groups keep their resolution until replaced.
    pub(super) fn remove(&mut self, id: u32, out: &mut Vec<FeedEvent>) {
        self.unlink_members(id);
        let named = self.objects.remove(&id).and_then(|entry| entry.named);
        out.extend(named.map(|(object, _)| FeedEvent::Object { object, route: None }));
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.objects.contains_key(&id)
    }

    pub(super) fn routes_of(&self, id: u32) -> Vec<RouteKey> {
        self.v4.routes_of(id).chain(self.v6.routes_of(id)).collect()
    }

    fn unlink_members(&mut self, id: u32) {
        let Some(ObjectEntry { object: NextHopObject::Group(members), .. }) = self.objects.get(&id) else {
            return;
        };
        self.members -= members.len();
        for (member, _) in members {
            if let Some(groups) = self.groups.get_mut(member) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.groups.remove(member);
                }
            }
        }
    }

    /// Resolves an object and the groups that contain it, and reports changes. Announces the routes that waited for one of them.
    fn resolve_again(&mut self, id: u32, out: &mut Vec<FeedEvent>) {
        let groups = self.groups.get(&id).into_iter().flatten().copied();
        for id in std::iter::once(id).chain(groups) {
            let route = self.resolve(id).map(Arc::new);
            let Some(entry) = self.objects.get_mut(&id) else { continue };
            if entry.route == route {
                continue;
            }
            let mut had_route = std::mem::replace(&mut entry.route, route.clone()).is_some();
            let Some(route) = route else { continue };
            let (epoch, feed) = (self.epoch, self.feed);
            if let Some((object, _)) = entry.named.take_if(|named| self.has_stale && named.0.epoch != epoch) {
                out.push(FeedEvent::Object { object, route: None });
                had_route = false;
            }
            let (object, named) = entry.named.get_or_insert_with(|| {
                let object = self.stale.remove(&route).unwrap_or(ObjectId { feed, epoch, number: id });
                (object, Arc::new(Route::Object(object)))
            });
            out.push(FeedEvent::Object { object: *object, route: Some(route) });
            if !had_route {
                self.v4.announce(id, named, out);
                self.v6.announce(id, named, out);
            }
        }
    }

    /// Resolves an object; `None` while members of a group are unknown. Neither the kernel nor zebra nests groups.
    fn resolve(&self, id: u32) -> Option<Route> {
        let members = match &self.objects.get(&id)?.object {
            NextHopObject::Path(path) => return Some(Route::Paths(Box::new([*path]))),
            NextHopObject::Blackhole => return Some(Route::Blackhole),
            NextHopObject::Unsupported => return Some(Route::Unreachable),
            NextHopObject::Group(members) => members,
        };
        let mut paths = Vec::with_capacity(members.len());
        let mut other = None;
        for &(member, weight) in members {
            match &self.objects.get(&member)?.object {
                NextHopObject::Path(path) => paths.push(Path { weight, ..*path }),
                NextHopObject::Blackhole => other = other.or(Some(Route::Blackhole)),
                NextHopObject::Unsupported => other = other.or(Some(Route::Unreachable)),
                NextHopObject::Group(_) => return None,
            }
        }
        if paths.is_empty() { other } else { Some(Route::Paths(paths.into())) }
    }
}

impl ObjectEntry {
    fn members(&self) -> usize {
        if let NextHopObject::Group(members) = &self.object { members.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::heard::HeardRoutes;
    use super::*;

    const FEED: FeedId = FeedId(2);

    fn key(prefix: IpPrefix) -> RouteKey {
        RouteKey { vrf: 0, prefix, metric: 0 }
    }

    fn path(last: u8) -> Path {
        Path { gateway: Some([192, 0, 2, last].into()), ifindex: u32::from(last), weight: 1 }
    }

    fn paths(paths: &[Path]) -> Route {
        Route::Paths(paths.into())
    }

    fn group(members: &[u32]) -> NextHopObject {
        NextHopObject::Group(members.iter().map(|member| (*member, 1)).collect())
    }

    /// Consumes the events; returns the numbers of announced routes and of resolved objects.
    fn hear(heard: &mut HeardRoutes, out: &mut Vec<FeedEvent>) -> (usize, usize) {
        let events = std::mem::take(out);
        heard.apply(&events);
        let count = |is: fn(&FeedEvent) -> bool| events.iter().filter(|event| is(event)).count();
        (
            count(|event| matches!(event, FeedEvent::Announce { .. })),
            count(|event| matches!(event, FeedEvent::Object { route: Some(_), .. })),
        )
    }

    #[test]
    fn routes_wait_for_their_group_and_follow_it() {
        let (mut hops, mut out, mut heard) = (NextHops::new(FEED, 10), Vec::new(), HeardRoutes::default());
        let [prefix, v6]: [IpPrefix; 2] = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().unwrap());
        hops.set_route(key(prefix), 7, &mut out).unwrap();
        hops.set(7, NextHopObject::Group(vec![(1, 1), (2, 3)]), &mut out).unwrap();
        hops.set(1, NextHopObject::Path(path(1)), &mut out).unwrap();
        assert_eq!(hear(&mut heard, &mut out), (0, 1), "a member is not known yet");
        hops.set(2, NextHopObject::Path(path(2)), &mut out).unwrap();
        assert_eq!(hear(&mut heard, &mut out), (1, 2));
        let both = paths(&[path(1), Path { weight: 3, ..path(2) }]);
        assert_eq!(heard.best(prefix), Some(&both));
        hops.set(2, NextHopObject::Path(path(2)), &mut out).unwrap();
        assert_eq!(out, [], "nothing has changed");
        hops.set_route(key(v6), 7, &mut out).unwrap();
        assert_eq!(hear(&mut heard, &mut out), (1, 0));
        hops.set(7, group(&[1]), &mut out).unwrap();
        assert_eq!(hear(&mut heard, &mut out), (0, 1), "however many routes name the group");
        assert_eq!(
            [prefix, v6].map(|prefix| heard.best(prefix).cloned()),
            [(); 2].map(|()| Some(paths(&[path(1)])))
        );
        hops.remove(1, &mut out);
        hops.remove_route(key(v6));
        assert_eq!(hear(&mut heard, &mut out), (0, 0), "the source withdraws the routes by itself");
        hops.set(1, NextHopObject::Blackhole, &mut out).unwrap();
        hear(&mut heard, &mut out);
        assert_eq!(heard.best(prefix), Some(&Route::Blackhole));
    }

    #[test]
    fn a_source_that_comes_back_finds_its_objects() {
        let mut hops = NextHops::new(FEED, 10);
        let prefix: IpPrefix = "10.0.0.0/8".parse().unwrap();
        let object_of = |hops: &mut NextHops, number, last| {
            let mut out = Vec::new();
            hops.set(number, NextHopObject::Path(path(last)), &mut out).unwrap();
            hops.set_route(key(prefix), number, &mut out).unwrap();
            let Some(FeedEvent::Announce { route, .. }) = out.pop() else { panic!("{out:?}") };
            let Route::Object(object) = *route else { panic!("{route:?}") };
            object
        };
        let [first, second] = [(7, 1), (8, 2)].map(|(number, last)| object_of(&mut hops, number, last));
        assert_ne!(first, second);
        hops.clear(&mut Vec::new());
        assert_eq!(object_of(&mut hops, 8, 1), first, "it amounts to the same");
        let third = object_of(&mut hops, 7, 3);
        assert!(third != first && third != second);
        // Also after two restarts before everything was announced again.
        hops.clear(&mut Vec::new());
        assert_eq!((object_of(&mut hops, 1, 2), object_of(&mut hops, 2, 3)), (second, third));
        let mut gone = Vec::new();
        hops.sweep(&mut gone);
        assert_eq!(gone, [FeedEvent::Object { object: first, route: None }]);
        assert_ne!(object_of(&mut hops, 7, 1), first);
        // An object that changes before the old routes are gone gets a new id.
        hops.clear(&mut Vec::new());
        assert_eq!(object_of(&mut hops, 4, 2), second);
        let changed = |hops: &mut NextHops, last| {
            let mut out = Vec::new();
            hops.set(4, NextHopObject::Path(path(last)), &mut out).unwrap();
            let announced = out.iter().filter(|event| matches!(event, FeedEvent::Announce { .. })).count();
            (object_of(hops, 4, last) == second, announced)
        };
        assert_eq!(changed(&mut hops, 9), (false, 1));
        assert_eq!(changed(&mut hops, 2), (false, 0), "it has its own id now");
    }

    #[test]
    fn limits_leave_out_what_is_new() {
        let (mut hops, mut out) = (NextHops::new(FEED, 1), Vec::new());
        let [a, b] = ["10.0.0.0/8", "11.0.0.0/8"].map(|text| text.parse().unwrap());
        hops.set_route(key(a), 1, &mut out).unwrap();
        assert_eq!(hops.set_route(key(b), 1, &mut out), Err(Full));
        hops.set_route(key(a), 2, &mut out).unwrap();
        hops.remove_route(key(a));
        hops.set_route(key(b), 1, &mut out).unwrap();
        for id in 0..OBJECTS_MAX {
            hops.set(u32::try_from(id).unwrap(), NextHopObject::Blackhole, &mut out).unwrap();
        }
        assert_eq!(hops.set(u32::MAX, NextHopObject::Blackhole, &mut out), Err(Full));
        let large = NextHopObject::Group(vec![(1, 1); MEMBERS_MAX]);
        hops.set(1, large.clone(), &mut out).unwrap();
        assert_eq!(hops.set(2, large, &mut out), Err(Full));
        hops.clear(&mut out);
        assert!(hops.objects.is_empty() && hops.members == 0);
    }
}
