//! The images of prompts: where they stand, and their files, which are kept once.

use super::*;
use crate::store::watched::{WatchedStore, no_space};

/// An image of so many placeholders with a file of 3,000 bytes, all of which tell it from others.
fn image(name: u8, offset: usize, length: usize) -> ImageUsed {
    let file: Vec<u8> = (0..3000_u32).map(|at| blake3::hash(&[name, 7]).as_bytes()[at as usize % 32] ^ name).collect();
    ImageUsed {
        identity: blake3::hash(&[name]).to_hex().as_str().into(),
        offset,
        length,
        rows: 2,
        columns: 2 * length,
        file_bytes: Some(file.len() as u64),
        file: Some(file.into()),
    }
}

fn without_file(image: ImageUsed) -> ImageUsed {
    ImageUsed { file: None, file_bytes: None, ..image }
}

fn seeing(prompt: &[TokenId], images: &[ImageUsed]) -> Generation {
    Generation { images: images.to_vec(), ..generation(prompt, &[5]) }
}

/// The keys of records of files.
fn files(store: &MemoryStore) -> usize {
    store.ids().unwrap().iter().filter(|id| id.starts_with("image ")).count()
}

/// The identities, places and grids of the last sequence.
fn shown(trajectories: &Trajectories) -> Vec<(String, usize, usize, usize, usize)> {
    let key = keys(trajectories, &None, Unit::Turn).pop().unwrap();
    let images = trajectories.sequence(&key, 1000).unwrap().images;
    let read = |image: ImageUsed| (image.identity.to_string(), image.offset, image.length, image.rows, image.columns);
    images.into_iter().map(read).collect()
}

#[test]
fn a_turn_keeps_the_images_that_it_adds_and_a_sequence_has_all_of_them() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let (first, second) = (image(1, 1, 2), image(2, 6, 1));
    trajectories.capture(seeing(&[1, 9, 9, 2], std::slice::from_ref(&first))).unwrap();
    let both = [first.clone(), second.clone()];
    for prompt in [&[1, 9, 9, 2, 5, 3, 9, 4][..], &[1, 9, 9, 2, 5, 3, 9, 4, 5, 8]] {
        trajectories.capture(seeing(prompt, &both)).unwrap();
    }
    for trajectories in [trajectories, opened(&store, POLICY)] {
        let (_, turns) = {
            let id = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories[0].id.clone();
            trajectories.get(&None, &id).unwrap().unwrap()
        };
        let added: Vec<usize> = turns.iter().map(|turn| turn.generation.images.len()).collect();
        assert_eq!(added, [1, 1, 0]);
        let of =
            |image: &ImageUsed| (image.identity.to_string(), image.offset, image.length, image.rows, image.columns);
        assert_eq!(shown(&trajectories), both.iter().map(of).collect::<Vec<_>>());
        for image in &both {
            let asked = ImageUsed { file: None, ..image.clone() };
            assert_eq!(trajectories.image_file(&asked).unwrap(), image.file);
        }
        assert_eq!(files(&store), 2);
    }
}

#[test]
fn a_turn_continues_another_only_with_the_same_images() {
    for reopened in [false, true] {
        let store = a_store();
        let mut trajectories = opened(&store, POLICY);
        trajectories.capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).unwrap();
        if reopened {
            trajectories = opened(&store, POLICY);
        }
        let next = [1, 9, 9, 2, 5, 3];
        let others = [
            vec![image(2, 1, 2)],
            vec![],
            vec![image(1, 1, 1)],
            vec![image(1, 2, 2)],
            vec![image(1, 1, 1), image(2, 2, 1)],
        ];
        for images in &others {
            trajectories.capture(seeing(&next, images)).unwrap();
        }
        let count = || trajectories.list(&None, &Filter::default(), 99).unwrap().trajectories.len();
        assert_eq!(count(), 6, "each is a root");
        trajectories.capture(seeing(&next, &[image(1, 1, 2)])).unwrap();
        assert_eq!(count(), 6, "and this one is not");
    }
}

#[test]
fn fingerprints_that_meet_prove_nothing_of_images() {
    // They differ where no fingerprint looks.
    let mut like = image(1, 1, 2);
    like.identity = format!("{}{}", &like.identity[..63], if like.identity.ends_with('0') { '1' } else { '0' }).into();
    let trajectories = opened(&a_store(), POLICY);
    trajectories.capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).unwrap();
    trajectories.capture(seeing(&[1, 9, 9, 2, 5, 3], &[like])).unwrap();
    assert_eq!(trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories.len(), 2);
}

