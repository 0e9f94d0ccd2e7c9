use std::slice;

use proptest::prelude::*;

use super::*;

const BETWEEN: ImageForm = ImageForm::Between { opens: 7, closes: 9, template: ImageTemplate::Marks };
const MARKS: ImageMarks = ImageMarks { placeholder: 8, form: BETWEEN };

fn writing() -> ImageWriting {
    ImageWriting { marks: MARKS, texts: vec!["<pad>".to_owned()], written: None }
}

fn sizes(placeholders: &[usize]) -> Vec<ImageSize> {
    placeholders.iter().map(|&columns| ImageSize { rows: 1, columns }).collect()
}

fn images<'w>(writing: &'w ImageWriting, placeholders: &[usize]) -> Images<'w> {
    Images { writing, images: sizes(placeholders).into_iter().map(|size| (0, size)).collect() }
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
    let images = Images { writing: &writing, images: [0, 2, 4].into_iter().zip(sizes(&[1, 2, 1])).collect() };
    let two = images.collapse(&[7, 8, 9, 7, 8, 8, 9]).unwrap();
    for (anchor, is_right) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
        assert_eq!(images.check_anchor(&two, anchor).is_ok(), is_right, "{anchor}");
    }
}

/// Pieces with images between them, which have so many placeholders between 7 and 9.
fn with_images_between(pieces: &[Vec<TokenId>], lengths: &[usize], placeholder: TokenId) -> Vec<TokenId> {
    let mut ids = pieces[0].clone();
    for (piece, &length) in pieces[1..].iter().zip(lengths) {
        ids.push(7);
        ids.extend(std::iter::repeat_n(placeholder, length));
        ids.push(9);
        ids.extend(piece);
    }
    ids
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
        let ids = with_images_between(&pieces, lengths, MARKS.placeholder);
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
        prop_assert_eq!(MARKS.expand(&collapsed.token_ids, &sizes(lengths)), Ok((ids, ranges)));
    }
}

/// 8 in rows, each with a 5 behind it and the last one with a 6.
const ROWS: ImageMarks = ImageMarks { placeholder: 8, form: ImageForm::Rows { breaks: 5, ends: 6 } };

fn in_rows() -> ImageWriting {
    ImageWriting { marks: ROWS, texts: vec!["[IMG]".to_owned()], written: None }
}

fn of_sizes<'w>(writing: &'w ImageWriting, sizes: &[(usize, usize)]) -> Images<'w> {
    let images = sizes.iter().map(|&(rows, columns)| (0, ImageSize { rows, columns }));
    Images { writing, images: images.collect() }
}

fn rows_of(ids: &[TokenId], sizes: &[(usize, usize)]) -> Result<(Vec<TokenId>, Vec<usize>), UnprovableSplice> {
    of_sizes(&in_rows(), sizes).collapse(ids).map(|collapsed| (collapsed.token_ids, collapsed.places))
}

#[test]
fn an_image_in_rows_is_all_of_one_length_up_to_its_end() {
    assert_eq!(rows_of(&[1, 8, 8, 5, 8, 8, 6, 2], &[(2, 2)]), Ok((vec![1, 8, 2], vec![1])));
    // Side by side, and one after the other.
    assert_eq!(
        rows_of(&[8, 6, 8, 5, 8, 6, 3, 8, 8, 6], &[(1, 1), (2, 1), (1, 2)]),
        Ok((vec![8, 8, 3, 8], vec![0, 1, 3]))
    );
    // Sampled: none of them ends as an image does.
    for ids in [&[8, 8][..], &[8, 8, 5], &[8, 5, 8, 5, 1], &[5, 6], &[6], &[5], &[8, 5, 6], &[8, 1, 6]] {
        assert_eq!(rows_of(ids, &[(1, 2)]), Ok((ids.to_vec(), vec![])), "{ids:?}");
    }
    // What is before an image, and is no row of it.
    for before in [&[8][..], &[8, 5], &[5], &[6], &[5, 5], &[1, 5]] {
        let ids = [before, &[8, 8, 5, 8, 8, 6]].concat();
        let expected = [before, &[8]].concat();
        assert_eq!(rows_of(&ids, &[(2, 2)]), Ok((expected, vec![before.len()])), "{before:?}");
    }
}

#[test]
fn ids_with_images_of_other_rows_are_refused() {
    for (ids, sizes) in [
        (&[8, 8, 5, 8, 8, 6][..], &[(1, 4)][..]),
        (&[8, 8, 5, 8, 8, 6], &[(4, 1)]),
        (&[8, 8, 5, 8, 8, 6], &[]),
        (&[8, 8, 5, 8, 6], &[(2, 2)]),
        (&[8, 6, 8, 8, 6], &[(1, 2), (1, 1)]),
        // What looks like one more row, or one more placeholder, was sampled before it.
        (&[8, 8, 5, 8, 8, 5, 8, 8, 6], &[(2, 2)]),
        (&[8, 8, 8, 6], &[(1, 2)]),
    ] {
        assert_eq!(rows_of(ids, sizes), Err(UnprovableSplice::OtherImages), "{ids:?} {sizes:?}");
    }
}

