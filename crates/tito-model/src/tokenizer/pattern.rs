//! What the matches of a regular expression can hold: which two characters may stand side by side within one, and which
//! character alone is one.
//!
//! Both are read off the expression itself, as in Glushkov's construction: every character class of it is a position,
//! and a match walks from position to position. An expression with anything that this does not cover has no [`Pattern`].

use std::cmp::Ordering;

use regex_syntax::{
    Parser,
    hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind},
};

/// Characters whose properties have been the same since Unicode 6.3, whichever version an engine knows: ASCII, all white
/// space, Cyrillic, and what Chinese, Japanese and Korean are mostly written in. None composes with what precedes it.
const SETTLED: [(char, char); 19] = [
    ('\0', '\x7f'),
    ('\u{85}', '\u{85}'),
    ('\u{a0}', '\u{a0}'),
    ('\u{410}', '\u{44f}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{2000}', '\u{200a}'),
    ('\u{2028}', '\u{2029}'),
    ('\u{202f}', '\u{202f}'),
    ('\u{205f}', '\u{205f}'),
    ('\u{3000}', '\u{3003}'),
    ('\u{3008}', '\u{3011}'),
    ('\u{3041}', '\u{3096}'),
    ('\u{30a1}', '\u{30fa}'),
    ('\u{4e00}', '\u{9fa5}'),
    ('\u{ac00}', '\u{d7a3}'),
    ('\u{ff01}', '\u{ff0f}'),
    ('\u{ff1a}', '\u{ff20}'),
    ('\u{ff3b}', '\u{ff40}'),
    ('\u{ff5b}', '\u{ff60}'),
];

/// Whether every engine agrees about a character.
pub(super) fn is_settled(c: char) -> bool {
    SETTLED.iter().any(|&(first, last)| (first..=last).contains(&c))
}

/// What is known of the character before a place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Left {
    /// The character is this one, and what it does is settled.
    Is(char),
    /// The character is not white space.
    Visible,
}

impl Left {
    /// What is known of a character, whatever the engine's version of Unicode.
    pub(super) fn of(c: char) -> Self {
        // All white space is settled.
        if is_settled(c) { Self::Is(c) } else { Self::Visible }
    }

    /// Whether it is known not to be white space.
    pub(super) fn is_visible(self) -> bool {
        match self {
            Self::Is(c) => !c.is_whitespace(),
            Self::Visible => true,
        }
    }
}

/// One class of characters in the expression.
#[derive(Debug)]
struct Position {
    class: ClassUnicode,
    /// Has characters that are not white space.
    visible: bool,
}

impl Position {
    fn may_be(&self, left: Left) -> bool {
        match left {
            Left::Is(c) => self.has(c),
            Left::Visible => self.visible,
        }
    }

