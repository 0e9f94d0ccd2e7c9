//! A model while it is read: its settings, its lengths, what config.json will say, and its tensors.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    super::{GgufError, GgufFile},
    lines::{Dim, Line, Sizes, grouped, line},
    rope,
    settings::Settings,
    tables::{ENDS, EXPERTS, GATE_AND_UP, HEAD, MLP, MLP_BIASES, SHARED_EXPERTS},
    tensors::{Change, NamedTensor, check},
};

/// No released model has a tenth of them.
const MOST_EXPERTS: usize = 1 << 14;

/// A family of models, as llama.cpp's converter writes them.
pub(super) struct Family {
    /// Its `general.architecture`, and the beginning of its keys.
    pub(super) name: &'static str,
    /// Its `model_type` in config.json.
    pub(super) model_type: &'static str,
    /// The one entry of `architectures` in config.json.
    pub(super) class: &'static str,
    /// Reads its settings and tensors.
    pub(super) read: fn(&mut Model<'_>) -> Result<(), GgufError>,
}

/// A model that is being read.
pub(super) struct Model<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) settings: Settings<'a>,
    pub(super) sizes: Sizes,
    config: Map<String, Value>,
    tensors: Vec<NamedTensor>,
    /// Tensors that say with other words what config.json says, or that nothing is computed with.
    unused: BTreeSet<String>,
    /// How many layers are computed.
    layers: usize,
    /// The same with those after them, which predict further tokens and are not computed.
    blocks: usize,
    /// What comes before the number of a layer in the directory.
    layer_names: &'static str,
}

impl<'a> Model<'a> {
    /// Reads all that the file says of its model.
    pub(super) fn read(
        file: &'a GgufFile,
        family: &Family,
        config: Map<String, Value>,
    ) -> Result<(Map<String, Value>, Vec<NamedTensor>), GgufError> {
        let settings = Settings::new(file.metadata(), file.architecture()?);
        let (sizes, tensors, unused) = (Sizes::default(), Vec::new(), BTreeSet::new());
        let layer_names = "model.layers.";
        let mut model = Self { file, settings, sizes, config, tensors, unused, layers: 0, blocks: 0, layer_names };
        (family.read)(&mut model)?;
        model.settings.refuse_others()?;
        let further = model.layers_of_further_tokens();
        let Self { config, tensors, unused, .. } = model;
        let is_further = |name: &str| further.iter().any(|layer| name.starts_with(layer));
        check(file, &tensors, |name| unused.contains(name) || is_further(name))?;
        Ok((config, tensors))
    }

    /// Adds to config.json.
    pub(super) fn set(&mut self, more: Value) {
        if let Value::Object(more) = more {
            self.config.extend(more);
        }
    }

    /// Whether the file has a tensor.
    pub(super) fn has(&self, name: &str) -> bool {
        self.file.content.tensors.contains_key(name)
    }

    /// Says that a tensor was read for what config.json says of it, or that nothing is computed with it.
    pub(super) fn unused(&mut self, name: impl Into<String>) {
        self.unused.insert(name.into());
    }

    /// How the names begin of the layers that predict further tokens. Each has tensors that no other layer has: one without
    /// them is a layer of the model, whatever `nextn_predict_layers` says.
    fn layers_of_further_tokens(&self) -> BTreeSet<String> {
        let names = self.file.content.tensors.keys();
        let numbers =
            names.filter_map(|name| name.strip_prefix("blk.")?.split_once(".nextn.")?.0.parse::<usize>().ok());
        let further = numbers.filter(|number| (self.layers..self.blocks).contains(number));
        further.map(|number| format!("blk.{number}.")).collect()
    }

    /// How many layers are computed.
    pub(super) fn layers(&self) -> usize {
        self.layers
    }

    /// Reads the sizes that all decoders have; a head is as wide as `head` says.
    pub(super) fn sizes(&mut self, head: Option<usize>) -> Result<(), GgufError> {
        let key_heads = self.settings.size("attention.head_count_kv")?;
        self.sizes_with(head, key_heads)
    }

