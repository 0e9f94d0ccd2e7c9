//! What shows an image in the ids of a prompt, and where ids have that.

use std::ops::Range;

use super::super::UnprovableSplice;
use crate::{TokenId, chat::ImageSize};

/// How the ids of a model's prompts show an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageMarks {
    /// The id that stands for a part of an image.
    pub placeholder: TokenId,
    /// What tells the placeholders of an image from others.
    pub form: ImageForm,
}

/// What tells the placeholders of an image from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageForm {
    /// They stand between two marks, as those of Qwen and of Gemma 3.
    Between {
        /// The id before them.
        opens: TokenId,
        /// The id after them.
        closes: TokenId,
        /// What templates write for an image.
        template: ImageTemplate,
    },
    /// They stand in rows, each with one more id, as those of Mistral 3. Templates write one placeholder.
    Rows {
        /// The id after each row but the last one.
        breaks: TokenId,
        /// The id after that.
        ends: TokenId,
    },
    /// They stand between two marks that belong to the image, as those of `InternVL`. Templates write one placeholder.
    Around {
        /// The id before them.
        opens: TokenId,
        /// The id after them.
        closes: TokenId,
    },
}

/// What the chat templates of a model write for an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageTemplate {
    /// All three marks.
    Marks,
    /// The mark before the placeholders alone, as those of Gemma 3. transformers' processor makes all three marks of it, with
    /// two newlines before and after them, and then encodes the text.
    Opening,
}

impl ImageMarks {
    /// What shows an image of this size: its placeholders, and what belongs to it beside them.
    pub(super) fn pattern(self, ImageSize { rows, columns }: ImageSize) -> impl Iterator<Item = TokenId> {
        let (opens, closes) = match self.form {
            ImageForm::Around { opens, closes } => (Some(opens), Some(closes)),
            ImageForm::Between { .. } | ImageForm::Rows { .. } => (None, None),
        };
        let in_rows = (0..rows).flat_map(move |row| {
            let end = match self.form {
                ImageForm::Between { .. } | ImageForm::Around { .. } => None,
                ImageForm::Rows { breaks, ends } => Some(if row + 1 == rows { ends } else { breaks }),
            };
            std::iter::repeat_n(self.placeholder, columns).chain(end)
        });
        opens.into_iter().chain(in_rows).chain(closes)
    }

    /// Whether these ids are what shows an image of this size.
    pub(super) fn shows(self, token_ids: &[TokenId], size: ImageSize) -> bool {
        token_ids.iter().copied().eq(self.pattern(size))
    }

    /// What may be images of any size, in order.
    pub(super) fn runs(self, token_ids: &[TokenId]) -> Vec<Range<usize>> {
        match self.form {
            ImageForm::Between { opens, closes, .. } => self.between(token_ids, opens, closes),
            ImageForm::Rows { breaks, ends } => self.in_rows(token_ids, breaks, ends),
            ImageForm::Around { opens, closes } => {
                let inner = self.between(token_ids, opens, closes).into_iter();
                inner.map(|run| run.start - 1..run.end + 1).collect()
            }
        }
    }

    /// The position behind all that belongs to the image at `run`.
    pub(super) fn end(self, run: &Range<usize>) -> usize {
        match self.form {
            ImageForm::Between { .. } => run.end + 1,
            ImageForm::Rows { .. } | ImageForm::Around { .. } => run.end,
        }
    }

    /// The runs of placeholders between two marks.
    fn between(self, token_ids: &[TokenId], opens: TokenId, closes: TokenId) -> Vec<Range<usize>> {
        let (mut runs, mut next) = (Vec::new(), 0);
        while let Some(place) = token_ids[next..].iter().position(|&id| id == opens) {
            let start = next + place + 1;
            next = start + token_ids[start..].iter().take_while(|&&id| id == self.placeholder).count();
            if next > start && token_ids.get(next) == Some(&closes) {
                runs.push(start..next);
            }
        }
        runs
    }

