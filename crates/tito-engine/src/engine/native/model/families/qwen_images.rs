//! Qwen 2.5 VL, Qwen 3 VL and Qwen 3.5: text of Qwen 2, 3 and 3.5, and a tower for images.
//!
//! As `modeling_qwen2_5_vl.py`, `modeling_qwen3_vl.py`, `modeling_qwen3_vl_moe.py`, `modeling_qwen3_5.py` and
//! `modeling_qwen3_5_moe.py` of transformers define them. Videos are not read: their placeholders are ordinary tokens.

use serde_json::{Map, Value, json};
use tito_images::{Layout, PatchShape};

use super::{
    super::{
        names::{FUSED_EXPERTS, Names, StackedNames},
        settings::{ConfigError, Settings},
        shape::{Axis, Ending, ImagesShape, Interpolation, ModelShape, TowerNames, TowerShape},
    },
    decoder::{MOST, MOST_HEADS, MOST_LAYERS, only},
    parts::{Read, WITHOUT_HEAD, of_text, within},
    qwen, qwen_hybrid,
};
use crate::{
    TokenId,
    engine::{
        ImageFrame,
        native::backend::{Gate, NormShape},
    },
};

/// No patch is larger.
const MOST_PIXELS: usize = 1 << 10;
/// What Qwen 2.5 VL and Qwen 3 VL call it.
const PLACEHOLDER: TokenId = 151_655;
/// What Qwen 3.5 calls it.
const PLACEHOLDER_3_5: TokenId = 248_056;
/// The epsilon of all norms of all towers.
const EPSILON: f32 = 1e-6;
/// How the names of a tower's tensors begin, in checkpoints and in memory.
const PARTS: &[&str] = &["visual.", "model.visual."];

/// What the tensors of all towers are called, and as much of the rest as there is.
pub(super) const NAMES: TowerNames = TowerNames {
    prefix: "",
    parts: PARTS,
    patch: "patch_embed.proj",
    patch_has_frames: true,
    positions: "pos_embed",
    class_token: "",
    query_key_norms: [""; 2],
    scales: [""; 2],
    first_norm: "",
    layers: "blocks.",
    norms: ["norm1", "norm2"],
    qkv: &["attn.qkv"],
    attention_output: "attn.proj",
    ups: &[],
    down: "",
    last_norm: "",
    merger: &[],
};

/// Where the text of Qwen 2.5 VL is: as a model of text alone, and as transformers has it in memory.
const BESIDE_TOWER: Names = Names {
    other_parts: PARTS,
    aliases: &[("model.language_model.", "model."), ("model.visual.", "visual.")],
    ..Names::LLAMA
};

/// Where that of the others is, which has its tower beside it.
pub(super) const WITH_TOWER: Names =
    Names { other_parts: PARTS, aliases: &[("visual.", "model.visual.")], ..WITHOUT_HEAD };

/// The text of Qwen 2.5 VL, whose published config has its settings beside that of the tower.
pub(super) fn qwen2_5(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut text = qwen2_5_text(settings)?;
    text.entry("rms_norm_eps").or_insert_with(|| json!(1e-5));
    only_default(&mut text)?;
    only(&Settings(&text), "use_sliding_window", &json!(false))?;
    of_text(settings, text, qwen::qwen2, &BESIDE_TOWER)
}

fn qwen2_5_text(settings: &Settings<'_>) -> Result<Map<String, Value>, ConfigError> {
    Ok(settings.get("text_config")?.unwrap_or_else(|| settings.0.clone()))
}

/// Qwen 2.5 VL.
pub(super) fn qwen2_5_with_images(settings: &Settings<'_>, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let sections = sections(&qwen2_5_text(settings)?, [16, 24, 24])?;
    let vision: Map<String, Value> = settings.require("vision_config")?;
    let vision = Settings(&vision);
    let common = tower(&vision, [14, 2, 2])?;
    let window = vision.size_or("window_size", 112, MOST)? / common.patch.merge / common.patch.side;
    if window == 0 {
        return Err(ConfigError::setting("window_size", "of `vision_config` is less than what is joined"));
    }
    let whole: Vec<usize> = vision.get("fullatt_block_indexes")?.unwrap_or_else(|| vec![7, 15, 23, 31]);
    only(&vision, "hidden_act", &json!("silu"))?;
    let tower = TowerShape {
        gate: Gate::Silu,
        layers: (0..common.layers.len()).map(|layer| whole.contains(&layer)).collect(),
        window,
        names: TowerNames {
            prefix: "visual.",
            ups: &["mlp.gate_proj", "mlp.up_proj"],
            down: "mlp.down_proj",
            merger: &["ln_q", "mlp.0", "mlp.2"],
            ..NAMES
        },
        ..common
    };
    images(settings, PLACEHOLDER, shape, one_after_the_other(sections), tower)
}