    /// The same with as many heads of keys, or as many as of queries.
    pub(super) fn sizes_with(&mut self, head: Option<usize>, key_heads: Option<usize>) -> Result<(), GgufError> {
        let settings = &self.settings;
        let unsupported = |reason: String| Err(GgufError::Unsupported(reason));
        let blocks = settings.required_size("block_count")?;
        let layers = blocks.saturating_sub(settings.size("nextn_predict_layers")?.unwrap_or(0));
        // What a header claims must not be believed before there is room for it: each layer has tensors of its own.
        if layers > self.file.content.tensors.len() {
            return unsupported(format!("{layers} layers cannot be of {} tensors", self.file.content.tensors.len()));
        }
        let (hidden, heads) =
            (settings.required_size("embedding_length")?, settings.required_size("attention.head_count")?);
        let key_heads = key_heads.unwrap_or(heads);
        let head = match head {
            Some(head) => head,
            None if heads > 0 && hidden.is_multiple_of(heads) => hidden / heads,
            None => return unsupported(format!("{heads} heads do not divide {hidden}")),
        };
        if head == 0 || !head.is_multiple_of(2) || heads == 0 || key_heads == 0 {
            return unsupported(format!("{heads} heads and {key_heads} key-value heads of {head} elements"));
        }
        if hidden == 0 {
            return unsupported("a token's state has 0 numbers".to_owned());
        }
        let (Some(queries), Some(keys)) = (heads.checked_mul(head), key_heads.checked_mul(head)) else {
            return unsupported(format!("{heads} and {key_heads} heads of {head}"));
        };
        let joined = keys.checked_mul(2).and_then(|keys| keys.checked_add(queries)).unwrap_or(usize::MAX);
        (self.layers, self.blocks) = (layers, blocks);
        self.sizes.set([
            (Dim::One, 1),
            (Dim::Hidden, hidden),
            (Dim::Vocab, self.file.vocab_size()?),
            (Dim::Heads, heads),
            (Dim::KeyHeads, key_heads),
            (Dim::Head, head),
            (Dim::Queries, queries),
            (Dim::Keys, keys),
            (Dim::QueriesKeysValues, joined),
        ]);
        self.set(json!({
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": key_heads,
            "head_dim": head,
            "use_cache": true,
        }));
        Ok(())
    }

    /// Reads what all decoders have: sizes, the rotary embedding of whole heads, embeddings, and norms' epsilon.
    pub(super) fn decoder(&mut self) -> Result<(), GgufError> {
        self.partial_decoder()?;
        self.rotates_whole_heads()
    }

    /// The same where less of a head may be rotated.
    pub(super) fn partial_decoder(&mut self) -> Result<(), GgufError> {
        self.sizes_and_rope()?;
        self.ends()
    }

