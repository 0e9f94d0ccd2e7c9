//! Which weights computed which tokens of an answer.

use std::sync::Arc;

use super::Delta;
use crate::engine::{WeightVersion, WeightsInUse};

/// The weights of an answer's tokens, as far as they are sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WeightSpans {
    /// From which token on which weights computed.
    starts: Vec<(usize, WeightsInUse)>,
    tokens: usize,
}

/// Tokens that the same weights computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSpan {
    /// What the weights are called.
    pub label: Arc<str>,
    /// Where an adapter computed, what the weights of the base are called.
    pub base: Option<Arc<str>>,
    /// How often they had been replaced.
    pub number: u64,
    /// The first of the tokens.
    pub start: usize,
    /// The token after the last one.
    pub end: usize,
    /// Whether the weights read keys and values that older ones wrote.
    pub reuse_older_keys: bool,
}

impl WeightSpans {
    /// Adds what the next delta says.
    pub fn push(&mut self, delta: &Delta) {
        self.starts.extend(delta.weights.iter().map(|(token, weights)| (self.tokens + token, weights.clone())));
        self.tokens += delta.tokens.len();
    }

    /// The weights of the first token, if there is one.
    pub fn first(&self) -> Option<WeightSpan> {
        self.spans().into_iter().next()
    }

    /// What the weights of the last token are called, if there is one.
    pub fn latest(&self) -> Option<Arc<str>> {
        self.spans().pop().map(|span| span.label)
    }

    /// The spans, which cover all tokens without a gap.
    pub fn spans(&self) -> Vec<WeightSpan> {
        let mut spans: Vec<WeightSpan> = Vec::new();
        // What an engine says nothing of was computed by the weights that it was loaded with.
        if self.tokens > 0 && self.starts.first().is_none_or(|(start, _)| *start > 0) {
            spans.push(WeightSpan {
                label: WeightVersion::FIRST.into(),
                base: None,
                number: 0,
                start: 0,
                end: 0,
                reuse_older_keys: false,
            });
        }
        spans.extend(self.starts.iter().map(|(start, weights)| WeightSpan {
            label: Arc::clone(&weights.version.label),
            base: weights.base.clone(),
            number: weights.version.number,
            start: *start,
            end: 0,
            reuse_older_keys: weights.reuse_older_keys,
        }));
        let ends: Vec<usize> = spans.iter().skip(1).map(|span| span.start).chain([self.tokens]).collect();
        for (span, end) in spans.iter_mut().zip(ends) {
            span.end = end;
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::SampledToken;

    fn delta(tokens: usize, weights: &[(usize, u64)]) -> Delta {
        let token = SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs: Vec::new(), sampling_mask: None };
        let weights = weights.iter().map(|(token, number)| {
            let version = Arc::new(WeightVersion { number: *number, label: number.to_string().into() });
            (*token, WeightsInUse { version, base: None, reuse_older_keys: *number > 1 })
        });
        Delta { tokens: vec![token; tokens], weights: weights.collect(), ..Delta::default() }
    }

    fn span_rows(deltas: &[Delta]) -> Vec<(String, usize, usize, bool)> {
        let mut spans = WeightSpans::default();
        for delta in deltas {
            spans.push(delta);
        }
        let shown = spans.spans().into_iter();
        shown.map(|span| (span.label.to_string(), span.start, span.end, span.reuse_older_keys)).collect()
    }

    #[test]
    fn spans_cover_every_token_once() {
        assert_eq!(span_rows(&[]), []);
        assert_eq!(span_rows(&[delta(2, &[]), delta(1, &[])]), [("default".to_owned(), 0, 3, false)]);
        let changed = [delta(2, &[(0, 1)]), delta(3, &[(1, 2)]), delta(0, &[])];
        assert_eq!(span_rows(&changed), [("1".to_owned(), 0, 3, false), ("2".to_owned(), 3, 5, true)]);
    }

    #[test]
    fn deltas_that_are_joined_say_the_same() {
        let mut joined = delta(2, &[(0, 1)]);
        joined.push(delta(3, &[(1, 2)]));
        assert_eq!(span_rows(&[joined]), span_rows(&[delta(2, &[(0, 1)]), delta(3, &[(1, 2)])]));
    }
}
