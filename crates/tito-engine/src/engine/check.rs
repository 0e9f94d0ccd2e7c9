//! Which requests an engine can serve at all: the same answer for every engine.

use super::{Engine, EngineError, EngineInfo, ImageReading, SequenceRequest, images};

impl EngineInfo {
    /// Refuses what no load or luck could make servable by `engine`, which this is the description of.
    pub fn check(&self, request: &SequenceRequest, engine: &dyn Engine) -> Result<(), EngineError> {
        let routes = engine.route_shape();
        let prompt = &request.prompt_token_ids;
        let (max_tokens, longest) = (request.sampling.max_tokens, self.max_model_len);
        let unsupported = |reason: String| Err(EngineError::Unsupported(reason));
        if prompt.is_empty() {
            return unsupported("the prompt is empty".to_owned());
        }
        if max_tokens == 0 {
            return unsupported("max_completion_tokens is 0".to_owned());
        }
        if prompt.len().saturating_add(max_tokens) > longest {
            let length = prompt.len();
            return unsupported(format!(
                "a prompt of {length} tokens and max_completion_tokens of {max_tokens} exceed the context of {longest} tokens"
            ));
        }
        if request.adapter.is_some() && engine.adapters().is_none() {
            return unsupported(format!("the {} engine serves no adapters here", self.engine));
        }
        match engine.images() {
            _ if request.images.is_empty() => {}
            None => return unsupported(format!("the {} engine reads no images here", self.engine)),
            Some(ImageReading { placeholder, .. }) => images::check(&request.images, prompt, placeholder)?,
        }
        let routing = &request.routing;
        if !routing.is_default() && routes.is_none() {
            return unsupported(format!("the {} engine has no mixtures of experts here", self.engine));
        }
        if routing.given.iter().any(|given| routes.is_some_and(|shape| !given.fit(shape))) {
            return unsupported("the given routes are those of another model".to_owned());
        }
        if routing.shown_from.is_some_and(|first| first > prompt.len()) {
            return unsupported("the routes of the prompt begin after its end".to_owned());
        }
        match prompt.iter().find(|id| **id as usize >= self.vocab_size) {
            Some(id) => unsupported(format!("token id {id} is out of vocabulary")),
            None => Ok(()),
        }
    }
}
