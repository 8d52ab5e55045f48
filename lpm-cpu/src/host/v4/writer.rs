//! The table of IPv4 behind the engine shell: how large it is, building it, and updates in place.

use super::codes::{Codes, Form};
use super::paint::{Canvas, paint, regions};
use super::store::{Count, Demand, Store};
use super::table::{RECORD_CELLS, RECORD_LEN, Room, Table4};
use crate::chunks::{distinct, nodes_of, with_reserve};
use crate::host::params::Params;
use fib::{Change, Details, EngineError, Family, NextHopId, Prefix4, RibTable};
use lpm_core::engine::{Budget, FibTable, Routes};
use serde::Serialize;
use std::sync::Arc;

/// A table with room to grow has at least so many cells, and a quarter more.
const CELLS_MIN: u64 = 1 << 16;
/// Blocks at most: one a /24.
const BLOCKS_MAX: u32 = 1 << 24;
/// More cells than these out of service, and the next delta waits for a grace period. With lookups running, one takes as long as several
/// updates, so one is to serve many.
const LIMBO_MAX: u32 = 16_384;

/// The writer's side.
pub(crate) struct Writer4 {
    store: Store,
    codes: Codes,
}

/// Paints `region` with the routes of `routes`, whose next hops have the codes that `code` returns.
fn repaint(
    region: Prefix4,
    routes: &RibTable<u32>,
    code: impl Fn(NextHopId) -> u32,
    canvas: &mut impl Canvas,
) {
    let mut within = routes.used_within(region).map(|(prefix, next_hop)| (prefix, code(next_hop))).peekable();
    let background = match within.peek() {
        Some((prefix, _)) if *prefix == region => 0,
        _ => routes.used_above(region).map_or(0, |(_, next_hop)| code(next_hop)),
    };
    paint(region, background, &mut within, canvas);
}

impl Writer4 {
    /// Whether there are untouched cells for `changes`, which add so many blocks.
    fn has_cells(&self, changes: &[Change<u32>], routes: &RibTable<u32>, blocks: u64) -> bool {
        let untouched = u64::from(self.store.runs.untouched());
        // A region within a record takes a run at most, and two for each of its blocks. Wider regions are counted below.
        let most = |region: Prefix4| {
            if region.len() < RECORD_LEN {
                return u64::from(u32::MAX);
            }
            let blocks = blocks + u64::from(self.store.blocks_beside(region.address() >> 8));
            u64::from(RECORD_CELLS) * (1 + 2 * blocks.min(1 << (24 - region.len())))
        };
        if regions(changes).map(most).sum::<u64>() <= untouched {
            return true;
        }
        // One next hop without a code is painted with an unused code: there is one, since the codes fit.
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
    type Params = Params;
    type Shared = Table4;
    type Size = Room;

    fn size(routes: &[(Prefix4, NextHopId)], params: &Params, budget: Budget) -> Result<Room, EngineError> {
        let form = Form::of(routes, params.width_min);
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
        Ok(Room {
            form,
            cells: shared + room(count.cells.max(least), "cells of the IPv4 table", cells_max)?,
            chunks: room(nodes(16), "IPv4 /16s with routes longer than /24", 1 << 16)?,
            blocks: room(nodes(24), "IPv4 /24s with longer routes", BLOCKS_MAX)?,
        })
    }

    fn size_bytes(room: &Room) -> u64 {
        room.bytes()
    }

    fn build(room: Room, routes: Routes<u32>, params: &Params) -> Result<Self, EngineError> {
        let mut store = Store::new(room, params.common.placement)?;
        let mut codes = Codes::new(room.form);
        for (_, next_hop) in &routes {
            codes.take(&store.table.ids, *next_hop);
        }
        codes.check()?;
        let mut routes =
            routes.into_iter().map(|(prefix, next_hop)| (prefix, codes.code(next_hop))).peekable();
        paint(Prefix4::DEFAULT, 0, &mut routes, &mut store);
        drop(routes);
        Ok(Self { store, codes })
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
        #[derive(Serialize)]
        struct Figures {
            code_bits: u32,
            codes_indexed: u8,
            cells_untouched: u32,
            cells_free: u32,
            blocks: u64,
        }
        let form = self.store.table.form;
        let figures = Figures {
            code_bits: form.width.bits(),
            codes_indexed: form.is_indexed.into(),
            cells_untouched: self.store.runs.untouched(),
            cells_free: self.store.runs.free_cells() + self.store.runs.limbo_cells(),
            blocks: self.store.blocks.used(),
        };
        Details::of_family(Family::V4, &figures)
    }

    fn admits(&self, changes: &[Change<u32>], routes: &RibTable<u32>) -> bool {
        let long = || changes.iter().filter(|change| change.adds() && change.prefix.len() > 24);
        let nodes = |len| nodes_of(len, long().map(|change| change.prefix));
        let chunks = distinct(nodes(16).filter(|node| self.store.blocks_beside(node << 8) == 0));
        let blocks = distinct(nodes(24).filter(|at24| !self.store.has_block(*at24)));
        chunks <= self.store.chunks.available()
            && blocks <= self.store.blocks.available()
            && self.codes.fit(changes)
            && self.has_cells(changes, routes, blocks)
    }

    fn owes_grace(&self) -> bool {
        let Store { runs, chunks, blocks, .. } = &self.store;
        runs.limbo_cells() > LIMBO_MAX || chunks.has_limbo() || blocks.has_limbo() || self.codes.has_limbo()
    }

    fn grace_over(&mut self) {
        self.store.end_grace();
        self.codes.end_grace();
    }

    fn update(&mut self, changes: &[Change<u32>], routes: &RibTable<u32>, _: &dyn Fn()) {
        let Self { store, codes } = self;
        for change in changes.iter().filter(|change| !change.withdraws()) {
            codes.take(&store.table.ids, change.new);
        }
        let code = |next_hop| codes.code(next_hop);
        regions(changes).for_each(|region| repaint(region, routes, code, store));
        store.end_delta();
        for change in changes.iter().filter(|change| !change.adds()) {
            codes.release(change.old);
        }
    }
}
