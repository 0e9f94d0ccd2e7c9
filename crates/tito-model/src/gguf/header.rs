//! The header of a GGUF file, read so that a file may say anything.
//!
//! Every length is compared with what is left of the file before anything is made of it, and nothing recurses. What a
//! file may say and no model's file does is refused: arrays in arrays, names that are there twice, tensors that share
//! bytes.

use std::{
    collections::{HashMap, hash_map::Entry},
    io::Read,
};

use candle_core::quantized::gguf_file::{DEFAULT_ALIGNMENT, Value};

use super::tensor_type::TensorType;

/// The first bytes of every GGUF file of the usual, little-endian kind.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";
/// No header is longer: it holds a vocabulary, and names.
const MOST_BYTES: u64 = 1 << 28;
/// No header has more values, those of arrays counted.
const MOST_VALUES: u64 = 1 << 24;
/// No tensor has more dimensions.
const MOST_DIMENSIONS: u32 = 4;
/// No file begins its tensors at multiples of more bytes.
const MOST_ALIGNMENT: u64 = 1 << 20;
const ALIGNMENT: &str = "general.alignment";

/// What a header says.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) metadata: HashMap<String, Value>,
    pub(super) tensors: HashMap<String, TensorInfo>,
    /// Where the first tensor's first byte is in the file.
    pub(super) data_offset: u64,
}

/// What a header says of a tensor.
#[derive(Debug)]
pub(super) struct TensorInfo {
    pub(super) dtype: TensorType,
    /// Its lengths, rows first.
    pub(super) shape: Vec<usize>,
    /// Where its first byte is, from that of the first tensor on.
    pub(super) offset: u64,
}

/// Why a header cannot be read.
#[derive(Debug)]
pub(super) enum HeaderError {
    /// The file does not begin as a GGUF file does.
    NotGguf,
    /// The header says something that no header may say.
    Invalid(String),
    /// The file ends before its tensors do, by so many bytes.
    Truncated(u64),
}

type Result<T> = std::result::Result<T, HeaderError>;

fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(HeaderError::Invalid(reason.into()))
}

/// Reads the header of a file of `length` bytes from its beginning on.
pub(super) fn read(file: impl Read, length: u64) -> Result<Content> {
    let mut reader = Reader { file, position: 0, length, values: 0, short: false };
    let magic: [u8; 4] = reader.bytes().map_err(|_| HeaderError::NotGguf)?;
    if magic != *MAGIC {
        return Err(HeaderError::NotGguf);
    }
    reader.short = match u32::from_le_bytes(reader.bytes()?) {
        version @ 1..=3 => version == 1,
        other => return invalid(format!("it is of version {other}, and versions 1 to 3 are read")),
    };
    let (tensor_count, entries) = (reader.length()?, reader.length()?);
    let mut metadata = HashMap::new();
    for _ in 0..entries {
        let key = reader.text()?;
        let value = reader.value()?;
        match metadata.entry(key) {
            Entry::Vacant(vacant) => _ = vacant.insert(value),
            Entry::Occupied(there) => return invalid(format!("it has the key {:?} twice", there.key())),
        }
    }
    let mut tensors = HashMap::new();
    for _ in 0..tensor_count {
        let name = reader.text()?;
        let info = reader.tensor(&name)?;
        match tensors.entry(name) {
            Entry::Vacant(vacant) => _ = vacant.insert(info),
            Entry::Occupied(there) => return invalid(format!("it has the tensor {:?} twice", there.key())),
        }
    }
    let data_offset = reader.position.next_multiple_of(alignment(&metadata)?);
    check_places(&tensors, data_offset, length)?;
    Ok(Content { metadata, tensors, data_offset })
}

fn alignment(metadata: &HashMap<String, Value>) -> Result<u64> {
    let alignment = match metadata.get(ALIGNMENT) {
        None => return Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(alignment)) => u64::from(*alignment),
        Some(Value::I32(alignment)) => u64::try_from(*alignment).unwrap_or(0),
        Some(_) => return invalid(format!("`{ALIGNMENT}` is not a 32-bit integer")),
    };
    match alignment {
        1..=MOST_ALIGNMENT => Ok(alignment),
        _ => invalid(format!("`{ALIGNMENT}` is {alignment}")),
    }
}

/// Whether all tensors are inside of the file, each in a place of its own.
fn check_places(tensors: &HashMap<String, TensorInfo>, data: u64, length: u64) -> Result<()> {
    let mut places: Vec<_> = tensors
        .iter()
        .map(|(name, info)| (info.offset, info.offset.saturating_add(size_bytes(info)), name.as_str()))
        .collect();
    places.sort_unstable();
    let end = places.iter().map(|(_, end, _)| data.saturating_add(*end)).max().unwrap_or(0);
    if end > length {
        return Err(HeaderError::Truncated(end - length));
    }
    for pair in places.windows(2) {
        let [(_, end, first), (start, _, second)] = pair else { unreachable!("windows of two") };
        if end > start {
            return invalid(format!("the tensors {first:?} and {second:?} share bytes"));
        }
    }
    Ok(())
}