#[test]
fn an_image_in_rows_among_sampled_ids_is_refused() {
    let writing = in_rows();
    let collapse = |ids: &[TokenId], sampled| {
        let known = of_sizes(&writing, &[(1, 2)]).collapse_known(&known(ids, sampled));
        known.map(|(known, _)| (known.token_ids, known.sampled))
    };
    assert_eq!(collapse(&[1, 8, 8, 6, 3, 4], 2), Ok((vec![1, 8, 3, 4], 2)));
    for sampled in 3..6 {
        assert_eq!(collapse(&[1, 8, 8, 6, 3, 4], sampled), Err(UnprovableSplice::OtherImages), "{sampled}");
    }
}

#[test]
fn ids_have_one_placeholder_of_an_image_in_rows_or_all_of_them() {
    let expand = |ids: &[TokenId]| {
        let sizes = [ImageSize { rows: 2, columns: 2 }, ImageSize { rows: 1, columns: 1 }];
        ROWS.expand(ids, &sizes)
            .map(|(ids, ranges)| (ids, ranges.into_iter().map(|range| range.start).collect::<Vec<_>>()))
    };
    let whole = [8, 8, 5, 8, 8, 6];
    assert_eq!(expand(&[1, 8, 2, 8]), Ok(([&[1], &whole[..], &[2, 8, 6]].concat(), vec![1, 8])));
    assert_eq!(expand(&[8, 8]), Ok(([&whole[..], &[8, 6]].concat(), vec![0, 6])));
    assert_eq!(expand(&[&[8], &[8, 6][..]].concat()), Err(UnprovableSplice::OtherImages));
    // The second one may have been sampled, and a file be too many.
    assert_eq!(expand(&[&whole[..], &[8]].concat()), Err(UnprovableSplice::OtherImages));
    assert_eq!(expand(&[&[8, 3], &whole[..], &[3, 8, 6, 8]].concat()).map(|(_, starts)| starts), Ok(vec![2, 9]));
    for ids in [&[8][..], &[8, 1, 8, 1, 8], &[8, 8, 5, 8, 8, 6], &[8, 6, 8, 8, 5, 8, 8, 6], &[]] {
        assert_eq!(expand(ids), Err(UnprovableSplice::OtherImages), "{ids:?}");
    }
    let twice = [whole, whole].concat();
    assert!(ROWS.lacks_images(&whole, &[]) && !ROWS.lacks_images(&twice, &[0..6, 6..12]));
    assert!(ROWS.lacks_images(&twice, &[0..6, 6..11]) && !ROWS.lacks_images(&[8, 5, 8, 8, 5], &[]));
}

proptest! {
    /// Whatever is between the images, their places are theirs alone, or they are refused.
    #[test]
    fn images_in_rows_are_found_again_or_refused(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(8), Just(8), Just(5), Just(6), 0..5u32], 0..7), 1..5),
        sizes in prop::collection::vec((1..4usize, 1..4usize), 4),
    ) {
        let sizes = &sizes[..pieces.len() - 1];
        let (mut ids, mut starts) = (pieces[0].clone(), Vec::new());
        for (piece, &(rows, columns)) in pieces[1..].iter().zip(sizes) {
            starts.push(ids.len());
            ids.extend(ROWS.pattern(ImageSize { rows, columns }));
            ids.extend(piece);
        }
        let writing = in_rows();
        let images = of_sizes(&writing, sizes);
        if let Ok(collapsed) = images.collapse(&ids) {
            prop_assert_eq!(collapsed.places.len(), sizes.len());
            let (expanded, ranges) = images.expand(&collapsed.token_ids, &collapsed.places);
            prop_assert_eq!(&expanded, &ids);
            prop_assert_eq!(ranges.iter().map(|range| range.start).collect::<Vec<_>>(), starts);
            prop_assert_eq!(images.given(&ids), Ok(ranges.clone()));
            prop_assert!(!ROWS.lacks_images(&ids, &ranges));
        } else {
            prop_assert!(images.given(&ids).is_err());
        }
        prop_assert_eq!(ROWS.lacks_images(&ids, &[]), !ROWS.runs(&ids).is_empty());
    }
}

/// 8 between 7 and 9, both of which belong to the image.
const AROUND: ImageMarks = ImageMarks { placeholder: 8, form: ImageForm::Around { opens: 7, closes: 9 } };