/// The text of Qwen 3 VL.
pub(super) fn qwen3(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    let mut text: Map<String, Value> = settings.require("text_config")?;
    text.entry("head_dim").or_insert_with(|| json!(128));
    qwen3_vl(settings, text, qwen::qwen3)
}

/// The text of the mixtures of Qwen 3 VL.
pub(super) fn qwen3_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    const TIED: &str = "tie_word_embeddings";
    let mut text: Map<String, Value> = settings.require("text_config")?;
    if settings.get::<bool>(TIED)?.is_some() {
        // What transformers writes for the text is its own default, and it reads the setting beside it.
        text.remove(TIED);
    }
    qwen3_vl(settings, text, text_of_mixtures)
}

/// The text of Qwen 3.5, whose layers with a recurrent state know no positions.
pub(super) fn qwen3_5(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    of_text(settings, settings.require("text_config")?, qwen_hybrid::qwen3_5, &WITH_TOWER)
}

/// That of its mixtures.
pub(super) fn qwen3_5_moe(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    of_text(settings, settings.require("text_config")?, qwen_hybrid::qwen3_5_moe, &WITH_TOWER)
}

/// The text of the mixtures of Qwen 3 VL: published experts are inputs by outputs, other than those of all relatives.
fn text_of_mixtures(settings: &Settings<'_>) -> Result<ModelShape, ConfigError> {
    const NORMALISED: &str = "norm_topk_prob";
    // The model's own code reads no such setting and divides by the sum.
    only(settings, NORMALISED, &json!(true))?;
    let mut config = settings.0.clone();
    config.insert(NORMALISED.to_owned(), json!(true));
    let mut shape = qwen::qwen3_moe(&Settings(&config))?;
    shape.names.fused_experts = Some(StackedNames { transposed: true, ..FUSED_EXPERTS });
    Ok(shape)
}

/// The text of Qwen 3 VL, from its own config.
fn qwen3_vl(settings: &Settings<'_>, mut text: Map<String, Value>, read: Read) -> Result<ModelShape, ConfigError> {
    only_default(&mut text)?;
    // Its text has no windows, whatever a config says.
    only(&Settings(&text), "use_sliding_window", &json!(false))?;
    of_text(settings, text, read, &WITH_TOWER)
}

/// Qwen 3 VL and its mixtures.
pub(super) fn qwen3_with_images(settings: &Settings<'_>, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let text: Map<String, Value> = settings.require("text_config")?;
    only_interleaved(&text)?;
    let sections = sections(&text, [24, 20, 20])?;
    let axes = interleaved(sections, sections.iter().sum());
    let vision: Map<String, Value> = settings.require("vision_config")?;
    let vision = Settings(&vision);
    let common = qwen3_tower(&vision)?;
    let deepstack: Vec<usize> = vision.get("deepstack_visual_indexes")?.unwrap_or_else(|| vec![8, 16, 24]);
    let ascends = deepstack.is_sorted_by(|one, next| one < next);
    if !ascends || deepstack.last().is_some_and(|last| *last >= common.layers.len()) {
        return Err(ConfigError::setting("deepstack_visual_indexes", "are not layers of the tower in their order"));
    }
    if deepstack.len() > shape.layers.len() {
        return Err(ConfigError::setting("deepstack_visual_indexes", "are more than the text has layers"));
    }
    images(settings, PLACEHOLDER, shape, axes, TowerShape { deepstack, ..common })
}

/// Qwen 3.5 and its mixtures, which read text alone without a tower.
pub(super) fn qwen3_5_with_images(settings: &Settings<'_>, shape: ModelShape) -> Result<ModelShape, ConfigError> {
    let Some(vision) = settings.get::<Map<String, Value>>("vision_config")? else { return Ok(shape) };
    let text: Map<String, Value> = settings.require("text_config")?;
    only_interleaved(&text)?;
    let sections = given_sections(&text)?.unwrap_or([11, 11, 10]);
    // Sections may be about more or fewer pairs than are rotated.
    let axes = interleaved(sections, rotated_pairs(&shape));
    let vision = Settings(&vision);
    only(&vision, "deepstack_visual_indexes", &json!([]))?;
    images(settings, PLACEHOLDER_3_5, shape, axes, qwen3_tower(&vision)?)
}

