//! Tables for a terminal.

use comfy_table::{CellAlignment, Table, presets};

/// A table of `headings` whose first `texts` columns are texts, the others numbers.
#[must_use]
pub fn table(headings: &[&str], texts: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(headings.to_vec());
    for at in texts..headings.len() {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