#[test]
fn a_file_is_kept_once_for_all_owners_and_leaves_with_the_last_turn_that_has_it() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    let owners: [Owner; 2] = [None, Some("other".into())];
    for (prompt, owner) in [(&[1, 9, 9, 2], &owners[0]), (&[2, 9, 9, 2], &owners[0]), (&[1, 9, 9, 2], &owners[1])] {
        let generation = seeing(prompt, &[image(1, 1, 2), without_file(image(3, 3, 1))]);
        trajectories.capture(Generation { owner: owner.clone(), ..generation }).unwrap();
        assert_eq!(files(&store), 1);
    }
    let trajectories = opened(&store, POLICY);
    for (left, owner) in [(1, &owners[0]), (1, &owners[1]), (0, &owners[0])] {
        let id = trajectories.list(owner, &Filter::default(), 1).unwrap().trajectories[0].id.clone();
        assert!(trajectories.delete(owner, &id).unwrap());
        assert_eq!(files(&store), left);
    }
    assert_eq!(store.ids().unwrap(), Vec::<String>::new());
    // It comes again under another key.
    trajectories.capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).unwrap();
    assert_eq!(trajectories.image_file(&image(1, 1, 2)).unwrap(), image(1, 1, 2).file);
}

#[test]
fn a_file_that_no_turn_has_leaves_when_the_store_is_opened() {
    let store = a_store();
    opened(&store, POLICY).capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).unwrap();
    let of_another = format!("image {:016x} {}", 77, image(2, 0, 1).identity);
    let of_the_same = format!("image {:016x} {}", 78, image(1, 0, 1).identity);
    store.write(&[], &[(&of_another, b"a"), (&of_the_same, b"b")]).unwrap();
    let trajectories = opened(&store, POLICY);
    assert_eq!(files(&store), 1);
    assert_eq!(trajectories.image_file(&image(1, 1, 2)).unwrap(), image(1, 1, 2).file);
}

#[test]
fn a_file_that_was_not_kept_is_none_and_one_of_another_length_is_an_error() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    trajectories.capture(seeing(&[1, 9, 9, 2], &[without_file(image(1, 1, 2))])).unwrap();
    assert_eq!((files(&store), trajectories.image_file(&without_file(image(1, 1, 2))).unwrap()), (0, None));
    trajectories.capture(seeing(&[1, 9, 9, 3], &[image(1, 1, 2)])).unwrap();
    let longer = ImageUsed { file_bytes: Some(1), ..image(1, 1, 2) };
    assert!(trajectories.image_file(&longer).unwrap_err().to_string().contains("has not the length that it says"));
}

#[test]
fn images_that_are_none_of_what_a_prompt_adds_are_refused() {
    let bad_name = ImageUsed { identity: "image".into(), ..image(1, 1, 1) };
    for images in [
        vec![image(1, 3, 2)],
        vec![image(1, 1, 0)],
        vec![image(1, 1, 2), image(2, 2, 1)],
        vec![image(1, usize::MAX, 1)],
        vec![bad_name],
    ] {
        let trajectories = opened(&a_store(), POLICY);
        trajectories.capture(seeing(&[1, 9, 9, 2], &images)).unwrap();
        let key = keys(&trajectories, &None, Unit::Leaf).pop().unwrap();
        let error = trajectories.sequence(&key, 1000).unwrap_err().to_string();
        assert!(error.contains("has an image that is none of its prompt"), "{error}");
    }
}

#[test]
fn files_count_among_the_bytes_of_trajectories() {
    let store = a_store();
    let trajectories = opened(&store, CapturePolicy { bytes: 60_000, ..POLICY });
    for number in 0..100_u8 {
        trajectories.capture(seeing(&[u32::from(number), 9, 9, 2], &[image(number, 1, 2)])).unwrap();
        assert!(trajectories.bytes() <= 60_000);
    }
    let left = trajectories.list(&None, &Filter::default(), 99).unwrap().trajectories.len();
    assert_eq!(files(&store), left);
    assert!((5..20).contains(&left), "{left}");
    let large = ImageUsed { file: Some(vec![1; 100_000].into()), file_bytes: Some(100_000), ..image(200, 1, 2) };
    let large = ImageUsed { file: large.file.map(|_| (0..100_000_u32).flat_map(u32::to_le_bytes).collect()), ..large };
    let error = trajectories.capture(seeing(&[200, 9, 9, 2], &[large])).unwrap_err();
    assert!(matches!(error, CaptureError::TooLarge { .. }), "{error}");
    assert_eq!(files(&store), left, "nothing left for it, and nothing of it is there");
}

#[test]
fn a_file_whose_write_failed_is_written_with_the_next_turn() {
    let full = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (kept, is_full) = (a_store(), Arc::clone(&full));
    let before_write =
        move |_| if is_full.load(std::sync::atomic::Ordering::Acquire) { Err(no_space()) } else { Ok(()) };
    let store = Arc::new(WatchedStore { kept: Arc::clone(&kept), before_write });
    let trajectories = Trajectories::open(store, POLICY).unwrap();
    assert!(trajectories.capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).is_err());
    full.store(false, std::sync::atomic::Ordering::Release);
    trajectories.capture(seeing(&[1, 9, 9, 2], &[image(1, 1, 2)])).unwrap();
    assert_eq!((files(&kept), trajectories.image_file(&image(1, 1, 2)).unwrap()), (1, image(1, 1, 2).file));
}
