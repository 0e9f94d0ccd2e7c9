//! Which versions lead from one to another.

use super::*;

/// Versions with a delta each that builds on the one before.
fn publish(directory: &Path, versions: std::ops::RangeInclusive<u64>) {
    for version in versions {
        let before = [u8::try_from(version).unwrap(); 8];
        let published =
            Published { versions: (version - 1, version), ..Published::xor(&before, &before.map(|b| b + 1)) };
        published.write(&directory.join(format!("weight_v{version:06}")));
    }
}

fn refusal(directory: &Path, from: u64, to: u64) -> String {
    let refused = Chain::find(directory, from, to).unwrap_err().to_string();
    refused.replace(&directory.display().to_string(), "DIR")
}

#[test]
fn a_chain_leads_through_all_versions_between() {
    let directory = tempfile::tempdir().unwrap();
    publish(directory.path(), 1..=5);
    let chain = Chain::find(directory.path(), 3, 5).unwrap();
    let versions = chain.deltas().iter().map(|delta| (delta.base_version(), delta.version()));
    assert_eq!(versions.collect::<Vec<_>>(), [(3, 4), (4, 5)]);
    assert_eq!(applied(&chain, "w", vec![4; 8]).unwrap(), [6; 8]);
    assert_eq!(applied(&chain, "other", vec![4; 8]).unwrap(), [4; 8]);
    assert_eq!(chain.changed(), BTreeSet::from(["w"]));
    assert!(Chain::find(directory.path(), 5, 5).unwrap().deltas().is_empty());
}

#[test]
fn a_whole_checkpoint_in_between_is_where_a_chain_starts() {
    let directory = tempfile::tempdir().unwrap();
    publish(directory.path(), 1..=5);
    let whole = directory.path().join("weight_v000004");
    fs::write(whole.join(index::INDEX), r#"{"metadata":{"total_size":8},"weight_map":{"w":"m.safetensors"}}"#).unwrap();
    let chain = Chain::find(directory.path(), 2, 5).unwrap();
    assert_eq!((chain.start(), chain.deltas().len()), (&Start::Checkpoint(whole.clone()), 1));
    assert_eq!(Chain::find(directory.path(), 4, 5).unwrap().start(), &Start::Current);
    assert!(Delta::open(&whole).unwrap_err().to_string().ends_with("is a whole checkpoint, not a delta"));
    fs::remove_file(whole.join(index::INDEX)).unwrap();
    assert!(refusal(directory.path(), 2, 5).ends_with("it has neither manifest.json nor model.safetensors.index.json"));
    fs::write(whole.join("model.safetensors"), []).unwrap();
    let chain = Chain::find(directory.path(), 2, 5).unwrap();
    assert_eq!(chain.start(), &Start::Checkpoint(whole.clone()));
}

#[test]
fn versions_that_cannot_be_reached_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    publish(root, 1..=5);
    let begin = "DIR does not lead from version";
    assert_eq!(refusal(root, 5, 4), format!("{begin} 5 to version 4: weights do not go back"));
    assert_eq!(refusal(root, 5, 7), format!("{begin} 5 to version 7: version 7 is not there"));
    fs::remove_dir_all(root.join("weight_v000004")).unwrap();
    assert_eq!(refusal(root, 2, 5), format!("{begin} 2 to version 5: version 4 is not there"));
    Published { versions: (2, 3), ..Published::xor(&[], &[]) }.write(&root.join("weight_v000004"));
    let says = "DIR/weight_v000004 says that it is version 3";
    assert_eq!(refusal(root, 2, 5), format!("{begin} 2 to version 5: {says}"));
    Published { versions: (1, 4), ..Published::xor(&[], &[]) }.write(&root.join("weight_v000004"));
    let before = "version 4 builds on version 1, which is before version 2";
    assert_eq!(refusal(root, 2, 5), format!("{begin} 2 to version 5: {before}"));
    Published::xor(&[], &[]).write(&root.join("delta-00000004"));
    let twice = "version 4 is there in two formats";
    assert_eq!(refusal(root, 2, 5), format!("{begin} 2 to version 5: {twice}"));
}
