//! The files of images that turns have, read out of the store.

use std::sync::Arc;

use super::{CaptureError, ImageUsed, Trajectories};

impl Trajectories {
    /// Reads the file of an image; `None` if it was not kept. Blocking.
    ///
    /// # Errors
    ///
    /// If it was kept and is gone, or cannot be read.
    pub fn image_file(&self, image: &ImageUsed) -> Result<Option<Arc<[u8]>>, CaptureError> {
        let key = self.index.lock().images.key(&image.identity).map(str::to_owned);
        let file = match key {
            Some(key) => self.store.read(&key)?,
            None => None,
        };
        match file {
            None if image.file_bytes.is_some() => {
                Err(CaptureError::Failed("the trajectory was deleted while it was read".to_owned()))
            }
            None => Ok(None),
            Some(file) if image.file_bytes.is_some_and(|bytes| bytes != file.len() as u64) => {
                Err(CaptureError::Corrupted(format!("the image {} has not the length that it says", image.identity)))
            }
            Some(file) => Ok(Some(file.into())),
        }
    }

    /// Reads the files of images, as far as they were kept. Blocking.
    ///
    /// # Errors
    ///
    /// As [`Self::image_file`].
    pub fn with_files(&self, images: &[ImageUsed]) -> Result<Vec<ImageUsed>, CaptureError> {
        let read = |image: &ImageUsed| Ok(ImageUsed { file: self.image_file(image)?, ..image.clone() });
        images.iter().map(read).collect()
    }
}
