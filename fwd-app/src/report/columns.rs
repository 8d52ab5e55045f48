//! Text in columns, for answers that are lists.

use std::fmt;

/// Rows of cells. Each column but the last is as wide as its widest cell; cells that are numbers are aligned to the right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// With these headings; without any, the rows have no heading.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        let headings: Vec<String> = headings.map(str::to_owned).into();
        Self { rows: if N == 0 { Vec::new() } else { vec![headings] } }
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column| self.rows.iter().filter_map(move |row: &Vec<String>| row.get(column));
        let widths: Vec<usize> = (0..columns)
            .map(|column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let is_number =
                    !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
                match (is_number, column + 1 == columns) {
                    (true, _) => write!(f, "{gap}{cell:>width$}")?,
                    (false, true) => write!(f, "{gap}{cell}")?,
                    (false, false) => write!(f, "{gap}{cell:<width$}")?,
                }
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut columns = Columns::new(["port", "rx", "name"]);
        columns.row(["0".into(), "12345".into(), "net_null0".into()]);
        columns.row(["10".into(), "7".into(), "x".into()]);
        assert_eq!(columns.to_string(), "port  rx     name\n   0  12345  net_null0\n  10      7  x\n");
        assert_eq!(Columns::new([]).to_string(), "");
    }
}
