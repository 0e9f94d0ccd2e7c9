//! The tensors of an image in a text, as `mm_serde.py` of vLLM 0.33 writes them: base64 of msgpack, in which each tensor has
//! its type, its shape, its bytes, and how it is joined with those of other images.
//!
//! An item that was sent is read only as far as it is tensors of types that tell pixels apart. How it is joined is vLLM's matter: it
//! has to be one of the ways that vLLM knows, and changes nothing about an image.

use base64::{Engine, engine::general_purpose::STANDARD};
use rmp::{
    Marker,
    decode::{Bytes, read_array_len, read_int, read_marker, read_str_len},
    encode::{ByteBuf, write_array_len, write_bool, write_ext_meta, write_map_len, write_nil, write_str, write_uint},
};

use crate::images::{ImageTensor, Joining, PIXEL_VALUES, TensorType};

/// The extension type of bytes that are a tensor (`CUSTOM_TYPE_RAW_VIEW`).
const RAW_VIEW: i8 = 3;
/// Slices lie within each other no deeper: those of each image, and those of each dimension, and a start, an end and a step.
const DEEPEST: usize = 4;
/// No image has more tensors.
const MOST_TENSORS: u32 = 16;
/// No tensor of an image has more dimensions.
const MOST_DIMENSIONS: u32 = 8;

/// Why a text is not the tensors of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MmKwargsError {
    #[error("it is not valid base64")]
    Base64,
    #[error("it is no item of vLLM's in msgpack: {0}")]
    Msgpack(&'static str),
    #[error("`{name}` is of {kind}, and only tensors of float32, uint8 and int64 tell all pixels apart")]
    Type { name: String, kind: String },
}

/// Writes the tensors of an image that stands alone.
pub(super) fn encode<'t>(tensors: impl ExactSizeIterator<Item = &'t ImageTensor>) -> String {
    let mut out = Out(ByteBuf::new());
    out.map(tensors.len());
    tensors.for_each(|tensor| out.tensor(tensor));
    STANDARD.encode(out.0.into_vec())
}

/// Writing into memory does not fail.
struct Out(ByteBuf);

impl Out {
    fn tensor(&mut self, tensor: &ImageTensor) {
        self.text(&tensor.name);
        self.map(2);
        self.text("data");
        self.array(3);
        self.text(tensor.kind.name());
        self.array(tensor.shape.len());
        tensor.shape.iter().for_each(|&size| self.number(size));
        let length = u32::try_from(tensor.bytes.len()).expect("an image has less than 4 GiB");
        let Ok(_) = write_ext_meta(&mut self.0, length, RAW_VIEW);
        self.0.as_mut_vec().extend(&tensor.bytes);
        self.text("field");
        self.array(2);
        match tensor.joining() {
            Joining::Behind => {
                self.text("flat");
                self.map(3);
                self.keep_on_cpu(tensor);
                self.text("slices");
                // One image, one dimension, and the start, the end and the step of a slice.
                self.array(1);
                self.array(1);
                self.array(3);
                self.number(0);
                self.number(tensor.shape.first().copied().unwrap_or_default());
                let Ok(()) = write_nil(&mut self.0);
                self.text("dim");
                self.number(0);
            }
            Joining::Beside => {
                self.text("batched");
                self.map(1);
                self.keep_on_cpu(tensor);
            }
        }
    }

    /// vLLM leaves counts where its scheduler reads them.
    fn keep_on_cpu(&mut self, tensor: &ImageTensor) {
        self.text("keep_on_cpu");
        let Ok(()) = write_bool(&mut self.0, tensor.name != PIXEL_VALUES);
    }

    fn text(&mut self, text: &str) {
        let Ok(()) = write_str(&mut self.0, text);
    }

    fn number(&mut self, number: usize) {
        let Ok(_) = write_uint(&mut self.0, number as u64);
    }

    fn array(&mut self, length: usize) {
        let Ok(_) = write_array_len(&mut self.0, u32::try_from(length).expect("few items"));
    }

    fn map(&mut self, length: usize) {
        let Ok(_) = write_map_len(&mut self.0, u32::try_from(length).expect("few items"));
    }
}

