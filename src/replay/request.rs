//! From what is kept of a turn to the request that samples it again.

use std::sync::Arc;

use super::{captured::CapturedTurn, replayer::Replayer};
use crate::{
    engine::{Adapter, EngineInfo, Party, Routing},
    generation::GenerationRequest,
    media::Hold,
    sampling::{SamplingParams, SharedConstraint},
    structured::Demand,
    trajectory::{AdapterUsed, Generation, SamplingUsed},
    turn::{kept_images, kept_routes},
};

/// Why a turn cannot be sampled again.
#[derive(Debug)]
pub(super) struct Unrepeatable(pub(super) String);

/// The request that samples the first `tokens` of a turn again, with the ids that each is drawn from if the turn has masks, and
/// the memory of its images.
pub(super) async fn request(
    replayer: &Replayer,
    captured: &CapturedTurn,
    tokens: usize,
    has_masks: bool,
) -> Result<(GenerationRequest, Option<Hold>), Unrepeatable> {
    let (generation, prompt) = (&captured.turn.generation, captured.prompt());
    let refuse = |reason: &str| Err(Unrepeatable(reason.to_owned()));
    let Some(used) = &generation.sampling else { return refuse("its sampling was not kept") };
    if used.seed.is_none() && used.temperature > 0.0 {
        return refuse("its seed is not known");
    }
    let routing = routing(replayer, used, captured)?;
    let adapter = match &generation.adapter {
        None => None,
        Some(used) => Some(adapter(replayer, used)?),
    };
    let constraint = constraint(replayer, generation, used).await?;
    let EngineInfo { vocab_size, max_model_len, .. } = *replayer.generator.engine().info();
    let mut sampling = params(used, constraint, tokens)?;
    // However long a row may have been then, no row is longer than this.
    sampling.sampling_mask = has_masks.then_some(vocab_size);
    let sampling = sampling.validated(vocab_size).map_err(|error| unreadable(&error.to_string()))?;
    let most = prompt.len() + sampling.max_tokens;
    if most > max_model_len {
        return Err(Unrepeatable(format!(
            "it may have {most} ids, and the context is {max_model_len} (--max-model-len)"
        )));
    }
    let (images, hold) = kept_images(replayer.media.as_ref(), &captured.images).await.map_err(Unrepeatable)?;
    let request = GenerationRequest {
        prompt_token_ids: prompt,
        sequences: 1,
        party: replayer.owner.clone().map(Party::Client),
        sampling: Arc::new(sampling),
        prompt_logprobs: None,
        candidates: None,
        cache_salt: replayer.cache_salt.clone(),
        adapter,
        routing,
        images,
        text: Arc::default(),
        owner: replayer.owner.clone(),
        request_ids: Arc::new([]),
    };
    Ok((request, hold))
}

/// The experts that the prompt went through.
fn routing(replayer: &Replayer, used: &SamplingUsed, captured: &CapturedTurn) -> Result<Routing, Unrepeatable> {
    let given = match &captured.given_experts {
        None if used.gives_experts => {
            let reason = "its request said through which experts tokens go, which was not kept";
            return Err(Unrepeatable(reason.to_owned()));
        }
        None => None,
        Some(kept) => {
            let shape = replayer.generator.engine().route_shape();
            Some(kept_routes(kept, shape, captured.start()).map_err(Unrepeatable)?)
        }
    };
    Ok(Routing { shown_from: None, given })
}

/// The adapter with the same matrices, whatever it is called now; where they are not known, the one of the same name.
fn adapter(replayer: &Replayer, used: &AdapterUsed) -> Result<Arc<Adapter>, Unrepeatable> {
    let AdapterUsed { name, label, checksum } = used;
    let Some(checksum) = checksum else {
        let found = replayer.adapters.get(&**name).map(Arc::clone);
        return found.ok_or_else(|| {
            Unrepeatable(format!("the adapter {name} sampled it; name its directory by --lora-modules {name}=PATH"))
        });
    };
    let found = replayer.adapters.values().find(|adapter| adapter.checksum().to_string() == *checksum);
    found.map(Arc::clone).ok_or_else(|| {
        let loaded = match replayer.adapters.len() {
            0 => "no adapter is loaded".to_owned(),
            count => format!("none of the {count} adapters that are loaded has this checksum"),
        };
        Unrepeatable(format!(
            "the adapter {label} with the checksum {checksum} sampled it, and {loaded}; name its directory by \
             --lora-modules {name}=PATH"
        ))
    })
}

/// What the output had to keep to.
async fn constraint(
    replayer: &Replayer,
    generation: &Generation,
    used: &SamplingUsed,
) -> Result<Option<SharedConstraint>, Unrepeatable> {
    if !used.is_constrained {
        return Ok(None);
    }
    let Some(kept) = &generation.demand else {
        return Err(Unrepeatable("its grammar was not kept (--capture-texts false)".to_owned()));
    };
    let demand: Demand = serde_json::from_str(kept.get())
        .map_err(|error| Unrepeatable(format!("its grammar cannot be read: {error}")))?;
    let compiled = replayer.compiler.compile_again(demand, replayer.generator.engine().info().vocab_size).await;
    compiled.map_err(|error| Unrepeatable(format!("its grammar cannot be compiled: {error}")))
}

/// The parameters. Ends that the engine does not know of, like stop strings, cut a turn short, so no more than `tokens` are
/// asked for, where that does not change what may be sampled.
fn params(
    used: &SamplingUsed,
    constraint: Option<SharedConstraint>,
    tokens: usize,
) -> Result<SamplingParams, Unrepeatable> {
    Ok(SamplingParams {
        constraint,
        max_tokens: used.max_tokens.min(tokens.max(used.min_tokens)),
        ..used.params().ok_or_else(|| unreadable("logprobs_mode"))?
    })
}

fn unreadable(what: &str) -> Unrepeatable {
    Unrepeatable(format!("its sampling cannot be read: {what}"))
}
