//! What no trainer writes.

use super::*;

/// A recorded version, to be changed.
fn copied(name: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, directory.path().join(path.file_name().unwrap())).unwrap();
    }
    directory
}

/// The sentence that refuses a recorded version whose index or manifest is changed.
fn refusal(name: &str, file: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    let directory = copied(name);
    let path = directory.path().join(file);
    let mut value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    fs::write(&path, value.to_string()).unwrap();
    let refused = Delta::open(directory.path()).unwrap_err().to_string();
    assert!(refused.starts_with(&directory.path().display().to_string()), "{refused}");
    refused
}

#[test]
fn indexes_that_slime_does_not_write() {
    let refusal = |change: &dyn Fn(&mut serde_json::Value)| refusal("slime_xor/weight_v000001", index::INDEX, change);
    let metadata = |key: &str, value: &str| refusal(&|index| index["metadata"][key] = json!(value));
    assert!(metadata("delta_encoding", "add").ends_with("its encoding is not read; xor and overwrite are"));
    assert!(metadata("compression_format", "lz4").ends_with("it is compressed in a way that is not read; zstd is"));
    let checksums = "its checksums are not computed here; xxh3-128, blake3 and adler32 are";
    assert!(metadata("checksum_format", "sha256").ends_with(checksums));
    assert!(metadata("version", "one").ends_with("a version is not a number"));
    assert!(metadata("version", "0").ends_with("version 0 cannot build on version 0"));
    let more = refusal(&|index| index["weight_map"]["more"] = json!("model-00000-of-00001.safetensors"));
    assert!(more.ends_with("it names tensor more, which no file holds"), "{more}");
    let away = refusal(&|index| index["weight_map"]["more"] = json!("../model.safetensors"));
    assert!(away.ends_with("it names a file that is not beside it"), "{away}");
    let fewer = refusal(&|index| index["weight_map"] = json!({}));
    assert!(fewer.ends_with("it does not name model-00000-of-00001.safetensors, which is beside it"), "{fewer}");
    let name = "model.embed_tokens.weight";
    let other = refusal(&|index| {
        index["weight_map"].as_object_mut().unwrap().remove(name);
    });
    assert!(other.ends_with(&format!("it does not say that {name} is in model-00000-of-00001.safetensors")), "{other}");
}

#[test]
fn manifests_that_skyrl_does_not_write() {
    let refusal = |change: &dyn Fn(&mut serde_json::Value)| refusal("skyrl/delta-00000001", manifest::MANIFEST, change);
    let record = |key: &str, value: serde_json::Value| refusal(&|manifest| manifest["tensors"][0][key] = value.clone());
    assert!(
        record("dtype", json!("int8")).contains("is of a type that is not read; bfloat16, float16 and float32 are")
    );
    assert!(record("shape", json!([1, 2])).contains("bytes, which do not agree"));
    assert!(record("shape", json!([u64::MAX, 8])).contains("bytes, which do not agree"));
    assert!(record("payload_file", json!("other")).contains("is in a file that is not among its files"));
    assert!(record("payload_key", json!("other")).contains("has no patch in"));
    assert!(record("compressed_num_bytes", json!(1)).contains("the lengths of its tensors do not add up"));
    assert!(record("checksum_algorithm", json!("sha256")).contains("its checksums are not computed here; "));
    assert!(record("further", json!(1)).contains("its JSON has values that do not belong there, at line 1 column"));
    let sums = refusal(&|manifest| {
        manifest["tensors"][0]["compressed_num_bytes"] = json!(1);
        manifest["total_compressed_num_bytes"] = json!(0);
    });
    assert!(sums.contains("has a patch of "), "{sums}");
    let twice = refusal(&|manifest| {
        let record = manifest["tensors"][0].clone();
        manifest["tensors"].as_array_mut().unwrap().push(record);
        manifest.as_object_mut().unwrap().retain(|key, _| !key.starts_with("total_"));
    });
    assert!(twice.ends_with("is in it twice"), "{twice}");
    let fewer = refusal(&|manifest| {
        manifest["tensors"].as_array_mut().unwrap().pop();
        manifest.as_object_mut().unwrap().retain(|key, _| !key.starts_with("total_"));
    });
    assert!(fewer.ends_with("holds a patch that it does not name"), "{fewer}");
    let away = refusal(&|manifest| manifest["payload_files"][0] = json!("/etc/passwd"));
    assert!(away.ends_with("it names a file that is not beside it"), "{away}");
}

