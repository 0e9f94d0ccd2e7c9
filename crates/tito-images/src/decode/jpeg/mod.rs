//! JPEG files, to the bit as libjpeg-turbo reads them with its defaults (slow integer transform, smooth upsampling), which
//! Pillow, `OpenCV` and torchvision share: baseline and progressive, 8 bits, Huffman codes.
//!
//! libjpeg-turbo makes up the parts of a broken file that it cannot read, and smooths a progressive image that lacks scans.
//! Both are refused here.

mod bits;
mod blocks;
mod coefficients;
mod colour;
mod frame;
mod header;
mod huffman;
mod idct;
mod samples;
mod scan;
mod upsample;

use super::{
    Raster,
    orientation::{Metadata, Orientation},
};
use crate::{decoded::ImageLimits, error::ImageError};
use colour::ColourSpace;
use frame::Frame;
use header::{Segments, Tables};
use pulp::{Arch, Simd, WithSimd};
use upsample::{Plane, Rows};

const KIND: &str = "JPEG";

/// A file needs a few scans for each digit of its coefficients. Each scan may cost time for all blocks with few bytes.
const MOST_SCANS: usize = 256;

pub(super) fn decode(encoded: &[u8], limits: ImageLimits) -> Result<(Raster, Orientation), ImageError> {
    let mut file = File { tables: Tables::default(), metadata: Metadata::default(), colours: Colours::default() };
    let mut segments = Segments::after_start(encoded);
    let mut frame = None;
    let mut scans = 0;
    loop {
        let (marker, content) = segments.next()?;
        match marker {
            header::END_OF_IMAGE => break,
            header::START_OF_SCAN => {
                let frame = frame.as_mut().ok_or_else(|| broken("pixels come before their size"))?;
                scans += 1;
                if scans > MOST_SCANS {
                    return Err(ImageError::unsupported(KIND, "it has more than 256 scans"));
                }
                let rest = scan::decode(content, segments.rest(), frame, &file.tables)?;
                segments.go_on(rest);
            }
            header::BASELINE | header::EXTENDED | header::PROGRESSIVE => {
                if frame.is_some() {
                    return Err(broken("it has two sizes"));
                }
                frame = Some(Frame::read(content, marker == header::PROGRESSIVE, limits)?);
            }
            // Pillow reads segments up to the first scan, and libjpeg has guessed there what components mean.
            header::APP0 | header::APP1 | header::APP14 if scans > 0 => {}
            _ => file.take(marker, content)?,
        }
    }
    let frame = frame.ok_or_else(|| broken("it has no pixels"))?;
    let orientation = file.metadata.orientation(KIND)?;
    Ok((file.colours.raster(frame)?, orientation))
}

fn broken(what: &str) -> ImageError {
    ImageError::broken(KIND, what)
}

/// What a file says before its pixels.
struct File {
    tables: Tables,
    metadata: Metadata,
    colours: Colours,
}

/// What tells the meaning of the components.
#[derive(Default)]
struct Colours {
    jfif: bool,
    /// The transform that Adobe's segment names.
    adobe: Option<u8>,
}

impl File {
    /// Everything but sizes and scans.
    fn take(&mut self, marker: u8, content: &[u8]) -> Result<(), ImageError> {
        match marker {
            header::QUANTISATION => self.tables.read_quantisation(content),
            header::HUFFMAN => self.tables.read_huffman(content),
            header::RESTART_INTERVAL => self.tables.read_restart_interval(content),
            header::APP0 => {
                self.colours.jfif |= content.len() >= 14 && content.starts_with(b"JFIF\0");
                Ok(())
            }
            header::APP1 => {
                self.take_metadata(content);
                Ok(())
            }
            header::APP14 => {
                if content.len() >= 12 && content.starts_with(b"Adobe") {
                    self.colours.adobe = Some(content[11]);
                }
                Ok(())
            }
            0xc3..=0xcf => {
                Err(ImageError::unsupported(KIND, "it is neither baseline nor progressive with Huffman codes"))
            }
            _ => Ok(()),
        }
    }

    /// As Pillow does: EXIF data go on in further segments, of XMP data the last segment counts.
    fn take_metadata(&mut self, content: &[u8]) {
        if let Some(exif) = content.strip_prefix(b"Exif\0\0") {
            let more = if self.metadata.exif.is_some() { exif } else { content };
            self.metadata.exif.get_or_insert_default().extend_from_slice(more);
        } else if let Some(xmp) = content.strip_prefix(b"http://ns.adobe.com/xap/1.0/\0") {
            self.metadata.xmp = Some(xmp.to_vec());
        }
    }
}

impl Colours {
    /// As libjpeg guesses it.
    fn space(&self, ids: &[u8]) -> Result<ColourSpace, ImageError> {
        let known = self.jfif || self.adobe.is_some();
        match (ids, self.adobe) {
            ([_], _) => Ok(ColourSpace::Grey),
            ([_, _, _], Some(0)) if !self.jfif => Ok(ColourSpace::Rgb),
            ([b'R', b'G', b'B'], None) if !known => Ok(ColourSpace::Rgb),
            ([_, _, _], _) => Ok(ColourSpace::YCbCr),
            ([_, _, _, _], None | Some(0)) => Ok(ColourSpace::Cmyk),
            ([_, _, _, _], _) => Ok(ColourSpace::Ycck),
            _ => Err(ImageError::unsupported(KIND, "it has neither one component nor three nor four")),
        }
    }

    fn raster(&self, frame: Frame) -> Result<Raster, ImageError> {
        frame.check_complete()?;
        let ids = frame.components.iter().map(|component| component.id).collect::<Vec<_>>();
        let space = self.space(&ids)?;
        let (width, height) = (frame.width, frame.height);
        let planes = frame.planes()?;
        let mut rgb = vec![0; 3 * width as usize * height as usize];
        Arch::new().dispatch(Paint { planes: &planes, space, width: width as usize, rgb: &mut rgb });
        Ok(Raster { width, height, rgb })
    }
}

/// Makes pixels of samples.
struct Paint<'a> {
    planes: &'a [Plane],
    space: ColourSpace,
    width: usize,
    rgb: &'a mut [u8],
}

impl WithSimd for Paint<'_> {
    type Output = ();

    #[expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let mut rows = self.planes.iter().map(Rows::of).collect::<Vec<_>>();
        for (y, line) in self.rgb.chunks_exact_mut(3 * self.width).enumerate() {
            let mut samples = [&[][..]; 4];
            for (samples, rows) in samples.iter_mut().zip(&mut rows) {
                *samples = &rows.at(y)[..self.width];
            }
            self.space.write(samples, line.as_chunks_mut().0);
        }
    }
}