/// Reads the tensors of an image.
///
/// # Errors
///
/// If the text is something else, or if a tensor is of a type that is not read.
pub(super) fn decode(text: &str) -> Result<Vec<ImageTensor>, MmKwargsError> {
    let bytes = STANDARD.decode(text).map_err(|_| MmKwargsError::Base64)?;
    let mut item = Item { rest: Bytes::new(&bytes) };
    let count = item.map("an item is a map of tensors")?;
    if count > MOST_TENSORS {
        return Err(MmKwargsError::Msgpack("an image has at most 16 tensors"));
    }
    let mut tensors = Vec::<ImageTensor>::new();
    for _ in 0..count {
        let tensor = item.tensor()?;
        if tensors.iter().any(|other| other.name == tensor.name) {
            return Err(MmKwargsError::Msgpack("a tensor stands there twice"));
        }
        tensors.push(tensor);
    }
    if !item.rest.remaining_slice().is_empty() {
        return Err(MmKwargsError::Msgpack("something follows the item"));
    }
    Ok(tensors)
}

/// An item that is read from its start to its end.
struct Item<'b> {
    rest: Bytes<'b>,
}

impl<'b> Item<'b> {
    fn tensor(&mut self) -> Result<ImageTensor, MmKwargsError> {
        let name = self.text("the name of a tensor is a text")?.to_owned();
        let (mut data, mut has_field) = (None, false);
        for _ in 0..self.map("a tensor has `data` and `field`")? {
            match self.text("keys are texts")? {
                "data" => data = Some(self.data(&name)?),
                "field" => {
                    self.field()?;
                    has_field = true;
                }
                _ => return Err(MmKwargsError::Msgpack("a tensor has `data` and `field`, and nothing else")),
            }
        }
        let (kind, shape, bytes) = data.ok_or(MmKwargsError::Msgpack("a tensor without `data`"))?;
        if !has_field {
            return Err(MmKwargsError::Msgpack("a tensor without `field`"));
        }
        Ok(ImageTensor { name, kind, shape, bytes: bytes.to_vec() })
    }

    /// The type, the shape and the bytes of a tensor.
    fn data(&mut self, name: &str) -> Result<(TensorType, Vec<usize>, &'b [u8]), MmKwargsError> {
        const DATA: &str = "`data` is a tensor: its type, its shape and its bytes";
        let wrong = || MmKwargsError::Msgpack(DATA);
        if read_array_len(&mut self.rest).map_err(|_| wrong())? != 3 {
            return Err(wrong());
        }
        let kind = self.text(DATA)?;
        let kind = TensorType::of_name(kind).ok_or_else(|| {
            let (name, kind) = (name.to_owned(), kind.chars().take(32).collect());
            MmKwargsError::Type { name, kind }
        })?;
        let dimensions = read_array_len(&mut self.rest).map_err(|_| wrong())?;
        if dimensions > MOST_DIMENSIONS {
            return Err(MmKwargsError::Msgpack("a tensor has at most 8 dimensions"));
        }
        let sizes = (0..dimensions).map(|_| read_int(&mut self.rest).map_err(|_| wrong()));
        let shape = sizes.collect::<Result<Vec<usize>, _>>()?;
        let marker = read_marker(&mut self.rest).map_err(|_| wrong())?;
        let length = self.ext_length(marker)?.ok_or_else(wrong)?;
        let [kind_of_ext, bytes @ ..] = self.take(1 + length)? else { return Err(wrong()) };
        if *kind_of_ext != RAW_VIEW.cast_unsigned() {
            return Err(wrong());
        }
        Ok((kind, shape, bytes))
    }

    fn map(&mut self, wanted: &'static str) -> Result<u32, MmKwargsError> {
        rmp::decode::read_map_len(&mut self.rest).map_err(|_| MmKwargsError::Msgpack(wanted))
    }