/// Which coordinates rotate pairs of numbers where each has a section of them.
pub(super) fn one_after_the_other(sections: [usize; 3]) -> Vec<Axis> {
    let axes = [Axis::Time, Axis::Row, Axis::Column].into_iter().zip(sections);
    axes.flat_map(|(axis, count)| std::iter::repeat_n(axis, count)).collect()
}

/// Which coordinates rotate so many pairs of numbers where they take turns: rows and columns as often as sections say.
fn interleaved(sections: [usize; 3], pairs: usize) -> Vec<Axis> {
    let axis = |pair: usize| match pair % 3 {
        1 if pair / 3 < sections[1] => Axis::Row,
        2 if pair / 3 < sections[2] => Axis::Column,
        _ => Axis::Time,
    };
    (0..pairs).map(axis).collect()
}

/// The tower of Qwen 3 VL and Qwen 3.5, without a deepstack.
fn qwen3_tower(vision: &Settings<'_>) -> Result<TowerShape, ConfigError> {
    let common = tower(vision, [16, 2, 2])?;
    only(vision, "hidden_act", &json!("gelu_pytorch_tanh"))?;
    Ok(TowerShape {
        gate: Gate::GeluTanhAlone,
        norm: NormShape { centred: true, ..common.norm },
        norm_bias: true,
        patch_bias: true,
        positions: Some(vision.size_or("num_position_embeddings", 2304, MOST)?),
        names: TowerNames {
            prefix: "model.visual.",
            ups: &["mlp.linear_fc1"],
            down: "mlp.linear_fc2",
            merger: &["norm", "linear_fc1", "linear_fc2"],
            ..NAMES
        },
        ..common
    })
}

/// What all towers read in the same words; layers attend to all patches, and nothing is learnt besides matrices.
pub(super) fn tower(vision: &Settings<'_>, [side, merge, frames]: [usize; 3]) -> Result<TowerShape, ConfigError> {
    for key in ["in_channels", "in_chans"] {
        only(vision, key, &json!(3))?;
    }
    let vision = vision.with_other_names(&[("num_attention_heads", "num_heads")])?;
    let vision = &Settings(&vision);
    let hidden = vision.size("hidden_size", MOST)?;
    let heads = vision.size("num_heads", MOST_HEADS)?;
    // A quarter of a head's pairs is turned by rows, and a quarter by columns.
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
        return Err(ConfigError::setting("num_heads", "of `vision_config` makes heads that are no multiple of 4 wide"));
    }
    let patch = PatchShape {
        side: vision.size_or("patch_size", side, MOST_PIXELS)?,
        merge: vision.size_or("spatial_merge_size", merge, MOST_PIXELS)?,
        frames: vision.size_or("temporal_patch_size", frames, MOST_PIXELS)?,
        layout: Layout::Plain,
    };
    Ok(TowerShape {
        hidden,
        heads,
        intermediate: vision.size("intermediate_size", MOST)?,
        gate: Gate::Silu,
        norm: NormShape { epsilon: EPSILON, offset: 0.0, centred: false },
        norm_bias: false,
        patch,
        biases: true,
        qkv_biases: true,
        query_key_norm: None,
        scaled: false,
        class_token: false,
        patch_bias: false,
        positions: None,
        interpolation: Interpolation::Linear,
        theta: Some(theta(vision)?),
        alternating: false,
        first_norm: false,
        layers: vec![true; vision.size("depth", MOST_LAYERS)?],
        window: 1,
        last_norm: false,
        ending: Ending::Joined,
        output: vision.size("out_hidden_size", MOST)?,
        deepstack: Vec::new(),
        names: NAMES,
    })
}

