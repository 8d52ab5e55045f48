//! `show fib`, `show routes`, `show feeds` and `show next-hops` count a slice per turn, so that a large table does not block the control
//! thread. Requests about a VRF that arrive during another count share the next one.

use crate::console::Answer;
use crate::console::counting::{CountWanted, CountedHops, Counting, CountsSoFar, Reply};
use crate::console::desk::Steering;
use crate::console::grammar::request::Show;
use crate::report::columns::{Columns, grouped};
use crate::routes::listing::RouteCounts;
use serde::Serialize;
use std::fmt;

impl Steering<'_> {
    /// Answers a request that [`Show::is_counted`] once the count is complete, or at once if it needs none.
    pub(in crate::console) fn count(&mut self, what: Show, reply: Reply) {
        if what == Show::Fib && !self.vrf().has_discards() {
            return reply(Ok(self.fib(&RouteCounts::default())));
        }
        let wanted = CountWanted { vrf: self.number(), what, reply };
        self.desk.counting.later.push(wanted);
    }

    /// Counts a slice; answers after the last one. Returns whether it did any work.
    pub(in crate::console) fn count_slice(&mut self) -> bool {
        let Counting { running, current, later } = &mut self.desk.counting;
        let Some(first) = current.first().or(later.first()) else { return false };
        let (key, what) = (first.key(), first.what);
        current.extend(if current.is_empty() {
            later.extract_if(.., |wanted| wanted.key() == key).collect()
        } else {
            Vec::new()
        });
        let vrf = self.forwarder.vrf(key.0);
        if running.is_none() {
            *running = match what {
                Show::NextHops => {
                    vrf.egress.counts().map(|counts| CountsSoFar::NextHops(CountedHops::new(counts)))
                }
                Show::Feeds => Some(CountsSoFar::Feeds(vrf.begin_outcomes())),
                _ => Some(CountsSoFar::Routes(Box::default())),
            };
        }
        let is_over = match running {
            Some(CountsSoFar::Routes(counts)) => vrf.count_routes(counts),
            Some(CountsSoFar::Feeds(outcomes)) => vrf.count_outcomes(outcomes),
            Some(CountsSoFar::NextHops(counted)) => counted.count_slice(vrf.hops()),
            None => true,
        };
        if !is_over {
            return true;
        }
        let (answered, counts) = (std::mem::take(current), running.take());
        let steering = Steering { forwarder: self.forwarder, vrf: Some(key.0), desk: self.desk };
        for CountWanted { what, reply, .. } in answered {
            reply(Ok(match (what, &counts) {
                (Show::Fib, Some(CountsSoFar::Routes(counts))) => steering.fib(counts),
                (_, Some(CountsSoFar::Routes(counts))) => Answer::new(RoutesShown::new(counts)),
                (_, Some(CountsSoFar::Feeds(outcomes))) => steering.feeds(outcomes),
                (_, Some(CountsSoFar::NextHops(counted))) => steering.next_hops(counted),
                (_, None) => Self::next_hops_off(),
            }));
        }
        true
    }
}

#[derive(Serialize)]
struct LengthShown {
    family: &'static str,
    length: u8,
    routes: u64,
}

#[derive(Serialize)]
struct RoutesShown(Vec<LengthShown>);

impl RoutesShown {
    fn new(counts: &RouteCounts) -> Self {
        let rows = |family, counts: &[u64]| {
            let counts = (0..).zip(counts.to_vec()).filter(|(_, routes)| *routes > 0);
            counts.map(move |(length, routes)| LengthShown { family, length, routes }).collect::<Vec<_>>()
        };
        Self([rows("ipv4", &counts.v4), rows("ipv6", &counts.v6)].into_iter().flatten().collect())
    }
}

impl fmt::Display for RoutesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = Columns::new(["family", "length", "routes"]);
        for LengthShown { family, length, routes } in &self.0 {
            columns.row([(*family).to_owned(), length.to_string(), grouped(routes)]);
        }
        columns.fmt(f)
    }
}
