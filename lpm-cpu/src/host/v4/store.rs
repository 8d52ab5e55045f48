//! The writer's side of a published IPv4 table: turns painted codes into stores after which each lookup gets an old or a new answer.

use super::codes::Width;
use super::paint::{Canvas, ESCAPE};
use super::runs::Runs;
use super::table::{CELL_CODES, HostRoom, NODES, RECORD_CELLS, RECORD_CODES, Record, Table4, record_in};
use crate::chunks::{CHUNK_ENTRIES, Chunks};
use fib::EngineError;
use lpm_core::memory::Placement;
use lpm_core::publish::Publish as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) struct Store {
    pub(super) table: Arc<Table4>,
    pub(super) runs: Runs,
    pub(super) chunks: Chunks,
    /// Blocks; ids begin at 1, as for chunks.
    pub(super) blocks: Chunks,
    /// The number of blocks in each /16.
    blocks_in: Vec<u16>,
    /// The /24s that lose their blocks: freed at the end of the delta, since another /24 of the /16 may still need the chunk.
    lost_blocks: Vec<u32>,
    cells: Vec<u128>,
}

/// The next content of a record: painted cells, and otherwise the cells of the published record.
struct Encoding<'a> {
    old: Option<Record>,
    /// A bit for each cell that differs from the previous cell. Outside the painted cells, bits of the old map stay.
    map: u32,
    painted: Range<u32>,
    cells: &'a [u128],
}

enum RecordUpdate {
    /// The record leads to the shared cell of a code.
    Shared(u32),
    /// The record stays, and words of its cells are stored.
    InPlace(Record),
    /// The record leads to a new run of cells.
    Run,
}

impl Encoding<'_> {
    fn cell(&self, table: &Table4, at: u32) -> u128 {
        match self.old {
            _ if self.painted.contains(&at) => self.cells[(at - self.painted.start) as usize],
            Some(old) => table.cell(old.cell(at)),
            None => 0,
        }
    }
}

fn bits(map: u32) -> impl Iterator<Item = u32> {
    let next = |map: &u32| Some(map & (map - 1)).filter(|map| *map != 0);
    std::iter::successors(Some(map).filter(|map| *map != 0), next).map(u32::trailing_zeros)
}

impl Store {
    pub(super) fn new(room: HostRoom, placement: Placement) -> Result<Self, EngineError> {
        let table = Table4::zeroed(room, placement)?;
        let shared = room.form.width.shared_cells();
        for code in 0..shared {
            table.set_cell(code, table.pack(&[code; CELL_CODES as usize]));
        }
        Ok(Self {
            table: Arc::new(table),
            runs: Runs::new(shared, room.cells),
            chunks: Chunks::new(room.chunks),
            blocks: Chunks::new(room.blocks),
            blocks_in: vec![0; NODES],
            lost_blocks: Vec::new(),
            cells: Vec::new(),
        })
    }

    fn width(&self) -> Width {
        self.table.form.width
    }

    pub(super) fn blocks_in_slash16(&self, at24: u32) -> u16 {
        self.blocks_in[at24 as usize / CHUNK_ENTRIES]
    }

    pub(super) fn has_block(&self, at24: u32) -> bool {
        self.blocks_in_slash16(at24) > 0 && self.table.code(at24) == self.width().escape()
    }

    /// The published code of address `at` of a /24, which may have a block.
    fn code_in_block(&self, at24: u32, at: u32) -> u32 {
        if !self.has_block(at24) {
            return self.table.code(at24);
        }
        let block = self.table.link(at24).load(Ordering::Relaxed);
        self.table.code_in(record_in(block, at / RECORD_CODES), at)
    }

