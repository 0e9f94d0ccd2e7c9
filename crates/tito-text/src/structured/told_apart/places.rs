//! The parts of an output that the lexer reads one after the other, and which may follow which (Glushkov's automaton).

use std::{collections::HashMap, sync::Arc};

use llguidance::derivre::RegexAst;

use super::machine::{Machine, NoMachine};
use crate::{
    TokenId,
    structured::{
        json_kinds::Kinds,
        lark::ANYTHING,
        pieces::{Expression, Json, Piece},
    },
};

/// The most places of an output.
const MOST_PLACES: usize = 10_000;
/// The most pairs of places of which one may follow the other.
const MOST_FOLLOWERS: usize = 1_000_000;
/// The most states of all automata together.
const MOST_STATES: usize = 200_000;

/// What the lexer reads at a place.
#[derive(Debug)]
pub(super) enum Kind {
    /// A text of these; `mark` is the free text that its first end ends.
    Text {
        machine: Arc<Machine>,
        mark: Option<usize>,
        /// The text, where there is only this one.
        fixed: Option<String>,
    },
    Special(TokenId),
    /// JSON after its first bracket, which may begin with these bytes.
    Rest(Box<[bool; 256]>),
}

/// A place of an output.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    /// What it is called in messages.
    pub(super) name: String,
    /// Whether it is all texts.
    pub(super) is_anything: bool,
    /// What it is of JSON.
    pub(super) json: Option<OfJson>,
}

/// What a place is of JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfJson {
    pub(super) part: JsonPart,
    /// Whether white space may stand in the JSON.
    pub(super) is_spaced: bool,
}

/// The part of a value that a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonPart {
    /// All of it, as it is a single token.
    Whole,
    /// Its first bracket.
    Bracket,
    /// What follows its first bracket.
    Rest,
}

impl Place {
    /// Whether it is the first bracket of JSON.
    pub(super) fn is_bracket(&self) -> bool {
        self.json.is_some_and(|json| json.part == JsonPart::Bracket)
    }

    /// Whether it begins JSON with white space in it.
    pub(super) fn begins_spaced(&self) -> bool {
        self.json.is_some_and(|json| json.is_spaced && json.part != JsonPart::Rest)
    }

    /// Whether it ends such JSON.
    pub(super) fn ends_spaced(&self) -> bool {
        self.json.is_some_and(|json| json.is_spaced && json.part != JsonPart::Bracket)
    }
}

/// All places.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) all: Vec<Place>,
    /// Those that an output may begin with.
    pub(super) first: Vec<usize>,
    /// For each place, those that may come next.
    pub(super) follow: Vec<Vec<usize>>,
}

/// A piece: what it may begin and end with, and whether it may be nothing.
struct Part {
    first: Vec<usize>,
    last: Vec<usize>,
    is_optional: bool,
}

impl Kind {
    /// The bytes that it may begin with; a special token begins with none.
    pub(super) fn first_bytes(&self) -> [bool; 256] {
        let mut bytes = [false; 256];
        match self {
            Self::Text { machine, .. } => {
                for (byte, may) in (0..=u8::MAX).zip(bytes.iter_mut()) {
                    *may = machine.step(Machine::START, byte).is_some();
                }
            }
            Self::Special(_) => {}
            Self::Rest(bytes) => return **bytes,
        }
        bytes
    }
}

impl Places {
    /// The places of an output; `Ok(None)` if something is no expression.
    pub(super) fn of(piece: &Piece) -> Result<Option<Self>, String> {
        let mut builder = Builder {
            places: Self::default(),
            machines: HashMap::new(),
            states_left: MOST_STATES,
            followers_left: MOST_FOLLOWERS,
        };
        match builder.part(piece) {
            Ok(part) => {
                let mut places = builder.places;
                places.first = part.first;
                for follow in &mut places.follow {
                    follow.sort_unstable();
                    follow.dedup();
                }
                Ok(Some(places))
            }
            Err(NoMachine::Invalid) => Ok(None),
            Err(NoMachine::TooLarge) => Err("it is too large to tell whether its parts can be told apart".to_owned()),
        }
    }

    pub(super) fn has_special(&self) -> bool {
        self.all.iter().any(|place| matches!(place.kind, Kind::Special(_)))
    }
}

struct Builder {
    places: Places,
    /// By what they are made of.
    machines: HashMap<String, Arc<Machine>>,
    states_left: usize,
    followers_left: usize,
}

impl Builder {
    fn part(&mut self, piece: &Piece) -> Result<Part, NoMachine> {
        match piece {
            Piece::Text(text) => {
                let machine = self.machine(format!("={text}"), || RegexAst::Literal(text.clone()))?;
                let fixed = Some(text.clone()).filter(|text| !text.is_empty());
                self.place(Kind::Text { machine, mark: None, fixed }, format!("the text {text:?}"))
            }
            Piece::Special(id) => self.place(Kind::Special(*id), "a special token".to_owned()),
            Piece::Expression(expression) => self.expression(expression),
            Piece::Until { end, excludes, group } => {
                let machine = self.machine(format!("<{end}\0{excludes:?}"), || {
                    RegexAst::Concat(vec![of_expression(ANYTHING, excludes), RegexAst::Literal(end.clone())])
                })?;
                self.text(machine, Some(*group), format!("free text up to {end:?}"))
            }
            Piece::Json(json) => self.json(json),
            Piece::Sequence(parts) => self.sequence(parts),
            Piece::Choice(parts) => {
                let parts = parts.iter().map(|part| self.part(part)).collect::<Result<Vec<_>, _>>()?;
                Ok(either(parts))
            }
            Piece::Repeated(part, operator) => {
                let mut part = self.part(part)?;
                if *operator != '?' {
                    self.connect(&part.last, &part.first)?;
                }
                part.is_optional |= *operator != '+';
                Ok(part)
            }
            Piece::Separated(part, separator) => {
                let (part, separator) = (self.part(part)?, self.part(separator)?);
                self.connect(&part.last, &separator.first)?;
                self.connect(&separator.last, &part.first)?;
                if part.is_optional {
                    self.connect(&separator.last, &separator.first)?;
                    let first = [&part.first[..], &separator.first].concat();
                    let last = [&part.last[..], &separator.last].concat();
                    return Ok(Part { first, last, is_optional: true });
                }
                Ok(part)
            }
        }
    }

