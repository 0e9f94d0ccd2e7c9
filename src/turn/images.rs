//! The images of a conversation: from the parts that name them to what the engine gets.

use std::{ops::Range, sync::Arc};

use super::{TurnError, Turns, in_flight, said::SentFiles};
use crate::{
    TokenId,
    chat::{Content, ContentPart, Image, ImageSize, Message},
    engine::PromptImage,
    images::{Grid, PreparedImage},
    json::{Object, Path, Value},
    media::{Hold, MediaError, MediaReader},
    prompt::{ImageMarks, PromptError, UnprovableSplice},
    trajectory::Said,
};

pub(crate) use crate::media::{ImageTexts, SentImage};

/// The keys of a part that say where its image is, and its name for a cache that tito does not have: whoever names an image
/// gets the image, never what another client called so.
const OWN_KEYS: [&str; 5] = ["type", "image_url", "uuid", "detail", "prompt_cache_breakpoint"];

impl Turns {
    /// Reads the images that messages name and puts them in the place of their parts; returns them in their order. Does
    /// nothing for a model that reads no images: its renderer refuses such parts. What the client said loses the files.
    pub(super) async fn read_images(
        &self,
        messages: &mut [Message],
        said: &mut Option<Said>,
    ) -> Result<Vec<PreparedImage>, TurnError> {
        let Some(media) = &self.media else {
            let first = image_parts(messages).next();
            return first.map_or(Ok(Vec::new()), |(place, _)| self.check_refused(place).map(|()| Vec::new()));
        };
        let mut sent = SentFiles::default();
        let mut reading = Reading::new(media, image_parts(messages).count(), self.max_model_len)?;
        for (place, part) in image_parts(messages) {
            let ContentPart::Object { fields, .. } = part else { continue };
            let fields = std::mem::take(fields);
            let extras = fields.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()));
            let extras = extras.map(|(key, value)| (key.clone(), value.clone())).collect();
            let url = url(fields).ok_or_else(|| TurnError::NoImage { field: place.clone() })?;
            let file = said.as_ref().and_then(|_| SentFiles::hash(&url));
            let prepared = reading.add(url, place.then("image_url")).await?;
            let (identity, size) = (*prepared.identity().as_bytes(), size(prepared));
            if let Some(file) = file {
                sent.add(file, prepared.identity());
            }
            *part = ContentPart::Image(Image { identity, size, extras });
        }
        *said = said.take().map(|said| sent.taken_from(said));
        Ok(reading.images)
    }
}

/// The images of one request, which are read one after the other.
struct Reading<'m> {
    media: &'m MediaReader,
    max_model_len: usize,
    /// The placeholders of all images.
    tokens: usize,
    images: Vec<PreparedImage>,
}

impl<'m> Reading<'m> {
    /// Before the first of `count` images, unless they are too many.
    fn new(media: &'m MediaReader, count: usize, max_model_len: usize) -> Result<Self, TurnError> {
        let most = media.images_per_prompt();
        if count > most {
            return Err(TurnError::TooManyImages { most });
        }
        Ok(Self { media, max_model_len, tokens: 0, images: Vec::with_capacity(count) })
    }

    /// Reads the image that a URL names.
    async fn add(&mut self, url: String, field: Path) -> Result<&PreparedImage, TurnError> {
        self.take(read(self.media, url, field).await?)
    }

    /// Takes the next image. Ends where no prompt could have all images: the others would only take memory.
    fn take(&mut self, image: PreparedImage) -> Result<&PreparedImage, TurnError> {
        self.tokens += image.placeholders();
        let Self { tokens, max_model_len, .. } = *self;
        if tokens > max_model_len {
            return Err(TurnError::PromptTooLong { tokens, max_model_len, encoded_here: true });
        }
        Ok(self.images.push_mut(image))
    }
}

/// Ids with the images that they are to be computed with.
#[derive(Debug, Clone)]
pub struct IdsWithImages {
    /// The ids, with all placeholders.
    pub token_ids: Arc<[TokenId]>,
    /// The images, in the order of the ids.
    pub images: Arc<[PromptImage]>,
}

