//! What a setting of config.json may be: alternatives, each of which a comparison has shown.

use serde_json::{Map, Value};

use super::config::ORIGINAL_LENGTH;

/// One alternative for the value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// The setting is not there.
    Absent,
    /// null.
    Null,
    /// true or false.
    Is(bool),
    /// This text.
    Word(&'static str),
    /// A positive whole number that the shapes of tensors follow, so that weights would not fit another one.
    Size,
    /// A positive whole number that only arithmetic reads.
    Count,
    /// A positive number that only arithmetic reads.
    Number,
    /// The part of a head that turns: a share of it that comes to an even number, so that nothing is rounded.
    RotaryPart,
    /// Heads as wide as the model divided by their number, for an engine that does not read their width.
    SharedWidth,
    /// A window that no sequence is longer than.
    WindowBeyondContext,
    /// A kind for each layer, where the only kinds are full attention and, if no sequence is longer than the window,
    /// sliding attention.
    AttentionOfLayers,
    /// Full attention, said of each layer.
    FullAttention,
    /// 0 or 1 for each layer.
    FlagOfLayers,
    /// Scaled rotary embeddings of this kind, with exactly these settings, each a positive number.
    Scaling(&'static str, &'static [&'static str]),
    /// Longrope where no sequence is longer than those of the original training, so that its short factors hold.
    ShortLongrope,
}

/// What a setting is judged in the light of.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) config: &'a Map<String, Value>,
    /// The longest sequence.
    pub(super) max_model_len: usize,
}

impl Allowed {
    /// Whether `value` is this alternative.
    pub(super) fn admits(self, value: Option<&Value>, model: Model<'_>) -> bool {
        let Some(value) = value else { return self == Self::Absent };
        match self {
            Self::Absent => false,
            Self::Null => value.is_null(),
            Self::Is(wanted) => *value == Value::Bool(wanted),
            Self::Word(wanted) => value == wanted,
            Self::Size | Self::Count => positive_integer(value).is_some(),
            Self::Number => positive(value),
            Self::RotaryPart => model.turns_whole_pairs(value),
            Self::SharedWidth => model.shared_width().is_some_and(|width| positive_integer(value) == Some(width)),
            Self::WindowBeyondContext => positive_integer(value).is_some_and(|window| window >= model.longest()),
            Self::AttentionOfLayers => model.each_layer(value, |layer| {
                layer == "full_attention" || (layer == "sliding_attention" && model.within_window())
            }),
            Self::FullAttention => model.each_layer(value, |layer| layer == "full_attention"),
            Self::FlagOfLayers => model.each_layer(value, |layer| matches!(layer.as_u64(), Some(0 | 1))),
            Self::Scaling(kind, keys) => is_scaling(value, kind, keys, positive),
            Self::ShortLongrope => {
                let within = model.size(ORIGINAL_LENGTH).is_some_and(|length| length >= model.longest());
                within && is_longrope(value)
            }
        }
    }
}

impl Model<'_> {
    /// The longest sequences for which the value of `key` is on the list, if that is what it lacks.
    pub(super) fn bound(&self, key: &str, alternatives: &[Allowed]) -> Option<u64> {
        let bounded_by = |allowed: &Allowed| match allowed {
            Allowed::WindowBeyondContext => Some(key),
            Allowed::AttentionOfLayers => Some("sliding_window"),
            Allowed::ShortLongrope => Some(ORIGINAL_LENGTH),
            _ => None,
        };
        let bound = alternatives.iter().find_map(bounded_by).and_then(|key| self.size(key))?;
        let max_model_len = usize::try_from(bound).ok().filter(|bound| *bound < self.max_model_len)?;
        let shorter = Model { max_model_len, ..*self };
        alternatives.iter().any(|allowed| allowed.admits(self.config.get(key), shorter)).then_some(bound)
    }

    fn longest(&self) -> u64 {
        self.max_model_len as u64
    }

    fn size(&self, key: &str) -> Option<u64> {
        self.config.get(key).and_then(positive_integer)
    }

    fn shared_width(&self) -> Option<u64> {
        let (width, heads) = (self.size("hidden_size")?, self.size("num_attention_heads")?);
        (width % heads == 0).then_some(width / heads)
    }

    fn turns_whole_pairs(&self, share: &Value) -> bool {
        let width = self.size("head_dim").or_else(|| self.shared_width());
        let share = share.as_f64().filter(|share| *share > 0.0 && *share <= 1.0);
        // Heads are no wider than 65,536, so that a pair too many or too few is no matter of rounding.
        let pairs = width.and_then(|width| u16::try_from(width).ok()).zip(share);
        pairs.is_some_and(|(width, share)| (f64::from(width) * share / 2.0).fract().abs() < 1e-9)
    }

    fn within_window(&self) -> bool {
        self.size("sliding_window").is_some_and(|window| window >= self.longest())
    }

    fn each_layer(&self, value: &Value, holds: impl Fn(&Value) -> bool) -> bool {
        let layers = value.as_array().map_or(&[][..], Vec::as_slice);
        self.size("num_hidden_layers") == Some(layers.len() as u64) && layers.iter().all(holds)
    }
}

fn positive_integer(value: &Value) -> Option<u64> {
    value.as_u64().filter(|number| *number > 0)
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0 && number.is_finite())
}

/// Whether `value` is longrope, with factors and nothing else; the original length may be repeated.
fn is_longrope(value: &Value) -> bool {
    let factors = |value: &Value| value.as_array().is_some_and(|factors| factors.iter().all(positive));
    let is_setting = |value: &Value| factors(value) || positive_integer(value).is_some();
    let keys = ["long_factor", "short_factor"];
    let factors_hold = keys.iter().all(|key| value.get(*key).is_some_and(factors));
    let repeated = ["long_factor", "short_factor", ORIGINAL_LENGTH];
    factors_hold
        && (is_scaling(value, "longrope", &keys, factors) || is_scaling(value, "longrope", &repeated, is_setting))
}

/// Whether `value` is scaling of this kind: its names for the kind, and exactly `keys`, whose values are as they must.
fn is_scaling(value: &Value, kind: &str, keys: &[&str], holds: impl Fn(&Value) -> bool) -> bool {
    let Some(scaling) = value.as_object() else { return false };
    let named = ["type", "rope_type"].iter().all(|name| scaling.get(*name).is_some_and(|value| value == kind));
    let whole = scaling.len() == keys.len() + 2;
    named && whole && keys.iter().all(|key| scaling.get(*key).is_some_and(&holds))
}
