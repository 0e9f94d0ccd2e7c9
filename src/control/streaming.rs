//! Weights that come in a stream.

use std::{fmt::Display, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::{Control, ControlError, Updated, state::Whose, updating::Joined};
use crate::{
    engine::{TensorInfo, UpdateError, WeightTensor},
    weights::{Header, SafetensorsStream},
};

/// Tensors of about so many bytes are written at a time, while the next ones come. Those of tests are small.
const BATCH_BYTES: usize = if cfg!(test) { 256 } else { 32 << 20 };

fn refused(reason: impl Display) -> ControlError {
    UpdateError::Refused(format!("{reason}; the old weights were put back")).into()
}

/// The tensors that a header promises.
fn promised(header: &Header) -> Result<Vec<TensorInfo>, String> {
    let info = |tensor: &crate::weights::HeaderTensor| {
        let layout = tensor.layout()?;
        Ok(TensorInfo { name: tensor.name.clone(), dtype: layout.dtype, shape: layout.shape })
    };
    header.tensors().iter().map(info).collect()
}

impl Control {
    /// Replaces weights by those of a file of safetensors that comes in pieces: names, shapes and types are checked
    /// before the first tensor is written, and tensors are written while others come. Within an update in phases,
    /// this is a part of it, and nothing is answered; else it is an update of its own. Either way it reaches no other
    /// update, however late its bytes come.
    ///
    /// # Errors
    ///
    /// If the stream breaks off or cannot be used; the server goes on with the weights that it had.
    pub async fn update_from_stream<E: Display>(
        self: &Arc<Self>,
        pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
        label: Option<Arc<str>>,
    ) -> Result<Option<Updated>, ControlError> {
        let _writing = self.writing_calls.begin();
        let Joined { call, is_part, heard } = self.join_update(label.clone()).await?;
        let pieces = pieces.inspect(|_| heard.again());
        match self.write_stream(call, pieces).await {
            Ok(()) if is_part => self.part_ended(call, label).await.map(|()| None),
            Ok(()) => self.finish(Whose::Of(call), None).await.map(Some),
            Err(error) => {
                self.cancel_update(Some(call)).await?;
                Err(error)
            }
        }
    }

    /// Writes what has come while the next comes.
    async fn write_stream<E: Display>(
        &self,
        call: u64,
        pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), ControlError> {
        let (mut stream, mut pieces) = (SafetensorsStream::new(), pieces.fuse());
        let mut batch = self.next_batch(&mut stream, &mut pieces).await?;
        while !batch.is_empty() {
            let write = self.write_piece(call, batch);
            // A write that fails ends this at once. One that is under way is awaited, whatever comes.
            let receive = async { Ok(self.next_batch(&mut stream, &mut pieces).await) };
            let ((), next) = futures::future::try_join(write, receive).await?;
            batch = next?;
        }
        stream.finish().map_err(refused)
    }

    /// The next tensors: so many that it is worth to write them in one go, and none after the last ones. What the stream
    /// is to bring is checked as soon as it is known.
    async fn next_batch<E: Display>(
        &self,
        stream: &mut SafetensorsStream,
        pieces: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    ) -> Result<Vec<WeightTensor>, ControlError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            let next = tokio::time::timeout(self.policy.update_timeout, pieces.next());
            let next = next.await.map_err(|_| refused("nothing more of the stream came for too long"))?;
            let Some(piece) = next else { break };
            let piece = piece.map_err(|error| refused(format_args!("the stream broke off: {error}")))?;
            let is_checked = stream.header().is_some();
            let tensors = stream.push(piece).map_err(refused)?;
            if !is_checked && let Some(header) = stream.header() {
                self.check_weights(promised(header).map_err(refused)?).await?;
            }
            bytes += tensors.iter().map(|tensor| tensor.bytes.len()).sum::<usize>();
            batch.extend(tensors);
        }
        Ok(batch)
    }
}