    /// The content of record `old` with `codes` painted from code `at` on. `cells` is scratch memory.
    fn encode<'a>(
        &self,
        old: Option<Record>,
        at: u32,
        codes: &[u32],
        cells: &'a mut Vec<u128>,
    ) -> Encoding<'a> {
        let table = &*self.table;
        let old_cell = |at| old.map(|old| table.cell(old.cell(at)));
        let first = at / CELL_CODES;
        let mut end = first;
        cells.clear();
        if codes.len() < CELL_CODES as usize {
            let mut cell = table.unpack(old_cell(first).unwrap_or(0));
            cell[(at % CELL_CODES) as usize..][..codes.len()].copy_from_slice(codes);
            cells.push(table.pack(&cell));
            end += 1;
        }
        for codes in codes.as_chunks().0 {
            cells.push(table.pack(codes));
            end += 1;
        }
        let cells = cells.as_slice();
        let mut map = old.map_or(0, Record::map);
        let mut before = if first > 0 { old_cell(first - 1) } else { None };
        // Whether the cell after the painted ones differs from its predecessor may have changed.
        let behind = if end < RECORD_CELLS { old_cell(end) } else { None };
        for (at, cell) in (first..).zip(cells.iter().copied().chain(behind)) {
            map = map & !(1 << at) | u32::from(before != Some(cell)) << at;
            before = Some(cell);
        }
        Encoding { old, map, painted: first..end, cells }
    }

    fn plan_update(&self, encoding: &Encoding<'_>) -> RecordUpdate {
        let (table, shared) = (&*self.table, self.width().shared_cells());
        if encoding.map == 1 {
            let cell = encoding.cell(table, 0);
            let [code, ..] = table.unpack(cell);
            if code < shared && cell == table.pack(&[code; CELL_CODES as usize]) {
                return RecordUpdate::Shared(code);
            }
        }
        match encoding.old {
            // A run keeps cells that equal their predecessor, for routes that return, until it has twice the cells it needs.
            Some(old)
                if old.first() >= shared
                    && encoding.map & !old.map() == 0
                    && old.map().count_ones() <= 2 * encoding.map.count_ones() =>
            {
                RecordUpdate::InPlace(old)
            }
            _ => RecordUpdate::Run,
        }
    }

    /// The cells of a new run for painting `codes` from code `at` on; 0 without a new run.
    fn demand(&self, old: Option<Record>, at: u32, codes: &[u32]) -> u32 {
        let mut cells = Vec::new();
        let encoding = self.encode(old, at, codes, &mut cells);
        if matches!(self.plan_update(&encoding), RecordUpdate::Run) { encoding.map.count_ones() } else { 0 }
    }

    fn paint_record(&mut self, record: u32, old: Option<Record>, at: u32, codes: &[u32]) {
        let mut cells = std::mem::take(&mut self.cells);
        let encoding = self.encode(old, at, codes, &mut cells);
        match self.plan_update(&encoding) {
            RecordUpdate::Shared(code) => self.replace(record, old, Record::new(1, code)),
            RecordUpdate::InPlace(old) => {
                for at in bits(old.map()).filter(|at| encoding.painted.contains(at)) {
                    self.table.set_cell(old.cell(at), encoding.cell(&self.table, at));
                }
            }
            RecordUpdate::Run => {
                let first = self.runs.allocate(encoding.map.count_ones());
                for (to, at) in (first..).zip(bits(encoding.map)) {
                    self.table.set_cell(to, encoding.cell(&self.table, at));
                }
                self.replace(record, old, Record::new(encoding.map, first));
            }
        }
        self.cells = cells;
    }

    fn replace(&mut self, record: u32, old: Option<Record>, new: Record) {
        if old != Some(new) {
            self.table.set_record(record, new);
            self.free_cells_of(old);
        }
    }

    /// Frees the cells of a record, unless they are shared.
    fn free_cells_of(&mut self, old: Option<Record>) {
        if let Some(old) = old
            && old.first() >= self.width().shared_cells()
        {
            self.runs.free(old.first(), old.map().count_ones());
        }
    }

    /// Notes the /24s from `at24` on that have blocks but lose them under `codes`.
    fn note_lost_blocks(&mut self, at24: u32, codes: impl Iterator<Item = u32>) {
        if self.blocks_in_slash16(at24) > 0 {
            let coded = (at24..).zip(codes).filter(|(_, code)| *code != ESCAPE);
            let lost: Vec<_> = coded.map(|(at24, _)| at24).filter(|at24| self.has_block(*at24)).collect();
            self.lost_blocks.extend(lost);
        }
    }

    /// Ends a delta: the blocks that it retired start waiting for a grace period. Their content and the links to them stay.
    pub(super) fn end_delta(&mut self) {
        while let Some(at24) = self.lost_blocks.pop() {
            let block = self.table.link(at24).load(Ordering::Relaxed);
            for half in 0..2 {
                self.free_cells_of(self.table.record(record_in(block, half)));
            }
            self.blocks.free(block);
            let node = at24 as usize / CHUNK_ENTRIES;
            self.blocks_in[node] -= 1;
            if self.blocks_in[node] == 0 {
                self.chunks.free(self.table.chunks[node].load(Ordering::Relaxed));
            }
        }
    }

    pub(super) fn end_grace(&mut self) {
        self.runs.end_grace();
        self.chunks.end_grace();
        self.blocks.end_grace();
    }

    pub(super) fn writer_bytes(&self) -> u64 {
        let lists = self.blocks_in.capacity() * 2 + self.lost_blocks.capacity() * 4;
        self.runs.bytes() + self.chunks.bytes() + self.blocks.bytes() + lists as u64
    }
}

fn halves(codes: &[u32; 256]) -> impl Iterator<Item = (u32, &[u32])> {
    (0..).zip(codes.chunks_exact(RECORD_CODES as usize))
}

