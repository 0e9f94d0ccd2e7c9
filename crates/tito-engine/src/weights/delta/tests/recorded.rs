//! What trainers have written becomes what they had.

use super::*;

#[derive(Deserialize)]
struct Expected {
    model: String,
    tensors: BTreeMap<String, String>,
}

fn expected() -> Vec<Expected> {
    serde_json::from_slice(&fs::read(golden("expected.json")).unwrap()).unwrap()
}

fn assert_is(tensors: &[WeightTensor], expected: &Expected) {
    let checksums = tensors.iter().map(|tensor| (tensor.name.clone(), Checksum::of_tensor(tensor)));
    let checksums: BTreeMap<String, Checksum> = checksums.collect();
    let digits: BTreeMap<_, _> =
        checksums.iter().map(|(name, checksum)| (name.clone(), checksum.to_string())).collect();
    assert_eq!(digits, expected.tensors);
    assert_eq!(Checksum::of_model(&checksums).to_string(), expected.model);
}

/// Applies what leads from one version to another.
fn advance(tensors: &mut [WeightTensor], name: &str, from: u64, to: u64) {
    let chain = Chain::find(&golden(name), from, to).unwrap();
    assert_eq!(chain.start(), &Start::Current);
    for tensor in tensors {
        tensor.bytes = applied(&chain, &tensor.name, tensor.bytes.to_vec()).unwrap().into();
    }
}

const RECORDED: [&str; 4] = ["slime_xor", "slime_overwrite", "slime_adler32", "skyrl"];

#[test]
fn checksums_of_weights_are_those_that_python_computes() {
    assert_is(&base(), &expected()[0]);
}

#[test]
fn each_version_becomes_what_the_trainer_had() {
    for name in RECORDED {
        let mut tensors = base();
        for (version, expected) in (1..).zip(&expected()[1..]) {
            advance(&mut tensors, name, version - 1, version);
            assert_is(&tensors, expected);
        }
    }
}

#[test]
fn several_versions_are_caught_up_with_at_once() {
    for name in RECORDED {
        let mut tensors = base();
        advance(&mut tensors, name, 0, 1);
        advance(&mut tensors, name, 1, 4);
        assert_is(&tensors, &expected()[4]);
    }
}

#[test]
fn what_has_to_be_replaced_is_what_the_versions_change() {
    for name in RECORDED {
        let chain = Chain::find(&golden(name), 0, 2).unwrap();
        let names = chain.changed();
        let tensors: Vec<_> = base().into_iter().filter(|tensor| names.contains(tensor.name.as_str())).collect();
        assert_eq!(tensors.len(), names.len());
        for tensor in tensors {
            let updated = chain.apply_to(tensor).unwrap();
            assert_eq!(Checksum::of_tensor(&updated).to_string(), expected()[2].tensors[&updated.name]);
        }
    }
}

#[test]
fn a_tensor_of_another_layout_is_not_changed() {
    let skyrl = Delta::open(&golden("skyrl/delta-00000001")).unwrap();
    let tensor = base().into_iter().find(|tensor| tensor.name == "model.norm.weight").unwrap();
    assert!(skyrl.apply_to(tensor.clone()).is_ok());
    let refusal = |tensor: WeightTensor| skyrl.apply_to(tensor).unwrap_err().to_string();
    let there = "tensor model.norm.weight is of BF16 and has the shape [16] there; here it is of ";
    let refused = refusal(WeightTensor { dtype: WeightDtype::F16, ..tensor.clone() });
    assert!(refused.ends_with(&format!("{there}F16 and has the shape [16]")), "{refused}");
    let refused = refusal(WeightTensor { shape: vec![4, 4], ..tensor });
    assert!(refused.ends_with(&format!("{there}BF16 and has the shape [4, 4]")), "{refused}");
}

#[test]
fn a_delta_says_what_it_changes() {
    let names = |delta: &Delta| delta.tensors().map(|tensor| tensor.name.to_owned()).collect::<Vec<_>>();
    let slime = Delta::open(&golden("slime_xor/weight_v000001")).unwrap();
    let skyrl = Delta::open(&golden("skyrl/delta-00000001")).unwrap();
    assert_eq!((skyrl.version(), skyrl.base_version()), (1, 0));
    assert_eq!(names(&slime), names(&skyrl));
    assert!(skyrl.changes("model.embed_tokens.weight") && !skyrl.changes("model.norm.bias"));
    let layouts: BTreeMap<_, _> = skyrl.tensors().map(|tensor| (tensor.name, tensor.layout.unwrap())).collect();
    for tensor in base().iter().filter(|tensor| skyrl.changes(&tensor.name)) {
        let layout = Layout { dtype: tensor.dtype, shape: tensor.shape.clone() };
        assert_eq!(*layouts[tensor.name.as_str()], layout);
    }
    assert!(slime.tensors().all(|tensor| tensor.layout.is_none()));
    assert_eq!(Delta::open(&golden("slime_xor/weight_v000003")).unwrap().tensors().len(), 0);
}

#[test]
fn what_is_applied_to_other_weights_is_refused() {
    for name in RECORDED {
        let delta = Chain::find(&golden(name), 1, 2).unwrap();
        let tensor = base().into_iter().find(|tensor| delta.changed().contains(tensor.name.as_str())).unwrap();
        let mut bytes = tensor.bytes.to_vec();
        // Unlike what the overwriting encoding writes over, most bytes stay.
        for byte in &mut bytes {
            *byte ^= 0x40;
        }
        let refused = applied(&delta, &tensor.name, bytes).unwrap_err().to_string();
        let why = "is damaged, or the bytes before were not those of version 1";
        assert!(
            refused.starts_with(&format!("tensor {} has the ", tensor.name)) && refused.ends_with(why),
            "{refused}"
        );
    }
}
