//! `routed_experts`: the experts of tokens as vLLM writes them, and NeMo-RL, and as either of them is read.
//!
//! vLLM's is an `.npy` file in base64 of the shape (tokens, layers, experts of a token), in which layers without experts
//! are zeros (`RoutedExpertsCapturer`, `numpy2base64`). NeMo-RL's, which NeMo Gym carries on messages, is
//! `nrlre1:<dtype>:<SxLxK>:<base64>`, with as many rows as there are tokens: the last one, which no token was computed
//! from, is 0, 1 and so on (`nemo_rl/utils/routed_experts_codec.py`).

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

use super::error::ApiError;
use crate::{
    engine::{RouteArray, RouteShape, Routes},
    npy,
};

/// The field of requests and answers.
pub(crate) const FIELD: &str = "routed_experts";
/// What NeMo-RL's form begins with.
const NEMO_RL: &str = "nrlre1";

/// Writes routes as vLLM does.
pub(crate) fn of_vllm(shape: &RouteShape, routes: &Routes) -> String {
    let rows = routes.0.len() / shape.width();
    let sizes = [rows, shape.layers, shape.per_token];
    let numbers = in_all_layers(shape, routes).into_iter();
    if shape.experts <= 256 {
        return npy::file("|u1", &sizes, numbers.map(|expert| u8::try_from(expert).unwrap_or(u8::MAX)));
    }
    npy::file("<u2", &sizes, numbers.flat_map(u16::to_le_bytes))
}

/// Writes routes as NeMo-RL does.
pub(crate) fn of_nemo_rl(shape: &RouteShape, routes: &Routes) -> String {
    let rows = routes.0.len() / shape.width() + 1;
    let per_token = u16::try_from(shape.per_token).unwrap_or(u16::MAX);
    let padding = (0..shape.layers).flat_map(|_| 0..per_token);
    let numbers = in_all_layers(shape, routes).into_iter().chain(padding);
    // Each type has room for -1.
    let (dtype, bytes): (_, Vec<u8>) = match shape.experts {
        0..=0x80 => ("int8", numbers.map(|expert| u8::try_from(expert).unwrap_or(u8::MAX)).collect()),
        0x81..=0x8000 => ("int16", numbers.flat_map(u16::to_le_bytes).collect()),
        _ => ("int32", numbers.flat_map(|expert| u32::from(expert).to_le_bytes()).collect()),
    };
    let base64 = BASE64_STANDARD.encode(bytes);
    format!("{NEMO_RL}:{dtype}:{rows}x{}x{}:{base64}", shape.layers, shape.per_token)
}

/// Writes routes as SGLang does: the numbers alone, as int32 in base64.
pub(crate) fn of_sglang(shape: &RouteShape, routes: &Routes) -> String {
    let numbers = in_all_layers(shape, routes).into_iter().map(i32::from);
    BASE64_STANDARD.encode(numbers.flat_map(i32::to_le_bytes).collect::<Vec<u8>>())
}

/// The experts of each token, layer by layer; those of layers without experts are zeros.
fn in_all_layers(shape: &RouteShape, routes: &Routes) -> Vec<u16> {
    let row = shape.layers * shape.per_token;
    let mut numbers = vec![0; routes.0.len() / shape.width() * row];
    for (of_token, taken) in numbers.chunks_exact_mut(row).zip(routes.0.chunks_exact(shape.width())) {
        for (layer, taken) in shape.mixtures.iter().zip(taken.chunks_exact(shape.per_token)) {
            of_token[layer * shape.per_token..][..shape.per_token].copy_from_slice(taken);
        }
    }
    numbers
}

/// Reads routes that a client gives, in either form or as lists of lists of lists of numbers.
pub(crate) fn read(field: Option<&Value>) -> Result<Option<RouteArray>, ApiError> {
    let array = match field {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.starts_with(NEMO_RL) => envelope(text),
        Some(Value::String(text)) => file(text),
        Some(Value::Array(tokens)) => lists(tokens),
        Some(_) => None,
    };
    let refuse = || {
        let message = format!(
            "`{FIELD}` must be an array of integers of the shape (tokens, layers, experts of a token): an .npy file in \
             base64, `{NEMO_RL}:<dtype>:<SxLxK>:<base64>`, or lists of lists of lists"
        );
        ApiError::refused(FIELD, message, None)
    };
    array.map(Some).ok_or_else(refuse)
}

fn envelope(text: &str) -> Option<RouteArray> {
    let [_, dtype, sizes, base64] = text.splitn(4, ':').collect::<Vec<_>>().try_into().ok()?;
    let shape = sizes.split('x').map(|size| size.parse().ok()).collect::<Option<Vec<usize>>>()?;
    array(dtype, &shape, &BASE64_STANDARD.decode(base64).ok()?)
}

fn file(text: &str) -> Option<RouteArray> {
    let file = BASE64_STANDARD.decode(text).ok()?;
    let npy::Array { dtype, shape, bytes } = npy::read(&file)?;
    let dtype = match dtype {
        "|u1" => "uint8",
        "|i1" => "int8",
        "<u2" => "uint16",
        "<i2" => "int16",
        "<i4" => "int32",
        "<i8" => "int64",
        _ => return None,
    };
    array(dtype, &shape, bytes)
}