#[test]
fn both_formats_at_once_are_refused() {
    let directory = copied("skyrl/delta-00000001");
    fs::write(directory.path().join(index::INDEX), "{}").unwrap();
    let refused = Delta::open(directory.path()).unwrap_err().to_string();
    assert!(refused.ends_with("it has both manifest.json and model.safetensors.index.json"), "{refused}");
}

const LENGTH: usize = 600_000;

fn weights(change: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| if at % 1000 == 0 { change } else { 7 }).collect()
}

#[test]
fn tensors_of_many_chunks_are_patched() {
    let (before, after) = (weights(1), weights(2));
    assert!(Published::xor(&before, &after).apply(&before) == Ok(after.clone()));
    let places = (0..LENGTH).filter(|at| at % 1000 == 0).collect::<Vec<_>>();
    assert!(overwriting(&places, &after, &after).apply(&before) == Ok(after.clone()));
    let all = (0..LENGTH).collect::<Vec<_>>();
    assert!(overwriting(&all, &after, &after).apply(&before) == Ok(after));
}

fn overwriting(places: &[usize], values: &[u8], after: &[u8]) -> Published {
    let mut patch = u32::try_from(places.len()).unwrap().to_le_bytes().to_vec();
    patch.extend(places.iter().flat_map(|place| u32::try_from(*place).unwrap().to_le_bytes()));
    patch.extend(places.iter().filter_map(|place| values.get(*place)));
    Published { encoding: "overwrite", patch: packed(&patch), ..Published::xor(after, after) }
}

#[test]
fn patches_that_do_not_fit_their_tensor_are_refused() {
    let (before, after) = (weights(1), weights(2));
    let refusal = |published: Published| published.apply(&before).unwrap_err();
    let xor = |patch: Vec<u8>| refusal(Published { patch, ..Published::xor(&before, &after) });
    assert!(xor(packed(&vec![0; LENGTH - 1])).contains("the patch of tensor w cannot be unpacked: "));
    assert!(xor(packed(&vec![0; LENGTH + 1])).ends_with("goes on after the tensor's last byte"));
    assert!(xor([packed(&vec![0; LENGTH]), vec![9, 9]].concat()).ends_with("has 2 bytes after its end"));
    assert!(xor([packed(&vec![0; LENGTH]), packed(&[0; 9])].concat()).ends_with("bytes after its end"));
    assert!(xor(Vec::new()).contains("cannot be unpacked"));
    let cut = packed(&vec![0; LENGTH]);
    assert!(xor(cut[..cut.len() - 1].to_vec()).contains("cannot be unpacked"));

    let overwrite = |places: &[usize]| refusal(overwriting(places, &after, &after));
    assert!(overwrite(&[LENGTH]).contains("cannot be unpacked"), "a value is missing");
    assert!(overwrite(&vec![0; LENGTH + 1]).ends_with("changes 600001 bytes of 600000"));
    let longer = weights(2).into_iter().chain([0]).collect::<Vec<_>>();
    assert!(refusal(overwriting(&[LENGTH], &longer, &after)).ends_with("changes byte 600000, and there is none"));
    assert!(overwrite(&[1]).contains("is damaged, or the bytes before were not those of version 0"));
}

#[test]
fn a_patch_that_unpacks_to_far_more_than_its_tensor_is_refused_at_the_first_byte_too_many() {
    let bomb = zstd::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 26), 1).unwrap();
    assert!(bomb.len() < 10_000);
    let refused = Published { patch: bomb, ..Published::xor(&[1; 8], &[1; 8]) }.apply(&[1; 8]).unwrap_err();
    assert!(refused.ends_with("goes on after the tensor's last byte"), "{refused}");
}

#[test]
fn a_frame_that_demands_much_memory_is_refused() {
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let window_of_2_gib = [&magic[..], &[0, 21 << 3, 1, 0, 0]].concat();
    let content_of_1_tib = [&magic[..], &[0xe0], &(1_u64 << 40).to_le_bytes(), &[1, 0, 0]].concat();
    for patch in [window_of_2_gib, content_of_1_tib] {
        let refused = Published { patch, ..Published::xor(&[1; 8], &[1; 8]) }.apply(&[1; 8]).unwrap_err();
        assert!(refused.contains("cannot be unpacked: "), "{refused}");
    }
}
