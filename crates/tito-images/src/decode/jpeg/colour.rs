//! From components to red, green and blue.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "means of bytes, or between 0 and 255")]

/// What the components of a file mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColourSpace {
    Grey,
    Rgb,
    YCbCr,
    /// Cyan, magenta, yellow and black, where more is less, as Adobe writes it and Pillow reads it.
    Cmyk,
    /// The same, with the first three as in `YCbCr`.
    Ycck,
}

impl ColourSpace {
    /// Appends the pixels of a row of each component.
    pub(super) fn append(self, rows: &[Vec<u8>], rgb: &mut Vec<u8>) {
        match (self, rows) {
            (Self::Grey, [grey]) => rgb.extend(grey.iter().flat_map(|&grey| [grey; 3])),
            (Self::Rgb, [red, green, blue]) => {
                rgb.extend(red.iter().zip(green).zip(blue).flat_map(|((&red, &green), &blue)| [red, green, blue]));
            }
            (Self::YCbCr, [y, cb, cr]) => {
                rgb.extend(y.iter().zip(cb).zip(cr).flat_map(|((&y, &cb), &cr)| from_y_cb_cr(y, cb, cr)));
            }
            (Self::Cmyk, [cyan, magenta, yellow, black]) => {
                let colours = cyan.iter().zip(magenta).zip(yellow).zip(black);
                rgb.extend(colours.flat_map(|(((&c, &m), &y), &k)| without_black([c, m, y], k)));
            }
            (Self::Ycck, [y, cb, cr, black]) => {
                let colours = y.iter().zip(cb).zip(cr).zip(black);
                let inverted = |colour: [u8; 3]| colour.map(|colour| 255 - colour);
                rgb.extend(
                    colours.flat_map(|(((&y, &cb), &cr), &k)| without_black(inverted(from_y_cb_cr(y, cb, cr)), k)),
                );
            }
            _ => unreachable!("{self:?} of {} components", rows.len()),
        }
    }
}

/// ITU-R BT.601 with 16 binary digits, rounded as in libjpeg's jdcolor.c.
fn from_y_cb_cr(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91_881 * cr + HALF) >> 16);
    let green = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|colour| colour.clamp(0, 255) as u8)
}

/// As Pillow converts CMYK, of which it has inverted all four.
fn without_black(colours: [u8; 3], black: u8) -> [u8; 3] {
    let light = u32::from(black);
    colours.map(|colour| {
        let product = u32::from(255 - colour) * light + 128;
        (light - (((product >> 8) + product) >> 8).min(light)) as u8
    })
}