    fn has(&self, c: char) -> bool {
        let side = |range: &ClassUnicodeRange| {
            if range.end() < c {
                Ordering::Less
            } else if range.start() > c {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        };
        self.class.ranges().binary_search_by(side).is_ok()
    }
}

/// What is known of the matches of an expression.
#[derive(Debug)]
pub(super) struct Pattern {
    positions: Vec<Position>,
    /// Positions that may follow each other in a match.
    follows: Vec<(usize, usize)>,
    /// The positions that are a whole match by themselves, whatever comes next.
    alone: Vec<Position>,
    /// Whether the end of a run of white space depends on whether something visible follows.
    looks_ahead: bool,
}

/// A part of an expression: the positions at which its matches begin and end.
struct PatternPart {
    nullable: bool,
    first: Vec<usize>,
    last: Vec<usize>,
}

/// The one assertion that is understood: white space up to, but not including, the last one before a word.
const LOOKAHEAD: &str = r"\s+(?!\S)";
/// What says, outside of classes, that a match is given up as a whole.
const FOREIGN: [&str; 4] = ["++", "*+", "?+", "(?>"];
/// In classes: where the two dialects differ.
const FOREIGN_IN_CLASSES: [&str; 4] = ["[:", "&&", "--", "~~"];

impl Pattern {
    /// What is known of an expression; `None` where too little of it is understood.
    pub(super) fn new(expression: &str) -> Option<Self> {
        let outline = outline(expression);
        let is_foreign = FOREIGN.iter().any(|foreign| outline.contains(foreign))
            || FOREIGN_IN_CLASSES.iter().any(|foreign| expression.contains(foreign));
        if is_foreign || has_possessive_interval(&outline) {
            return None;
        }
        let looks_ahead = expression.contains(LOOKAHEAD);
        let whole = expression.replace(LOOKAHEAD, r"\s+");
        if !groups_are_known(&self::outline(&whole)) {
            return None;
        }
        let (whole, positions) = Positions::of(&whole)?;
        // What matches without looking ahead.
        let always: Vec<&str> = expression.split('|').filter(|alternative| *alternative != LOOKAHEAD).collect();
        let (always, mut alone) = Positions::of(&always.join("|"))?;
        let ends = |at: &usize| always.first.contains(at) && always.last.contains(at);
        let alone = (0..).zip(alone.list.drain(..)).filter(|(at, _)| ends(at)).map(|(_, position)| position).collect();
        let Positions { list, mut follows } = positions;
        follows.sort_unstable();
        follows.dedup();
        (!whole.nullable).then_some(Self { positions: list, follows, alone, looks_ahead })
    }

    /// Whether a match may hold both sides of a place, or depend on what is beyond it. If not, what is matched on
    /// either side is the same with the other side as without it.
    pub(super) fn may_join(&self, left: Left, right: char) -> bool {
        if !is_settled(right) || (self.looks_ahead && !left.is_visible() && !right.is_whitespace()) {
            return true;
        }
        let joins =
            |&(before, after): &(usize, usize)| self.positions[after].has(right) && self.positions[before].may_be(left);
        self.follows.iter().any(joins)
    }

    /// Whether a match begins at every such character that no match holds already.
    pub(super) fn always_matches(&self, right: char) -> bool {
        is_settled(right) && self.alone.iter().any(|position| position.has(right))
    }
}

/// An expression without what it escapes, and without what is in its classes.
fn outline(expression: &str) -> String {
    let (mut outline, mut classes, mut is_escaped) = (String::new(), 0_usize, false);
    for c in expression.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => classes += 1,
            ']' if classes > 0 => {
                classes -= 1;
                outline.push(c);
            }
            c if classes == 0 => outline.push(c),
            _ => {}
        }
    }
    outline
}

/// Whether a count such as `{2,3}` takes what it can and gives nothing back.
fn has_possessive_interval(expression: &str) -> bool {
    let is_count = |(at, _): (usize, &str)| expression[..at].ends_with(|c: char| c.is_ascii_digit() || c == ',');
    expression.match_indices("}+").any(is_count)
}

/// Groups are those of both dialects: plain ones, and those that ignore case.
fn groups_are_known(expression: &str) -> bool {
    expression.match_indices("(?").all(|(at, _)| {
        let rest = &expression[at + 2..];
        rest.starts_with(':') || rest.starts_with("i:")
    })
}

struct Positions {
    list: Vec<Position>,
    follows: Vec<(usize, usize)>,
}

impl Positions {
    fn of(expression: &str) -> Option<(PatternPart, Self)> {
        let mut positions = Self { list: Vec::new(), follows: Vec::new() };
        let part = positions.part(&Parser::new().parse(expression).ok()?)?;
        Some((part, positions))
    }

