//! The random weights of `tests/reference/drawn_weights.py`, number for number.

use sha2::{Digest, Sha512};

/// Families whose norms multiply by one more than their weights, but for those of towers.
const ONE_MORE: [&str; 9] = [
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
];

/// The numbers of a tensor.
#[expect(clippy::cast_possible_truncation, reason = "the one rounding of a number")]
pub(super) fn drawn(seed: u64, name: &str, shape: &[usize], family: &str) -> Vec<f32> {
    let mut random = Random::seeded(&format!("{seed} {name}"));
    let (mut low, mut high) = bounds(name, shape);
    if name.contains("norm") && !name.contains("vision_tower") && ONE_MORE.contains(&family) {
        (low, high) = (low - 1.0, high - 1.0);
    }
    (0..shape.iter().product()).map(|_| (low + (high - low) * random.next()) as f32).collect()
}

fn bounds(name: &str, shape: &[usize]) -> (f64, f64) {
    let mut parts = name.rsplit('.');
    let (kind, part) = (parts.next().unwrap(), parts.next().unwrap());
    match (part, kind) {
        ("act_fn", "beta") => return (0.5, 0.5),
        ("act_fn", "eps") => return (-1e-6, -1e-6),
        ("q_norm" | "k_norm", "weight") | (_, "layer_scalar" | "per_expert_scale" | "scale") => return (0.4, 1.4),
        (_, "A_log") => return (-0.5, 0.5),
        _ => {}
    }
    if shape.len() == 1 {
        return if part.contains("norm") && kind == "weight" { (0.4, 1.4) } else { (-0.5, 0.5) };
    }
    let gain = match part {
        "q_proj" | "k_proj" => 1.3,
        "o_proj" | "down_proj" => 1.5,
        "gate" | "router" | "embed_tokens" | "lm_head" => 2.0,
        _ => 1.0,
    };
    #[expect(clippy::cast_precision_loss, reason = "rows are short")]
    let half = gain * (3.0 / *shape.last().unwrap() as f64).sqrt();
    (-half, half)
}

const WORDS: usize = 624;

/// Python's `random.Random`: MT19937, seeded with a text.
struct Random {
    state: [u32; WORDS],
    place: usize,
}

impl Random {
    fn seeded(text: &str) -> Self {
        // The text and its hash, as one number from its highest byte to its lowest.
        let mut bytes = text.as_bytes().to_vec();
        bytes.extend_from_slice(&Sha512::digest(text.as_bytes()));
        bytes.reverse();
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte));
        let key: Vec<u32> = bytes.chunks(4).map(word).collect();
        Self::of_key(&key)
    }

    fn of_key(key: &[u32]) -> Self {
        let mut state = [0_u32; WORDS];
        state[0] = 19_650_218;
        for place in 1..WORDS {
            state[place] = mixed(state[place - 1], 1_812_433_253).wrapping_add(u32::try_from(place).unwrap());
        }
        let mut place = 1;
        let advance = |place: usize, state: &mut [u32; WORDS]| {
            if place + 1 < WORDS {
                return place + 1;
            }
            state[0] = state[WORDS - 1];
            1
        };
        for count in 0..WORDS.max(key.len()) {
            let index = count % key.len();
            let added = key[index].wrapping_add(u32::try_from(index).unwrap());
            state[place] = (state[place] ^ mixed(state[place - 1], 1_664_525)).wrapping_add(added);
            place = advance(place, &mut state);
        }
        for _ in 1..WORDS {
            let taken = u32::try_from(place).unwrap();
            state[place] = (state[place] ^ mixed(state[place - 1], 1_566_083_941)).wrapping_sub(taken);
            place = advance(place, &mut state);
        }
        state[0] = 1 << 31;
        Self { state, place: WORDS }
    }

    fn word(&mut self) -> u32 {
        if self.place == WORDS {
            for place in 0..WORDS {
                let next = self.state[(place + 1) % WORDS];
                let joined = self.state[place] & 1 << 31 | next & !(1 << 31);
                let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[place] = self.state[(place + 397) % WORDS] ^ joined >> 1 ^ odd;
            }
            self.place = 0;
        }
        let mut word = self.state[self.place];
        self.place += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    /// At least 0 and less than 1.
    fn next(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }
}

fn mixed(word: u32, factor: u32) -> u32 {
    (word ^ word >> 30).wrapping_mul(factor)
}

#[test]
fn numbers_are_those_of_python() {
    // random.Random("1 model.norm.weight").random(), twice.
    let mut random = Random::seeded("1 model.norm.weight");
    let bits = [random.next(), random.next()].map(f64::to_bits);
    assert_eq!(bits, [0.694_258_814_061_236, 0.589_762_551_433_020_3_f64].map(f64::to_bits));
}