fn with_marks_around() -> ImageWriting {
    ImageWriting { marks: AROUND, texts: vec!["<IMG_CONTEXT>".to_owned()], written: None }
}

fn around(ids: &[TokenId], placeholders: &[usize]) -> Result<(Vec<TokenId>, Vec<usize>), UnprovableSplice> {
    let writing = with_marks_around();
    images(&writing, placeholders).collapse(ids).map(|collapsed| (collapsed.token_ids, collapsed.places))
}

#[test]
fn an_image_with_marks_of_its_own_is_all_from_one_to_the_other() {
    assert_eq!(around(&[1, 7, 8, 8, 9, 2], &[2]), Ok((vec![1, 8, 2], vec![1])));
    assert_eq!(around(&[7, 8, 9, 7, 8, 8, 9], &[1, 2]), Ok((vec![8, 8], vec![0, 1])));
    assert_eq!(around(&[8, 7, 7, 8, 9, 9], &[1]), Ok((vec![8, 7, 8, 9], vec![2])));
    // Sampled: none of them is between both marks.
    for ids in [&[8, 8][..], &[7, 8, 8], &[8, 9], &[7, 9], &[7, 8, 1, 9], &[7]] {
        assert_eq!(around(ids, &[2]), Ok((ids.to_vec(), vec![])), "{ids:?}");
    }
    for ids in [&[7, 8, 9][..], &[7, 8, 8, 8, 9], &[7, 8, 8, 9, 7, 8, 8, 9]] {
        assert_eq!(around(ids, &[2]), Err(UnprovableSplice::OtherImages), "{ids:?}");
    }
    let writing = with_marks_around();
    let collapse = |sampled| {
        let known = images(&writing, &[2]).collapse_known(&known(&[1, 7, 8, 8, 9, 3], sampled));
        known.map(|(known, _)| (known.token_ids, known.sampled))
    };
    assert_eq!(collapse(1), Ok((vec![1, 8, 3], 1)));
    for sampled in 2..6 {
        assert_eq!(collapse(sampled), Err(UnprovableSplice::OtherImages), "{sampled}");
    }
}

#[test]
fn placeholders_outside_of_marks_are_images_to_be_expanded_unless_one_is_whole() {
    let expand = |ids: &[TokenId], placeholders: &[usize]| AROUND.expand(ids, &sizes(placeholders));
    assert_eq!(expand(&[1, 8, 2, 8], &[2, 1]), Ok((vec![1, 7, 8, 8, 9, 2, 7, 8, 9], vec![1..5, 6..9])));
    assert_eq!(expand(&[1, 7, 8, 9, 8], &[1, 2]), Err(UnprovableSplice::OtherImages));
    // Whole images: the other placeholder was sampled.
    assert_eq!(expand(&[7, 8, 8, 9, 8], &[2]), Ok((vec![7, 8, 8, 9, 8], slice::from_ref(&(0..4)).to_vec())));
    for (ids, placeholders) in
        [(&[7, 8, 9][..], &[2][..]), (&[8, 8], &[1]), (&[1], &[1]), (&[7, 8, 8, 9, 8], &[2, 1, 1])]
    {
        assert_eq!(expand(ids, placeholders), Err(UnprovableSplice::OtherImages), "{ids:?}");
    }
    assert!(AROUND.lacks_images(&[1, 7, 8, 9], &[]));
    assert!(!AROUND.lacks_images(&[1, 7, 8, 9], slice::from_ref(&(1..4))));
    assert!(!AROUND.lacks_images(&[8, 7, 8], &[]));
}

proptest! {
    /// The same where marks belong to images: whatever stands between these, ids become shorter and the same again.
    #[test]
    fn images_with_marks_of_their_own_are_expanded_to_the_same(
        pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(7), Just(8), 0..7u32], 0..6), 1..5),
        lengths in prop::collection::vec(1..9usize, 4),
    ) {
        let count = pieces.len() - 1;
        let lengths = &lengths[..count];
        let ids = with_images_between(&pieces, lengths, AROUND.placeholder);
        let writing = with_marks_around();
        let images = images(&writing, lengths);
        let collapsed = images.collapse(&ids).unwrap();
        prop_assert_eq!(collapsed.places.len(), count);
        let (expanded, ranges) = images.expand(&collapsed.token_ids, &collapsed.places);
        prop_assert_eq!(&expanded, &ids);
        prop_assert_eq!(ranges.iter().map(|range| range.len() - 2).collect::<Vec<_>>(), lengths.to_vec());
        prop_assert_eq!(images.given(&ids), Ok(ranges.clone()));
        prop_assert_eq!(AROUND.lacks_images(&ids, &[]), count > 0);
        prop_assert_eq!(AROUND.expand(&ids, &sizes(lengths)), Ok((ids, ranges)));
    }
}