    /// Rows of one length up to each end of an image, as many as there are: every image that ids have is a run, or the end of a
    /// longer one, if what looks like one more row was sampled before it. Such a run is no image then.
    fn in_rows(self, token_ids: &[TokenId], breaks: TokenId, ends: TokenId) -> Vec<Range<usize>> {
        let before = |end: usize, most: usize| {
            token_ids[..end].iter().rev().take(most).take_while(|&&id| id == self.placeholder).count()
        };
        let mut runs = Vec::new();
        for (end, _) in token_ids.iter().enumerate().filter(|(_, id)| **id == ends) {
            let columns = before(end, end);
            let mut start = end - columns;
            while columns > 0
                && start > columns
                && token_ids[start - 1] == breaks
                && before(start - 1, columns) == columns
            {
                start -= 1 + columns;
            }
            if columns > 0 {
                runs.push(start..end + 1);
            }
        }
        runs
    }

    /// Ids with an image of another size in the place of each of these ranges, one placeholder where there is no size, and
    /// where they are then.
    pub(super) fn replaced(
        self,
        token_ids: &[TokenId],
        runs: impl IntoIterator<Item = (Range<usize>, Option<ImageSize>)>,
    ) -> (Vec<TokenId>, Vec<Range<usize>>) {
        let (mut replaced, mut ranges, mut copied) = (Vec::with_capacity(token_ids.len()), Vec::new(), 0);
        for (run, size) in runs {
            replaced.extend_from_slice(&token_ids[copied..run.start]);
            let start = replaced.len();
            match size {
                Some(size) => replaced.extend(self.pattern(size)),
                None => replaced.push(self.placeholder),
            }
            ranges.push(start..replaced.len());
            copied = run.end;
        }
        replaced.extend_from_slice(&token_ids[copied..]);
        (replaced, ranges)
    }

    /// Whether ids have what shows an image outside of `images`: they were computed with images, which are not there.
    pub fn lacks_images(self, token_ids: &[TokenId], images: &[Range<usize>]) -> bool {
        self.runs(token_ids).iter().any(|run| !images.contains(run))
    }

    /// Ids with all placeholders of images of these sizes, and where they are. Each image stands there with one placeholder or
    /// with all that shows it, between its marks where templates write these; where templates write none, either each with one
    /// or each with all.
    ///
    /// # Errors
    ///
    /// If the ids have other images.
    pub fn expand(
        self,
        token_ids: &[TokenId],
        sizes: &[ImageSize],
    ) -> Result<(Vec<TokenId>, Vec<Range<usize>>), UnprovableSplice> {
        let shown = |run: &Range<usize>, size| self.shows(&token_ids[run.clone()], size);
        let mut runs = self.runs(token_ids);
        // Where nothing stands around a placeholder, one that stands alone may have been sampled. It is an image only where no
        // image is whole, so that there are as many of them as images.
        if runs.is_empty() && !sizes.is_empty() && !matches!(self.form, ImageForm::Between { .. }) {
            runs = self.single(token_ids);
        }
        let fits =
            |(run, size): (&Range<usize>, &ImageSize)| self.is_single(&token_ids[run.clone()]) || shown(run, *size);
        if runs.len() != sizes.len() || !runs.iter().zip(sizes).all(fits) {
            return Err(UnprovableSplice::OtherImages);
        }
        Ok(self.replaced(token_ids, runs.into_iter().zip(sizes.iter().copied().map(Some))))
    }

    fn is_single(self, token_ids: &[TokenId]) -> bool {
        *token_ids == [self.placeholder]
    }

    /// Every placeholder, by itself.
    fn single(self, token_ids: &[TokenId]) -> Vec<Range<usize>> {
        let places = token_ids.iter().enumerate().filter(|&(_, &id)| id == self.placeholder);
        places.map(|(place, _)| place..place + 1).collect()
    }
}
