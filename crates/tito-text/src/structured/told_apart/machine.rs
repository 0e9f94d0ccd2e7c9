//! Texts of a part as an automaton over bytes.

use std::collections::HashMap;

use llguidance::derivre::{RegexAst, RegexBuilder, StateID};

/// What the expression may cost.
const MOST_FUEL: u64 = 2_000_000;
const DEAD: u32 = u32::MAX;

/// An automaton. All its states lead to a text.
#[derive(Debug)]
pub(super) struct Machine {
    /// The class of each byte.
    classes: [u8; 256],
    count: usize,
    /// For each state, where each class leads to.
    table: Vec<u32>,
    accepting: Vec<bool>,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoMachine {
    /// It is no expression.
    Invalid,
    TooLarge,
}

impl Machine {
    pub(super) const START: u32 = 0;

    /// The automaton of an expression, if it has no more than so many states.
    pub(super) fn of(ast: &RegexAst, most_states: usize) -> Result<Self, NoMachine> {
        let mut builder = RegexBuilder::new();
        let expression = builder.mk(ast).map_err(|_| NoMachine::Invalid)?;
        let mut regex = builder.into_regex_limited(expression, MOST_FUEL).map_err(|_| NoMachine::TooLarge)?;
        let start = regex.initial_state();
        let (classes, bytes) = classes(|byte| regex.alpha().map(byte));
        let mut numbers = HashMap::from([(start, Self::START)]);
        let mut states = vec![start];
        let mut machine = Self { classes, count: bytes.len(), table: Vec::new(), accepting: Vec::new() };
        let mut at = 0;
        while let Some(&state) = states.get(at) {
            at += 1;
            machine.accepting.push(regex.is_accepting(state));
            for &byte in &bytes {
                let to = regex.transition(state, byte);
                if to == StateID::DEAD {
                    machine.table.push(DEAD);
                    continue;
                }
                let next = u32::try_from(states.len()).map_err(|_| NoMachine::TooLarge)?;
                let number = *numbers.entry(to).or_insert_with(|| {
                    states.push(to);
                    next
                });
                machine.table.push(number);
            }
            if states.len() > most_states || regex.alpha().has_error() {
                return Err(NoMachine::TooLarge);
            }
        }
        Ok(machine)
    }

    /// Where a byte leads to; `None` if no text goes on so.
    pub(super) fn step(&self, state: u32, byte: u8) -> Option<u32> {
        let to = self.table[state as usize * self.count + usize::from(self.classes[usize::from(byte)])];
        (to != DEAD).then_some(to)
    }

    /// How many states it has.
    pub(super) fn states(&self) -> usize {
        self.accepting.len()
    }

    pub(super) fn accepts(&self, state: u32) -> bool {
        self.accepting[state as usize]
    }
}

/// The class of each byte, numbered in order, and one byte of each class.
fn classes(of: impl Fn(u8) -> usize) -> ([u8; 256], Vec<u8>) {
    let mut numbers = HashMap::new();
    let mut bytes = Vec::new();
    let mut classes = [0; 256];
    for (byte, class) in (0..=u8::MAX).zip(classes.iter_mut()) {
        let next = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        *class = *numbers.entry(of(byte)).or_insert_with(|| {
            bytes.push(byte);
            next
        });
    }
    (classes, bytes)
}