/// The bytes of all of its blocks; where they cannot be counted, more than any file has.
fn size_bytes(tensor: &TensorInfo) -> u64 {
    let numbers = tensor.shape.iter().try_fold(1_usize, |product, length| product.checked_mul(*length));
    numbers.map_or(u64::MAX, |numbers| {
        numbers.div_ceil(tensor.dtype.block_size()).saturating_mul(tensor.dtype.type_size()) as u64
    })
}

/// The types of values, by their numbers.
#[derive(Debug, Clone, Copy)]
enum MetadataType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl MetadataType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn numbered(number: u32) -> Result<Self> {
        let kind = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied());
        kind.ok_or_else(|| HeaderError::Invalid(format!("there is no type of values with the number {number}")))
    }
}

/// A file from its beginning on.
struct Reader<R> {
    file: R,
    position: u64,
    /// The length of the file.
    length: u64,
    /// How many values were read.
    values: u64,
    /// The first version of the format has lengths of 32 bits.
    short: bool,
}

impl<R: Read> Reader<R> {
    /// Whether `count` things of at least `each` bytes can follow; else why not.
    fn room(&self, count: u64, each: u64) -> Result<()> {
        let left = self.length.min(MOST_BYTES).saturating_sub(self.position);
        match count.checked_mul(each) {
            Some(bytes) if bytes <= left => Ok(()),
            _ if self.length > MOST_BYTES => invalid(format!("its header is longer than {MOST_BYTES} bytes")),
            _ => invalid(format!(
                "at byte {} it has a length of {count}, and {left} bytes are left of the file",
                self.position
            )),
        }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.room(bytes.len() as u64, 1)?;
        self.file.read_exact(bytes).map_err(|error| HeaderError::Invalid(error.to_string()))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn length(&mut self) -> Result<u64> {
        if self.short { Ok(u32::from_le_bytes(self.bytes()?).into()) } else { Ok(u64::from_le_bytes(self.bytes()?)) }
    }

    fn text(&mut self) -> Result<String> {
        let length = self.length()?;
        self.room(length, 1)?;
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.fill(&mut bytes)?;
        // Some files end texts with zeros, and some have texts that are not UTF-8.
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self) -> Result<Value> {
        match MetadataType::numbered(u32::from_le_bytes(self.bytes()?))? {
            MetadataType::Array => self.array(),
            kind => self.single(kind),
        }
    }

    fn array(&mut self) -> Result<Value> {
        let kind = MetadataType::numbered(u32::from_le_bytes(self.bytes()?))?;
        let count = self.length()?;
        let each = match kind {
            MetadataType::U8 | MetadataType::I8 | MetadataType::Bool => 1,
            MetadataType::U16 | MetadataType::I16 => 2,
            MetadataType::U32 | MetadataType::I32 | MetadataType::F32 => 4,
            MetadataType::String if self.short => 4,
            MetadataType::U64 | MetadataType::I64 | MetadataType::F64 | MetadataType::String => 8,
            MetadataType::Array => return invalid("it has an array of arrays"),
        };
        self.room(count, each)?;
        if self.values.saturating_add(count) > MOST_VALUES {
            return invalid(format!("it has more than {MOST_VALUES} values"));
        }
        (0..count).map(|_| self.single(kind)).collect::<Result<_>>().map(Value::Array)
    }

    /// A value that is no array.
    fn single(&mut self, kind: MetadataType) -> Result<Value> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return invalid(format!("it has more than {MOST_VALUES} values"));
        }
        Ok(match kind {
            MetadataType::U8 => Value::U8(u8::from_le_bytes(self.bytes()?)),
            MetadataType::I8 => Value::I8(i8::from_le_bytes(self.bytes()?)),
            MetadataType::U16 => Value::U16(u16::from_le_bytes(self.bytes()?)),
            MetadataType::I16 => Value::I16(i16::from_le_bytes(self.bytes()?)),
            MetadataType::U32 => Value::U32(u32::from_le_bytes(self.bytes()?)),
            MetadataType::I32 => Value::I32(i32::from_le_bytes(self.bytes()?)),
            MetadataType::F32 => Value::F32(f32::from_le_bytes(self.bytes()?)),
            MetadataType::U64 => Value::U64(u64::from_le_bytes(self.bytes()?)),
            MetadataType::I64 => Value::I64(i64::from_le_bytes(self.bytes()?)),
            MetadataType::F64 => Value::F64(f64::from_le_bytes(self.bytes()?)),
            MetadataType::Bool => match self.bytes()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => return invalid(format!("it has a truth value of {other}")),
            },
            MetadataType::String => Value::String(self.text()?),
            MetadataType::Array => return invalid("it has an array of arrays"),
        })
    }

    fn tensor(&mut self, name: &str) -> Result<TensorInfo> {
        self.values += 1;
        let count = u32::from_le_bytes(self.bytes()?);
        if count > MOST_DIMENSIONS || self.values > MOST_VALUES {
            return invalid(format!("tensor {name:?} has {count} dimensions, more than {MOST_DIMENSIONS}"));
        }
        let mut dimensions = Vec::new();
        for _ in 0..count {
            match usize::try_from(self.length()?) {
                Ok(dimension) if dimension > 0 => dimensions.push(dimension),
                _ => return invalid(format!("tensor {name:?} has a dimension without numbers")),
            }
        }
        // A file has the dimension that varies fastest first.
        dimensions.reverse();
        let number = u32::from_le_bytes(self.bytes()?);
        let Some(dtype) = TensorType::numbered(number) else {
            return invalid(format!("tensor {name:?} is of the type {number}, which is not read"));
        };
        Ok(TensorInfo { dtype, shape: dimensions, offset: u64::from_le_bytes(self.bytes()?) })
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::*;

    /// A header of the third version with one entry, whose value is what follows the key.
    fn with_value(value: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend([0_u64, 1].map(u64::to_le_bytes).concat());
        bytes.extend(1_u64.to_le_bytes());
        bytes.push(b'k');
        bytes.extend(value);
        bytes
    }

    fn refusal(bytes: &[u8]) -> String {
        match read(bytes, bytes.len() as u64) {
            Err(HeaderError::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_refused_before_anything_is_made_of_it() {
        let long = (1_u64 << 60).to_le_bytes();
        let text = with_value(&[&8_u32.to_le_bytes()[..], &long].concat());
        assert_eq!(
            refusal(&text),
            "at byte 45 it has a length of 1152921504606846976, and 0 bytes are left of the file"
        );
        for kind in [0_u32, 3, 4, 8, 10] {
            let array = with_value(&[&9_u32.to_le_bytes()[..], &kind.to_le_bytes(), &long].concat());
            assert!(refusal(&array).contains("length of 1152921504606846976"), "{}", refusal(&array));
        }
        for place in [8, 16] {
            let mut counts = with_value(&[]);
            counts[place..][..8].copy_from_slice(&long);
            refusal(&counts);
        }
    }

    #[test]
    fn arrays_in_arrays_are_refused_however_deep_they_are() {
        let nested = [9_u32.to_le_bytes().as_slice(), &1_u64.to_le_bytes()].concat().repeat(100_000);
        assert_eq!(refusal(&with_value(&[&9_u32.to_le_bytes()[..], &nested].concat())), "it has an array of arrays");
    }

    #[test]
    fn what_is_there_twice_is_refused() {
        let entry = [&1_u64.to_le_bytes()[..], b"k", &0_u32.to_le_bytes(), &[7]].concat();
        let mut bytes = [&with_value(&[])[..24], &entry, &entry].concat();
        bytes[16] = 2;
        assert_eq!(refusal(&bytes), "it has the key \"k\" twice");
    }

    #[test]
    fn an_alignment_that_is_none_is_refused() {
        for (value, said) in
            [(Value::U32(0), "is 0"), (Value::U32(u32::MAX), "is 4294967295"), (Value::Bool(true), "is not")]
        {
            let metadata = HashMap::from([(ALIGNMENT.to_owned(), value)]);
            let Err(HeaderError::Invalid(reason)) = alignment(&metadata) else { panic!("{metadata:?}") };
            assert!(reason.contains(said), "{reason}");
        }
    }

    #[test]
    fn tensors_that_share_bytes_are_refused() {
        let info = |offset| TensorInfo { dtype: TensorType::Ggml(GgmlDType::F32), shape: vec![4], offset };
        let tensors = |second| HashMap::from([("a".to_owned(), info(0)), ("b".to_owned(), info(second))]);
        assert!(check_places(&tensors(16), 0, 32).is_ok());
        assert!(matches!(check_places(&tensors(32), 0, 32), Err(HeaderError::Truncated(16))));
        assert!(matches!(check_places(&tensors(u64::MAX), 0, 32), Err(HeaderError::Truncated(_))));
        let Err(HeaderError::Invalid(reason)) = check_places(&tensors(12), 0, 32) else { panic!("they share 4 bytes") };
        assert_eq!(reason, "the tensors \"a\" and \"b\" share bytes");
    }
}
