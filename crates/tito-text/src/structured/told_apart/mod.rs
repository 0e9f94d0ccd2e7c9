//! Whether a lexer that takes as much text as it can for each part finds all texts of a structural tag.
//!
//! At each place of an output there are parts that may come. The lexer reads on as long as one of them may go on, and takes
//! those that match all that it read. A part is lost where it could end, but another one (or itself) goes on with what may
//! follow it: that text can then never be sampled, and an output may never end. Refuses these by name. It also refuses a few
//! where another part would match all the text that is lost.

mod machine;
mod meeting;
mod places;

use std::collections::{HashMap, HashSet, VecDeque};

use self::{
    meeting::{Loss, Meeting, walk},
    places::{Kind, Places},
};
use super::pieces::Piece;

/// How many pairs of states are looked at, all together.
const MOST_STEPS: usize = 500_000;
/// How many pairs of parts.
const MOST_PAIRS: usize = 2_000_000;
const TOO_LARGE: &str = "it is too large to tell whether its parts can be told apart";

/// Why some texts of an output could never be sampled, or would not be of its form; `brackets_are_json` as in
/// [`JsonOptions`](super::JsonOptions).
pub(super) fn check(piece: &Piece, brackets_are_json: bool) -> Result<(), String> {
    if is_one_part(piece) {
        return Ok(());
    }
    // What is no expression is refused by the compiler, which says more of it.
    let Some(places) = Places::of(piece)? else { return Ok(()) };
    check_blanks(&places)?;
    if places.all.len() < 2 && places.follow.iter().all(Vec::is_empty) {
        return Ok(());
    }
    Checker { steps: MOST_STEPS, has_special: places.has_special(), brackets_are_json, places }.check()
}

/// Whether nothing comes before or after a part, so that there is nothing to tell it from.
fn is_one_part(piece: &Piece) -> bool {
    match piece {
        Piece::Sequence(parts) | Piece::Choice(parts) => matches!(parts.as_slice(), [part] if is_one_part(part)),
        Piece::Text(_) | Piece::Special(_) | Piece::Expression(_) | Piece::Json(_) => true,
        Piece::Until { .. } | Piece::Repeated(..) | Piece::Separated(..) => false,
    }
}

/// The compiler lets white space in wherever a token of JSON may follow one of JSON that is written alike.
fn check_blanks(places: &Places) -> Result<(), String> {
    let begins = |next: &usize| places.all[*next].begins_spaced();
    let is_next = |index: usize| places.all[index].ends_spaced() && places.follow[index].iter().any(begins);
    if (0..places.all.len()).any(is_next) {
        return Err(
            "JSON that may have white space in it cannot directly follow other such JSON, since white space would \
                    come between them: put fixed text there, or set `disable_any_whitespace`"
                .to_owned(),
        );
    }
    Ok(())
}

struct Checker {
    places: Places,
    steps: usize,
    has_special: bool,
    brackets_are_json: bool,
}

impl Checker {
    /// Goes through all pairs of parts that may come at the same place.
    fn check(mut self) -> Result<(), String> {
        let after = self.bytes_after();
        let followers = self.lists_of_followers();
        let mut pairs = Pairs::default();
        pairs.add(&self.places.first, &self.places.first)?;
        while let Some((one, other)) = pairs.open.pop_front() {
            let meeting = self.meet(one, other, &after)?;
            if let Some(loss) = meeting.loss {
                let (lost, by) = if loss.is_first { (one, other) } else { (other, one) };
                let is_bracket = |index: usize| self.places.all[index].is_bracket();
                let is_excused = self.brackets_are_json && (is_bracket(lost) || is_bracket(by));
                if !is_excused && (loss.at_end_mark || !self.takes_anything(by)) {
                    return Err(self.message(lost, by, &loss));
                }
            }
            if meeting.both {
                let is_mistaken = |one, other| !self.brackets_are_json && self.is_mistaken_for_a_bracket(one, other);
                if is_mistaken(one, other) || is_mistaken(other, one) {
                    return Err("JSON and something else may begin with the same bracket: begin the other one with \
                                another character, or write it as JSON"
                        .to_owned());
                }
                if pairs.lists.insert((followers[one], followers[other])) {
                    pairs.add(&self.places.follow[one], &self.places.follow[other])?;
                }
            }
        }
        Ok(())
    }