impl Canvas for Store {
    fn span(&mut self, records: Range<u32>, code: u32) {
        for record in records {
            let at24 = record * RECORD_CODES;
            if code < self.width().shared_cells() {
                self.note_lost_blocks(at24, std::iter::repeat_n(code, RECORD_CODES as usize));
                self.replace(record, self.table.record(record), Record::new(1, code));
            } else {
                self.part(at24, &[code; RECORD_CODES as usize]);
            }
        }
    }

    fn part(&mut self, at24: u32, codes: &[u32]) {
        self.note_lost_blocks(at24, codes.iter().copied());
        let record = at24 / RECORD_CODES;
        self.paint_record(record, self.table.record(record), at24 % RECORD_CODES, codes);
    }

    fn block(&mut self, at24: u32, codes: &[u32; 256]) {
        let is_new = !self.has_block(at24);
        let block =
            if is_new { self.blocks.allocate() } else { self.table.link(at24).load(Ordering::Relaxed) };
        for (half, codes) in halves(codes) {
            let record = record_in(block, half);
            // The records of a new block hold values of its last use.
            let old = if is_new { None } else { self.table.record(record) };
            self.paint_record(record, old, 0, codes);
        }
        if is_new {
            let node = at24 as usize / CHUNK_ENTRIES;
            if self.blocks_in[node] == 0 {
                self.table.chunks[node].publish(self.chunks.allocate());
            }
            self.blocks_in[node] += 1;
            self.table.link(at24).publish(block);
        }
    }
}

/// Writes to the table, but lets addresses that lose their routes keep them.
pub(super) struct Coverings<'a>(pub(super) &'a mut Store);

impl Coverings<'_> {
    fn published_code(&self, at24: u32) -> u32 {
        let code = self.0.table.code(at24);
        if code == self.0.width().escape() { ESCAPE } else { code }
    }
}

impl Canvas for Coverings<'_> {
    fn span(&mut self, records: Range<u32>, code: u32) {
        if code != 0 {
            self.0.span(records, code);
        }
    }

    fn part(&mut self, at24: u32, codes: &[u32]) {
        let mut kept = [0; RECORD_CODES as usize];
        let kept = &mut kept[..codes.len()];
        for ((kept, code), at24) in kept.iter_mut().zip(codes).zip(at24..) {
            *kept = if *code == 0 { self.published_code(at24) } else { *code };
        }
        self.0.part(at24, kept);
    }

    fn block(&mut self, at24: u32, codes: &[u32; 256]) {
        let mut kept = *codes;
        for (at, kept) in (0..).zip(&mut kept).filter(|(_, kept)| **kept == 0) {
            *kept = self.0.code_in_block(at24, at);
        }
        self.0.block(at24, &kept);
    }
}

pub(super) struct Demand<'a> {
    pub(super) store: &'a Store,
    pub(super) cells: u64,
}

impl Canvas for Demand<'_> {
    fn span(&mut self, records: Range<u32>, code: u32) {
        if code >= self.store.width().shared_cells() {
            for record in records {
                self.part(record * RECORD_CODES, &[code; RECORD_CODES as usize]);
            }
        }
    }

    fn part(&mut self, at24: u32, codes: &[u32]) {
        let old = self.store.table.record(at24 / RECORD_CODES);
        self.cells += u64::from(self.store.demand(old, at24 % RECORD_CODES, codes));
    }

    fn block(&mut self, at24: u32, codes: &[u32; 256]) {
        let table = &self.store.table;
        let block = self.store.has_block(at24).then(|| table.link(at24).load(Ordering::Relaxed));
        for (half, codes) in halves(codes) {
            let old = block.and_then(|block| table.record(record_in(block, half)));
            self.cells += u64::from(self.store.demand(old, 0, codes));
        }
    }
}

/// Counts the cells of a new table, from codes or from ids, without those that records share.
pub(super) struct Count {
    pub(super) width: Width,
    pub(super) cells: u64,
}

impl Count {
    fn shares(&self, code: u32) -> bool {
        self.width != Width::Bits32 || code == 0
    }
}

impl Canvas for Count {
    fn span(&mut self, records: Range<u32>, code: u32) {
        self.cells += if self.shares(code) { 0 } else { records.len() as u64 };
    }

    fn part(&mut self, _: u32, codes: &[u32]) {
        let mut last = None;
        let cells =
            codes.chunks(CELL_CODES as usize).filter(|cell| last.replace(*cell) != Some(*cell)).count();
        let is_shared = cells == 1
            && self.shares(codes[0])
            && codes[..CELL_CODES as usize] == [codes[0]; CELL_CODES as usize];
        self.cells += if is_shared { 0 } else { cells as u64 };
    }

    fn block(&mut self, at24: u32, codes: &[u32; 256]) {
        for (_, codes) in halves(codes) {
            self.part(at24, codes);
        }
    }
}
