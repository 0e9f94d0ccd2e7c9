//! All that is loaded of a model, and the API that is made of it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use time::UtcOffset;

use super::{
    adapters, capture, draft_model, engine,
    images::{self, ImageSide, RefusedImages},
    kv_events, model,
    progress::Progress,
    settings::{Settings, Store},
    store,
    text::TextSide,
};
use crate::{
    adapters::Adapters,
    continuity::Continuity,
    continuity_store::ContinuityStore,
    control::LoadedFiles,
    engine::Engine,
    generation::Generator,
    model::{ModelFiles, ModelSource},
    prompt::PromptRenderer,
    records::Responses,
    state::{Api, Readiness, ServedModels, ServerLoad},
    store::ResponseStore,
    telemetry::Metrics,
    trajectory::Trajectories,
    turn::{Policies, RequestTemplates, SamplingPolicy, StructuredOutputCompiler, Turns},
};

/// A model that can be served.
pub(super) struct Loaded {
    files: ModelFiles,
    /// The files of the weights, as they were before any was read.
    pub(super) weights: LoadedFiles,
    pub(super) text: TextSide,
    /// How requests sample that do not say it.
    sampling: SamplingPolicy,
    max_model_len: usize,
    /// The names under which the model and its adapters are served.
    pub(super) models: ServedModels,
    pub(super) metrics: Metrics,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) adapters: Arc<Adapters>,
    responses: Arc<dyn ResponseStore>,
    trajectories: Option<Arc<Trajectories>>,
    /// What keeps turns for other servers.
    store: Option<Arc<ContinuityStore>>,
    /// What reads the images of requests, or why there is nothing.
    images: Result<ImageSide, RefusedImages>,
}

impl Loaded {
    /// Loads what takes no time first, so that its errors come at once.
    pub(super) async fn load(settings: &Settings, progress: &Progress) -> anyhow::Result<Self> {
        adapters::check(&settings.adapters, progress)?;
        let device = engine::device(&settings.engine, progress)?;
        let mut files = model::files(&settings.model, progress).await?;
        settings.sampling.take_over(&mut files)?;
        let draft = draft_model::files(settings, progress).await?;
        let modules = adapters::find(&settings.adapters, &settings.model, progress).await?;
        let max_model_len = model::max_model_len(&settings.model, &files)?;
        let models = ServedModels::new(settings.model.name.clone(), settings.model.served_names.clone());
        // Before the stores, which may have what leaves at once, and the engine, which makes its handles while it loads.
        let metrics = Metrics::install(models.name(), max_model_len)?;
        let responses = store::open(&settings.store, progress)?;
        let trajectories = store::capture(settings.capture.as_ref(), progress)?;
        let text = TextSide::read(settings, &files, progress)?;
        let sampling = settings.sampling.policy(&files, &text.eos)?;
        let store = store::shared(settings.continuity_store.clone()).await;
        let weights = LoadedFiles::at(&weights_path(&files)?);
        let engine =
            engine::load(text.load_plan(settings, device, (&files, draft.as_ref()), max_model_len), progress).await?;
        let images = images::find(&*engine, &files, &text.tokenizer, settings.images.clone(), progress)?;
        let adapters = adapters::load(&engine, &settings.adapters, modules, &models, progress).await?;
        let models = models.with_adapters(Arc::clone(&adapters));
        Ok(Self {
            files,
            weights,
            text,
            sampling,
            max_model_len,
            models,
            metrics,
            engine,
            adapters,
            responses,
            trajectories,
            store,
            images,
        })
    }

    /// Makes the API of the model, on whose streams clients may stall for so long; `utc_offset` is the time zone of its templates.
    pub(super) fn into_api(
        self,
        settings: Settings,
        stream_stall_timeout: Option<Duration>,
        utc_offset: UtcOffset,
    ) -> anyhow::Result<Api> {
        let Self {
            files, text, sampling, max_model_len, models, engine, responses, trajectories, store, images, ..
        } = self;
        let (images, refused_images) = images.map_or_else(|refused| (None, refused), |side| (Some(side), None));
        let namespace = store.as_ref().map(|_| text.namespace(&settings, &files, models.name())).transpose()?;
        // What is in memory is this server's own.
        let outlives = matches!(settings.store, Store::Disk { .. });
        let fingerprint = outlives.then(|| text.fingerprint(&settings, &files, models.name())).transpose()?;
        let renderer =
            PromptRenderer::new(text.templates, Arc::clone(&text.tokenizer), &text.eos, settings.on_unprovable)
                .with_answer_formats(text.tools.answer_formats());
        let ends = sampling.eos_token_id.into_iter().chain(sampling.extra_eos_token_ids.iter().copied());
        let structured = StructuredOutputCompiler::new(Arc::clone(&text.tokenizer), ends).with_json(settings.json);
        let turns = Turns {
            renderer: renderer.with_harmony(text.harmony).with_images(images.as_ref().map(|images| images.marks)),
            generator: Generator::new(Arc::clone(&engine), text.tokenizer)
                .with_seed(settings.seed)
                .timing(settings.request_metrics)
                .logging(settings.request_log)
                .with_patience(stream_stall_timeout),
            continuity: Continuity::new(settings.continuity, engine.info().vocab_size).shared(namespace),
            structured: Arc::new(structured),
            policies: Policies { sampling, tools: text.tools, requests: settings.requests },
            max_model_len,
            utc_offset,
            request_templates: RequestTemplates::default(),
            capture: trajectories.map(|trajectories| capture::start(trajectories, &engine, models.name())),
            media: images.map(|images| images.media),
            refused_images,
            store,
        };
        Ok(Api {
            turns: Arc::new(turns),
            models,
            prompt_tokens_details: settings.prompt_tokens_details,
            request_metrics: settings.request_metrics,
            server_load: ServerLoad::new(settings.server_load),
            readiness: Readiness::default(),
            tokenizer_info: text.tokenizer_info,
            kv_events: settings.engine.kv_events.as_ref().map(kv_events::source),
            responses: Responses::new(responses, fingerprint),
            tinker: settings.tinker.then(Arc::default),
        })
    }
}

/// The file or directory from which weights are loaded, wherever the process is later.
fn weights_path(files: &ModelFiles) -> std::io::Result<PathBuf> {
    let (ModelSource::Directory { path } | ModelSource::Gguf { path }) = &files.source;
    std::path::absolute(path)
}
