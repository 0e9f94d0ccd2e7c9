//! A response, event by event.

use futures::{Stream, StreamExt};

use super::output::{Writer, Written};
use crate::{
    generation::Event,
    wire::{error::ApiError, responses::events::StreamEvent},
};

/// Returns the events of a response. When it has ended, the first of the remaining events comes with the whole
/// response.
pub(super) fn steps(
    events: impl Stream<Item = Result<(usize, Event), ApiError>> + Send + 'static,
    mut writer: Writer,
) -> impl Stream<Item = Result<(StreamEvent, Option<Written>), ApiError>> + Send + 'static {
    async_stream::try_stream! {
        for event in writer.begin() {
            yield (event, None);
        }
        let mut events = std::pin::pin!(events);
        while let Some(item) = events.next().await {
            for event in writer.push(item?.1)? {
                yield (event, None);
            }
        }
        let mut written = writer.finish()?;
        let events = std::mem::take(&mut written.events);
        let mut written = Some(written);
        for event in events {
            yield (event, written.take());
        }
    }
}
