//! model.safetensors, written tensor by tensor.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use half::bf16;
use serde_json::{Map, Value, json};

use super::{ConvertError, GgufTensor, GgufTensors};

/// Numbers that are in memory at once, unless a row has more.
const NUMBERS_AT_ONCE: usize = 1 << 24;

/// Writes the tensors in order, dequantised and rounded to bf16, a few rows at a time.
pub(super) fn write(
    tensors: &GgufTensors,
    path: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), ConvertError> {
    let failed = |source| ConvertError::Write { path: path.to_owned(), source };
    let mut writer = BufWriter::new(File::create(path).map_err(failed)?);
    writer.write_all(&header(tensors)).map_err(failed)?;
    let names: Vec<&str> = tensors.shapes().map(|(name, _)| name).collect();
    for (done, name) in names.iter().enumerate() {
        progress(done, names.len());
        let tensor = tensors.get(name).expect("the names are the tensors'");
        for_each_part(&tensor, |bytes| writer.write_all(bytes).map_err(failed))?;
    }
    writer.flush().map_err(failed)?;
    writer.get_ref().sync_all().map_err(failed)?;
    progress(names.len(), names.len());
    Ok(())
}

/// The length of the header, then the header: dtype, shape and place of each tensor, padded to eight bytes.
fn header(tensors: &GgufTensors) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut offset = 0;
    for (name, shape) in tensors.shapes() {
        let end = offset + size_of::<bf16>() * shape.iter().product::<usize>();
        entries.insert(name.to_owned(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}));
        offset = end;
    }
    let mut json = Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    header
}

/// Calls `with` with all rows, in bf16.
fn for_each_part(
    tensor: &GgufTensor<'_>,
    mut with: impl FnMut(&[u8]) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let step = (NUMBERS_AT_ONCE / tensor.columns().max(1)).max(1);
    let (mut values, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..tensor.rows()).step_by(step) {
        values.clear();
        bytes.clear();
        tensor.read(first..tensor.rows().min(first + step), &mut values)?;
        bytes.extend(values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()));
        with(&bytes)?;
    }
    Ok(())
}
