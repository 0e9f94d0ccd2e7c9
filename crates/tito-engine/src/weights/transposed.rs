//! Tables whose rows become columns.

/// How many rows of a table are turned at a time: as many as stay near, together with the columns that they are put into.
const TURNED_AT_ONCE: usize = 16;

/// A table of so many columns, column by column.
pub(crate) fn transposed<T: Copy>(table: &[T], columns: usize) -> Vec<T> {
    let (Some(first), rows) = (table.first(), table.len() / columns.max(1)) else { return Vec::new() };
    let mut turned = vec![*first; table.len()];
    for start in (0..rows).step_by(TURNED_AT_ONCE) {
        for column in 0..columns {
            for row in start..rows.min(start + TURNED_AT_ONCE) {
                turned[column * rows + row] = table[row * columns + column];
            }
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_turned_and_turned_back() {
        let table = [1, 2, 3, 4, 5, 6];
        let turned = transposed(&table, 3);
        assert_eq!(turned, [1, 4, 2, 5, 3, 6]);
        assert_eq!(transposed(&turned, 2), table);
        let long: Vec<usize> = (0..5 * 37).collect();
        let expected: Vec<usize> = (0..5).flat_map(|column| (0..37).map(move |row| 5 * row + column)).collect();
        assert_eq!(transposed(&long, 5), expected);
        assert_eq!(transposed(&expected, 37), long);
    }
}
