//! model.safetensors, written tensor by tensor.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Write},
    path::Path,
};

use candle_core::Device;
use half::bf16;
use serde_json::{Map, Value, json};

use super::{ConvertError, GgufError, GgufFile, tensors::Tensor};

/// Writes the tensors in order, each dequantised and rounded to bf16 on its own.
pub(super) fn write(
    file: &GgufFile,
    tensors: &[Tensor],
    path: &Path,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(), ConvertError> {
    let failed = |source| ConvertError::Write { path: path.to_owned(), source };
    let source = File::open(file.path()).map_err(|source| GgufError::Open { path: file.path().to_owned(), source })?;
    let mut reader = BufReader::new(source);
    let mut writer = BufWriter::new(File::create(path).map_err(failed)?);
    writer.write_all(&header(tensors)).map_err(failed)?;
    for (done, tensor) in tensors.iter().enumerate() {
        progress(done, tensors.len());
        let values = dequantize(file, &mut reader, &tensor.source)?;
        write_bf16(&mut writer, tensor, &values).map_err(failed)?;
    }
    writer.flush().map_err(failed)?;
    writer.get_ref().sync_all().map_err(failed)?;
    progress(tensors.len(), tensors.len());
    Ok(())
}

/// The length of the header, then the header: dtype, shape and place of each tensor, padded to eight bytes.
fn header(tensors: &[Tensor]) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + size_of::<bf16>() * tensor.shape.iter().product::<usize>();
        entries.insert(
            tensor.name.clone(),
            json!({"dtype": "BF16", "shape": tensor.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut json = Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    header
}

fn dequantize(file: &GgufFile, reader: &mut BufReader<File>, name: &str) -> Result<Vec<f32>, ConvertError> {
    let values = file
        .content
        .tensor(reader, name, &Device::Cpu)
        .and_then(|quantized| quantized.dequantize(&Device::Cpu))
        .and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>());
    values.map_err(|error| ConvertError::Tensor { name: name.to_owned(), reason: error.to_string() })
}

fn write_bf16(writer: &mut impl Write, tensor: &Tensor, values: &[f32]) -> std::io::Result<()> {
    let rows = tensor.shape[0].max(1);
    let width = values.len() / rows;
    let mut bytes = Vec::with_capacity(width * size_of::<bf16>());
    for row in 0..rows {
        let source = tensor.rotary_heads.map_or(row, |heads| interleaved_row(row, rows / heads));
        bytes.clear();
        for &value in &values[source * width..][..width] {
            bytes.extend_from_slice(&bf16::from_f32(value).to_le_bytes());
        }
        writer.write_all(&bytes)?;
    }
    Ok(())
}

/// Returns where GGUF keeps a row of a query or key head: it interleaves the two rotary halves, which the directory
/// keeps apart.
fn interleaved_row(row: usize, head_dim: usize) -> usize {
    let (head, place) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (place % half) + place / half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotary_halves_are_taken_apart_head_by_head() {
        let rows: Vec<usize> = (0..12).map(|row| interleaved_row(row, 6)).collect();
        assert_eq!(rows, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }
}
