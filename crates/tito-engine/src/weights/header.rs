//! The header of safetensors: which tensors follow, and where each of them is.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use safetensors::{Dtype, tensor::Metadata};

use super::{Layout, WeightDtype};
use crate::files;

/// No header is longer; the `safetensors` libraries have the same bound.
pub const MOST_HEADER_BYTES: u64 = 100_000_000;
/// Characters of a name that an error shows.
const MOST_SHOWN: usize = 200;

/// A header that was checked: the tensors follow each other without a hole and without an overlap, and each has as many
/// bytes as its shape and its type need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    tensors: Vec<HeaderTensor>,
    /// The numbers of the tensors.
    numbers: HashMap<String, usize>,
    notes: BTreeMap<String, String>,
}

/// One tensor of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderTensor {
    /// Its name.
    pub name: String,
    /// The type of its numbers, which may be one that no engine reads.
    pub dtype: Dtype,
    /// Its lengths, the outermost first.
    pub shape: Vec<usize>,
    /// Where its bytes are, counted from the end of the header.
    pub range: Range<usize>,
}

impl HeaderTensor {
    /// How its bytes are to be read; an error of one sentence where no engine reads such numbers.
    pub fn layout(&self) -> Result<Layout, String> {
        let Some(dtype) = WeightDtype::of_safetensors(self.dtype) else {
            return Err(format!(
                "tensor {} is of type {:?}; BF16, F16 and F32 are read",
                quoted_excerpt(&self.name),
                self.dtype
            ));
        };
        Ok(Layout { dtype, shape: self.shape.clone() })
    }
}

impl Header {
    /// Reads the JSON text of a header; the error is one line.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let metadata: Metadata = serde_json::from_slice(text).map_err(|error| fault(&error))?;
        let notes = metadata.metadata().iter().flat_map(HashMap::iter);
        let tensors = metadata.offset_keys().into_iter().filter_map(|name| {
            let info = metadata.info(&name)?;
            let range = info.data_offsets.0..info.data_offsets.1;
            Some(HeaderTensor { name, dtype: info.dtype, shape: info.shape.clone(), range })
        });
        let tensors: Vec<_> = tensors.collect();
        Ok(Self {
            numbers: tensors.iter().enumerate().map(|(number, tensor)| (tensor.name.clone(), number)).collect(),
            tensors,
            notes: notes.map(|(key, value)| (key.clone(), value.clone())).collect(),
        })
    }

    /// The tensors, in the order of their bytes.
    pub fn tensors(&self) -> &[HeaderTensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&HeaderTensor> {
        self.tensors.get(*self.numbers.get(name)?)
    }

    /// What stands under `__metadata__`.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.notes
    }

    /// Bytes of all tensors.
    pub fn data_bytes(&self) -> usize {
        self.tensors.last().map_or(0, |tensor| tensor.range.end)
    }
}

/// What others wrote, as an error quotes it: on one line, and not longer than a line can be.
pub(super) fn quoted_excerpt(text: &str) -> String {
    let text: String = match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    files::one_line(&text)
}

/// Errors of JSON that say nothing of a file but the names of fields that it should have, and of tensors that its header has.
const TELL_NOTHING: [&str; 5] = [
    "missing field `",
    "invalid offset for tensor `",
    "invalid shape, data type, or offset for tensor",
    "overflow computing buffer size",
    NOT_A_VERSION,
];
/// What is said of a version that is no number.
pub(super) const NOT_A_VERSION: &str = "a version is not a number";

/// What is wrong with JSON, in one sentence that quotes nothing of it. Whoever names a file in a call need not be one who may
/// read it: an error tells what it is not, and where, never what it says.
pub fn fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if error.is_data() && TELL_NOTHING.iter().any(|beginning| text.starts_with(beginning)) {
        return quoted_excerpt(&text);
    }
    let what = if error.is_data() {
        "has values that do not belong there"
    } else if error.is_eof() {
        "ends too early"
    } else {
        "cannot be read"
    };
    match (error.line(), error.column()) {
        (0, _) => format!("its JSON {what}"),
        (line, column) => format!("its JSON {what}, at line {line} column {column}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_in_the_order_of_their_bytes() {
        let text = br#"{"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"__metadata__":{"k":"v"},
            "a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]}}"#;
        let header = Header::parse(text).unwrap();
        assert_eq!(header.tensors().iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(header.data_bytes(), 8);
        assert_eq!(header.notes()["k"], "v");
        let refused = header.tensors()[0].layout().unwrap_err();
        assert_eq!(refused, "tensor a is of type U8; BF16, F16 and F32 are read");
        assert_eq!(header.tensors()[1].layout().unwrap().bytes(), Some(4));
    }

    #[test]
    fn holes_overlaps_and_wrong_lengths_are_refused() {
        let two = |first: &str, second: &str| {
            let text = format!(
                r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{first}}},
                "b":{{"dtype":"U8","shape":[4],"data_offsets":{second}}}}}"#
            );
            Header::parse(text.as_bytes())
        };
        assert!(two("[0,4]", "[4,8]").is_ok());
        for (first, second) in [("[0,4]", "[5,9]"), ("[0,4]", "[3,7]"), ("[0,4]", "[4,9]"), ("[4,8]", "[8,12]")] {
            assert!(two(first, second).is_err(), "{first} {second}");
        }
    }

    #[test]
    fn an_error_says_where_a_header_is_wrong_and_quotes_nothing_of_it() {
        let refusal = |text: &str| Header::parse(text.as_bytes()).unwrap_err();
        assert_eq!(refusal("root:x:0:0"), "its JSON cannot be read, at line 1 column 1");
        assert_eq!(refusal(r#"{"a""#), "its JSON ends too early, at line 1 column 4");
        for text in [r#""hunter2""#, r#"["hunter2"]"#, r#"{"a": "hunter2"}"#, r#"{"a": {"dtype": "hunter2"}}"#] {
            let refused = refusal(text);
            assert!(refused.starts_with("its JSON has values that do not belong there, at line 1"), "{refused}");
        }
        assert!(refusal(r#"{"a": {}}"#).starts_with("missing field `dtype`"));
        let hole = refusal(r#"{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}"#);
        assert!(hole.starts_with("invalid offset for tensor `a`"), "{hole}");
    }

    #[test]
    fn what_others_wrote_is_quoted_on_one_line() {
        assert_eq!(quoted_excerpt("a\nb"), "a b");
        assert_eq!(quoted_excerpt(&"é".repeat(300)).chars().count(), 203);
    }
}