fn array(dtype: &str, shape: &[usize], bytes: &[u8]) -> Option<RouteArray> {
    let shape: [usize; 3] = shape.try_into().ok()?;
    let numbers: Vec<i32> = match dtype {
        "uint8" => bytes.iter().copied().map(i32::from).collect(),
        "int8" => bytes.iter().map(|byte| i32::from(byte.cast_signed())).collect(),
        "uint16" => of_bytes(bytes, |bytes| i32::from(u16::from_le_bytes(bytes)))?,
        "int16" => of_bytes(bytes, |bytes| i32::from(i16::from_le_bytes(bytes)))?,
        "int32" => of_bytes(bytes, i32::from_le_bytes)?,
        "int64" => of_bytes(bytes, |bytes| narrowed(i64::from_le_bytes(bytes)))?,
        _ => return None,
    };
    let [tokens, layers, experts] = shape;
    let whole = tokens.checked_mul(layers)?.checked_mul(experts)? == numbers.len();
    whole.then_some(RouteArray { shape, numbers })
}

fn of_bytes<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> i32) -> Option<Vec<i32>> {
    let (chunks, rest) = bytes.as_chunks::<N>();
    rest.is_empty().then(|| chunks.iter().copied().map(number).collect())
}

/// What is no number of an expert stays none.
fn narrowed(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn lists(tokens: &[Value]) -> Option<RouteArray> {
    let first = tokens.first().map(Value::as_array);
    let layers = first.map_or(Some(0), |first| Some(first?.len()))?;
    let first = first.flatten().and_then(|first| first.first()).map(Value::as_array);
    let experts = first.map_or(Some(0), |first| Some(first?.len()))?;
    // No room is taken for more than there is: the first ones alone say how many numbers all would be.
    let mut numbers = Vec::new();
    for token in tokens {
        for layer in token.as_array().filter(|of_token| of_token.len() == layers)? {
            for number in layer.as_array().filter(|of_layer| of_layer.len() == experts)? {
                numbers.push(narrowed(number.as_i64()?));
            }
        }
    }
    Some(RouteArray { shape: [tokens.len(), layers, experts], numbers })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(experts: usize) -> RouteShape {
        RouteShape { layers: 2, mixtures: vec![1], experts, per_token: 2 }
    }

    fn read_back(text: String) -> RouteArray {
        read(Some(&Value::String(text))).unwrap().unwrap()
    }

    #[test]
    fn numpy_and_nemo_rl_read_what_is_written() {
        let routes = Routes(vec![3, 1, 0, 2]);
        // np.save of np.array([[[0, 0], [3, 1]], [[0, 0], [0, 2]]], dtype=np.uint8), NumPy 2.3.
        let saved = "k05VTVBZAQB2AHsnZGVzY3InOiAnfHUxJywgJ2ZvcnRyYW5fb3JkZXInOiBGYWxzZSwgJ3NoYXBlJzogKDIsIDIsIDIpLCB9ICAgICAgICAg\
                     ICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgIAoAAAMBAAAAAg==";
        assert_eq!(of_vllm(&shape(256), &routes), saved);
        assert_eq!(of_nemo_rl(&shape(128), &routes), "nrlre1:int8:3x2x2:AAADAQAAAAIAAQAB");
    }

    #[test]
    fn each_type_is_read_as_it_was_written() {
        for experts in [4, 128, 129, 256, 257, 0x8001] {
            let greatest = u16::try_from(experts - 1).unwrap();
            let routes = Routes(vec![greatest, 0]);
            let numbers = vec![0, 0, i32::from(greatest), 0];
            let array = RouteArray { shape: [1, 2, 2], numbers: numbers.clone() };
            assert_eq!(read_back(of_vllm(&shape(experts), &routes)), array, "{experts}");
            let padded = RouteArray { shape: [2, 2, 2], numbers: [numbers, vec![0, 1, 0, 1]].concat() };
            assert_eq!(read_back(of_nemo_rl(&shape(experts), &routes)), padded, "{experts}");
        }
    }

    /// Its first lists alone say that there were more numbers than there is memory.
    fn far_more_than_there_is() -> Value {
        let followed = |first: Value| Value::Array([vec![first], vec![json!([]); 50_000]].concat());
        followed(followed(json!(vec![0; 50_000])))
    }

    #[test]
    fn lists_are_read_and_nothing_else_is() {
        let read = |value: &Value| read(Some(value));
        let array = RouteArray { shape: [2, 1, 2], numbers: vec![0, 1, -1, -1] };
        assert_eq!(read(&json!([[[0, 1]], [[-1, -1]]])).unwrap(), Some(array));
        assert_eq!(read(&Value::Null).unwrap(), None);
        let refused = [
            json!(1),
            json!("AAAA"),
            json!("!"),
            json!([1]),
            json!([[[0, 1]], [[0]]]),
            json!([[[0, 1]], []]),
            far_more_than_there_is(),
            json!([[[0.5]]]),
            json!("nrlre2:int8:1x1x1:AA=="),
            json!("nrlre1:float16:1x1x1:AAA="),
            json!("nrlre1:int8:1x1:AA=="),
            json!("nrlre1:int8:1x1x2:AA=="),
            json!("nrlre1:int16:1x1x1:AA=="),
        ];
        for value in refused {
            assert!(read(&value).unwrap_err().message().contains("`routed_experts` must be"), "{value}");
        }
    }
}