    fn sequence(&mut self, parts: &[Piece]) -> Result<Part, NoMachine> {
        let mut all = Part { first: Vec::new(), last: Vec::new(), is_optional: true };
        for part in parts {
            let next = self.part(part)?;
            self.connect(&all.last, &next.first)?;
            if all.is_optional {
                all.first.extend(&next.first);
            }
            if !next.is_optional {
                all.last.clear();
            }
            all.last.extend(&next.last);
            all.is_optional &= next.is_optional;
        }
        Ok(all)
    }

    fn expression(&mut self, expression: &Expression) -> Result<Part, NoMachine> {
        let Expression { pattern, excludes, optional } = expression;
        let machine = self.machine(format!("/{pattern}\0{excludes:?}"), || of_expression(pattern, excludes))?;
        let accepts_nothing = machine.accepts(Machine::START);
        let mut part = self.text(machine, None, format!("the regex {pattern:?}"))?;
        part.is_optional = *optional || accepts_nothing;
        if *optional && let Some(place) = self.places.all.last_mut() {
            "free text".clone_into(&mut place.name);
            place.is_anything = excludes.is_empty();
        }
        Ok(part)
    }

    fn json(&mut self, json: &Json) -> Result<Part, NoMachine> {
        let kinds = Kinds::of(&json.given);
        let mut parts = Vec::new();
        for token in &kinds.tokens {
            let machine = self.machine(format!("/{token}"), || RegexAst::Regex(format!("(?:{token})")))?;
            let part = self.text(machine, None, "JSON".to_owned())?;
            self.of_json(&part, json, JsonPart::Whole);
            parts.push(part);
        }
        let values = br#"]"-0123456789tfn[{"#;
        for (is_one, open, begins) in [(kinds.object, "{", &b"}\""[..]), (kinds.array, "[", &values[..])] {
            if !is_one {
                continue;
            }
            let machine = self.machine(format!("={open}"), || RegexAst::Literal(open.to_owned()))?;
            let opening = self.text(machine, None, "JSON".to_owned())?;
            let mut bytes = [false; 256];
            begins.iter().chain(b" \t\r\n").for_each(|&byte| bytes[usize::from(byte)] = true);
            let rest = self.place(Kind::Rest(Box::new(bytes)), "JSON".to_owned())?;
            self.of_json(&opening, json, JsonPart::Bracket);
            self.of_json(&rest, json, JsonPart::Rest);
            self.connect(&opening.last, &rest.first)?;
            parts.push(Part { first: opening.first, last: rest.last, is_optional: false });
        }
        Ok(either(parts))
    }

    fn of_json(&mut self, places: &Part, json: &Json, part: JsonPart) {
        for &index in &places.first {
            self.places.all[index].json = Some(OfJson { part, is_spaced: json.is_spaced });
        }
    }

    fn machine(&mut self, key: String, ast: impl FnOnce() -> RegexAst) -> Result<Arc<Machine>, NoMachine> {
        if let Some(machine) = self.machines.get(&key) {
            return Ok(Arc::clone(machine));
        }
        let machine = Arc::new(Machine::of(&ast(), self.states_left)?);
        self.states_left = self.states_left.saturating_sub(machine.states());
        self.machines.insert(key, Arc::clone(&machine));
        Ok(machine)
    }

    fn text(&mut self, machine: Arc<Machine>, mark: Option<usize>, name: String) -> Result<Part, NoMachine> {
        self.place(Kind::Text { machine, mark, fixed: None }, name)
    }

    fn place(&mut self, kind: Kind, name: String) -> Result<Part, NoMachine> {
        let index = self.places.all.len();
        if index >= MOST_PLACES {
            return Err(NoMachine::TooLarge);
        }
        let place = Place { kind, name, is_anything: false, json: None };
        self.places.all.push(place);
        self.places.follow.push(Vec::new());
        Ok(Part { first: vec![index], last: vec![index], is_optional: false })
    }

    fn connect(&mut self, before: &[usize], next: &[usize]) -> Result<(), NoMachine> {
        let followers = before.len().saturating_mul(next.len());
        self.followers_left = self.followers_left.checked_sub(followers).ok_or(NoMachine::TooLarge)?;
        for &index in before {
            self.places.follow[index].extend(next);
        }
        Ok(())
    }
}

fn either(parts: Vec<Part>) -> Part {
    let mut all = Part { first: Vec::new(), last: Vec::new(), is_optional: false };
    for part in parts {
        all.first.extend(part.first);
        all.last.extend(part.last);
        all.is_optional |= part.is_optional;
    }
    all
}

fn of_expression(pattern: &str, excludes: &[String]) -> RegexAst {
    let expression = RegexAst::Regex(pattern.to_owned());
    match Expression::excluding(excludes) {
        None => expression,
        Some(others) => RegexAst::And(vec![expression, RegexAst::Not(Box::new(RegexAst::Regex(others)))]),
    }
}
