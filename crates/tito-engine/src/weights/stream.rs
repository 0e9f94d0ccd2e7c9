//! Safetensors as they come in pieces: each tensor is given out as soon as it is whole.
//!
//! Memory is reserved for bytes that are there, never for those that a header only promises, and a tensor that one piece
//! holds whole is not copied.

use std::mem;

use bytes::Bytes;

use super::{Header, Layout, MOST_HEADER_BYTES, WeightTensor, header::quoted_excerpt};

/// Bytes of the number that says how long the header is.
const LENGTH_BYTES: usize = 8;

/// Why a stream of safetensors cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The header is not one.
    #[error("the stream's header is not usable: {0}")]
    Header(String),
    /// The stream ended before all bytes had come that its header says.
    #[error("the stream ended early, {0}")]
    Early(String),
    /// More bytes came than the header says.
    #[error("bytes follow the stream's last tensor")]
    Surplus,
    /// There is no memory for what came.
    #[error("there is no memory for the bytes of {0}")]
    NoRoom(String),
}

/// Reads one stream.
#[derive(Debug)]
pub struct SafetensorsStream {
    part: StreamPart,
    /// The beginning of the part that is being read; empty where nothing of it came yet.
    begun: Vec<u8>,
    header: Option<Header>,
    layouts: Vec<Layout>,
}

/// What is being read.
#[derive(Debug, Clone)]
enum StreamPart {
    /// The number that says how long the header is.
    Length,
    /// A header of so many bytes.
    Header(usize),
    /// The tensor with this number.
    Tensor(usize),
    /// Nothing more.
    End,
    /// Nothing more, as something was wrong.
    Failed(StreamError),
}

impl Default for SafetensorsStream {
    fn default() -> Self {
        Self::new()
    }
}

impl SafetensorsStream {
    /// Nothing has come yet.
    pub fn new() -> Self {
        Self { part: StreamPart::Length, begun: Vec::new(), header: None, layouts: Vec::new() }
    }

