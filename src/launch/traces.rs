//! Where traces of requests are sent.

use anyhow::anyhow;

use super::progress::Progress;
use crate::otlp::{OtlpSettings, Prepared};

/// Makes ready to send them, where that is asked for, and says where they go.
pub(super) fn prepare(settings: Option<OtlpSettings>, progress: &Progress) -> anyhow::Result<Option<Prepared>> {
    let Some(settings) = settings else { return Ok(None) };
    let prepared = Prepared::new(settings).map_err(|reason| anyhow!("--otlp-traces-endpoint: {reason}"))?;
    progress.say(&format!("traces of requests go to {}", prepared.shown()));
    Ok(Some(prepared))
}
