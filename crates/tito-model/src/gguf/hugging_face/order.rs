//! In which order a file has rows, or the numbers of rows, that a directory has in another.

/// An order of rows or columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// They are those of so many heads, and the file interleaves both halves of each.
    Rotary(usize),
    /// They are those of heads of values: the directory has all heads that share a head of keys, one head of keys after the
    /// other, and the file has the first of each, then the second of each.
    ByKeyHead(ByKeyHead),
}

/// Heads of values that share heads of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByKeyHead {
    /// What comes before them, in the same order on both sides.
    pub(crate) before: usize,
    /// How many heads of keys there are.
    pub(crate) key_heads: usize,
    /// How many heads of values share one.
    pub(crate) shared_by: usize,
    /// Rows or columns of a head.
    pub(crate) width: usize,
}

impl Order {
    /// Where the file has the row or column that the directory has at `place`, of so many.
    pub(crate) fn in_file(self, place: usize, count: usize) -> usize {
        match self {
            Self::Rotary(heads) => {
                let width = count / heads;
                let (head, place) = (place / width, place % width);
                let half = width / 2;
                head * width + 2 * (place % half) + place / half
            }
            Self::ByKeyHead(ByKeyHead { before, .. }) if place < before => place,
            Self::ByKeyHead(ByKeyHead { before, key_heads, shared_by, width }) => {
                let (head, place) = ((place - before) / width, (place - before) % width);
                before + (head % shared_by * key_heads + head / shared_by) * width + place
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_file(order: Order, count: usize) -> Vec<usize> {
        (0..count).map(|place| order.in_file(place, count)).collect()
    }

    #[test]
    fn rotary_halves_are_taken_apart_head_by_head() {
        assert_eq!(in_file(Order::Rotary(2), 12), [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn heads_of_values_are_put_together_that_share_a_head_of_keys() {
        // The file has the heads 0, 3, 1, 4, 2, 5 after what comes before them.
        let order = ByKeyHead { before: 1, key_heads: 2, shared_by: 3, width: 2 };
        assert_eq!(in_file(Order::ByKeyHead(order), 13), [0, 1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12]);
    }
}