impl From<Arc<[TokenId]>> for IdsWithImages {
    /// Ids without images.
    fn from(token_ids: Arc<[TokenId]>) -> Self {
        Self { token_ids, images: Arc::default() }
    }
}

impl Turns {
    /// Reads the images that URLs name, and puts as many placeholders into `token_ids` as each of them needs: there may be
    /// one for each image, or all of them. `field` is where the URLs are in the request.
    ///
    /// # Errors
    ///
    /// If an image cannot be had, if the ids have other images, or if the model sees none.
    pub async fn with_images(
        &self,
        token_ids: &[TokenId],
        urls: Vec<String>,
        field: &'static str,
    ) -> Result<IdsWithImages, TurnError> {
        let (media, marks) = self.image_reading()?;
        let mut reading = Reading::new(media, urls.len(), self.max_model_len)?;
        for (index, url) in urls.into_iter().enumerate() {
            reading.add(url, Path::from(field).then(index)).await?;
        }
        expanded(marks, token_ids, reading.images)
    }

    /// Ids that have all placeholders of images whose tensors the request has, or which this server has read before.
    /// `field` is where they are in the request.
    ///
    /// # Errors
    ///
    /// If tensors show no image that the model can see, if an image that is only named is not kept any more, if the ids have
    /// other images, or if the model sees none.
    pub async fn with_sent_images(
        &self,
        token_ids: &[TokenId],
        sent: Vec<SentImage>,
        field: &'static str,
    ) -> Result<IdsWithImages, TurnError> {
        let (media, marks) = self.image_reading()?;
        let mut reading = Reading::new(media, sent.len(), self.max_model_len)?;
        let placeholders: Vec<_> = sent.iter().map(|sent| sent.placeholders.clone()).collect();
        for (index, sent) in sent.into_iter().enumerate() {
            let field = Path::from(field).then("kwargs_data").then("image").then(index);
            reading.take(decoding(media, field, move |media| media.sent(&sent)).await?)?;
        }
        let expanded = expanded(marks, token_ids, reading.images)?;
        if *expanded.token_ids != *token_ids || ranges(&expanded.images) != placeholders {
            return Err(PromptError::Unprovable(UnprovableSplice::OtherImages).into());
        }
        Ok(expanded)
    }

    /// Writes the tensors of the images of a prompt.
    ///
    /// # Errors
    ///
    /// If there is too little memory for them, now or at all.
    pub async fn image_tensors(&self, images: &Arc<[PromptImage]>) -> Result<Vec<ImageTexts>, TurnError> {
        let Some(media) = self.media.as_ref().filter(|_| !images.is_empty()) else { return Ok(Vec::new()) };
        let held = media.hold_tensors(images.iter().map(|image| &image.image)).map_err(TurnError::ImagesHeld)?;
        let images = Arc::clone(images);
        let write = move |media: &MediaReader| {
            let _held = held;
            Ok(images.iter().map(|image| media.tensors(&image.image)).collect())
        };
        decoding(media, Path::from("mm_payload"), write).await
    }

    /// Refuses images with the reason, where there is one.
    ///
    /// # Errors
    ///
    /// If the model would see images, but they cannot be read.
    pub fn check_refused(&self, field: impl Into<Path>) -> Result<(), TurnError> {
        match &self.refused_images {
            Some(reason) => Err(TurnError::RefusedImages { field: field.into(), reason: Arc::clone(reason) }),
            None => Ok(()),
        }
    }

    fn image_reading(&self) -> Result<(&MediaReader, ImageMarks), TurnError> {
        self.media.as_ref().zip(self.renderer.image_marks()).ok_or(TurnError::SeesNoImages)
    }

