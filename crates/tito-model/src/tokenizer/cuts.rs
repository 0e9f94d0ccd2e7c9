//! Places at which a text can be cut so that its parts have the ids of the whole, whatever surrounds them.
//!
//! The library encodes a text in four steps: it takes added tokens out, normalises what is between them, cuts that into
//! words, and puts each word into ids. A place is one of ours if every step does the same on either side of it without
//! the other side. Two kinds of places are proven so, both by a few characters around them:
//!
//! - An added token begins there, and none lies across it. The first step cuts there itself.
//! - No step holds the character before it and the one after it together: no added token contains both side by side, the
//!   normaliser changes neither because of the other, and the words end there by one of the splits or, where nothing
//!   splits, no token of the vocabulary contains both.
//!
//! A tokenizer with parts about which this is not known has no places, or those of the first kind only.

use std::collections::HashSet;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use tokenizers::{
    ModelWrapper, Normalizer, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
    normalizer::NormalizedString,
    pre_tokenizers::split::{Split, SplitPattern},
};

use super::{
    AddedToken,
    ascii_pairs::AsciiPairs,
    normal::Normal,
    pattern::{Left, Pattern},
};

/// The expression by which GPT-2 cuts, which the library has built in.
const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Where the texts of a tokenizer can be cut.
#[derive(Debug)]
pub(super) struct Cuts {
    added: Added,
    /// `None` where only added tokens cut.
    words: Option<Words>,
}

/// A place to cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Where the text before it ends.
    pub(super) end: usize,
    /// Where the text after it starts. That is one space further where the normaliser writes that space again.
    pub(super) start: usize,
}

/// What added tokens do to a cut.
#[derive(Debug)]
struct Added {
    /// The added tokens that are looked for in the text as it is.
    raw: AhoCorasick,
    raw_contents: Vec<String>,
    raw_pairs: Pairs,
    /// The pairs of added tokens that are looked for in what the normaliser makes of the text.
    normalized_pairs: Pairs,
    /// Whether one of the tokens swallows the white space to its left.
    lstrip: bool,
    /// The last characters of the tokens that swallow the white space to their right.
    rstrip: HashSet<char>,
}

/// Characters that stand side by side in some token.
#[derive(Debug, Default)]
struct Pairs {
    both: HashSet<(char, char)>,
    second: HashSet<char>,
}

impl Pairs {
    fn add(&mut self, token: &str) {
        for (first, second) in token.chars().zip(token.chars().skip(1)) {
            self.both.insert((first, second));
            self.second.insert(second);
        }
    }

    fn may_hold(&self, left: Left, right: char) -> bool {
        match left {
            Left::Is(c) => self.both.contains(&(c, right)),
            Left::Visible => self.second.contains(&right),
        }
    }
}

impl Added {
    /// The added tokens; `None` where one of them depends on what surrounds it.
    fn new(inner: &tokenizers::Tokenizer, tokens: &[AddedToken]) -> Option<Self> {
        let normalizes = inner.get_normalizer().is_some();
        let depends = |token: &AddedToken| {
            token.single_word || (normalizes && token.normalized && (token.lstrip || token.rstrip))
        };
        if tokens.iter().any(depends) {
            return None;
        }
        let tokens: Vec<&AddedToken> = tokens.iter().filter(|token| !token.content.is_empty()).collect();
        let raw_contents: Vec<String> =
            tokens.iter().filter(|token| !token.normalized).map(|token| token.content.clone()).collect();
        let raw = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(StartKind::Anchored)
            .build(&raw_contents)
            .ok()?;
        let (mut raw_pairs, mut normalized_pairs) = (Pairs::default(), Pairs::default());
        let mut rstrip = HashSet::new();
        for token in &tokens {
            let content = if token.normalized { normalized(inner, &token.content)? } else { token.content.clone() };
            let pairs = if token.normalized { &mut normalized_pairs } else { &mut raw_pairs };
            pairs.add(&content);
            rstrip.extend(content.chars().next_back().filter(|_| token.rstrip));
        }
        Some(Self {
            raw,
            raw_contents,
            raw_pairs,
            normalized_pairs,
            lstrip: tokens.iter().any(|token| token.lstrip),
            rstrip,
        })
    }

