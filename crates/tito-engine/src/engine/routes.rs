//! Which experts tokens go through: the routes of a sequence.
//!
//! Owns the layout of routes and the check of those that are given. Refuses to choose experts, and encodings.

use std::sync::Arc;

/// Stands for the experts that the model chooses itself.
const OWN: u16 = u16::MAX;

/// The mixtures of experts of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteShape {
    /// The layers of the model, with a mixture or without.
    pub layers: usize,
    /// The layers that have a mixture, ascending; at least one.
    pub mixtures: Vec<usize>,
    /// The experts of the largest mixture.
    pub experts: usize,
    /// The experts that a token goes through in each of them.
    pub per_token: usize,
}

impl RouteShape {
    /// How many experts a token goes through, in all mixtures together.
    pub fn width(&self) -> usize {
        self.mixtures.len() * self.per_token
    }
}

/// The experts of some tokens that follow each other: token by token, mixture by mixture, and in a mixture from the
/// expert that was chosen first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes(pub Vec<u16>);

impl Routes {
    /// Adds `next` to those so far.
    pub fn join(all: &mut Option<Self>, next: Option<Self>) {
        match (all, next) {
            (Some(all), Some(next)) => all.0.extend(next.0),
            (all, Some(next)) => *all = Some(next),
            (_, None) => {}
        }
    }
}

/// What a request wants of the routes of a sequence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routing {
    /// Report the routes of the tokens from this position on.
    pub shown_from: Option<usize>,
    /// The routes that the prompt has to take.
    pub given: Option<Arc<GivenRoutes>>,
}

impl Routing {
    /// Whether nothing is wanted.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Routes as a client gives them: numbers token by token, layer by layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteArray {
    /// Tokens, layers, and experts of a token in a layer.
    pub shape: [usize; 3],
    /// As many numbers as the shape says.
    pub numbers: Vec<i32>,
}

/// Why routes cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The array has other sizes than the model.
    #[error(
        "must have the shape (tokens, {layers}, {per_token}) of this model's layers and experts per token, or (tokens, \
         {mixtures}, {per_token}) of the layers with experts alone, got ({}, {}, {})",
        .got[0], .got[1], .got[2]
    )]
    Shape {
        /// All layers.
        layers: usize,
        /// Those with experts.
        mixtures: usize,
        /// The experts of a token.
        per_token: usize,
        /// What was given.
        got: [usize; 3],
    },
    /// There are more tokens in it than in the prompt.
    #[error("has the experts of {tokens} tokens, and the prompt has {prompt}")]
    TooLong {
        /// Tokens of the array.
        tokens: usize,
        /// Tokens of the prompt.
        prompt: usize,
    },
    /// A mixture has no such expert.
    #[error("names expert {expert} for token {token} in layer {layer}, which has the experts 0 to {last}")]
    Unknown {
        /// What was named.
        expert: i32,
        /// The position of the token.
        token: usize,
        /// The layer.
        layer: usize,
        /// The greatest number that there is.
        last: usize,
    },
    /// A token cannot go through an expert twice.
    #[error("names expert {expert} twice for token {token} in layer {layer}")]
    Twice {
        /// What was named.
        expert: i32,
        /// The position of the token.
        token: usize,
        /// The layer.
        layer: usize,
    },
}

/// The experts that the first tokens of a prompt are to go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenRoutes {
    experts: Vec<u16>,
    width: usize,
    per_token: usize,
}

impl GivenRoutes {
    /// Checks `array` against the mixtures of a model. Numbers of layers without experts count for nothing, and a token
    /// whose numbers in a layer are all -1 has its experts chosen there.
    pub fn new(array: &RouteArray, shape: &RouteShape, prompt: usize) -> Result<Arc<Self>, RouteError> {
        let [tokens, layers, per_token] = array.shape;
        let of_all = layers == shape.layers;
        if per_token != shape.per_token || !(of_all || layers == shape.mixtures.len()) {
            let (layers, mixtures) = (shape.layers, shape.mixtures.len());
            return Err(RouteError::Shape { layers, mixtures, per_token: shape.per_token, got: array.shape });
        }
        if tokens > prompt {
            return Err(RouteError::TooLong { tokens, prompt });
        }
        let mut experts = Vec::with_capacity(tokens * shape.width());
        for (token, of_token) in array.numbers.chunks_exact(layers * per_token).enumerate() {
            for (mixture, &layer) in shape.mixtures.iter().enumerate() {
                let place = if of_all { layer } else { mixture } * per_token;
                push_checked(&of_token[place..place + per_token], shape.experts, (token, layer), &mut experts)?;
            }
        }
        Ok(Arc::new(Self { experts, width: shape.width(), per_token }))
    }

    /// The experts of each token in each mixture, as [`Self::new`] takes them: -1 where they are chosen.
    pub fn array(&self) -> RouteArray {
        let mixtures = self.width / self.per_token;
        let number = |expert: &u16| if *expert == OWN { -1 } else { i32::from(*expert) };
        let tokens = self.experts.len() / self.width;
        RouteArray { shape: [tokens, mixtures, self.per_token], numbers: self.experts.iter().map(number).collect() }
    }