    /// Refuses ids that were computed with images which are not there, and holds the images that are.
    pub(super) fn check_images(&self, prompt: &[TokenId], images: &[PromptImage]) -> Result<Option<Hold>, TurnError> {
        let Ok((media, marks)) = self.image_reading() else { return Ok(None) };
        if marks.lacks_images(prompt, &ranges(images)) {
            return Err(TurnError::LacksImages);
        }
        let held = (!images.is_empty()).then(|| media.hold(images.iter().map(|image| &image.image)));
        held.transpose().map_err(TurnError::ImagesHeld)
    }
}

/// The parts of messages that name images, with their places in the request.
fn image_parts(messages: &mut [Message]) -> impl Iterator<Item = (Path, &mut ContentPart)> {
    messages.iter_mut().enumerate().flat_map(|(message, Message { content, .. })| {
        let parts = match content {
            Content::Parts(parts) => parts.as_mut_slice(),
            Content::Empty | Content::Text(_) => &mut [],
        };
        let named = |part: &ContentPart| match part {
            ContentPart::Object { kind, .. } => matches!(kind.as_str(), "image_url" | "input_image"),
            ContentPart::Text(_) | ContentPart::Image(_) => false,
        };
        let parts = parts.iter_mut().enumerate().filter(move |(_, part)| named(part));
        parts.map(move |(part, named)| (Path::from("messages").then(message).then("content").then(part), named))
    })
}

/// The URL of a part: `image_url` is an object with it or, as the Responses API has it, the URL.
fn url(mut fields: Object) -> Option<String> {
    match fields.shift_remove("image_url")? {
        Value::String(url) => Some(url),
        Value::Object(mut image) => match image.shift_remove("url")? {
            Value::String(url) => Some(url),
            _ => None,
        },
        _ => None,
    }
}

/// The image that a URL names. Only decoding needs a turn and a thread: another host may take seconds.
async fn read(media: &MediaReader, url: String, field: Path) -> Result<PreparedImage, TurnError> {
    let nearby = match media.fetch(url).await {
        Ok(nearby) => nearby,
        Err(error) => return Err(TurnError::Image { field, error }),
    };
    decoding(media, field, move |media| media.read(&nearby)).await
}

/// Runs what takes the time and the memory of decoding an image, on a thread of its own, when it is its turn.
async fn decoding<T: Send + 'static>(
    media: &MediaReader,
    field: Path,
    work: impl FnOnce(&MediaReader) -> Result<T, MediaError> + Send + 'static,
) -> Result<T, TurnError> {
    let turn = media.turn().await;
    let media = media.clone();
    let working = move || {
        let _turn = turn;
        work(&media)
    };
    in_flight::blocking(working).await?.map_err(|error| TurnError::Image { field, error })
}

/// Ids with as many placeholders as each of the images needs, where there may be one for each image, or all of them.
fn expanded(marks: ImageMarks, token_ids: &[TokenId], images: Vec<PreparedImage>) -> Result<IdsWithImages, TurnError> {
    let sizes: Vec<ImageSize> = images.iter().map(size).collect();
    let (token_ids, ranges) = marks.expand(token_ids, &sizes).map_err(PromptError::Unprovable)?;
    Ok(IdsWithImages { token_ids: token_ids.into(), images: placed(images, &ranges) })
}

/// How many placeholders stand for an image.
fn size(image: &PreparedImage) -> ImageSize {
    let Grid { rows, columns } = image.joined();
    ImageSize { rows, columns }
}

/// What the engine gets of the images of a prompt, in which they have these placeholders.
pub(super) fn placed(images: Vec<PreparedImage>, ranges: &[Range<usize>]) -> Arc<[PromptImage]> {
    assert_eq!(images.len(), ranges.len(), "a prompt has placeholders for each image, or is refused");
    let placed = images.into_iter().zip(ranges).map(|(image, range)| PromptImage { offset: range.start, image });
    placed.collect()
}

/// The placeholders of images.
pub(super) fn ranges(images: &[PromptImage]) -> Vec<Range<usize>> {
    images.iter().map(PromptImage::placeholders).collect()
}