    fn part(&mut self, hir: &Hir) -> Option<PatternPart> {
        match hir.kind() {
            HirKind::Empty => Some(PatternPart { nullable: true, first: Vec::new(), last: Vec::new() }),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                let parts: Vec<PatternPart> = text.chars().map(|c| self.class(one(c))).collect();
                Some(self.concatenation(parts))
            }
            HirKind::Class(Class::Unicode(class)) => Some(self.class(class.clone())),
            HirKind::Capture(capture) => self.part(&capture.sub),
            HirKind::Concat(parts) => {
                let parts = parts.iter().map(|part| self.part(part)).collect::<Option<Vec<PatternPart>>>()?;
                Some(self.concatenation(parts))
            }
            HirKind::Alternation(parts) => {
                let mut whole = PatternPart { nullable: false, first: Vec::new(), last: Vec::new() };
                for part in parts {
                    let part = self.part(part)?;
                    whole.nullable |= part.nullable;
                    whole.first.extend(part.first);
                    whole.last.extend(part.last);
                }
                Some(whole)
            }
            HirKind::Repetition(repetition) => {
                let mut part = self.part(&repetition.sub)?;
                if repetition.max != Some(1) {
                    self.joined(&part.last, &part.first);
                }
                match repetition.min {
                    0 => part.nullable = true,
                    1 => {}
                    // One repetition would not be enough, and how many there were is not kept track of.
                    _ => return None,
                }
                Some(part)
            }
            HirKind::Class(Class::Bytes(_)) | HirKind::Look(_) => None,
        }
    }

    fn class(&mut self, class: ClassUnicode) -> PatternPart {
        let at = self.list.len();
        let visible = class.iter().any(|range| !(range.start()..=range.end()).all(char::is_whitespace));
        self.list.push(Position { class, visible });
        PatternPart { nullable: false, first: vec![at], last: vec![at] }
    }

    fn concatenation(&mut self, parts: Vec<PatternPart>) -> PatternPart {
        let mut whole = PatternPart { nullable: true, first: Vec::new(), last: Vec::new() };
        for part in parts {
            self.joined(&whole.last, &part.first);
            if whole.nullable {
                whole.first.extend(&part.first);
            }
            if !part.nullable {
                whole.last.clear();
            }
            whole.last.extend(&part.last);
            whole.nullable &= part.nullable;
        }
        whole
    }

    fn joined(&mut self, before: &[usize], after: &[usize]) {
        self.follows.extend(before.iter().flat_map(|&a| after.iter().map(move |&b| (a, b))));
    }
}

fn one(c: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(c, c)])
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

    fn parts(pattern: &Pattern, left: char, right: char) -> bool {
        !pattern.may_join(Left::of(left), right) && pattern.always_matches(right)
    }

    #[test]
    fn words_part_before_a_space_and_where_letters_meet_digits() {
        let pattern = Pattern::new(QWEN2).unwrap();
        for (left, right) in [('a', ' '), ('.', ' '), ('é', ' '), ('日', ' '), ('1', '2'), ('a', '1'), ('的', '。')]
        {
            assert!(parts(&pattern, left, right), "{left:?} {right:?}");
        }
        for (left, right) in [(' ', ' '), (' ', 'a'), ('a', 'b'), ('.', 'a'), ('.', '\n'), ('\'', 's'), ('\n', 'a')] {
            assert!(!parts(&pattern, left, right), "{left:?} {right:?}");
        }
    }

    #[test]
    fn what_is_in_a_class_is_nothing_but_characters() {
        let pattern = Pattern::new(r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|\s+(?!\S)|\s+"##).unwrap();
        assert!(
            parts(&pattern, 'a', ' ') && pattern.may_join(Left::Is('+'), 'a') && !pattern.may_join(Left::Is('a'), '+')
        );
    }

    #[test]
    fn a_character_that_engines_may_disagree_about_parts_nothing() {
        let pattern = Pattern::new(QWEN2).unwrap();
        assert!(pattern.may_join(Left::Is('a'), '\u{1e030}') && !pattern.always_matches('\u{1e030}'));
        assert!(pattern.may_join(Left::of('\u{1e030}'), 'a'));
    }

    #[test]
    fn what_is_not_understood_is_no_pattern() {
        for expression in
            [r"\b\w+", r"(?<=a)b", r"a(?!b)", r"\p{L}++|\s", "a*", r"(a)\1", "a{2,3}", "a{1,3}+", "[[:alpha:]]", "^a"]
        {
            assert!(Pattern::new(expression).is_none(), "{expression}");
        }
    }
}