    /// How two parts meet that may come at the same place.
    fn meet(&mut self, one: usize, other: usize, after: &[[bool; 256]]) -> Result<Meeting, String> {
        let both = |both| Ok(Meeting { both, loss: None });
        match (&self.places.all[one].kind, &self.places.all[other].kind) {
            (Kind::Special(one), Kind::Special(other)) => both(one == other),
            (Kind::Special(_), _) | (_, Kind::Special(_)) => both(false),
            (Kind::Rest(_), Kind::Rest(_)) => both(true),
            (Kind::Rest(_), _) | (_, Kind::Rest(_)) if self.brackets_are_json => both(false),
            (Kind::Rest(bytes), kind) => Ok(of_rest(bytes, kind, true)),
            (kind, Kind::Rest(bytes)) => Ok(of_rest(bytes, kind, false)),
            (Kind::Text { fixed: Some(text), .. }, Kind::Text { fixed: Some(text_of_other), .. }) => {
                Ok(of_fixed([text, text_of_other], [&after[one], &after[other]]))
            }
            (Kind::Text { machine, mark, .. }, Kind::Text { machine: machine_of_other, mark: mark_of_other, .. }) => {
                let sides = [(&**machine, *mark, &after[one]), (&**machine_of_other, *mark_of_other, &after[other])];
                walk(sides, one == other, &mut self.steps).ok_or_else(|| TOO_LARGE.to_owned())
            }
        }
    }

    /// For each place, the number of the list of those that may follow it: many have the same one.
    fn lists_of_followers(&self) -> Vec<usize> {
        let mut numbers = HashMap::new();
        let mut number = |follow| {
            let next = numbers.len();
            *numbers.entry(follow).or_insert(next)
        };
        self.places.follow.iter().map(|follow| number(follow.as_slice())).collect()
    }

    /// For each place, the bytes that may follow it.
    fn bytes_after(&self) -> Vec<[bool; 256]> {
        let first: Vec<[bool; 256]> = self.places.all.iter().map(|place| place.kind.first_bytes()).collect();
        let after = |follow: &Vec<usize>| {
            let mut bytes = [false; 256];
            for &next in follow {
                bytes.iter_mut().zip(first[next]).for_each(|(byte, may)| *byte |= may);
            }
            bytes
        };
        self.places.follow.iter().map(after).collect()
    }

    /// Whether a part takes any text up to the end of the output, so that nothing is lost by it.
    fn takes_anything(&self, index: usize) -> bool {
        self.places.all[index].is_anything && self.places.follow[index].is_empty() && !self.has_special
    }

    /// Whether a part would be taken for JSON that goes on: white space would be let in behind it.
    fn is_mistaken_for_a_bracket(&self, part: usize, bracket: usize) -> bool {
        let is_bracket = |index: usize| self.places.all[index].is_bracket();
        is_bracket(bracket) && !is_bracket(part) && !self.takes_anything(part)
    }

    fn message(&self, lost: usize, by: usize, found: &Loss) -> String {
        let name = |index: usize| &self.places.all[index].name;
        if found.at_end_mark {
            return format!(
                "{} could contain {}, where the output would go on with something else",
                name(lost),
                name(by)
            );
        }
        let byte = char::from(found.byte);
        let taken = if lost == by { "it would be taken".to_owned() } else { format!("{} would be taken", name(by)) };
        format!(
            "where {} ends, what follows it cannot be told from more of the same text: {taken} on with what begins with \
             {byte:?}. Put fixed text there that cannot be part of it",
            name(lost)
        )
    }
}

/// Several tokens of JSON: whatever may begin like them is taken for a conflict.
fn of_rest(bytes: &[bool; 256], kind: &Kind, is_first: bool) -> Meeting {
    let begins = kind.first_bytes();
    let byte = (0..=u8::MAX).find(|&byte| bytes[usize::from(byte)] && begins[usize::from(byte)]);
    Meeting { both: false, loss: byte.map(|byte| Loss { is_first, at_end_mark: false, byte }) }
}

/// Two texts: one is lost if it begins the other one, and what follows it may be taken for more of that.
fn of_fixed([one, other]: [&str; 2], after: [&[bool; 256]; 2]) -> Meeting {
    let goes_on = |lost: &str, by: &str, after: &[bool; 256]| {
        let next = *by.strip_prefix(lost)?.as_bytes().first()?;
        after[usize::from(next)].then_some(next)
    };
    let loss = |is_first, byte| Loss { is_first, at_end_mark: false, byte };
    let first = goes_on(one, other, after[0]).map(|byte| loss(true, byte));
    let second = || goes_on(other, one, after[1]).map(|byte| loss(false, byte));
    Meeting { both: one == other, loss: first.or_else(second) }
}

/// Pairs of parts that may come at the same place.
#[derive(Debug, Default)]
struct Pairs {
    seen: HashSet<(u32, u32)>,
    open: VecDeque<(usize, usize)>,
    /// The lists of which each part was paired with each of the other one.
    lists: HashSet<(usize, usize)>,
    looked: usize,
}

impl Pairs {
    /// Adds each of the one with each of the others.
    fn add(&mut self, ones: &[usize], others: &[usize]) -> Result<(), String> {
        for &one in ones {
            for &other in others {
                let pair = (one.min(other), one.max(other));
                let [Ok(least), Ok(most)] = [u32::try_from(pair.0), u32::try_from(pair.1)] else { continue };
                if self.seen.insert((least, most)) {
                    self.open.push_back(pair);
                }
            }
            self.looked += others.len();
            if self.looked > MOST_PAIRS {
                return Err(TOO_LARGE.to_owned());
            }
        }
        Ok(())
    }
}
