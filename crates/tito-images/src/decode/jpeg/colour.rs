//! From components to red, green and blue.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "means of bytes, or between 0 and 255")]
#![expect(clippy::inline_always, reason = "only what is inlined uses the wider instructions")]

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
    /// Writes the pixels of a row. `rows` are those of its components, as long as the row; others are empty.
    #[inline(always)]
    pub(super) fn write(self, [one, two, three, four]: [&[u8]; 4], pixels: &mut [[u8; 3]]) {
        match self {
            Self::Grey => pixels.iter_mut().zip(one).for_each(|(pixel, &grey)| *pixel = [grey; 3]),
            Self::Rgb => of_three(pixels, [one, two, three], |red, green, blue| [red, green, blue]),
            Self::YCbCr => of_three(pixels, [one, two, three], from_y_cb_cr),
            Self::Cmyk => {
                of_three(pixels, [one, two, three], |cyan, magenta, yellow| [cyan, magenta, yellow]);
                pixels.iter_mut().zip(four).for_each(|(pixel, &black)| *pixel = without_black(*pixel, black));
            }
            Self::Ycck => {
                of_three(pixels, [one, two, three], |y, cb, cr| from_y_cb_cr(y, cb, cr).map(|colour| 255 - colour));
                pixels.iter_mut().zip(four).for_each(|(pixel, &black)| *pixel = without_black(*pixel, black));
            }
        }
    }
}

#[inline(always)]
fn of_three(pixels: &mut [[u8; 3]], [one, two, three]: [&[u8]; 3], colour: impl Fn(u8, u8, u8) -> [u8; 3]) {
    for (((pixel, &one), &two), &three) in pixels.iter_mut().zip(one).zip(two).zip(three) {
        *pixel = colour(one, two, three);
    }
}

/// ITU-R BT.601 with 16 binary digits, rounded as in libjpeg's jdcolor.c.
#[inline(always)]
fn from_y_cb_cr(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91_881 * cr + HALF) >> 16);
    let green = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
    let blue = y + ((116_130 * cb + HALF) >> 16);
    [red, green, blue].map(|colour| colour.clamp(0, 255) as u8)
}

/// As Pillow converts CMYK, of which it has inverted all four.
#[inline(always)]
fn without_black(colours: [u8; 3], black: u8) -> [u8; 3] {
    let light = u32::from(black);
    colours.map(|colour| {
        let product = u32::from(255 - colour) * light + 128;
        (light - (((product >> 8) + product) >> 8).min(light)) as u8
    })
}
