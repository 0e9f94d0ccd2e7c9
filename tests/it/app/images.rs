//! What a [`TestApp`] needs to see images: marks in the vocabulary, a template that writes them, a processor.

use std::ops::Range;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tito::{
    TokenId,
    engine::scripted::ScriptedEngine,
    images::ImageProcessor,
    media::{HostPolicy, MediaPolicy, MediaReader},
    prompt::{ImageForm, ImageMarks, ImageTemplate},
    tokenizer::{AddedToken, Tokenizer},
};

use super::TestApp;

/// Three ids for images. Where images have rows, the first one breaks them, and the last one ends the image.
pub(crate) struct MarkIds {
    pub(crate) opens: TokenId,
    pub(crate) placeholder: TokenId,
    pub(crate) closes: TokenId,
}

/// Those that the tiny tokenizer gets.
pub(crate) const MARKS: MarkIds = MarkIds { opens: 326, placeholder: 327, closes: 328 };
/// What they are called.
pub(crate) const NAMES: [&str; 3] = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];
/// What they are called in Gemma 3.
pub(crate) const NAMES_OF_GEMMA: [&str; 3] = ["<start_of_image>", "<image_soft_token>", "<end_of_image>"];
/// What they are called in Mistral 3.
pub(crate) const NAMES_OF_MISTRAL: [&str; 3] = ["[IMG_BREAK]", "[IMG]", "[IMG_END]"];
/// What they are called in `InternVL`.
pub(crate) const NAMES_OF_INTERNVL: [&str; 3] = ["<img>", "<IMG_CONTEXT>", "</img>"];
/// What they are called in GLM-4.1V.
pub(crate) const NAMES_OF_GLM: [&str; 3] = ["<|begin_of_image|>", "<|image|>", "<|end_of_image|>"];
/// The first of the ids that runs of newlines get there, from two to four.
pub(crate) const NEWLINES: TokenId = 329;

/// How a model shows images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// The template writes all marks, and sizes decide how many placeholders an image has.
    Qwen,
    /// The template writes the first mark alone, runs of newlines are single tokens, and every image has four placeholders.
    Gemma,
    /// The template writes one placeholder, and the rows of an image have ends.
    Mistral,
    /// The template writes one placeholder, the marks belong to the image, and its shape decides how many squares it has, of
    /// four placeholders each.
    InternVl,
    /// As Qwen, but for the names of marks and for the sizes.
    Glm,
}

impl Family {
    pub(crate) fn marks(self) -> ImageMarks {
        let MarkIds { opens, placeholder, closes } = MARKS;
        let form = match self {
            Self::Qwen | Self::Glm => ImageForm::Between { opens, closes, template: ImageTemplate::Marks },
            Self::Gemma => ImageForm::Between { opens, closes, template: ImageTemplate::Opening },
            Self::Mistral => ImageForm::Rows { breaks: opens, ends: closes },
            Self::InternVl => ImageForm::Around { opens, closes },
        };
        ImageMarks { placeholder, form }
    }

    /// Whether what shows one image is at `range` of a prompt, and nothing else is there.
    pub(crate) fn shows(self, prompt: &[TokenId], range: &Range<usize>) -> bool {
        let MarkIds { opens, placeholder, closes } = MARKS;
        let own = &prompt[range.clone()];
        if self == Self::Mistral {
            let columns = own.iter().take_while(|&&id| id == placeholder).count();
            let row = [vec![placeholder; columns], vec![opens]].concat();
            let mut whole = row.repeat(own.len() / row.len());
            whole.pop();
            whole.push(closes);
            return whole == own;
        }
        if self == Self::InternVl {
            let [first, inner @ .., last] = own else { return false };
            let parts = inner.len().is_multiple_of(4) && inner.iter().all(|&id| id == placeholder);
            return *first == opens && *last == closes && !inner.is_empty() && parts;
        }
        prompt[range.start - 1] == opens && prompt[range.end] == closes && own.iter().all(|&id| id == placeholder)
    }

    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Qwen => NAMES,
            Self::Gemma => NAMES_OF_GEMMA,
            Self::Mistral => NAMES_OF_MISTRAL,
            Self::InternVl => NAMES_OF_INTERNVL,
            Self::Glm => NAMES_OF_GLM,
        }
    }

    pub(super) fn template(self) -> String {
        match self {
            Self::Qwen => TEMPLATE.to_owned(),
            Self::Gemma => TEMPLATE.replace(&NAMES.concat(), NAMES_OF_GEMMA[0]),
            Self::Mistral => TEMPLATE.replace(&NAMES.concat(), NAMES_OF_MISTRAL[1]),
            // With a newline after it, as published.
            Self::InternVl => TEMPLATE.replace(&NAMES.concat(), "<IMG_CONTEXT>\n"),
            Self::Glm => TEMPLATE.replace(&NAMES.concat(), &NAMES_OF_GLM.concat()),
        }
    }
}