    /// Whether a token that is looked for in the text as it is begins at a place.
    fn begins(&self, text: &str, at: usize) -> bool {
        self.raw.find(Input::new(text).span(at..text.len()).anchored(Anchored::Yes)).is_some()
    }

    /// Whether one of them may end at a place.
    fn may_end(&self, text: &str, at: usize) -> bool {
        self.raw_contents.iter().any(|content| text[..at].ends_with(content.as_str()))
    }

    /// Whether white space on either side of a place could be swallowed by a token on the other side.
    fn may_strip(&self, left: char, right: char) -> bool {
        let left_is_swallowed = self.lstrip && left.is_whitespace();
        let right_is_swallowed =
            !self.rstrip.is_empty() && right.is_whitespace() && (left.is_whitespace() || self.rstrip.contains(&left));
        left_is_swallowed || right_is_swallowed
    }
}

/// What the normaliser makes of a text.
pub(super) fn normalized(inner: &tokenizers::Tokenizer, text: &str) -> Option<String> {
    let mut normalized = NormalizedString::from(text);
    if let Some(rules) = inner.get_normalizer() {
        rules.normalize(&mut normalized).ok()?;
    }
    Some(normalized.get().to_owned())
}

/// How the text between added tokens is cut into words.
#[derive(Debug)]
struct Words {
    normal: Normal,
    splits: Vec<Step>,
    /// What the vocabulary joins, for splits that do not cut before a space.
    joined: Option<Joined>,
}

/// One step of cutting into words.
#[derive(Debug)]
enum Step {
    /// Matches, and what is between them, are words.
    Matches(Pattern),
    /// Each such character is a word.
    Characters(fn(char) -> bool),
    /// Runs of numbers are words.
    Numbers,
    /// A word starts with this character, which stands for a space. The flag says whether texts are cut there.
    Marked(char, bool),
    /// A space is put in front of a word that has none.
    Prefixed,
    /// What a later step reads is written another way.
    Rewritten,
}

/// What a step does at a place between two characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The step cuts there, whatever surrounds the characters.
    Cuts,
    /// The step may or may not cut there, but does the same on either side.
    Keeps,
    /// What the step does there is not known.
    Unknown,
}

/// Characters of tokens that merges can make.
#[derive(Debug)]
struct Joined {
    pairs: Pairs,
    /// Characters that are tokens.
    single: HashSet<char>,
}

impl Words {
    fn new(inner: &tokenizers::Tokenizer) -> Option<Self> {
        let normal = Normal::new(inner.get_normalizer())?;
        let mut splits = Vec::new();
        if let Some(pre_tokenizer) = inner.get_pre_tokenizer() {
            add_steps(pre_tokenizer, inner.get_normalizer(), &mut splits)?;
        }
        let mut words = Self { normal, splits, joined: None };
        if words.effect('a', ' ') != Some(Effect::Cuts) {
            words.joined = Joined::new(inner.get_model());
        }
        Some(words)
    }

    /// What all splits do together; `None` where the normaliser may change one side because of the other.
    fn effect(&self, left: char, right: char) -> Option<Effect> {
        let (mut left, mut right) = self.normal.around(left, right)?;
        for step in &self.splits {
            match step.effect(left, right) {
                Effect::Keeps => {}
                decided => return Some(decided),
            }
            if let Step::Marked(mark, _) = step {
                let marked = |c: char| if c == ' ' { *mark } else { c };
                right = marked(right);
                left = if let Left::Is(c) = left { Left::Is(marked(c)) } else { left };
            }
        }
        Some(Effect::Keeps)
    }

    /// The character of which the model makes a token, where that is the same one whatever surrounds it.
    fn exactly(&self, c: char) -> Option<char> {
        let c = self.normal.exactly(c)?;
        let mark =
            self.splits.iter().find_map(|step| if let Step::Marked(mark, _) = step { Some(*mark) } else { None });
        Some(mark.filter(|_| c == ' ').unwrap_or(c))
    }

    fn cuts(&self, left: char, right: char) -> bool {
        match (self.effect(left, right), &self.joined) {
            (Some(Effect::Cuts), _) => true,
            (Some(Effect::Keeps), Some(joined)) => joined.parts(self.exactly(left), self.exactly(right)),
            _ => false,
        }
    }
}