    /// Refuses a rotary embedding of a part of a head.
    pub(super) fn rotates_whole_heads(&self) -> Result<(), GgufError> {
        let head = self.sizes.get(Dim::Head);
        match self.rotated()? {
            Some(rotated) if rotated != head => {
                let key = self.settings.key("rope.dimension_count");
                Err(GgufError::Unsupported(format!("`{key}` is not the size of a head, {head}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads the sizes that all decoders have, and the rotary embedding.
    pub(super) fn sizes_and_rope(&mut self) -> Result<(), GgufError> {
        let head = self.settings.size("attention.key_length")?;
        self.sizes(head)?;
        let head = self.sizes.get(Dim::Head);
        if self.settings.size("attention.value_length")?.is_some_and(|value| value != head) {
            let key = self.settings.key("attention.value_length");
            return Err(GgufError::Unsupported(format!("`{key}` is not the size of a head, {head}")));
        }
        let rope = rope::read(&self.settings)?;
        self.set(json!({"rope_theta": rope.theta, "rope_scaling": rope.scaling}));
        Ok(())
    }

    /// How much of a head is rotated, if the file says it.
    pub(super) fn rotated(&self) -> Result<Option<usize>, GgufError> {
        self.settings.size("rope.dimension_count")
    }

    /// The share of a head that is rotated.
    #[expect(clippy::cast_precision_loss, reason = "heads are small")]
    pub(super) fn rotated_share(&self) -> Result<f64, GgufError> {
        let head = self.sizes.get(Dim::Head);
        match self.rotated()?.unwrap_or(head) {
            rotated if rotated > 0 && rotated <= head => Ok(rotated as f64 / head as f64),
            _ => Err(GgufError::Invalid { key: self.settings.key("rope.dimension_count"), expected: "part of a head" }),
        }
    }

    /// Embeddings, the last norm, and a head of its own if the file has one.
    pub(super) fn ends(&mut self) -> Result<(), GgufError> {
        self.ends_with("rms_norm_eps", &ENDS)
    }

    /// The same under other names: of epsilon in config.json, and of the tensors.
    pub(super) fn ends_with(&mut self, epsilon: &str, lines: &[Line]) -> Result<(), GgufError> {
        let number = self.settings.required_epsilon("attention.layer_norm_rms_epsilon")?;
        self.config.insert(epsilon.to_owned(), json!(number));
        self.ends_and_head(lines);
        Ok(())
    }

    /// Adds these tensors, and a head of its own if the file has one.
    pub(super) fn ends_and_head(&mut self, lines: &[Line]) {
        let tied = !self.has("output.weight");
        self.set(json!({"tie_word_embeddings": tied}));
        self.top(lines);
        if !tied {
            self.top(&[HEAD]);
        }
    }

    /// Says what comes before the number of a layer in the directory.
    pub(super) fn layers_are_called(&mut self, names: &'static str) {
        self.layer_names = names;
    }

    /// Says that the file has one more than the last norm's weights.
    pub(super) fn norm_less_one(&mut self) {
        for tensor in self.tensors.iter_mut().filter(|tensor| tensor.name == "model.norm.weight") {
            tensor.change = Some(Change::LessOne);
        }
    }

    /// Says that the borders of the frequencies that yarn scales are not rounded.
    pub(super) fn unrounded_yarn(&mut self) {
        if let Some(scaling) = self.config.get_mut("rope_scaling").filter(|scaling| scaling["rope_type"] == "yarn") {
            scaling["truncate"] = json!(false);
        }
    }

    /// Says that frequencies are not scaled, where they are not: without a word, transformers takes the scaling of published
    /// models for granted.
    pub(super) fn no_scaling_is_said(&mut self) {
        if let Some(scaling) = self.config.get_mut("rope_scaling").filter(|scaling| scaling.is_null()) {
            *scaling = json!({"rope_type": "default"});
        }
    }

    /// Takes the scaling of frequencies away, if there is one.
    pub(super) fn take_scaling(&mut self) -> Option<Value> {
        self.config.remove("rope_theta");
        self.config.remove("rope_scaling").filter(|scaling| !scaling.is_null())
    }

    /// Reads the width of a dense feed-forward part.
    pub(super) fn intermediate(&mut self) -> Result<usize, GgufError> {
        let width = self.settings.required_size("feed_forward_length")?;
        self.sizes.set([(Dim::Intermediate, width), (Dim::GateUp, width.saturating_mul(2))]);
        self.set(json!({"intermediate_size": width}));
        Ok(width)
    }

    /// Reads how many experts there are, how many of them a token goes through, and sets how wide each is.
    pub(super) fn experts(&mut self, width: usize) -> Result<[usize; 2], GgufError> {
        let count = self.settings.required_size("expert_count")?;
        let per_token = self.settings.required_size("expert_used_count")?;
        if count > MOST_EXPERTS {
            return Err(GgufError::Unsupported(format!("it has too many experts, {count}")));
        }
        self.sizes.set([(Dim::Experts, count), (Dim::Expert, width), (Dim::ExpertGateUp, width.saturating_mul(2))]);
        Ok([count, per_token])
    }

    /// Adds the feed-forward parts of layers: mixtures where `is_mixture` says so, each with so many experts of `width` that
    /// all tokens go through, and dense ones elsewhere.
    pub(super) fn mixtures(
        &mut self,
        is_mixture: impl Fn(usize) -> bool,
        width: usize,
        shared: usize,
    ) -> Result<(), GgufError> {
        self.sizes.set([(Dim::Shared, width.saturating_mul(shared))]);
        self.layers_that(|layer| !is_mixture(layer), &MLP)?;
        self.layers_that(&is_mixture, &EXPERTS)?;
        if shared > 0 {
            self.layers_that(&is_mixture, &SHARED_EXPERTS)?;
        }
        Ok(())
    }

    /// Gates and ups of all experts as one tensor of this name. Files have them as one, too, or as two: this layer's say which.
    pub(super) fn gate_up_of_experts(&self, layer: usize, name: &'static str) -> Line {
        const SHAPE: &[Dim] = &[Dim::Experts, Dim::ExpertGateUp, Dim::Hidden];
        if self.has(&format!("blk.{layer}.ffn_gate_exps.weight")) {
            grouped(&GATE_AND_UP, name, SHAPE)
        } else {
            line("ffn_gate_up_exps.weight", name, SHAPE)
        }
    }

    /// Adds a tensor that no table can have.
    pub(super) fn tensor(&mut self, tensor: NamedTensor) {
        self.tensors.push(tensor);
    }

    /// Adds tensors that are not of a layer.
    pub(super) fn top(&mut self, lines: &[Line]) {
        for line in lines {
            self.tensors.extend(line.tensors(&self.sizes, ["", ""]));
        }
    }

    /// Adds tensors of every layer.
    pub(super) fn layer(&mut self, lines: &[Line]) -> Result<(), GgufError> {
        self.layers_that(|_| true, lines)
    }

    /// Adds tensors of some layers.
    pub(super) fn layers_that(&mut self, has: impl Fn(usize) -> bool, lines: &[Line]) -> Result<(), GgufError> {
        self.layers_under(has, "", lines)
    }

    /// The same, with what comes before their names in the directory.
    pub(super) fn layers_under(
        &mut self,
        has: impl Fn(usize) -> bool,
        prefix: &str,
        lines: &[Line],
    ) -> Result<(), GgufError> {
        for layer in (0..self.layers).filter(|layer| has(*layer)) {
            self.believe_experts(layer)?;
            let (source, name) = (format!("blk.{layer}."), format!("{}{layer}.{prefix}", self.layer_names));
            for line in lines {
                self.tensors.extend(line.tensors(&self.sizes, [&source, &name]));
            }
        }
        Ok(())
    }

    /// A table has a line for each expert, so that there must not be more than the file says elsewhere.
    fn believe_experts(&self, layer: usize) -> Result<(), GgufError> {
        let name = format!("blk.{layer}.ffn_gate_inp.weight");
        let (Some(info), Some(experts)) = (self.file.content.tensors.get(&name), self.sizes.find(Dim::Experts)) else {
            return Ok(());
        };
        let expected = [experts, self.sizes.get(Dim::Hidden)];
        if info.shape != expected {
            let reason = format!("its shape is {:?}, not {expected:?}", info.shape);
            return Err(GgufError::Tensor { name, reason });
        }
        Ok(())
    }

    /// Adds biases of queries, keys, values and the output if the first layer has one: a model has them in all layers or
    /// in none.
    pub(super) fn attention_biases(&mut self, lines: &[Line]) -> Result<bool, GgufError> {
        let has = self.has("blk.0.attn_q.bias");
        if has {
            self.layer(lines)?;
        }
        Ok(has)
    }

    /// Adds biases of feed-forward parts if the first layer has one.
    pub(super) fn mlp_biases(&mut self) -> Result<bool, GgufError> {
        let has = self.has("blk.0.ffn_gate.bias");
        if has {
            self.layer(&MLP_BIASES)?;
        }
        Ok(has)
    }

    /// Reads a window; 0 is none.
    pub(super) fn window(&self) -> Result<Option<usize>, GgufError> {
        Ok(self.settings.size("attention.sliding_window")?.filter(|window| *window > 0))
    }

    /// Refuses a window, by its key.
    pub(super) fn no_window(&self) -> Result<(), GgufError> {
        match self.window()? {
            None => Ok(()),
            Some(window) => {
                let (key, name) = (self.settings.key("attention.sliding_window"), self.file.architecture()?);
                Err(GgufError::Unsupported(format!("`{key}` is {window}, which this `{name}` cannot have")))
            }
        }
    }

    /// Which layers have a window, as `layer_types` says it.
    pub(super) fn layer_types(&self) -> Result<Option<Vec<&'static str>>, GgufError> {
        let Some(slides) = self.settings.flags("attention.sliding_window_pattern")? else { return Ok(None) };
        if slides.len() != self.layers {
            let key = self.settings.key("attention.sliding_window_pattern");
            return Err(GgufError::Invalid { key, expected: "a flag for each layer" });
        }
        let kind = |slides| if slides { "sliding_attention" } else { "full_attention" };
        Ok(Some(slides.into_iter().map(kind).collect()))
    }
}
