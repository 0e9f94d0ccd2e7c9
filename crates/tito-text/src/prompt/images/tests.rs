use proptest::prelude::*;

use super::*;

const MARKS: ImageMarks = ImageMarks { opens: 7, placeholder: 8, closes: 9, template: ImageTemplate::Marks };

fn writing() -> ImageWriting {
    ImageWriting { marks: MARKS, texts: vec!["<pad>".to_owned()], written: None }
}

fn images<'w>(writing: &'w ImageWriting, placeholders: &[usize]) -> Images<'w> {
    Images { writing, images: placeholders.iter().map(|&placeholders| (0, placeholders)).collect() }
}

fn collapsed(ids: &[TokenId], placeholders: &[usize]) -> Result<(Vec<TokenId>, Vec<usize>), UnprovableSplice> {
    images(&writing(), placeholders).collapse(ids).map(|collapsed| (collapsed.token_ids, collapsed.places))
}

#[test]
fn an_image_is_what_stands_between_the_marks() {
    assert_eq!(collapsed(&[1, 7, 8, 8, 9, 2], &[2]), Ok((vec![1, 7, 8, 9, 2], vec![2])));
    assert_eq!(collapsed(&[7, 8, 9, 7, 8, 8, 8, 9], &[1, 3]), Ok((vec![7, 8, 9, 7, 8, 9], vec![1, 4])));
    // Sampled: none of them is between both marks.
    for ids in [&[8, 8][..], &[7, 8, 8], &[8, 9], &[7, 9], &[7, 8, 1, 9], &[7]] {
        assert_eq!(collapsed(ids, &[2]), Ok((ids.to_vec(), vec![])), "{ids:?}");
    }
    assert_eq!(collapsed(&[7, 7, 8, 8, 9], &[2]), Ok((vec![7, 7, 8, 9], vec![2])));
}

#[test]
fn ids_with_other_images_are_refused() {
    for (ids, placeholders) in [
        (&[7, 8, 9][..], &[2][..]),
        (&[7, 8, 8, 8, 9], &[2]),
        (&[7, 8, 8, 9, 7, 8, 8, 9], &[2]),
        (&[7, 8, 8, 9], &[]),
        (&[7, 8, 9, 7, 8, 8, 9], &[2, 1]),
    ] {
        assert_eq!(collapsed(ids, placeholders), Err(UnprovableSplice::OtherImages), "{ids:?} {placeholders:?}");
    }
}

fn known(token_ids: &[TokenId], sampled: usize) -> KnownPrefix {
    KnownPrefix { token_ids: token_ids.to_vec(), anchor: None, sampled, on_unprovable: None }
}

#[test]
fn an_image_among_sampled_ids_is_refused() {
    let writing = writing();
    let collapse = |ids: &[TokenId], sampled| {
        let known = images(&writing, &[2]).collapse_known(&known(ids, sampled));
        known.map(|(known, _)| (known.token_ids, known.sampled))
    };
    assert_eq!(collapse(&[1, 7, 8, 8, 9, 3, 4], 2), Ok((vec![1, 7, 8, 9, 3, 4], 2)));
    // Nobody says how many were sampled.
    assert_eq!(collapse(&[1, 7, 8, 8, 9, 3, 4], 7), Ok((vec![1, 7, 8, 9, 3, 4], 6)));
    for sampled in 3..7 {
        assert_eq!(collapse(&[1, 7, 8, 8, 9, 3, 4], sampled), Err(UnprovableSplice::OtherImages), "{sampled}");
    }
}

#[test]
fn the_last_known_ids_are_those_of_the_anchors_images() {
    let writing = writing();
    let images = Images { writing: &writing, images: vec![(0, 1), (2, 2), (4, 1)] };
    let two = images.collapse(&[7, 8, 9, 7, 8, 8, 9]).unwrap();
    for (anchor, is_right) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
        assert_eq!(images.check_anchor(&two, anchor).is_ok(), is_right, "{anchor}");
    }
}

proptest! {
    /// Whatever is between the images, ids become shorter and the same again, and nothing else in them changes.
    #[test]
    fn what_is_collapsed_is_expanded_to_the_same(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(7), Just(8), 0..7u32], 0..6), 1..5),
        lengths in prop::collection::vec(1..9usize, 4),
    ) {
        // No piece makes an image with its neighbours: only images have an end.
        let count = pieces.len() - 1;
        let lengths = &lengths[..count];
        let mut ids = pieces[0].clone();
        for (piece, &length) in pieces[1..].iter().zip(lengths) {
            ids.push(MARKS.opens);
            ids.extend(std::iter::repeat_n(MARKS.placeholder, length));
            ids.push(MARKS.closes);
            ids.extend(piece);
        }
        let writing = writing();
        let images = images(&writing, lengths);
        let collapsed = images.collapse(&ids).unwrap();
        prop_assert_eq!(collapsed.places.len(), count);
        prop_assert!(collapsed.places.iter().all(|&place| collapsed.token_ids[place] == MARKS.placeholder));
        let (expanded, ranges) = images.expand(&collapsed.token_ids, &collapsed.places);
        prop_assert_eq!(&expanded, &ids);
        prop_assert_eq!(ranges.iter().map(Range::len).collect::<Vec<_>>(), lengths.to_vec());
        for (&place, range) in collapsed.places.iter().zip(&ranges) {
            prop_assert_eq!(expanded_position(place, &collapsed.places, &ranges), range.start);
        }
        prop_assert_eq!(images.given(&ids), Ok(ranges.clone()));
        prop_assert!(!MARKS.lacks_images(&ids, &ranges));
        prop_assert_eq!(MARKS.lacks_images(&ids, &[]), count > 0);
        prop_assert_eq!(MARKS.expand(&collapsed.token_ids, lengths), Ok((ids, ranges)));
    }
}