    /// The experts of a token in a mixture; `None` where they are chosen.
    pub(crate) fn experts(&self, position: usize, mixture: usize) -> Option<&[u16]> {
        let first = position * self.width + mixture * self.per_token;
        let experts = self.experts.get(first..first + self.per_token)?;
        (experts[0] != OWN).then_some(experts)
    }

    /// Whether they are of mixtures like these, so that every expert is there.
    pub(crate) fn fit(&self, shape: &RouteShape) -> bool {
        (self.width, self.per_token) == (shape.width(), shape.per_token)
    }

    /// A salt that no request has which brings no routes, or others: an `@` is in none of a client.
    pub(crate) fn salt(&self, asked: Option<&str>) -> Arc<str> {
        let mut hasher = blake3::Hasher::new_derive_key("tito 2026-11-23 salt of given routes, version 1");
        hasher.update(&[u8::from(asked.is_some())]);
        hasher.update(&asked.map_or(0, str::len).to_le_bytes()).update(asked.unwrap_or_default().as_bytes());
        for expert in &self.experts {
            hasher.update(&expert.to_le_bytes());
        }
        format!("routes@{}", hasher.finalize().to_hex()).into()
    }
}

/// Adds the experts of a token in a layer.
fn push_checked(
    numbers: &[i32],
    experts: usize,
    (token, layer): (usize, usize),
    out: &mut Vec<u16>,
) -> Result<(), RouteError> {
    if numbers.iter().all(|number| *number == -1) {
        out.extend(numbers.iter().map(|_| OWN));
        return Ok(());
    }
    for (index, &expert) in numbers.iter().enumerate() {
        let known = u16::try_from(expert).ok().filter(|known| usize::from(*known) < experts && *known != OWN);
        let Some(known) = known else {
            return Err(RouteError::Unknown { expert, token, layer, last: experts - 1 });
        };
        if numbers[..index].contains(&expert) {
            return Err(RouteError::Twice { expert, token, layer });
        }
        out.push(known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> RouteShape {
        RouteShape { layers: 3, mixtures: vec![1, 2], experts: 4, per_token: 2 }
    }

    fn given_routes(
        shape_of_array: [usize; 3],
        numbers: &[i32],
        prompt: usize,
    ) -> Result<Arc<GivenRoutes>, RouteError> {
        GivenRoutes::new(&RouteArray { shape: shape_of_array, numbers: numbers.to_vec() }, &shape(), prompt)
    }

    #[test]
    fn layers_without_experts_count_for_nothing_or_are_left_out() {
        let of_all = given_routes([1, 3, 2], &[9, 9, 0, 3, 2, 1], 1).unwrap();
        assert_eq!(of_all, given_routes([1, 2, 2], &[0, 3, 2, 1], 1).unwrap());
        assert_eq!((of_all.experts(0, 0), of_all.experts(0, 1)), (Some(&[0, 3][..]), Some(&[2, 1][..])));
        assert_eq!(of_all.experts(1, 0), None, "after the last token that has routes");
    }

    #[test]
    fn minus_one_leaves_the_choice_to_the_model() {
        let given = given_routes([2, 2, 2], &[-1, -1, 0, 1, 2, 3, -1, -1], 2).unwrap();
        let found: Vec<_> =
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(token, mixture)| given.experts(token, mixture)).into();
        assert_eq!(found, [None, Some(&[0, 1][..]), Some(&[2, 3][..]), None]);
        assert_eq!(GivenRoutes::new(&given.array(), &shape(), 2), Ok(given));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        let message = |outcome: Result<_, RouteError>| outcome.unwrap_err().to_string();
        assert_eq!(
            message(given_routes([1, 2, 3], &[0, 1, 2, 0, 1, 2], 1)),
            "must have the shape (tokens, 3, 2) of this model's layers and experts per token, or (tokens, 2, 2) of the \
             layers with experts alone, got (1, 2, 3)"
        );
        assert_eq!(
            message(given_routes([2, 2, 2], &[0, 1, 0, 1, 0, 1, 0, 1], 1)),
            "has the experts of 2 tokens, and the prompt has 1"
        );
        assert_eq!(
            message(given_routes([1, 2, 2], &[0, 1, 0, 4], 1)),
            "names expert 4 for token 0 in layer 2, which has the experts 0 to 3"
        );
        assert_eq!(
            message(given_routes([1, 2, 2], &[0, -1, 0, 1], 1)),
            "names expert -1 for token 0 in layer 1, which has the experts 0 to 3"
        );
        assert_eq!(message(given_routes([1, 2, 2], &[0, 1, 2, 2], 1)), "names expert 2 twice for token 0 in layer 2");
    }

    #[test]
    fn routes_salt_and_no_salt_and_their_absence_all_count() {
        let (one, other) =
            (given_routes([1, 2, 2], &[0, 1, 2, 3], 1).unwrap(), given_routes([1, 2, 2], &[0, 1, 3, 2], 1).unwrap());
        let salts = [one.salt(None), one.salt(Some("")), one.salt(Some("a")), other.salt(None)];
        for (index, salt) in salts.iter().enumerate() {
            assert!(!salts[..index].contains(salt) && salt.contains('@'), "{index}");
        }
    }
}
