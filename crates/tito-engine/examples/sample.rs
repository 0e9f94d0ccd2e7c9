//! Samples from tito's own engine, for a directory with config.json and safetensors:
//!
//!     cargo run --no-default-features --example sample -- tests/golden/native/llama 1 5 17
//!
//! Ids go in and come out, several sequences at a time, without HTTP and without text.

use std::{error::Error, fs, path::PathBuf, sync::Arc};

use futures::{StreamExt, executor::block_on, future::try_join_all};
use tito_engine::{
    TokenId,
    inference::{
        Engine, EngineError, EngineOutput, NativeEngine, NativeSettings, SamplingParams, SequenceRequest, TokenStream,
        WeightsSource,
    },
};

/// How many samples of the prompt are drawn.
const SAMPLES: u64 = 3;

#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("pass a model's directory, and the ids of a prompt")?);
    let prompt: Arc<[TokenId]> = arguments.map(|id| id.parse()).collect::<Result<_, _>>()?;

    // What the engine has to know of the model is in its config.json; all other settings have defaults.
    let config = serde_json::from_str(&fs::read_to_string(directory.join("config.json"))?)?;
    let settings = NativeSettings {
        max_model_len: 256,
        kv_cache_bytes: 64 << 20,
        ..NativeSettings::new(WeightsSource::Directory(directory), config)
    };
    let engine = NativeEngine::load(&settings, &mut |_loaded, _of| ())?;
    println!("{} on {}", engine.info().dtype, engine.info().device);

    // All samples are begun at once, so the engine computes them together, and the prompt once. A seed makes a sample
    // repeatable, whatever else is computed.
    let samples = (0..SAMPLES).map(|seed| {
        let params = SamplingParams { temperature: 0.7, seed: Some(seed), max_tokens: 8, ..SamplingParams::default() };
        let sampling = params.validated(engine.info().vocab_size)?;
        Ok(engine.generate(SequenceRequest::new(Arc::clone(&prompt), sampling)))
    });
    let streams = samples.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    for sample in block_on(try_join_all(streams.into_iter().map(read)))? {
        println!("{sample:?}");
    }
    Ok(())
}

/// Reads a sample to its end: the ids with their log-probs.
async fn read(mut outputs: TokenStream) -> Result<Vec<(TokenId, f32)>, EngineError> {
    let mut sampled = Vec::new();
    while let Some(output) = outputs.next().await {
        match output? {
            EngineOutput::Token(token) => sampled.push((token.id, token.logprob)),
            // The prompt is computed; or the sample ends, by a stop token or by `max_tokens`.
            EngineOutput::Prompt(_)
            | EngineOutput::Weights(_)
            | EngineOutput::Routes(_)
            | EngineOutput::Times(_)
            | EngineOutput::Finished(_) => {}
        }
    }
    Ok(sampled)
}