/// As the templates of Qwen2.5-VL and Qwen3-VL write messages, their parts and the results of tools.
pub(crate) const TEMPLATE: &str = "{%- for message in messages %}\
    {%- if message.role == 'tool' %}{{- '<|im_start|>user\n<tool_response>\n' }}\
    {%- else %}{{- '<|im_start|>' + message.role + '\n' }}{%- endif %}\
    {%- if message.content is string %}{{- message.content }}{%- else %}\
    {%- for part in message.content %}{%- if part.type == 'image' or 'image_url' in part %}\
    {{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- else %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}\
    {%- if message.role == 'tool' %}{{- '\n</tool_response>' }}{%- endif %}\
    {%- for call in message.tool_calls or [] %}{{- '\n<tool_call>\n{\"name\": \"' + call.function.name + \
    '\", \"arguments\": ' + (call.function.arguments | tojson) + '}\n</tool_call>' }}{%- endfor %}\
    {{- '<|im_end|>\n' }}{%- endfor %}\
    {%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

impl TestApp {
    /// The model sees images.
    pub(crate) fn sees_images(self) -> Self {
        self.sees_images_by(policy())
    }

    /// The model would see images, which are refused for this reason.
    pub(crate) fn refuses_images(self, reason: &'static str) -> Self {
        self.with(|recipe| recipe.refused_images = Some(reason))
    }

    /// The model sees images of this kind.
    pub(crate) fn sees_images_by(self, policy: MediaPolicy) -> Self {
        self.with(|recipe| recipe.images = Some(policy))
    }

    /// The model sees images as this family does.
    pub(crate) fn sees_images_as(self, family: Family) -> Self {
        self.sees_images().with(|recipe| recipe.image_family = family)
    }

    /// The images of the last request, by position and identity.
    pub(crate) fn prompt_images(&self) -> Vec<(Range<usize>, String)> {
        let images = self.served().engine.latest_images();
        images.iter().map(|image| (image.placeholders(), image.image.identity().to_string())).collect()
    }

    /// What a tower reads of the images of the last request.
    pub(crate) fn prompt_pixels(&self) -> Vec<Vec<f32>> {
        self.served().engine.latest_images().iter().map(|image| image.image.patches()).collect()
    }
}

/// The tokenizer with the marks.
pub(crate) fn with_marks(tokenizer: Tokenizer, family: Family) -> Tokenizer {
    let ids = [MARKS.opens, MARKS.placeholder, MARKS.closes];
    let marks = ids.iter().zip(family.names()).map(|(&id, name)| AddedToken::verbatim(id, name, true));
    let runs = (NEWLINES..).zip(2..5).filter(|_| family == Family::Gemma);
    let runs = runs.map(|(id, length)| AddedToken::verbatim(id, "\n".repeat(length), false));
    let tokenizer = tokenizer.with_added_tokens(&marks.chain(runs).collect::<Vec<_>>()).unwrap();
    for (id, name) in ids.into_iter().zip(family.names()) {
        assert_eq!(tokenizer.id_of(name), Some(id));
    }
    tokenizer
}

/// The engine, which reads images if it is to.
pub(super) fn reading(engine: ScriptedEngine, images: bool) -> ScriptedEngine {
    if images { engine.reading_images(MARKS.placeholder) } else { engine }
}

/// A few images as `data:` URLs.
pub(crate) fn policy() -> MediaPolicy {
    MediaPolicy {
        images_per_prompt: 8,
        local_path: None,
        hosts: HostPolicy::default(),
        cache_bytes: 1 << 24,
        held_bytes: 1 << 24,
        keeps_files: true,
    }
}

/// Reads images as Qwen2.5-VL does, with at most 64 placeholders each, or as Gemma 3, Mistral 3, `InternVL` or GLM-4.1V.
pub(crate) fn media(policy: MediaPolicy, family: Family) -> MediaReader {
    let (config, size) = match family {
        Family::Qwen => (
            json!({"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}}),
            json!({"shortest_edge": 4 * 28 * 28, "longest_edge": 64 * 28 * 28}),
        ),
        Family::Gemma => (
            json!({"model_type": "gemma3", "mm_tokens_per_image": 4, "vision_config": {"image_size": 28, "patch_size": 7}}),
            json!({"height": 28, "width": 28}),
        ),
        Family::Mistral => (
            json!({"model_type": "mistral3", "spatial_merge_size": 2, "vision_config": {"patch_size": 14}}),
            json!({"longest_edge": 224}),
        ),
        Family::InternVl => (
            json!({"model_type": "internvl", "image_seq_length": 4, "vision_config": {"image_size": 28, "patch_size": 7}}),
            json!({"height": 28, "width": 28}),
        ),
        Family::Glm => (
            json!({"model_type": "glm4v", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}}),
            json!({"shortest_edge": 2 * 4 * 28 * 28, "longest_edge": 2 * 64 * 28 * 28}),
        ),
    };
    let processor = ImageProcessor::of_model(&config, &json!({"size": size})).unwrap();
    MediaReader::new(processor, policy).unwrap()
}

/// A PNG file of one colour.
pub(crate) fn png(width: u32, height: u32, colour: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&vec![colour; (width * height) as usize]).unwrap();
    writer.finish().unwrap();
    file
}

/// The URL of a file.
pub(crate) fn data_url(file: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(file))
}

/// The part of a chat that has an image of one colour.
pub(crate) fn image_part(width: u32, height: u32, colour: u8) -> Value {
    json!({"type": "image_url", "image_url": {"url": data_url(&png(width, height, colour))}})
}

/// How often the placeholder stands between the marks in ids.
pub(crate) fn placeholders(ids: &[TokenId]) -> usize {
    ids.iter().filter(|&&id| id == MARKS.placeholder).count()
}
