//! Text in columns for lists, and numbers in groups of digits.

use std::fmt;

/// Rows of cells. Every column but the last is padded to its widest cell; numbers, and `-` for a missing one, are right-aligned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// An empty `headings` leaves the rows without a heading.
    pub(crate) fn new<const N: usize>(headings: [&str; N]) -> Self {
        let headings: Vec<String> = headings.map(str::to_owned).into();
        Self { rows: if N == 0 { Vec::new() } else { vec![headings] } }
    }

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
                let is_numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',');
                let is_number = cell.starts_with(|first: char| first.is_ascii_digit());
                let is_number = cell == "-" || is_number && cell.bytes().all(is_numeric);
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

pub(crate) fn grouped_or_dash(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), grouped)
}

/// A whole number in groups of three digits: `1,234,567`. For text only; JSON and metrics have plain digits.
pub(crate) fn grouped(count: impl fmt::Display) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "table sizes below 2^53")]
pub(super) fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        let all = [0, 7, 999, 1000, 12_345, 999_999, 1_234_567, u64::MAX].map(grouped);
        let wanted =
            ["0", "7", "999", "1,000", "12,345", "999,999", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(all, wanted);
    }

    #[test]
    fn columns_are_aligned() {
        let mut columns = Columns::new(["port", "rx", "name"]);
        columns.row(["0".into(), grouped(12_345), "net_null0".into()]);
        columns.row(["10".into(), "7".into(), "x".into()]);
        columns.row(["11".into(), grouped_or_dash(None), "y".into()]);
        let lines =
            ["port  rx      name", "   0  12,345  net_null0", "  10       7  x", "  11       -  y", ""];
        assert_eq!(columns.to_string(), lines.join("\n"));
        assert_eq!(Columns::new([]).to_string(), "");
    }
}
