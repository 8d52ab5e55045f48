//! Tables for a terminal.

use comfy_table::{CellAlignment, Table, presets};

/// A column: its heading, and the text for a row.
pub type Column<'a, Row> = (&'a str, fn(&Row) -> String);

/// A table of `rows` whose first `texts` columns are text, aligned left; the others are numbers.
#[must_use]
pub fn table<Row>(columns: &[Column<'_, Row>], texts: usize, rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns.iter().map(|(heading, _)| *heading));
    for at in texts..columns.len() {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows.iter().map(|row| columns.iter().map(|(_, cell)| cell(row))));
    table
}
