//! `route list`: the routes in service, a slice per request.

use crate::console::desk::Steering;
use crate::console::grammar::request::RouteList;
use crate::console::{Answer, Refusal, Request};
use crate::routes::listing::{ListedRoute, RouteFilter, RouteSlice};
use fib::feed::RouteWords;
use fib::{IpPrefix, NextHop};
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};

impl Steering<'_> {
    pub(in crate::console) fn route_list(&self, list: RouteList) -> Result<Answer, Refusal> {
        let source = list.source.map(|name| self.forwarder.source_named(name)).transpose();
        let source = source.map_err(anyhow::Error::from)?;
        let filter =
            RouteFilter { prefix: list.prefix, is_longer: list.longer, source, is_stale: list.stale };
        let RouteSlice { routes, ended_at } = self.vrf().list(&filter, list.after);
        let lines = routes.into_iter().map(|route| RouteLine::new(route, self)).collect();
        let next = ended_at.map(|prefix| Request::RouteList(RouteList { after: Some(prefix), ..list }));
        Ok(Answer::part(lines, next))
    }
}

/// A route; its text form is a line of route text.
#[derive(Serialize)]
struct RouteLine {
    #[serde(serialize_with = "as_text")]
    prefix: IpPrefix,
    /// The id in the route file.
    id: u32,
    #[serde(serialize_with = "next_hop")]
    next_hop: Option<NextHop>,
    /// `null` when the engine has refused the source's newer route.
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    metric: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stale: bool,
}

impl RouteLine {
    fn new(ListedRoute { prefix, id, hop, origin }: ListedRoute, steering: &Steering<'_>) -> Self {
        Self {
            prefix,
            id: id.get(),
            next_hop: hop.map(|hop| steering.forwarder.ports().shown(&hop)),
            source: origin.and_then(|origin| steering.forwarder.source_name(origin.source)),
            metric: origin.map_or(0, |origin| origin.metric),
            stale: origin.is_some_and(|origin| origin.is_stale),
        }
    }
}

impl Display for RouteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, id, .. } = self;
        match &self.next_hop {
            None => write!(f, "{prefix} {id}"),
            // A local address follows from the ports; route text cannot express it.
            Some(NextHop::Local) => write!(f, "# local {prefix}"),
            Some(hop) => RouteWords { prefix: *prefix, hop }.fmt(f),
        }
    }
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn next_hop<S: Serializer>(hop: &Option<NextHop>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(hop.as_ref().unwrap_or(&NextHop::Bare))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