impl Joined {
    /// What the model joins; `None` where tokens are found by anything but merging characters.
    fn new(model: &ModelWrapper) -> Option<Self> {
        let ModelWrapper::BPE(bpe) = model else { return None };
        let is_set = |affix: &Option<String>| affix.as_ref().is_some_and(|affix| !affix.is_empty());
        if is_set(&bpe.continuing_subword_prefix) || is_set(&bpe.end_of_word_suffix) {
            return None;
        }
        let (mut pairs, mut single) = (Pairs::default(), HashSet::new());
        for token in bpe.get_vocab().keys() {
            pairs.add(token);
            let mut characters = token.chars();
            if let (Some(c), None) = (characters.next(), characters.next()) {
                single.insert(c);
            }
        }
        Some(Self { pairs, single })
    }

    /// Whether no token reaches across the place. Both characters must be tokens, so that neither becomes bytes or is
    /// left out.
    fn parts(&self, left: Option<char>, right: Option<char>) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return false };
        self.single.contains(&left) && self.single.contains(&right) && !self.pairs.both.contains(&(left, right))
    }
}

impl Step {
    fn effect(&self, left: Left, right: char) -> Effect {
        match self {
            Self::Matches(pattern) if pattern.may_join(left, right) => Effect::Unknown,
            Self::Matches(pattern) if pattern.always_matches(right) => Effect::Cuts,
            Self::Characters(is_one) if is_one(right) => Effect::Cuts,
            Self::Matches(_) | Self::Characters(_) => Effect::Keeps,
            Self::Numbers => match (left, right.is_numeric()) {
                (Left::Is(left), right) if left.is_numeric() != right => Effect::Cuts,
                (_, true) => Effect::Unknown,
                (_, false) => Effect::Keeps,
            },
            Self::Marked(mark, cuts) if right == ' ' || right == *mark => {
                if *cuts {
                    Effect::Cuts
                } else {
                    Effect::Keeps
                }
            }
            Self::Prefixed if right == ' ' => Effect::Keeps,
            Self::Marked(..) | Self::Prefixed | Self::Rewritten => Effect::Unknown,
        }
    }
}

/// Appends the steps of a pre-tokenizer, in the order in which they run; `None` where one of them is not known.
fn add_steps(
    pre_tokenizer: &PreTokenizerWrapper,
    normalizer: Option<&NormalizerWrapper>,
    steps: &mut Vec<Step>,
) -> Option<()> {
    match pre_tokenizer {
        PreTokenizerWrapper::Sequence(sequence) => {
            for part in sequence.as_ref() {
                add_steps(part, normalizer, steps)?;
            }
        }
        PreTokenizerWrapper::ByteLevel(bytes) => {
            if bytes.add_prefix_space {
                steps.push(Step::Prefixed);
            }
            if bytes.use_regex {
                steps.push(Step::Matches(Pattern::new(GPT_2)?));
            }
            steps.push(Step::Rewritten);
        }
        PreTokenizerWrapper::Digits(digits) if digits.individual_digits => {
            steps.push(Step::Characters(char::is_numeric));
        }
        PreTokenizerWrapper::Digits(_) => steps.push(Step::Numbers),
        // It puts its mark before a text only where there is none, and a cut is followed by one.
        PreTokenizerWrapper::Metaspace(space) => {
            steps.push(Step::Marked(space.get_replacement(), space.get_split()));
        }
        PreTokenizerWrapper::Split(split) => steps.extend(split_step(split, normalizer)?),
        _ => return None,
    }
    Some(())
}

/// The steps of a split: none where it never finds anything, and `None` where nobody knows what it does.
fn split_step(split: &Split, normalizer: Option<&NormalizerWrapper>) -> Option<Vec<Step>> {
    let expression = match &split.pattern {
        SplitPattern::String(text) if Normal::new(normalizer)?.removes(text) && !split.invert => {
            return Some(Vec::new());
        }
        SplitPattern::String(text) => regex_syntax::escape(text),
        SplitPattern::Regex(expression) => expression.clone(),
    };
    match split.behavior {
        SplitDelimiterBehavior::Isolated => Some(vec![Step::Matches(Pattern::new(&expression)?)]),
        _ => None,
    }
}