    /// The header, from the [`push`](Self::push) on that completed it.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Takes the next piece, and gives the tensors that it completes, in the order of their bytes. Once it has failed, it
    /// fails for ever.
    pub fn push(&mut self, mut piece: Bytes) -> Result<Vec<WeightTensor>, StreamError> {
        let mut whole = Vec::new();
        match self.read(&mut piece, &mut whole) {
            Ok(()) => Ok(whole),
            Err(error) => {
                self.begun = Vec::new();
                self.part = StreamPart::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Says that nothing more comes. An error where something is missing, or was wrong before.
    pub fn finish(self) -> Result<(), StreamError> {
        match &self.part {
            StreamPart::End => Ok(()),
            StreamPart::Failed(error) => Err(error.clone()),
            // The length that a header is said to have may be the first bytes of any file, which nobody is to be told.
            StreamPart::Header(_) => Err(StreamError::Early(format!("after {} bytes of its header", self.begun.len()))),
            part => {
                let (begun, wanted) = (self.begun.len(), self.bytes_of_part());
                Err(StreamError::Early(format!("after {begun} of {wanted} bytes of {}", self.called(part))))
            }
        }
    }

    fn read(&mut self, piece: &mut Bytes, whole: &mut Vec<WeightTensor>) -> Result<(), StreamError> {
        loop {
            match &self.part {
                StreamPart::End if piece.is_empty() => return Ok(()),
                StreamPart::End => return Err(StreamError::Surplus),
                StreamPart::Failed(error) => return Err(error.clone()),
                StreamPart::Length | StreamPart::Header(_) | StreamPart::Tensor(_) => {}
            }
            let Some(bytes) = self.take(piece)? else { return Ok(()) };
            self.use_part(bytes, whole)?;
        }
    }

    /// Bytes of the part that is being read.
    fn bytes_of_part(&self) -> usize {
        match self.part {
            StreamPart::Length => LENGTH_BYTES,
            StreamPart::Header(length) => length,
            StreamPart::Tensor(number) => self.layouts[number].bytes().unwrap_or(usize::MAX),
            StreamPart::End | StreamPart::Failed(_) => 0,
        }
    }

    fn called(&self, part: &StreamPart) -> String {
        match (part, &self.header) {
            (StreamPart::Tensor(number), Some(header)) => {
                format!("tensor {}", quoted_excerpt(&header.tensors()[*number].name))
            }
            (StreamPart::Length, _) => "the length of its header".to_owned(),
            _ => "its header".to_owned(),
        }
    }

    /// The bytes of the part that is being read, once they are all there.
    fn take(&mut self, piece: &mut Bytes) -> Result<Option<Bytes>, StreamError> {
        let missing = self.bytes_of_part() - self.begun.len();
        if self.begun.is_empty() && piece.len() >= missing {
            return Ok(Some(piece.split_to(missing)));
        }
        let more = piece.split_to(missing.min(piece.len()));
        if self.begun.capacity() - self.begun.len() < more.len() {
            // At least twice as much as before, so that few bytes are copied twice, and never more than the part has.
            let room = self.begun.len().max(more.len()).min(missing);
            let reserved = self.begun.try_reserve_exact(room);
            reserved.map_err(|_| StreamError::NoRoom(self.called(&self.part)))?;
        }
        self.begun.extend_from_slice(&more);
        Ok((more.len() == missing).then(|| Bytes::from(mem::take(&mut self.begun))))
    }

    /// Takes note of a part that is whole.
    fn use_part(&mut self, bytes: Bytes, whole: &mut Vec<WeightTensor>) -> Result<(), StreamError> {
        match self.part {
            StreamPart::Length => {
                let length = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
                if length > MOST_HEADER_BYTES {
                    let reason =
                        format!("it is longer than the {MOST_HEADER_BYTES} bytes that it may have, or no header");
                    return Err(StreamError::Header(reason));
                }
                self.part = StreamPart::Header(usize::try_from(length).unwrap_or(usize::MAX));
            }
            StreamPart::Header(_) => {
                let header = Header::parse(&bytes).map_err(StreamError::Header)?;
                let layouts = header.tensors().iter().map(super::HeaderTensor::layout).collect::<Result<_, _>>();
                self.layouts = layouts.map_err(StreamError::Header)?;
                self.header = Some(header);
                self.begin_tensor(0);
            }
            StreamPart::Tensor(number) => {
                let Layout { dtype, shape } = self.layouts[number].clone();
                let header = self.header.as_ref().map(|header| header.tensors()[number].name.clone());
                whole.push(WeightTensor { name: header.unwrap_or_default(), dtype, shape, bytes });
                self.begin_tensor(number + 1);
            }
            StreamPart::End | StreamPart::Failed(_) => {}
        }
        Ok(())
    }

    fn begin_tensor(&mut self, number: usize) {
        self.part = if number < self.layouts.len() { StreamPart::Tensor(number) } else { StreamPart::End };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::weights::WeightDtype;

    const HEADER: &str = r#"{"b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},
        "a":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]},
        "none":{"dtype":"F16","shape":[0,4],"data_offsets":[6,6]},
        "last":{"dtype":"F16","shape":[0],"data_offsets":[14,14]}}"#;

    fn framed(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn sound() -> Vec<u8> {
        framed(HEADER, &(0..14).collect::<Vec<u8>>())
    }

    /// What comes of a stream that is cut after these many bytes, again and again.
    fn read(stream: &[u8], cuts: &[usize]) -> Result<Vec<WeightTensor>, StreamError> {
        let mut reader = SafetensorsStream::new();
        let (mut rest, mut tensors) = (stream, Vec::new());
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            tensors.extend(reader.push(Bytes::copy_from_slice(piece))?);
            rest = more;
        }
        reader.finish()?;
        Ok(tensors)
    }

    fn refusal(stream: &[u8]) -> String {
        read(stream, &[stream.len()]).unwrap_err().to_string()
    }

    #[test]
    fn tensors_come_in_the_order_of_their_bytes() {
        let tensors = read(&sound(), &[usize::MAX]).unwrap();
        assert_eq!(tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["a", "none", "b", "last"]);
        assert_eq!((tensors[0].dtype, &tensors[0].shape[..]), (WeightDtype::Bf16, &[3, 1][..]));
        assert_eq!(tensors[0].bytes[..], [0, 1, 2, 3, 4, 5]);
        assert_eq!(tensors[2].bytes[..], [6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(read(&framed("{}", &[]), &[1]), Ok(Vec::new()));
    }

    #[test]
    fn the_header_is_known_before_the_first_tensor_is_whole() {
        let mut reader = SafetensorsStream::new();
        let data = Bytes::from(sound());
        let begins = data.len() - 14;
        assert!(reader.push(data.slice(..begins - 1)).unwrap().is_empty());
        assert!(reader.header().is_none());
        assert!(reader.push(data.slice(begins - 1..begins)).unwrap().is_empty());
        assert_eq!(reader.header().unwrap().tensors().len(), 4);
    }

    #[test]
    fn a_tensor_that_one_piece_holds_is_not_copied() {
        let data = Bytes::from(sound());
        let tensors = SafetensorsStream::new().push(data.clone()).unwrap();
        assert_eq!(tensors[2].bytes.as_ptr(), data[data.len() - 8..].as_ptr());
    }

    #[test]
    fn a_stream_that_is_longer_or_shorter_than_its_header_says_is_refused() {
        let sound = sound();
        assert_eq!(refusal(&[&sound[..], &[0]].concat()), "bytes follow the stream's last tensor");
        let ended = |bytes: usize| refusal(&sound[..sound.len() - bytes]);
        assert_eq!(ended(1), "the stream ended early, after 7 of 8 bytes of tensor b");
        assert_eq!(ended(8), "the stream ended early, after 0 of 8 bytes of tensor b");
        assert_eq!(ended(14), "the stream ended early, after 0 of 6 bytes of tensor a");
        let empty = SafetensorsStream::new().finish().unwrap_err().to_string();
        assert_eq!(empty, "the stream ended early, after 0 of 8 bytes of the length of its header");
        assert_eq!(refusal(&sound[..20]), "the stream ended early, after 12 bytes of its header");
    }

    #[test]
    fn headers_that_cannot_be_used_are_refused_before_anything_is_reserved() {
        for length in [100_000_001_u64.to_le_bytes(), *b"root:x:0"] {
            let long = refusal(&length);
            assert!(long.ends_with("it is longer than the 100000000 bytes that it may have, or no header"), "{long}");
        }
        let hole = r#"{"a":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}"#;
        assert!(refusal(&framed(hole, &[0; 4])).starts_with("the stream's header is not usable: "));
        let bytes = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let refused = refusal(&framed(bytes, &[0]));
        assert_eq!(refused, "the stream's header is not usable: tensor a is of type U8; BF16, F16 and F32 are read");

        let mut liar = SafetensorsStream::new();
        let vast = r#"{"a":{"dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776]}}"#;
        assert!(liar.push(framed(vast, &[1; 100]).into()).unwrap().is_empty());
        assert!(liar.push(vec![1; 100].into()).unwrap().is_empty());
        assert!(liar.begun.capacity() < 1000, "{}", liar.begun.capacity());
    }

    #[test]
    fn a_stream_that_has_failed_stays_so() {
        let mut reader = SafetensorsStream::new();
        let error = reader.push(framed("[]", &[]).into()).unwrap_err();
        assert_eq!(reader.push(Bytes::new()), Err(error.clone()));
        assert_eq!(reader.finish(), Err(error));
    }

    proptest! {
        #[test]
        fn where_a_stream_is_cut_makes_no_difference(cuts in prop::collection::vec(1_usize..40, 1..20)) {
            prop_assert_eq!(read(&sound(), &cuts), read(&sound(), &[usize::MAX]));
        }

        #[test]
        fn damaged_streams_are_read_or_refused(
            at in 0_usize..300, bit in 0_u32..8, end in 0_usize..400, cuts in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let mut stream = sound();
            let length = stream.len();
            stream[at % length] ^= 1 << bit;
            stream.truncate(end);
            if let Err(error) = read(&stream, &cuts) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
