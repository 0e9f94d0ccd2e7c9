//! How two parts meet that may come at the same place.

use std::collections::HashSet;

use super::machine::Machine;

/// What becomes of two parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Meeting {
    /// Whether some text is all of one and all of the other.
    pub(super) both: bool,
    /// How one is lost, if it may be.
    pub(super) loss: Option<Loss>,
}

/// A text of one part that the lexer does not take for it.
#[derive(Debug, Clone)]
pub(super) struct Loss {
    /// Whether the first of the two is lost.
    pub(super) is_first: bool,
    /// Whether it is lost because the other one ends at its first end mark.
    pub(super) at_end_mark: bool,
    /// What comes after the text.
    pub(super) byte: u8,
}

/// What is known of a part: its texts, the free text whose end mark it ends with, and what may follow it.
pub(super) type Side<'a> = (&'a Machine, Option<usize>, &'a [bool; 256]);

/// Reads all texts with both; `None` if these are too many.
pub(super) fn walk(sides: [Side<'_>; 2], are_same: bool, steps: &mut usize) -> Option<Meeting> {
    let [(one, one_mark, after_one), (other, other_mark, after_other)] = sides;
    let mut meeting = Meeting::default();
    let start = (Machine::START, Machine::START);
    // A text may lead back to the start.
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some((at, at_other)) = open.pop() {
        *steps = steps.checked_sub(1)?;
        for byte in 0..=u8::MAX {
            let (Some(to), Some(to_other)) = (one.step(at, byte), other.step(at_other, byte)) else { continue };
            if !seen.insert((to, to_other)) {
                continue;
            }
            let ends = (one.accepts(to), other.accepts(to_other));
            meeting.both |= ends.0 && ends.1;
            let at_mark = (one_mark.is_some() && ends.0, other_mark.is_some() && ends.1);
            if at_mark.0 || at_mark.1 {
                // The end of one and the same free text is at the first of its marks.
                if !are_same && at_mark.0 != at_mark.1 && one_mark != other_mark {
                    meeting.loss = Some(Loss { is_first: at_mark.1, at_end_mark: true, byte });
                }
                continue;
            }
            let lost = ends.0.then(|| goes_on(other, to_other, after_one)).flatten().map(|byte| (true, byte));
            let lost = lost.or_else(|| Some((false, goes_on(one, to, after_other).filter(|_| ends.1)?)));
            if let Some((is_first, byte)) = lost.filter(|_| meeting.loss.is_none()) {
                meeting.loss = Some(Loss { is_first, at_end_mark: false, byte });
            }
            open.push((to, to_other));
        }
    }
    Some(meeting)
}

/// A byte with which a part goes on, among these.
fn goes_on(machine: &Machine, state: u32, bytes: &[bool; 256]) -> Option<u8> {
    (0..=u8::MAX).find(|&byte| bytes[usize::from(byte)] && machine.step(state, byte).is_some())
}