impl Cuts {
    /// `None` where no place is known.
    pub(super) fn new(inner: &tokenizers::Tokenizer, added: &[AddedToken]) -> Option<Self> {
        Some(Self { added: Added::new(inner, added)?, words: Words::new(inner) })
    }

    /// Whether the offsets in a part of a text are those in the whole. They are not where the first part is treated
    /// apart, or where a cut leaves a space out.
    pub(super) fn keep_offsets(&self, inner: &tokenizers::Tokenizer) -> bool {
        let trims = |processor: &PostProcessorWrapper| match processor {
            PostProcessorWrapper::ByteLevel(bytes) => bytes.trim_offsets && bytes.add_prefix_space,
            PostProcessorWrapper::Roberta(roberta) => roberta.trim_offsets && roberta.add_prefix_space,
            _ => false,
        };
        let is_plain = match inner.get_post_processor() {
            Some(PostProcessorWrapper::Sequence(sequence)) => !sequence.as_ref().iter().any(trims),
            Some(processor) => !trims(processor),
            None => true,
        };
        is_plain && self.words.as_ref().is_none_or(|words| !words.normal.writes_a_space)
    }

    /// Whether the characters around a place let it be cut between words.
    fn between_words(&self, left: char, right: char) -> bool {
        let Some(words) = &self.words else { return false };
        let Some((normal_left, normal_right)) = words.normal.around(left, right) else { return false };
        !self.added.normalized_pairs.may_hold(normal_left, normal_right) && words.cuts(left, right)
    }

    /// The pairs of ASCII characters between which every text can be cut, whatever else surrounds the place.
    pub(super) fn between_ascii(&self) -> AsciiPairs {
        let leaves_spaces = self.words.as_ref().is_some_and(|words| !words.normal.writes_a_space);
        AsciiPairs::of(|left, right| leaves_spaces && self.is_parted(left, right) && self.between_words(left, right))
    }

    /// Whether no added token that is looked for in the text as it is joins two characters, or swallows one of them.
    fn is_parted(&self, left: char, right: char) -> bool {
        !self.added.raw_pairs.both.contains(&(left, right)) && !self.added.may_strip(left, right)
    }

    /// The cut at a place, if it is one. `memory` spares asking again about the same characters.
    fn at(&self, text: &str, at: usize, memory: &mut Memory) -> Option<Cut> {
        let (left, right) = (text[..at].chars().next_back()?, text[at..].chars().next()?);
        if !self.is_parted(left, right) {
            return None;
        }
        let key = (left, right);
        let between = if memory.last == Some(key) { memory.between } else { self.between_words(left, right) };
        *memory = Memory { last: Some(key), between };
        if !between {
            return self.added.begins(text, at).then_some(Cut { end: at, start: at });
        }
        if !self.words.as_ref().is_some_and(|words| words.normal.writes_a_space) {
            return Some(Cut { end: at, start: at });
        }
        // The normaliser puts what a space becomes in front of all that is between two added tokens: the space in the
        // middle of that is left to it, but not one after an added token, nor one in front of it.
        let start = at + 1;
        let is_in_the_middle = start < text.len() && !self.added.begins(text, start) && !self.added.may_end(text, at);
        (right == ' ' && is_in_the_middle).then_some(Cut { end: at, start })
    }

    /// The last cut in `text[from..to]`, its ends excluded.
    pub(super) fn last(&self, text: &str, from: usize, to: usize) -> Option<Cut> {
        let mut memory = Memory::default();
        let places = text.get(from..to)?.char_indices().rev().map(|(at, _)| from + at);
        places.take_while(|&at| at > from).find_map(|at| self.at(text, at, &mut memory))
    }

    /// The first cut in `text[from..to]`.
    pub(super) fn first(&self, text: &str, from: usize, to: usize) -> Option<Cut> {
        let mut memory = Memory::default();
        let places = text.get(from..to)?.char_indices().map(|(at, _)| from + at);
        places.filter(|&at| at > 0).find_map(|at| self.at(text, at, &mut memory))
    }
}

/// What was found of the two characters that were looked at last, since a run of one character has no cut for long.
#[derive(Debug, Default)]
struct Memory {
    last: Option<(char, char)>,
    between: bool,
}
