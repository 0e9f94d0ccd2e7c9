//! Weights that come in a stream.

use std::{fmt::Display, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt};

use super::{Control, ControlError, Updated};
use crate::{
    engine::{NewWeights, TensorInfo, UpdateError, Written},
    weights::{Header, SafetensorsStream},
};

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
    /// before the first tensor is written, and each tensor is written as soon as it is whole. Within an update in phases,
    /// this is a part of it, and nothing is answered; else it is an update of its own.
    ///
    /// # Errors
    ///
    /// If the stream breaks off or cannot be used; the server goes on with the weights that it had.
    pub async fn update_from_stream<E: Display>(
        self: &Arc<Self>,
        pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
        label: Option<Arc<str>>,
    ) -> Result<Option<Updated>, ControlError> {
        let is_part = self.shown().updating;
        if !is_part {
            self.start_update().await?;
        }
        match self.write_stream(pieces).await {
            Ok(_) if is_part => Ok(None),
            Ok(_) => self.finish_update(label).await.map(Some),
            Err(error) => {
                self.cancel_update(None).await?;
                Err(error)
            }
        }
    }

    async fn write_stream<E: Display>(
        &self,
        mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<Written, ControlError> {
        let (mut stream, mut is_checked, mut all) = (SafetensorsStream::new(), false, Written::default());
        loop {
            let next = tokio::time::timeout(self.policy.update_timeout, pieces.next());
            let next = next.await.map_err(|_| refused("nothing more of the stream came for too long"))?;
            let Some(piece) = next else { break };
            let piece = piece.map_err(|error| refused(format_args!("the stream broke off: {error}")))?;
            let tensors = stream.push(piece).map_err(refused)?;
            if !is_checked && let Some(header) = stream.header() {
                self.check_weights(promised(header).map_err(refused)?).await?;
                is_checked = true;
            }
            if !tensors.is_empty() {
                let written = self.write_weights(NewWeights::Tensors(tensors)).await?;
                all.tensors += written.tensors;
                all.bytes += written.bytes;
            }
        }
        stream.finish().map_err(refused)?;
        Ok(all)
    }
}
