//! The splice of NeMo-RL: the template's ids after as many end tokens as the known part has.
//!
//! `nemo_rl/models/generation/openai_server_utils.py::replace_prefix_tokens` (7ea279abf). It checks nothing of what
//! the messages say, so it is only used when asked for (`--on-unprovable eos-count`). Names follow the original.

use super::UnprovableSplice;
use crate::TokenId;

/// Puts `model_prefix_token_ids` in the place of `template_prefix_token_ids`, which `template_token_ids` starts with
/// in spirit: up to its last end token.
///
/// - `eos_token_id`: the end token, which the template is taken to end every message of an assistant with;
/// - `model_prefix_token_ids`: what the model saw and sampled, with or without an end token;
/// - `template_prefix_token_ids`: the template's ids of the messages that these stand for;
/// - `template_token_ids`: the template's ids of the whole conversation.
///
/// Without model ids, the template's are the answer. What comes back starts with the model's ids and goes on with the
/// template's from the end token on that is the last of the prefix.
///
/// # Errors
///
/// [`UnprovableSplice::NoEosToken`] without `eos_token_id`; [`UnprovableSplice::EosNotFound`] where the prefix has no
/// end token, or more of them than the whole.
pub fn replace_prefix_tokens(
    eos_token_id: Option<TokenId>,
    model_prefix_token_ids: &[TokenId],
    template_prefix_token_ids: &[TokenId],
    template_token_ids: &[TokenId],
) -> Result<Vec<TokenId>, UnprovableSplice> {
    if model_prefix_token_ids.is_empty() {
        return Ok(template_token_ids.to_vec());
    }
    let eos = eos_token_id.ok_or(UnprovableSplice::NoEosToken)?;
    let kept = model_prefix_token_ids.strip_suffix(&[eos]).unwrap_or(model_prefix_token_ids);
    let count = template_prefix_token_ids.iter().filter(|&&id| id == eos).count();
    let mut places = template_token_ids.iter().enumerate().filter(|&(_, &id)| id == eos).map(|(place, _)| place);
    let place = count.checked_sub(1).and_then(|skipped| places.nth(skipped));
    let place = place.ok_or(UnprovableSplice::EosNotFound { count })?;
    Ok([kept, &template_token_ids[place..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The unit vectors of NeMo-RL's `test_openai_server_utils.py` and of its external plugin; the end token is 2.
    #[test]
    fn agrees_with_the_vectors_of_nemo_rl() {
        /// Model prefix, template prefix, template, expected.
        type Case<'a> = [&'a [u32]; 4];
        let cases: [Case<'_>; 6] = [
            [&[], &[9, 2], &[9, 2, 33, 44], &[9, 2, 33, 44]],
            [&[100, 2], &[9, 2, 9, 2], &[9, 2, 9, 2, 77, 88], &[100, 2, 77, 88]],
            [
                &[11, 12, 99, 99, 99, 55, 2],
                &[11, 12, 88, 88, 88, 56, 2],
                &[11, 12, 56, 2, 70, 71, 2, 40, 41],
                &[11, 12, 99, 99, 99, 55, 2, 70, 71, 2, 40, 41],
            ],
            [
                &[11, 12, 13, 40, 41, 220, 17, 2],
                &[11, 12, 13, 40, 41, 1001, 2],
                &[11, 12, 13, 40, 41, 1001, 2, 21, 22, 40, 41],
                &[11, 12, 13, 40, 41, 220, 17, 2, 21, 22, 40, 41],
            ],
            [&[10, 200, 201, 2], &[10, 100, 2], &[10, 100, 2, 20, 21], &[10, 200, 201, 2, 20, 21]],
            [
                &[10, 200, 2, 30, 201, 2],
                &[10, 100, 2, 30, 101, 2],
                &[10, 100, 2, 30, 101, 2, 40],
                &[10, 200, 2, 30, 201, 2, 40],
            ],
        ];
        for [model, prefix, template, expected] in cases {
            assert_eq!(replace_prefix_tokens(Some(2), model, prefix, template).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn refuses_what_nemo_rl_asserts() {
        let missing = replace_prefix_tokens(Some(2), &[7, 2], &[9, 9, 9], &[9, 9, 9, 2, 10]);
        assert_eq!(missing, Err(UnprovableSplice::EosNotFound { count: 0 }));
        assert_eq!(replace_prefix_tokens(None, &[1], &[1, 2], &[1, 2]), Err(UnprovableSplice::NoEosToken));
    }

    /// The shape of NeMo-RL's recorded Qwen3 conversation: 457 ids with end tokens at the same places, one id that the
    /// template spells otherwise, and prefixes that end after, at and before the end token.
    #[test]
    fn agrees_with_the_six_cases_of_the_long_conversation() {
        const EOS: u32 = 151_645;
        let mut template: Vec<u32> = (0..457).map(|place| 1000 + place).collect();
        for place in [247, 293, 440, 452] {
            template[place] = EOS;
        }
        let mut model = template.clone();
        (template[416], model[416]) = (382, 624);
        let end = template.len();
        for (known, expected) in [(&template, &template), (&model, &model)] {
            for (known_cut, prefix_cut) in [(16, 16), (17, 16), (16, 15), (17, 15)] {
                let (known, prefix) = (&known[..end - known_cut], &template[..end - prefix_cut]);
                assert_eq!(replace_prefix_tokens(Some(EOS), known, prefix, &template).as_ref(), Ok(expected));
            }
        }
    }
}
