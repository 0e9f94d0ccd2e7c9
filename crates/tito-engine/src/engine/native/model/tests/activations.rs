//! Weights in bf16 with activations in f32: the bits of the same weights in f32, in every family.

use super::{
    adapters::{Adapted, bits, together},
    families::{Golden, KINDS},
    images, *,
};
use crate::engine::native::weights::{Rounded, Weights};

/// Threads of the two, which are of no matter.
const THREADS: [usize; 2] = [3, 1];

fn mixed(set: KernelSet, threads: usize) -> CpuBackend {
    cpu(set, threads, Precision::Bf16).with_f32_activations()
}

/// The model of some weights with activations in f32, and the one whose weights are in f32, too.
fn both(set: KernelSet, shape: &ModelShape, room: Room, weights: &dyn Weights) -> [Model<CpuBackend>; 2] {
    let [threads, others] = THREADS;
    [mixed(set, threads), cpu(set, others, Precision::F32)].map(|backend| {
        let mut model = Model::load(backend, shape.clone(), weights, &mut |_, _| ()).unwrap();
        model.allocate_cache(room).unwrap();
        model
    })
}

/// Logits of pieces of a sequence.
fn in_pieces(model: &mut Model<CpuBackend>, token_ids: &[TokenId], lengths: &[usize]) -> Vec<Vec<u32>> {
    let (mut first, mut rows) = (0, Vec::new());
    for length in lengths.iter().copied().chain([token_ids.len()]) {
        let end = token_ids.len().min(first + length);
        if first < end {
            rows.extend(bits(&super::families::in_order(model, &token_ids[first..end], first)));
        }
        first = end;
    }
    rows
}

#[test]
fn every_kind_of_arithmetic_has_the_bits_of_f32_whole_and_in_pieces() {
    for (name, set) in KINDS.into_iter().zip(KernelSet::tested().into_iter().cycle()) {
        let golden = Golden::named(name);
        let shape = ModelShape::read(golden.config()).unwrap();
        let [mut mixed, mut wide] = both(set, &shape, golden.room(), &Rounded(golden.weights()));
        let token_ids = &golden.token_ids()[..72];
        let expected = in_pieces(&mut wide, token_ids, &[]);
        assert!(in_pieces(&mut mixed, token_ids, &[]) == expected, "{name}, {set}");
        assert!(in_pieces(&mut mixed, token_ids, &[1, 15, 2, 33]) == expected, "{name}, {set}: in pieces");
    }
}

#[test]
fn a_checkpoint_has_the_bits_of_f32_on_every_kernel_set() {
    let token_ids: Vec<TokenId> = (0..90).map(|index| (index * 37 + 11) % 96).collect();
    for set in KernelSet::tested() {
        for name in MODELS {
            let shape = ModelShape::read(&object(&directory(name).join("config.json"))).unwrap();
            let weights = Rounded(SafetensorsFiles::open(&directory(name)).unwrap());
            let [mut mixed, mut wide] = both(set, &shape, Room { blocks: BLOCKS, slots: 2 }, &weights);
            let expected = bits(&logits(&mut wide, &token_ids, 0));
            assert!(bits(&logits(&mut mixed, &token_ids, 0)) == expected, "{name}, {set}");
            let plain = bits(&logits(&mut model(name, set, 1, Precision::Bf16), &token_ids, 0));
            assert!(plain != expected, "{name}, {set}: bf16 rounds activations");
        }
    }
}

#[test]
fn prompts_with_images_have_the_bits_of_f32() {
    for (name, set) in images::FAMILIES.into_iter().zip(KernelSet::tested().into_iter().cycle()) {
        let golden = images::golden(name);
        let shape = ModelShape::read(golden.config()).unwrap();
        let [mut mixed, mut wide] = both(set, &shape, Room { blocks: BLOCKS, slots: 1 }, &Rounded(golden.weights()));
        for prompt in images::prompts(&golden) {
            let expected = prompt.bits(&mut wide, &[]);
            assert!(prompt.bits(&mut mixed, &[]) == expected, "{name}, {set}: {}", prompt.name);
            assert!(prompt.bits(&mut mixed, &[5, 3, 21]) == expected, "{name}, {set}: {} in pieces", prompt.name);
        }
    }
}

#[test]
fn adapters_have_the_bits_of_f32() {
    let names = ["families/cohere_plain", "families/qwen3_next_plain", "families/deepseek_v3_plain"];
    for (name, set) in names.into_iter().zip(KernelSet::tested().into_iter().cycle()) {
        let adapted = Adapted::named(name);
        let shape = ModelShape::read(adapted.golden.config()).unwrap();
        let models = both(set, &shape, Room { blocks: 20, slots: 8 }, &Rounded(adapted.golden.weights()));
        let [mixed, wide] = models.map(|mut model| {
            model.put_adapter(0, &adapted.adapter(None)).unwrap();
            let tokens = &adapted.golden.token_ids()[..37];
            together(&mut model, tokens, &[Some(0), None]).iter().map(|rows| bits(rows)).collect::<Vec<_>>()
        });
        assert!(mixed == wide, "{name}, {set}");
        assert!(wide[0] != wide[1], "{name}: the adapter changes something");
    }
}
