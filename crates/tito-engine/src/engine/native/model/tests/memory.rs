//! Memory that is given back and taken again.

use super::{families::Golden, *};

#[test]
fn a_cache_of_which_a_part_found_no_room_is_taken_again_as_a_whole() {
    let golden = Golden::named("families/lfm2_plain");
    let token_ids = golden.token_ids()[..8].to_vec();
    let mut model = golden.model(cpu(KernelSet::tested()[0], 1, Precision::F32)).unwrap();
    let room = model.room();
    let compute = |model: &mut Model<CpuBackend>| {
        let (tokens, blocks) = (token_ids.len(), vec![0]);
        let span =
            Span { first_row: 0, tokens, first_position: 0, blocks, slot: 0, adapter: None, snapshots: Vec::new() };
        rows_of(model, span, &token_ids)
    };
    let before = compute(&mut model);

    model.discard_cache();
    // Keys and values find room, and the recurrent states do not.
    assert!(model.allocate_cache(Room { slots: usize::MAX / 2, ..room }).is_err());
    model.restore_cache().unwrap();
    assert_eq!(compute(&mut model), before);
}
