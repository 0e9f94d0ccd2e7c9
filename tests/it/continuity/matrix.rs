//! Every family, every shape of conversation, every end of a generation: the ids that are known, then exactly what the
//! template writes after the message; or a refusal that is listed here.

use tito::prompt::UnprovableSplice;

use super::{
    families,
    shapes::{ENDS, End, request, shapes},
    verdicts::{Counts, Refusals},
};

/// The refusals, each with its reason.
fn refusal(family: &str, shape: &str, end: End) -> Option<UnprovableSplice> {
    match (shape, end) {
        // vLLM folds developer messages into the system prompt, which stands before the known ids.
        ("developer later", _) => Some(UnprovableSplice::MessagesMoved),
        ("continues the anchor", End::Closed | End::Foreign) => Some(UnprovableSplice::ContinuesClosedMessage),
        // The message says more than its ids.
        ("continues the anchor", End::Empty) => Some(UnprovableSplice::ContinuesOtherText),
        // No special token follows the call at all.
        ("call last", _) if family == "glm" => Some(UnprovableSplice::NoClose),
        _ => None,
    }
}

#[test]
fn every_splice_is_exact_or_refused() {
    let mut counts = Counts::default();
    for family in families::all() {
        for (shape, messages, fields) in shapes() {
            for end in ENDS {
                let request = request(&family, &messages, &fields, end);
                let checked = counts.check(&family, request, Refusals::For(refusal(&family.name, shape, end)));
                checked.unwrap_or_else(|complaint| panic!("{}, {shape}, {end:?}: {complaint}", family.name));
            }
        }
    }
    eprintln!("{counts:#?}");
    assert!(counts.exact > 2_100 && counts.exact_after_foreign_stop > 340, "{counts:?}");
}
