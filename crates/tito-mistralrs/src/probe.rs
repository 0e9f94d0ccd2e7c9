//! A few positions computed before anything is served: a model that cannot compute is an error of loading.

use std::sync::Arc;

use candle_core::Tensor;
use mistralrs_core::Request;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{
    error::LoadError,
    sequence::{drain, submit},
    tap::only,
};
use crate::TokenId;

/// Positions computed at once, and then one by one: each is a way of its own through a model.
const PROMPT: usize = 4;
const OUTPUT: usize = 2;

/// Computes the logits that follow token 0, and checks that they are numbers and as many as `vocab_size`.
pub(super) async fn probe(
    requests: &mpsc::Sender<Request>,
    vocab_size: usize,
    max_model_len: usize,
) -> Result<(), LoadError> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&seen);
    let processor = move |logits: &Tensor, _: &[TokenId]| {
        report.lock().push(logits.to_vec1::<f32>().map_err(|error| error.to_string()));
        only(0)
    };
    let gone = || LoadError::Engine("the thread of the engine ended on its first tokens".to_owned());
    let output = OUTPUT.min(max_model_len.saturating_sub(1)).max(1);
    let prompt = vec![0; PROMPT.min(max_model_len.saturating_sub(output)).max(1)];
    let responses = submit(requests, prompt, output, Arc::new(processor)).await.map_err(|()| gone())?;
    let refusal = drain(responses).await;
    let positions = std::mem::take(&mut *seen.lock());
    match refusal {
        Some(refusal) => return Err(LoadError::Engine(refusal.to_string())),
        None if positions.len() < output => return Err(gone()),
        None => {}
    }
    positions.into_iter().try_for_each(|logits| verdict(&logits.map_err(LoadError::Engine)?, vocab_size))
}

fn verdict(logits: &[f32], vocab_size: usize) -> Result<(), LoadError> {
    if logits.len() != vocab_size {
        let width = logits.len();
        return Err(LoadError::Engine(format!("{width} logits for a vocabulary of {vocab_size}")));
    }
    if logits.iter().any(|logit| logit.is_nan()) {
        return Err(LoadError::Engine("the first logits are not numbers".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_must_be_numbers_and_as_many_as_the_vocabulary() {
        verdict(&[0.0, f32::NEG_INFINITY], 2).unwrap();
        verdict(&[0.0, 1.0], 3).unwrap_err();
        verdict(&[0.0, f32::NAN], 2).unwrap_err();
    }
}
