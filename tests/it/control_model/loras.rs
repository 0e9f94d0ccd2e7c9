//! Adapters of the tiny model, as they are sent or lie on disk.

use std::{collections::BTreeMap, sync::LazyLock};

use bytes::Bytes;
use safetensors::SafeTensors;
use serde_json::{Value, json};

use tito::adapters::{AdapterSource, Load};

use super::{
    calls::{Lora, NUMBERS, Replacing},
    world::checkpoint,
};

/// What a call asks for.
pub(super) fn load(name: &str, lora: Lora, replacing: Replacing) -> Load {
    let source = match lora {
        Lora::Attention(number) => AdapterSource::Memory(attention(NUMBERS[number], 1)),
        Lora::Head => AdapterSource::Memory(HEAD.clone()),
        Lora::TooGreat => AdapterSource::Memory(attention(1.0, 2)),
        Lora::Missing => AdapterSource::Directory(checkpoint().join("missing").display().to_string()),
    };
    let replaces = replacing != Replacing::Never;
    Load { name: name.to_owned(), source, replaces, base_model: None, stays: false }
}

/// An adapter of what attention puts out in the first layer.
fn attention(number: f32, rank: usize) -> Bytes {
    let module = "model.layers.0.self_attn.o_proj";
    let filled = |shape: [usize; 2]| (shape, number.to_le_bytes().repeat(shape[0] * shape[1]));
    let tensors = [("lora_A", filled([rank, 64])), ("lora_B", filled([64, rank]))];
    file(module, rank, tensors.into())
}

/// An adapter of the head, with the head that is served.
static HEAD: LazyLock<Bytes> = LazyLock::new(|| {
    let file_of_all = std::fs::read(checkpoint().join("model.safetensors")).unwrap();
    let all = SafeTensors::deserialize(&file_of_all).unwrap();
    let head = all.tensor("lm_head.weight").unwrap();
    let filled = |shape: [usize; 2]| (shape, 0.5_f32.to_le_bytes().repeat(shape[0] * shape[1]));
    let tensors =
        [("lora_A", filled([1, 64])), ("lora_B", filled([96, 1])), ("base_layer", ([96, 64], head.data().to_vec()))];
    file("lm_head", 1, tensors.into())
});

/// A file with the tensors of one module, and the settings in its metadata.
fn file(module: &str, rank: usize, tensors: BTreeMap<&str, ([usize; 2], Vec<u8>)>) -> Bytes {
    let target = module.rsplit('.').next();
    let said = json!({ "peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": [target] }).to_string();
    let mut header = json!({ "__metadata__": { "adapter_config": said } });
    let mut data = Vec::new();
    for (end, (shape, bytes)) in tensors {
        let begin = data.len();
        data.extend(bytes);
        let name = format!("base_model.model.{module}.{end}.weight");
        header[name] = json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] });
    }
    let header = Value::to_string(&header);
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat().into()
}