/// The base of frequencies of a tower: among the parameters, as transformers 5 writes it down, or by itself. The former counts
/// where both are there.
pub(super) fn theta(vision: &Settings<'_>) -> Result<f64, ConfigError> {
    const BASE: &str = "rope_theta";
    // The older name of the parameters, which transformers reads too. No tower is published with it.
    let older: Option<Map<String, Value>> = vision.get("rope_scaling")?;
    if older.is_some_and(|older| !older.is_empty()) {
        return Err(ConfigError::setting("rope_scaling", "of `vision_config` is not supported"));
    }
    let parameters: Map<String, Value> = vision.get("rope_parameters")?.unwrap_or_default();
    let parameters = Settings(&parameters);
    only(&parameters, "rope_type", &json!("axial"))?;
    let theta = parameters.get(BASE)?.map_or_else(|| vision.get(BASE), |theta| Ok(Some(theta)))?;
    match theta.unwrap_or(10_000.0) {
        theta if theta > 1.0 && f64::is_finite(theta) => Ok(theta),
        _ => Err(ConfigError::setting(BASE, "of `vision_config` is not over 1")),
    }
}

/// Puts the tower and the text together.
pub(super) fn images(
    settings: &Settings<'_>,
    placeholder: TokenId,
    mut text: ModelShape,
    axes: Vec<Axis>,
    tower: TowerShape,
) -> Result<ModelShape, ConfigError> {
    let placeholder: TokenId = settings.get("image_token_id")?.unwrap_or(placeholder);
    let placeholder = within("image_token_id", placeholder, text.vocab_size)?;
    if tower.output != text.hidden {
        let (output, hidden) = (tower.output, text.hidden);
        let reason = format!("of `vision_config` is {output}, and states of the text have {hidden} numbers");
        return Err(ConfigError::setting("out_hidden_size", reason));
    }
    let pairs = rotated_pairs(&text);
    if axes.len() != pairs {
        let reason = format!("is about {} pairs of numbers, and a head has {pairs}", axes.len());
        return Err(ConfigError::setting("mrope_section", reason));
    }
    text.images = Some(ImagesShape { placeholder, frame: ImageFrame::VISION, axes, both_ways: false, tower });
    text.names.other_parts = &[];
    Ok(text)
}

/// How many pairs of numbers of a head are rotated.
fn rotated_pairs(text: &ModelShape) -> usize {
    text.ropes.first().map_or(0, |rope| rope.frequencies.len())
}

/// Keys under which the parameters of the text's rotary embeddings are.
const PARAMETERS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// The parameters of the text's rotary embeddings, under each of their keys.
pub(super) fn parameters(text: &Map<String, Value>) -> impl Iterator<Item = Settings<'_>> {
    PARAMETERS.into_iter().filter_map(|key| text.get(key)?.as_object()).map(Settings)
}

/// Which pairs of numbers are rotated by which coordinates, where it is said.
fn given_sections(text: &Map<String, Value>) -> Result<Option<[usize; 3]>, ConfigError> {
    let mut found: Option<[usize; 3]> = None;
    for parameters in parameters(text) {
        let given: Option<[usize; 3]> = parameters.get("mrope_section")?;
        if given.is_some() && found.is_some() && given != found {
            return Err(ConfigError::setting("mrope_section", "of `rope_scaling` is another one"));
        }
        found = given.or(found);
    }
    Ok(found)
}

/// The same where all pairs are about, and these sections where none are given.
pub(super) fn sections(text: &Map<String, Value>, default: [usize; 3]) -> Result<[usize; 3], ConfigError> {
    let sections = given_sections(text)?.unwrap_or(default);
    match sections.into_iter().try_fold(0, usize::checked_add) {
        Some(pairs) if pairs <= MOST_HEADS => Ok(sections),
        _ => Err(ConfigError::setting("mrope_section", "is about more numbers than a head has")),
    }
}

/// Refuses frequencies other than as they are. What is left is read as for text alone.
pub(super) fn only_default(text: &mut Map<String, Value>) -> Result<(), ConfigError> {
    for key in PARAMETERS {
        let Some(Value::Object(parameters)) = text.get_mut(key) else { continue };
        for key in ["type", "rope_type"] {
            // As transformers 4 called what all models of these families do.
            if parameters.get(key).and_then(Value::as_str) == Some("mrope") {
                parameters.insert(key.to_owned(), json!("default"));
            }
            only(&Settings(parameters), key, &json!("default"))?;
        }
    }
    Ok(())
}

/// Refuses coordinates that do not take turns among pairs; they do so unless it is denied.
fn only_interleaved(text: &Map<String, Value>) -> Result<(), ConfigError> {
    for parameters in parameters(text) {
        if parameters.get("mrope_interleaved")? == Some(false) {
            return Err(ConfigError::setting("mrope_interleaved", "other than true is not supported"));
        }
    }
    Ok(())
}
