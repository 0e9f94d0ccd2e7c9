//! Limits on rendering: the templates of requests take turns, and a render ends when its client has gone.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::TurnError;
use crate::prompt::template::Patience;

/// So many templates of requests run at a time: each may take 64 MiB, and a processor for seconds.
const AT_A_TIME: usize = 2;

/// Lets only a few templates of requests run at a time.
#[derive(Debug)]
pub struct RequestTemplates(Arc<Semaphore>);

impl Default for RequestTemplates {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

impl RequestTemplates {
    /// Waits for a turn, which ends when the permit is dropped.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, TurnError> {
        Arc::clone(&self.0).acquire_owned().await.map_err(TurnError::internal)
    }
}

/// Ends the renders of a request when it is dropped, because nobody waits for them any more.
pub(super) struct GivesUp(pub(super) Patience);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::path::Path;
    use std::task::{Context, Waker};

    use indexmap::IndexMap;
    use time::OffsetDateTime;

    use crate::chat::Message;
    use crate::continuity::Carriers;
    use crate::engine::{EngineInfo, scripted::ScriptedEngine};
    use crate::model::ModelFiles;
    use crate::prompt::template::{ChatTemplate, Limit, Patience, TemplateError};
    use crate::prompt::{ChatPrompt, OnUnprovable, PromptError, PromptRenderer, Templates};
    use crate::turn::{PromptRequest, Turns};

    use super::*;

    fn turns() -> Arc<Turns> {
        let files = ModelFiles::open(Path::new("tests/fixtures/tiny-model")).unwrap();
        let tokenizer = Arc::new(files.tokenizer().unwrap());
        let eos = files.eos(&tokenizer).unwrap();
        let engine = ScriptedEngine::hashed(EngineInfo::scripted(tokenizer.vocab_size(), 64), Vec::new());
        let renderer = PromptRenderer::new(Templates::default(), tokenizer, &eos, OnUnprovable::Error);
        Arc::new(Turns::new(renderer, Arc::new(engine), &eos))
    }

    fn prompt(patience: &Patience) -> ChatPrompt {
        ChatPrompt {
            template: Some(Arc::new(ChatTemplate::new("a", IndexMap::new()).unwrap())),
            now: OffsetDateTime::UNIX_EPOCH,
            patience: patience.clone(),
            ..ChatPrompt::new(vec![Message::text("user", "a")])
        }
    }

    fn request(patience: &Patience) -> PromptRequest {
        let (prompt, carriers) = (prompt(patience), Carriers::default());
        PromptRequest {
            prompt,
            carriers,
            asks_for_continuity: false,
            truncation: None,
            must_fit: false,
            continues: None,
            said: None,
            wants_text: false,
        }
    }

    #[tokio::test]
    async fn a_render_that_nobody_waits_for_ends() {
        let (turns, patience) = (turns(), Patience::default());
        let mut prompting = Box::pin(turns.prompt(request(&patience)));
        drop(prompting.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        drop(prompting);
        let rendered = turns.renderer.render(&prompt(&patience));
        assert!(matches!(rendered, Err(PromptError::Template(TemplateError::Exceeded(Limit::Wanted)))), "{rendered:?}");
    }

    #[tokio::test]
    async fn few_templates_of_requests_run_at_a_time() {
        let turns = turns();
        let mut running = Vec::new();
        for _ in 0..AT_A_TIME {
            running.push(turns.request_templates.turn().await.unwrap());
        }
        let mut waiting = Box::pin(turns.prompt(request(&Patience::default())));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(turns.request_templates.0.available_permits(), 0);
        drop(running);
        waiting.await.map(|_| ()).unwrap();
        assert_eq!(turns.request_templates.0.available_permits(), AT_A_TIME);
    }
}
