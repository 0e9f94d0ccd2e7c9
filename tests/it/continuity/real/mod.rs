//! The templates of released models, as TRL carries them, with byte-pair tokenizers: every shape of conversation, and
//! every end of a generation. They are where the recordings of Python are, see `fidelity`.

/// Formats that TRL has no template of.
mod formats;
/// The kinds of templates.
mod kinds;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use tito::{
    model::EosTokens,
    prompt::UnprovableSplice,
    tokenizer::{AddedToken, Tokenizer},
};

use super::{
    Model,
    families::Family,
    multiturn::smollm2_tokenizer,
    shapes::{ENDS, End, request, shapes},
    verdicts::{Counts, Refusals},
};
use crate::it::fidelity::recording;
use kinds::{Kind, Vocabulary, kind_of};

/// Names and sources.
fn templates(directory: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(directory.join("trl")).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    named.collect()
}

fn tokenizer(directory: &Path, vocabulary: Vocabulary) -> Arc<Tokenizer> {
    let tokenizer = match vocabulary {
        Vocabulary::Own(name) => {
            Tokenizer::from_file(directory.join("tokenizers").join(name).join("tokenizer.json")).unwrap()
        }
        Vocabulary::SmolLm2 { special, rstrip } => {
            let tokenizer = smollm2_tokenizer();
            let first = u32::try_from(tokenizer.vocab_size()).unwrap();
            let added = (first..).zip(special);
            let added = added.map(|(id, token)| AddedToken { rstrip, ..AddedToken::verbatim(id, *token, true) });
            tokenizer.with_added_tokens(&added.collect::<Vec<_>>()).unwrap()
        }
    };
    Arc::new(tokenizer)
}

fn family(name: &str, kind: Kind, template: &str, tokenizer: &Arc<Tokenizer>) -> Family {
    let id_of = |token: &str| tokenizer.id_of(token).unwrap_or_else(|| panic!("{name}: no {token}"));
    let eos = EosTokens { primary: Some(id_of(kind.eos)), others: kind.stops.iter().map(|stop| id_of(stop)).collect() };
    Family {
        name: name.to_owned(),
        model: Model::sharing(tokenizer, template, eos, kind.bos),
        close: kind.close,
        last_close: kind.last_close,
        call_close: kind.call_close,
        stop: kind.stop,
        foreign: kind.foreign,
    }
}

/// The refusals, each with its reason.
fn refusal(family: &str, shape: &str, end: End) -> Option<UnprovableSplice> {
    let starts_with = |names: &[&str]| names.iter().any(|name| family.starts_with(name));
    let gemma4 = starts_with(&["gemma4", "diffusion_gemma"]);
    match (shape, end) {
        // vLLM folds developer messages into the system prompt, which stands before the known ids. The
        // templates of Gemma 4 and gpt-oss know the role.
        ("developer later", _) if !gemma4 && !family.starts_with("gptoss") => Some(UnprovableSplice::MessagesMoved),
        // These write all system messages in front.
        ("system later", _) if starts_with(&["deepseek", "cohere2"]) => Some(UnprovableSplice::MessagesMoved),
        // A content is shown after what tools said to the calls that the model wrote after it.
        (
            "content and call"
            | "thoughts and calls"
            | "thoughts, tool, answer"
            | "nudged after a tool"
            | "agent's loop",
            _,
        ) if gemma4 && family != "gemma4_v2" => Some(UnprovableSplice::MessagesMoved),
        ("continues the anchor", End::Closed | End::Foreign) => Some(UnprovableSplice::ContinuesClosedMessage),
        // The message says more than its ids.
        ("continues the anchor", End::Empty) => Some(UnprovableSplice::ContinuesOtherText),
        // No special token follows the call at all.
        ("call last", _) if family == "glm4moe" => Some(UnprovableSplice::NoClose),
        _ => None,
    }
}

/// All conversations of one template; what was neither exact nor an expected refusal is complained about.
fn check(family: &Family, complaints: &Mutex<Vec<String>>) -> Counts {
    let mut counts = Counts::default();
    for (shape, messages, fields) in shapes() {
        for end in ENDS {
            let request = request(family, &messages, &fields, end);
            if let Err(complaint) = counts.check(family, request, Refusals::For(refusal(&family.name, shape, end))) {
                complaints.lock().unwrap().push(format!("{}, {shape}, {end:?}: {complaint}", family.name));
            }
        }
    }
    counts
}

#[test]
fn released_templates_are_spliced_exactly_or_refused() {
    let Some(directory) = recording() else { return };
    let mut jobs: BTreeMap<Vocabulary, Vec<(String, String, Kind)>> = BTreeMap::new();
    for (name, source) in templates(&directory) {
        let kind = kind_of(&name).unwrap_or_else(|| panic!("{name}: a template of no kind"));
        jobs.entry(kind.vocabulary).or_default().push((name, source, kind));
    }
    assert!(jobs.values().map(Vec::len).sum::<usize>() >= 70, "some templates are missing");
    let (jobs, counts, complaints) = (Mutex::new(jobs), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    let work = || {
        // The largest vocabularies take longest.
        while let Some((vocabulary, templates)) = { jobs.lock().unwrap().pop_first() } {
            let tokenizer = tokenizer(&directory, vocabulary);
            for (name, source, kind) in templates {
                let counted = check(&family(&name, kind, &source, &tokenizer), &complaints);
                *counts.lock().unwrap() += counted;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (counts, complaints) = (counts.into_inner().unwrap(), complaints.into_inner().unwrap());
    eprintln!("{counts:#?}");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    assert!(counts.exact > 14_600 && counts.exact_after_foreign_stop > 2_400, "{counts:?}");
}
