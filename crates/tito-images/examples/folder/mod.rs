//! A folder of images for the processor of one model.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use tito_images::ImageProcessor;

/// The processor that `config.json` and `preprocessor_config.json` of a folder describe, and its other files by their names.
pub(crate) fn read(folder: &Path) -> Result<(ImageProcessor, Vec<PathBuf>), Box<dyn Error>> {
    let json = |name: &str| serde_json::from_slice(&fs::read(folder.join(name))?).map_err(Box::<dyn Error>::from);
    let processor = ImageProcessor::of_model(&json("config.json")?, &json("preprocessor_config.json")?)?;
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let is_image = |path: &PathBuf| path.extension().is_none_or(|kind| kind != "json");
    let mut images: Vec<_> = paths.into_iter().filter(is_image).collect();
    images.sort();
    Ok((processor, images))
}
