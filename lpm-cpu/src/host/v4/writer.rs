//! The IPv4 table behind the engine shell: sizes, building, updates in place.

use super::codes::Form;
use super::paint::{Canvas, paint, regions};
use super::store::{Count, Coverings, Demand, Store};
use super::table::{HostRoom, RECORD_CELLS, RECORD_LEN, Table4};
use crate::chunks::{distinct, nodes_of, with_reserve};
use crate::codes::HopCodes;
use crate::host::default_route::{split_changes, split_routes};
use crate::host::params::HostParams;
use fib::{Change, Details, EngineError, Family, NextHopId, Prefix4, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use lpm_core::publish::Publish as _;
use std::sync::Arc;

/// Minimum of spare cells in a table with room to grow; a larger table has a quarter more cells.
const CELLS_MIN: u64 = 1 << 16;
const BLOCKS_MAX: u32 = 1 << 24;
/// Retired cells beyond which the next delta waits for a grace period, which takes as long as several updates while lookups run.
const LIMBO_MAX: u32 = 16_384;

pub(crate) struct Writer4 {
    store: Store,
    codes: HopCodes,
    /// Whether lookups in flight may have loaded the previous default route.
    is_default_new: bool,
}

/// Paints `region`, which excludes the default route, from `routes`; `code` returns the code of a next hop.
fn repaint(
    region: Prefix4,
    routes: &RibTable<u32>,
    code: impl Fn(NextHopId) -> u32,
    canvas: &mut impl Canvas,
) {
    let mut within = routes.used_within(region).map(|(prefix, next_hop)| (prefix, code(next_hop))).peekable();
    let background = match within.peek() {
        Some((prefix, _)) if *prefix == region => 0,
        _ => match routes.used_behind(region) {
            NextHopId::NONE => 0,
            next_hop => code(next_hop),
        },
    };
    paint(region, background, &mut within, canvas);
}

fn has_sets(changes: &[Change<u32>]) -> bool {
    changes.iter().any(|change| !change.withdraws())
}

fn has_withdrawals(changes: &[Change<u32>]) -> bool {
    changes.iter().any(Change::withdraws)
}

impl Writer4 {
    /// Returns whether the untouched cells suffice for `changes` without the default route, which add up to `blocks` blocks.
    fn has_cells(
        &self,
        changes: &[Change<u32>],
        routes: &RibTable<u32>,
        blocks: u64,
        paints_twice: bool,
    ) -> bool {
        let untouched = u64::from(self.store.runs.untouched());
        // A region takes at most one run for each of its records, and two for each of its blocks.
        let most = |region: Prefix4| {
            let records = 1 << RECORD_LEN.saturating_sub(region.len());
            let blocks_of = |at16: u32| u64::from(self.store.blocks_in_slash16(at16 << 8));
            let nodes = region.address() >> 16..=region.last_address() >> 16;
            let blocks = blocks + nodes.map(blocks_of).sum::<u64>();
            u64::from(RECORD_CELLS) * (records + 2 * blocks.min(1 << (24 - region.len())))
        };
        let most: u64 = regions(changes).map(most).sum();
        if most * if paints_twice { 2 } else { 1 } <= untouched {
            return true;
        }
        if paints_twice {
            return false;
        }
        // One next hop without a code is painted with an unused code, which exists because the codes fit.
        let mut new = changes.iter().map(|change| change.new).filter(|id| self.codes.find(*id).is_none());
        let first = new.next();
        if new.any(|id| Some(id) != first) {
            return false;
        }
        let unused = self.codes.unused().unwrap_or(0);
        let code = |next_hop| self.codes.find(next_hop).unwrap_or(unused);
        let mut demand = Demand { store: &self.store, cells: 0 };
        regions(changes).for_each(|region| repaint(region, routes, code, &mut demand));
        demand.cells <= untouched
    }
}

impl FibTable<u32> for Writer4 {
    type Params = HostParams;
    type Shared = Table4;
    type Size = HostRoom;

    fn size(
        routes: &[(Prefix4, NextHopId)],
        params: &HostParams,
        budget: Budget,
    ) -> Result<HostRoom, EngineError> {
        let (_, routes) = split_routes(routes);
        let form = Form::for_routes(routes, params.width_min);
        let mut count = Count { width: form.width, cells: 0 };
        let mut ids = routes.iter().map(|(prefix, next_hop)| (*prefix, next_hop.get())).peekable();
        paint(Prefix4::DEFAULT, 0, &mut ids, &mut count);
        let room = |used: u64, what, limit: u32| {
            if used > limit.into() {
                return Err(EngineError::Full { what, used, limit: limit.into() });
            }
            Ok(with_reserve(used, budget.has_reserve(), limit))
        };
        let nodes = |len| {
            distinct(nodes_of(
                len,
                routes.iter().map(|(prefix, _)| *prefix).filter(|prefix| prefix.len() > 24),
            ))
        };
        let least = if budget.has_reserve() { CELLS_MIN } else { 0 };
        let shared = form.width.shared_cells();
        // Words of cells have signed 32-bit indices.
        let cells_max = i32::MAX.cast_unsigned() / form.width.words() - shared;
        Ok(HostRoom {
            form,
            cells: shared + room(count.cells.max(least), "cells of the IPv4 table", cells_max)?,
            chunks: room(nodes(16), "IPv4 /16s with routes longer than /24", 1 << 16)?,
            blocks: room(nodes(24), "IPv4 /24s with longer routes", BLOCKS_MAX)?,
        })
    }

    fn size_bytes(room: &HostRoom) -> u64 {
        room.bytes()
    }

    fn build(room: HostRoom, routes: Routes<u32>, params: &HostParams) -> Result<Self, EngineError> {
        let (default, routes) = split_routes(&routes);
        let mut store = Store::new(room, params.common.placement)?;
        let mut codes = HopCodes::for_form(room.form);
        for (_, next_hop) in routes {
            codes.acquire(&store.table.ids, *next_hop);
        }
        codes.check()?;
        let mut routes = routes.iter().map(|(prefix, next_hop)| (*prefix, codes.code(*next_hop))).peekable();
        paint(Prefix4::DEFAULT, 0, &mut routes, &mut store);
        store.table.default.publish(default.get());
        Ok(Self { store, codes, is_default_new: false })
    }

    fn shared(&self) -> &Arc<Table4> {
        &self.store.table
    }

    fn bytes(&self) -> u64 {
        self.store.table.bytes()
    }

    fn writer_bytes(&self) -> u64 {
        self.store.writer_bytes()
    }

    fn details(&self) -> Details {
        let form = self.store.table.form;
        Details::from([
            ("code_bits", form.width.bits().into()),
            ("codes_indexed", u8::from(form.is_indexed).into()),
            ("cells_untouched", self.store.runs.untouched().into()),
            ("cells_free", (self.store.runs.free_cells() + self.store.runs.limbo_cells()).into()),
            ("blocks", self.store.blocks.used().into()),
        ])
        .of_family(Family::V4)
    }

    fn admits(&self, changes: &[Change<u32>], routes: &RibTable<u32>) -> bool {
        let (default, changes) = split_changes(changes);
        let paints_twice = default.is_some() && has_sets(changes) && has_withdrawals(changes);
        let long = || changes.iter().filter(|change| change.adds() && change.prefix.len() > 24);
        let nodes = |len| nodes_of(len, long().map(|change| change.prefix));
        let chunks = distinct(nodes(16).filter(|node| self.store.blocks_in_slash16(node << 8) == 0));
        let blocks = distinct(nodes(24).filter(|at24| !self.store.has_block(*at24)));
        chunks <= self.store.chunks.available()
            && blocks <= self.store.blocks.available()
            && self.codes.fit(changes)
            && self.has_cells(changes, routes, blocks, paints_twice)
    }

    fn owes_grace(&self) -> bool {
        let Store { runs, chunks, blocks, .. } = &self.store;
        let has_limbo = chunks.has_limbo() || blocks.has_limbo() || self.codes.has_limbo();
        self.is_default_new || has_limbo || runs.limbo_cells() > LIMBO_MAX
    }

    fn grace_over(&mut self) {
        self.store.end_grace();
        self.codes.end_grace();
        self.is_default_new = false;
    }

    fn update(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>, synchronize: &dyn Fn()) {
        let Self { store, codes, is_default_new } = self;
        let (default, changes) = split_changes(changes);
        for change in changes.iter().filter(|change| !change.withdraws()) {
            codes.acquire(&store.table.ids, change.new);
        }
        let code = |next_hop| codes.code(next_hop);
        let withdraws = has_withdrawals(changes);
        if let Some(change) = default {
            if has_sets(changes) {
                regions(changes).for_each(|region| repaint(region, routes, code, &mut Coverings(store)));
            }
            store.table.default.publish(change.new.get());
            *is_default_new = !withdraws;
            if withdraws {
                synchronize();
            }
        }
        if default.is_none() || withdraws {
            regions(changes).for_each(|region| repaint(region, routes, code, store));
        }
        store.end_delta();
        for change in changes.iter().filter(|change| !change.adds()) {
            codes.release(change.old);
        }
    }
}
