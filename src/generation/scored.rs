//! The scores of a prompt that has several choices, and which weights they are of.

use super::{Completion, WeightSpan};
use crate::engine::PromptOutput;

/// What an answer with one prompt and several choices says of that prompt: what the engine said of the first choice, with
/// the weights that scored it where a choice began with others.
///
/// A prompt is scored with the weights that sample the first token after it. Nobody knows them where the first choice was
/// ended before that token and others were not, and then there are no scores.
pub(crate) fn scored_prompt(choices: &[Completion]) -> Option<(&PromptOutput, Option<WeightSpan>)> {
    let (first, others) = choices.split_first()?;
    let prompt = first.prompt.as_ref()?;
    let began_with = |span: &WeightSpan| (span.number, span.label.clone(), span.base.clone());
    let mut others = others.iter().filter_map(|choice| choice.weights.first());
    match first.weights.first() {
        None if others.next().is_some() => None,
        Some(span) if others.any(|other| began_with(&other) != began_with(&span)) => Some((prompt, Some(span))),
        _ => Some((prompt, None)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        engine::{SampledToken, WeightVersion, WeightsInUse},
        generation::{Delta, Event},
    };

    /// A choice that began with these weights, of an adapter and its base, or was ended before its first token.
    fn choice(began_with: Option<(&str, &str)>) -> Completion {
        let mut choice = Completion { prompt: Some(PromptOutput::default()), ..Completion::default() };
        if let Some((label, base)) = began_with {
            let token = SampledToken { id: 1, logprob: 0.0, rank: 1, top_logprobs: Vec::new(), sampling_mask: None };
            let version = Arc::new(WeightVersion { number: 1, label: label.into() });
            let weights = WeightsInUse { version, base: Some(base.into()), reuse_older_keys: false };
            let delta = Delta { tokens: vec![token], weights: vec![(0, weights)], ..Delta::default() };
            choice.push(Event::Delta(delta));
        }
        choice
    }

    #[test]
    fn the_weights_of_the_prompt_are_named_where_a_choice_began_with_others() {
        let scored = |began: &[Option<(&str, &str)>]| {
            let choices: Vec<Completion> = began.iter().copied().map(choice).collect();
            scored_prompt(&choices).map(|(_, of)| of.map(|of| (of.label.to_string(), of.base.unwrap().to_string())))
        };
        let (old, new, other_base) = (Some(("a@1", "base")), Some(("a@2", "base")), Some(("a@1", "7")));
        let named = Some(Some(("a@1".to_owned(), "base".to_owned())));
        for same in [&[old][..], &[old, old], &[old, None], &[None], &[None, None]] {
            assert_eq!(scored(same), Some(None), "{same:?}");
        }
        for mixed in [&[old, new][..], &[old, old, new], &[old, None, new], &[old, other_base]] {
            assert_eq!(scored(mixed), named, "{mixed:?}");
        }
        assert_eq!((scored(&[None, old]), scored(&[])), (None, None));
    }
}
