//! Real tokenizers: the ids that Python's tokenizers library gives, and the text that it makes of them.

use std::{path::Path, sync::Mutex};

use serde_json::Value;
use tito::{model::TokenizerFiles, tokenizer::Tokenizer};

use super::{assert_none, in_parallel, parting, recording, stems, values};
use crate::it::continuity::{ids, multiturn::smollm2_tokenizer};

fn tokenizer(directory: &Path, family: &str) -> Tokenizer {
    if family == "smollm2" {
        return smollm2_tokenizer();
    }
    // As a server reads it: its class may build it anew.
    TokenizerFiles::open(&directory.join(format!("tokenizers/{family}"))).unwrap().tokenizer().unwrap()
}

fn compare(tokenizer: &Tokenizer, case: &Value) -> Result<(), String> {
    let expected = ids(&case["ids"]);
    let same = |what: &str, expected: &str, got: &str| {
        if expected == got { Ok(()) } else { Err(format!("{what}\n{}", parting(expected, got))) }
    };
    if let Some(text) = case["text"].as_str() {
        let show = |ids: &[u32]| format!("{ids:?}");
        same("ids", &show(&expected), &show(&tokenizer.encode(text, false).unwrap()))?;
        let with_special = case.get("ids_with_special").map_or_else(|| expected.clone(), ids);
        same("ids with special tokens", &show(&with_special), &show(&tokenizer.encode(text, true).unwrap()))?;
    }
    let decoded = case["decoded"].as_str().unwrap();
    same("text", decoded, &tokenizer.decode(&expected, false).unwrap())?;
    same("text without special tokens", case["spoken"].as_str().unwrap(), &tokenizer.decode(&expected, true).unwrap())?;
    Ok(())
}

#[test]
fn every_tokenizer_gives_the_ids_and_texts_that_python_recorded() {
    let Some(directory) = recording() else { return };
    let families = stems(&directory.join("ids"));
    let report = Mutex::new((0, Vec::new()));
    in_parallel(families, |family| {
        let tokenizer = tokenizer(&directory, &family);
        let cases = values(&directory.join(format!("ids/{family}.jsonl")));
        for case in &cases {
            if let Err(difference) = compare(&tokenizer, case) {
                report.lock().unwrap().1.push(format!("{family}, {case}: {difference}"));
            }
        }
        eprintln!("{family}: {} texts and lists of ids compared", cases.len());
        report.lock().unwrap().0 += cases.len();
    });
    let (compared, differences) = report.into_inner().unwrap();
    assert_none(&differences);
    assert!(compared > 6000, "{compared} compared");
}
