//! Python's slices.

use super::bounds;
use super::error::Error;
use super::value::{SequenceKind, Value, as_integer, error, is_view, list, range, tuple, type_name};

/// `receiver[start:end:step]`, each bound an argument.
pub(super) fn slice(receiver: &Value, bounds: &[Value]) -> Result<Value, Error> {
    let bound = |index: usize| match bounds.get(index) {
        None => Ok(None),
        Some(value) if value.is_none() => Ok(None),
        Some(value) => as_integer(value)
            .map(Some)
            .ok_or_else(|| error("slice indices must be integers or None or have an __index__ method")),
    };
    let (start, end, step) = (bound(0)?, bound(1)?, bound(2)?.unwrap_or(1));
    if step == 0 {
        return Err(error("slice step cannot be zero"));
    }
    bounds::look_through(receiver.size())?;
    match receiver {
        Value::String(_) => {
            // Characters take four bytes here.
            bounds::reserve(receiver.size().saturating_mul(5))?;
            let chars: Vec<char> = receiver.as_str().unwrap_or_default().chars().collect();
            let sliced: String = indices(chars.len(), start, end, step).map(|index| chars[index]).collect();
            Ok(Value::from(sliced))
        }
        Value::Sequence(sequence) if !is_view(receiver) => {
            bounds::reserve(receiver.size())?;
            let items = &sequence.items;
            let sliced = indices(items.len(), start, end, step).map(|index| items[index].clone()).collect();
            Ok(match sequence.kind {
                SequenceKind::Tuple => tuple(sliced),
                SequenceKind::Range(first, _, by) => {
                    let (start, end) = ends(items.len(), start, end, step);
                    let number = |index: i128| i128::from(first).saturating_add(index.saturating_mul(by.into()));
                    let bounds = [number(start), number(end), i128::from(by).saturating_mul(step)];
                    let bounds = bounds.map(i64::try_from);
                    let [Ok(start), Ok(end), Ok(by)] = bounds else {
                        return Err(error("the slice's step is too large"));
                    };
                    range(sliced, [start, end, by])
                }
                _ => list(sliced),
            })
        }
        Value::Undefined => Err(error("value is undefined")),
        _ => Err(error(format!("'{}' object is not subscriptable", type_name(receiver)))),
    }
}

/// Returns the part of a string that `text[start:end]` means; none where it begins after the end.
pub(super) fn part(text: &str, start: Option<i64>, end: Option<i64>) -> Option<&str> {
    if start.is_none() && end.is_none() {
        return Some(text);
    }
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let clamp = |bound: i64| if bound < 0 { (bound + length).max(0) } else { bound };
    let start = clamp(start.unwrap_or(0));
    let end = clamp(end.unwrap_or(length)).min(length);
    if start > end {
        return None;
    }
    let offset = |position: i64| {
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        text.char_indices().nth(position).map_or(text.len(), |(offset, _)| offset)
    };
    Some(&text[offset(start)..offset(end)])
}

// Python's `slice.indices`: the index that comes first, and the one that none comes at or after.
fn ends(length: usize, start: Option<i128>, end: Option<i128>, step: i128) -> (i128, i128) {
    let length = i128::try_from(length).unwrap_or(i128::MAX);
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp = |bound: i128| {
        let bound = if bound < 0 { bound.saturating_add(length) } else { bound };
        bound.clamp(lowest, highest)
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    (start.map_or(first, clamp), end.map_or(last, clamp))
}

fn indices(length: usize, start: Option<i128>, end: Option<i128>, step: i128) -> impl Iterator<Item = usize> {
    let (start, end) = ends(length, start, end, step);
    let within = move |&index: &i128| if step > 0 { index < end } else { index > end };
    std::iter::successors(Some(start), move |index| index.checked_add(step))
        .take_while(within)
        .filter_map(|index| usize::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sliced(length: usize, start: Option<i128>, end: Option<i128>, step: i128) -> Vec<usize> {
        indices(length, start, end, step).collect()
    }

    #[test]
    fn indices_are_those_of_python() {
        assert_eq!(sliced(5, None, None, -1), [4, 3, 2, 1, 0]);
        assert_eq!(sliced(0, None, None, -1), [0; 0]);
        assert_eq!(sliced(5, Some(-2), None, 1), [3, 4]);
        assert_eq!(sliced(5, Some(-9), Some(9), 2), [0, 2, 4]);
        assert_eq!(sliced(5, Some(3), Some(0), -1), [3, 2, 1]);
        assert_eq!(sliced(5, Some(0), Some(3), -1), [0; 0]);
        assert_eq!(sliced(5, Some(9), None, 1), [0; 0]);
        assert_eq!(sliced(5, Some(9), Some(-9), i128::MIN), [4]);
    }

    #[test]
    fn parts_are_counted_in_characters() {
        assert_eq!(part("äöü", Some(1), None), Some("öü"));
        assert_eq!(part("äöü", Some(-1), Some(9)), Some("ü"));
        assert_eq!(part("äöü", Some(3), None), Some(""));
        assert_eq!(part("äöü", Some(4), None), None);
    }
}