    fn text(&mut self, wanted: &'static str) -> Result<&'b str, MmKwargsError> {
        let length = read_str_len(&mut self.rest).map_err(|_| MmKwargsError::Msgpack(wanted))?;
        std::str::from_utf8(self.take(length as usize)?).map_err(|_| MmKwargsError::Msgpack(wanted))
    }

    /// The bytes of a value of an extension type, if the marker begins one.
    fn ext_length(&mut self, marker: Marker) -> Result<Option<usize>, MmKwargsError> {
        Ok(Some(match marker {
            Marker::FixExt1 => 1,
            Marker::FixExt2 => 2,
            Marker::FixExt4 => 4,
            Marker::FixExt8 => 8,
            Marker::FixExt16 => 16,
            Marker::Ext8 => self.length(1)?,
            Marker::Ext16 => self.length(2)?,
            Marker::Ext32 => self.length(4)?,
            _ => return Ok(None),
        }))
    }

    /// A length of so many bytes, the highest first.
    fn length(&mut self, bytes: usize) -> Result<usize, MmKwargsError> {
        Ok(self.take(bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], MmKwargsError> {
        let rest = self.rest.remaining_slice();
        let (taken, left) = rest.split_at_checked(count).ok_or(MmKwargsError::Msgpack("it ends too early"))?;
        self.rest = Bytes::new(left);
        Ok(taken)
    }

    /// Reads how vLLM joins a tensor with those of other images (`MultiModalFieldConfig`): the name of a way, and what belongs to it.
    fn field(&mut self) -> Result<(), MmKwargsError> {
        const FIELD: &str = "`field` is `batched`, `flat` or `shared`, and what belongs to it";
        let wrong = || MmKwargsError::Msgpack(FIELD);
        if read_array_len(&mut self.rest).map_err(|_| wrong())? != 2 {
            return Err(wrong());
        }
        let (needed, optional): (&[&str], &[&str]) = match self.text(FIELD)? {
            "batched" => (&[], &["keep_on_cpu"]),
            "flat" => (&["slices"], &["keep_on_cpu", "dim"]),
            "shared" => (&["batch_size"], &["keep_on_cpu"]),
            _ => return Err(wrong()),
        };
        let mut found = Vec::new();
        for _ in 0..self.map(FIELD)? {
            let key = self.text(FIELD)?;
            if found.contains(&key) || !(needed.contains(&key) || optional.contains(&key)) {
                return Err(wrong());
            }
            found.push(key);
            match key {
                "slices" => self.slices(DEEPEST)?,
                "keep_on_cpu" => _ = rmp::decode::read_bool(&mut self.rest).map_err(|_| wrong())?,
                _ => _ = read_int::<i64, _>(&mut self.rest).map_err(|_| wrong())?,
            }
        }
        if needed.iter().all(|key| found.contains(key)) { Ok(()) } else { Err(wrong()) }
    }

    /// Goes behind slices: numbers or nothing, in lists.
    fn slices(&mut self, depth: usize) -> Result<(), MmKwargsError> {
        const SLICES: &str = "`slices` are lists of a start, an end and a step";
        let marker = read_marker(&mut self.rest).map_err(|_| MmKwargsError::Msgpack("it ends too early"))?;
        let (bytes, values) = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 => (2, 0),
            Marker::U32 | Marker::I32 => (4, 0),
            Marker::U64 | Marker::I64 => (8, 0),
            Marker::FixArray(length) => (0, length.into()),
            Marker::Array16 => (0, self.length(2)?),
            Marker::Array32 => (0, self.length(4)?),
            _ => return Err(MmKwargsError::Msgpack(SLICES)),
        };
        self.take(bytes)?;
        let deeper = depth.checked_sub(1).ok_or(MmKwargsError::Msgpack(SLICES))?;
        (0..values).try_for_each(|_| self.slices(deeper))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(name: &str) -> String {
        let recorded: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/golden/mm_kwargs.json")).unwrap();
        recorded[name].as_str().unwrap().to_owned()
    }

    /// The tensors that `record_mm_kwargs.py` writes.
    fn numbers(shape: &[usize]) -> ImageTensor {
        let count = u16::try_from(shape.iter().product::<usize>()).unwrap();
        let bytes = (0..count).flat_map(|index| (f32::from(index) / 4.0 - 1.0).to_le_bytes()).collect();
        ImageTensor { name: PIXEL_VALUES.to_owned(), kind: TensorType::Float32, shape: shape.to_vec(), bytes }
    }

    fn counts(name: &str, shape: &[usize], counts: &[i64]) -> ImageTensor {
        let bytes = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        ImageTensor { name: name.to_owned(), kind: TensorType::Int64, shape: shape.to_vec(), bytes }
    }

    #[test]
    fn items_are_written_and_read_as_vllm_does() {
        let bytes = (0_u8..40).map(|index| index.abs_diff(4) / 4).collect();
        let shape = vec![2, 20];
        let items = [
            ("grid", vec![numbers(&[6, 5]), counts("image_grid_thw", &[3], &[1, 2, 3])]),
            ("squares", vec![numbers(&[2, 3, 2, 2]), counts("image_num_patches", &[], &[2])]),
            ("one", vec![numbers(&[3, 2, 4])]),
            ("bytes", vec![ImageTensor { name: PIXEL_VALUES.to_owned(), kind: TensorType::Uint8, shape, bytes }]),
        ];
        for (name, tensors) in items {
            assert_eq!(encode(tensors.iter()), golden(name), "{name}");
            assert_eq!(decode(&golden(name)).unwrap(), tensors, "{name}");
        }
    }

    #[test]
    fn tensors_of_more_bytes_have_longer_headers() {
        for rows in [1, 100, 2000, 70_000] {
            let bytes = vec![7; rows];
            let tensor =
                ImageTensor { name: "pixel_values".to_owned(), kind: TensorType::Uint8, shape: vec![rows, 1], bytes };
            assert_eq!(decode(&encode([&tensor].into_iter())).unwrap(), [tensor]);
        }
    }

    #[test]
    fn numbers_that_were_rounded_are_refused() {
        let error = decode(&golden("bfloat16")).unwrap_err();
        assert!(
            matches!(&error, MmKwargsError::Type { name, kind } if name == PIXEL_VALUES && kind == "bfloat16"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_item_is_an_error() {
        assert_eq!(decode("no base64!"), Err(MmKwargsError::Base64));
        let whole = STANDARD.decode(golden("grid")).unwrap();
        for end in 0..whole.len() {
            assert!(decode(&STANDARD.encode(&whole[..end])).is_err(), "{end}");
        }
        for index in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut changed = whole.clone();
                changed[index] = byte;
                // Whatever comes of it, it ends.
                let _ = decode(&STANDARD.encode(&changed));
            }
        }
        let twice = encode([&numbers(&[1]), &numbers(&[2])].into_iter());
        assert_eq!(decode(&twice), Err(MmKwargsError::Msgpack("a tensor stands there twice")));
        let many = vec![numbers(&[1]); 17];
        assert_eq!(decode(&encode(many.iter())), Err(MmKwargsError::Msgpack("an image has at most 16 tensors")));
        let longer = [whole.as_slice(), &[0]].concat();
        assert_eq!(decode(&STANDARD.encode(longer)), Err(MmKwargsError::Msgpack("something follows the item")));
    }

    #[test]
    fn a_way_to_join_tensors_that_vllm_does_not_know_is_refused() {
        for name in ["grid", "one"] {
            let whole = STANDARD.decode(golden(name)).unwrap();
            for word in ["field", "flat", "batched", "keep_on_cpu", "slices", "dim"] {
                let places = whole.windows(word.len()).enumerate().filter(|(_, bytes)| *bytes == word.as_bytes());
                for (place, _) in places {
                    let mut changed = whole.clone();
                    changed[place + 1] ^= 1;
                    assert!(decode(&STANDARD.encode(changed)).is_err(), "{name}: {word} at {place}");
                }
            }
        }
    }

    #[test]
    fn how_tensors_are_joined_is_bounded() {
        let field = |field: &[u8]| {
            let tensor = b"\x81\xa1p\x82\xa4data\x93\xa5uint8\x91\x01\xd4\x03\x07\xa5field\x92".as_slice();
            decode(&STANDARD.encode([tensor, field].concat()))
        };
        let slices = |slices: &[u8]| field(&[b"\xa4flat\x81\xa6slices".as_slice(), slices].concat());
        let wrong = |words| Err(MmKwargsError::Msgpack(words));
        assert!(slices(b"\x91\x93\x00\x01\xc0").is_ok());
        assert!(field(b"\xa7batched\x80").is_ok() && field(b"\xa6shared\x81\xaabatch_size\x01").is_ok());
        // Lists in lists, and a list that claims four thousand million items.
        assert_eq!(slices(&[0x91; 100]), wrong("`slices` are lists of a start, an end and a step"));
        assert_eq!(slices(b"\xdd\xff\xff\xff\xff"), wrong("it ends too early"));
        assert_eq!(slices(b"\xa1a"), wrong("`slices` are lists of a start, an end and a step"));
        let unknown = "`field` is `batched`, `flat` or `shared`, and what belongs to it";
        for other in [
            b"\xa4flat\x80".as_slice(),
            b"\xa6shared\x80",
            b"\xa7batched\x81\xa3dim\x00",
            b"\xa7batched\x81\xabkeep_on_cpu\x00",
            b"\xa4nope\x80",
            b"\xc1",
        ] {
            assert_eq!(field(other), wrong(unknown), "{other:x?}");
        }
        let bare = STANDARD.encode(b"\x81\xa1p\x81\xa4data\x93\xa5uint8\x91\x01\xd4\x03\x07");
        assert_eq!(decode(&bare), wrong("a tensor without `field`"));
    }
}
