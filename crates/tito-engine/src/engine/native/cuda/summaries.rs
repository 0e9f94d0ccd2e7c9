//! What is copied to the host of rows of logits that are taken in parts.

/// Summaries of some rows: for each of them as many numbers of each kind as a row has blocks.
pub(super) struct Summaries {
    pub(super) maxima: Vec<f32>,
    pub(super) raw: Vec<f64>,
    pub(super) scaled: Vec<f64>,
}
