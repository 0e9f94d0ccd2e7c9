//! Lists and exports that are made in parts, and what they say of each trajectory.

use super::*;

/// Every summary is what its turns add up to.
pub(super) fn summaries_add_up(trajectories: &Trajectories, owner: Option<u8>) {
    let owner: Owner = owner.map(|owner| format!("owner {owner}").into());
    for told in trajectories.list(&owner, &Filter::default(), usize::MAX - 1).unwrap().trajectories {
        let (_, turns) = trajectories.get(&owner, &told.id).unwrap().unwrap();
        let is_leaf = |turn: &TurnRecord| !turns.iter().any(|other| other.place.parent == Some(turn.place.number));
        let leaves: Vec<_> = turns.iter().filter(|turn| is_leaf(turn)).collect();
        let sampled: usize = turns.iter().map(|turn| turn.generation.sampled.len()).sum();
        let roots = turns.iter().filter(|turn| turn.place.parent.is_none()).count();
        assert_eq!((told.turns, told.leaves, told.roots), (turns.len(), leaves.len(), roots));
        assert_eq!(told.sampled_tokens, sampled);
        assert_eq!(told.complete, leaves.iter().all(|turn| turn.generation.finish.is_complete()));
        assert_eq!(told.ambiguous, turns.iter().any(|turn| turn.place.ambiguous));
        let created = turns.iter().map(|turn| turn.generation.created).fold(f64::INFINITY, f64::min);
        let updated = turns.iter().map(|turn| turn.generation.ended).fold(0.0, f64::max);
        assert_eq!((told.created.to_bits(), told.updated.to_bits()), (created.to_bits(), updated.to_bits()));
    }
}

/// Trajectories of one turn each, in a session of their own: more than a list looks at in one go.
fn many(count: u32) -> Trajectories {
    let trajectories = opened(&a_store(), POLICY);
    for number in 0..count {
        let finish = if number % 2 == 0 { Ended::Eos } else { Ended::Length };
        let session = Some(format!("session {number}").into());
        trajectories.capture(Generation { session, finish, ..generation(&[number], &[1]) }).unwrap();
    }
    trajectories
}

#[test]
fn lists_in_parts_are_whole_and_in_order() {
    let count = 3 * u32::try_from(listing::PART).unwrap() + 7;
    let trajectories = many(count);
    let listed = |filter: &Filter, limit| trajectories.list(&None, filter, limit).unwrap();
    let all = listed(&Filter::default(), usize::MAX - 1);
    assert_eq!((all.trajectories.len(), all.has_more), (count as usize, false));
    let sessions: Vec<_> = all.trajectories.iter().map(|told| told.session.clone().unwrap()).collect();
    assert!(sessions.iter().enumerate().all(|(number, session)| **session == format!("session {number}")));
    let (mut after, mut paged) = (None, Vec::new());
    loop {
        let page = listed(&Filter { after, complete: Some(true), ..Filter::default() }, 100);
        assert!(page.trajectories.len() == 100 || !page.has_more);
        after = page.trajectories.last().map(|told| told.id.to_string());
        paged.extend(page.trajectories.into_iter().map(|told| told.id));
        if !page.has_more {
            break;
        }
    }
    let ended: Vec<_> = all.trajectories.iter().filter(|told| told.complete).map(|told| Arc::clone(&told.id)).collect();
    assert_eq!(paged, ended);
    let exact = listed(&Filter::default(), count as usize);
    assert_eq!((exact.trajectories.len(), exact.has_more), (count as usize, false));
    assert_eq!(keys(&trajectories, &None, Unit::Leaf).len(), count as usize);
}

#[test]
fn a_session_is_found_without_looking_at_others() {
    let trajectories = many(600);
    let all = trajectories.list(&None, &Filter::default(), 600).unwrap().trajectories;
    let of = |session: &str, after: Option<&str>| {
        let filter = Filter { session: Some(session.into()), after: after.map(Into::into), ..Filter::default() };
        let listed = trajectories.list(&None, &filter, 9).unwrap();
        assert!(!listed.has_more);
        let mut walk = listing::Walk::new(&trajectories.index.lock(), &None, &filter).unwrap();
        walk.part(&trajectories.index.lock(), |_, _| true);
        assert!(walk.is_over(), "one part is enough");
        listed.trajectories.into_iter().map(|told| told.id).collect::<Vec<_>>()
    };
    assert_eq!(of("session 599", None), [Arc::clone(&all[599].id)]);
    assert_eq!(of("session 599", Some(&all[598].id)), [Arc::clone(&all[599].id)]);
    assert!(of("session 599", Some(&all[599].id)).is_empty());
    assert!(of("session 600", None).is_empty());
    assert!(trajectories.list(&Some("one".into()), &Filter::default(), 9).unwrap().trajectories.is_empty());
}

#[test]
fn what_begins_during_an_export_is_left_out_and_what_leaves_is_said() {
    let trajectories = many(600);
    let mut keys = trajectories.sequences(&None, &Filter::default(), Unit::Leaf).unwrap();
    let first = trajectories.next_sequences(&mut keys);
    assert_eq!(first.len(), listing::PART);
    trajectories.capture(generation(&[9999], &[1])).unwrap();
    let all = trajectories.list(&None, &Filter::default(), 1000).unwrap().trajectories;
    for gone in [0, 400, 599] {
        assert!(trajectories.delete(&None, &all[gone].id).unwrap());
    }
    let rest = rest_of(&trajectories, &mut keys);
    let exported: Vec<_> = first.iter().chain(&rest).map(|key| Arc::clone(&key.trajectory)).collect();
    assert_eq!(exported, all[..600].iter().map(|told| Arc::clone(&told.id)).collect::<Vec<_>>());
    for (number, key) in first.iter().chain(&rest).enumerate() {
        let made = trajectories.sequence(key, 10_000);
        match made {
            Ok(_) => assert!(![0, 400, 599].contains(&number), "{number}"),
            Err(error) => assert_eq!((number, error.to_string()), (number, GONE.to_owned())),
        }
    }
}

const GONE: &str = "the trajectory store failed: the trajectory was deleted while it was exported";

/// The sequences that an export has still before it.
fn rest_of(trajectories: &Trajectories, keys: &mut SequenceKeys) -> Vec<SequenceKey> {
    std::iter::from_fn(|| Some(trajectories.next_sequences(keys)).filter(|next| !next.is_empty())).flatten().collect()
}

#[test]
fn an_export_names_all_that_a_full_store_gave_up_in_its_order() {
    for newest_first in [false, true] {
        let trajectories = many(600);
        let filter = Filter { complete: Some(true), newest_first, ..Filter::default() };
        let all: Vec<_> =
            trajectories.list(&None, &filter, 1000).unwrap().trajectories.into_iter().map(|told| told.id).collect();
        assert_eq!(all.len(), 300, "the others are none of the filter's");
        let mut keys = trajectories.sequences(&None, &filter, Unit::Turn).unwrap();
        let mut exported = trajectories.next_sequences(&mut keys);
        for told in trajectories.list(&None, &Filter::default(), 1000).unwrap().trajectories {
            trajectories.delete(&None, &told.id).unwrap();
        }
        trajectories.capture(generation(&[9999], &[1])).unwrap();
        exported.extend(rest_of(&trajectories, &mut keys));
        assert_eq!(exported.iter().map(|key| Arc::clone(&key.trajectory)).collect::<Vec<_>>(), all);
        assert!(exported.iter().all(|key| trajectories.sequence(key, 10_000).unwrap_err().to_string() == GONE));
    }
}

#[test]
fn what_a_filter_lets_through_no_more_is_left_out_of_an_export() {
    let trajectories = many(600);
    let filter = Filter { complete: Some(true), ..Filter::default() };
    let mut keys = trajectories.sequences(&None, &filter, Unit::Leaf).unwrap();
    let first = trajectories.next_sequences(&mut keys).len();
    let session = Some("session 598".into());
    trajectories.capture(Generation { session, finish: Ended::Length, ..generation(&[7, 7], &[1]) }).unwrap();
    assert_eq!(first + rest_of(&trajectories, &mut keys).len(), 299);
}

#[test]
fn turns_that_leaves_share_are_repeated_in_all_but_the_first() {
    let trajectories = opened(&a_store(), POLICY);
    let capture = |prompt: &[TokenId], adapter: Option<&str>| {
        let used =
            adapter.map(|name| AdapterUsed { name: name.into(), label: format!("{name}@1").into(), checksum: None });
        trajectories.capture(Generation { adapter: used, ..generation(prompt, &[1]) }).unwrap();
    };
    capture(&[5], None);
    capture(&[5, 1, 6], None);
    capture(&[5, 1, 6, 1, 7], None);
    capture(&[5, 1, 6, 1, 8], Some("a"));
    capture(&[5, 1, 6, 1, 9], None);
    capture(&[5, 1, 2], None);
    let repeated = |unit| -> Vec<Vec<bool>> {
        let made = keys(&trajectories, &None, unit);
        let mut learnt = Learnt::default();
        let mut counted = |key: &SequenceKey| {
            let mut sequence = trajectories.sequence(key, 10).unwrap();
            learnt.count(key, &mut sequence);
            sequence.turns.iter().map(|turn| turn.repeated).collect()
        };
        made.iter().map(&mut counted).collect()
    };
    let leaves = repeated(Unit::Leaf);
    // The adapter's leaf learns from none of those before it, so they are new to no other leaf.
    assert_eq!(leaves, [vec![false; 3], vec![false; 3], vec![true, true, false], vec![true, false]]);
    let turns = repeated(Unit::Turn);
    assert!(turns.iter().all(|turns| !turns[turns.len() - 1]), "each turn is learnt from by one sequence");
    // Turns of an adapter in the middle are learnt from by no leaf of the base.
    let trajectories = opened(&a_store(), POLICY);
    let adapter = Some(AdapterUsed { name: "a".into(), label: "a@1".into(), checksum: None });
    trajectories.capture(generation(&[5], &[1])).unwrap();
    trajectories.capture(Generation { adapter, ..generation(&[5, 1, 6], &[1]) }).unwrap();
    for last in [7, 8] {
        trajectories.capture(generation(&[5, 1, 6, 1, last], &[1])).unwrap();
    }
    let mut learnt = Learnt::default();
    let repeated = keys(&trajectories, &None, Unit::Leaf).into_iter().map(|key| {
        let mut sequence = trajectories.sequence(&key, 10).unwrap();
        learnt.count(&key, &mut sequence);
        sequence.turns.iter().map(|turn| turn.repeated).collect::<Vec<_>>()
    });
    assert_eq!(repeated.collect::<Vec<_>>(), [[false, false, false], [true, false, false]]);
}

/// The ids of what a filter lets through.
fn ids(trajectories: &Trajectories, filter: &Filter) -> Vec<Arc<str>> {
    let listed = trajectories.list(&None, filter, 9).unwrap().trajectories;
    listed.into_iter().map(|told| told.id).collect()
}

#[test]
fn a_session_that_several_keys_named_is_all_of_theirs_for_whoever_looks_at_the_file() {
    let store = a_store();
    let trajectories = opened(&store, POLICY);
    for (owner, session, id) in [("one", "S", 1), ("two", "S", 2), ("two", "T", 3), ("three", "S", 4)] {
        let (owner, session) = (Some(owner.into()), Some(session.into()));
        trajectories.capture(Generation { owner, session, ..generation(&[id], &[1]) }).unwrap();
    }
    let one = Some("one".into());
    let of = |session: &str| Filter { session: Some(session.to_owned()), ..Filter::default() };
    assert_eq!(trajectories.list(&one, &of("S"), 9).unwrap().trajectories.len(), 1);
    let looked = Trajectories::open_to_look(Arc::clone(&store) as Arc<dyn BatchStore>).unwrap();
    let all = ids(&looked, &Filter::default());
    assert_eq!(ids(&looked, &of("S")), [0, 1, 3].map(|at| Arc::clone(&all[at])));
    assert_eq!(ids(&looked, &of("T")), [Arc::clone(&all[2])]);
    assert_eq!(ids(&looked, &Filter { newest_first: true, ..of("S") }), [3, 1, 0].map(|at| Arc::clone(&all[at])));
    assert_eq!(
        ids(&looked, &Filter { after: Some(all[0].to_string()), ..of("S") }),
        [1, 3].map(|at| Arc::clone(&all[at]))
    );
    let mut keys = looked.sequences(&None, &of("S"), Unit::Leaf).unwrap();
    let exported = std::iter::from_fn(|| Some(looked.next_sequences(&mut keys)).filter(|found| !found.is_empty()));
    assert_eq!(exported.flatten().count(), 3);
}

#[test]
fn an_adapter_is_found_by_its_own_name_and_by_the_weights_under_it() {
    let trajectories = opened(&a_store(), POLICY);
    for (prompt, adapter, version, base_version) in [
        (1, None, "3", None),
        (2, Some("a"), "a@1", Some("3")),
        (3, Some("a"), "a@2", Some("4")),
        (4, Some("b"), "b@1", Some("4")),
    ] {
        let weights = WeightsUsed {
            version: version.into(),
            base_version: base_version.map(Into::into),
            number: 0,
            start: 0,
            end: 1,
            reuse_older_keys: false,
            checksum: None,
        };
        let adapter = adapter.map(|name| AdapterUsed { name: name.into(), label: version.into(), checksum: None });
        let model = "tiny".into();
        let turn = Generation { model, adapter, weights: vec![weights], ..generation(&[prompt], &[1]) };
        trajectories.capture(turn).unwrap();
    }
    let listed = trajectories.list(&None, &Filter::default(), 9).unwrap().trajectories;
    let models: Vec<Vec<&str>> = listed.iter().map(|told| told.models.iter().map(|name| &**name).collect()).collect();
    assert_eq!(models, [["tiny"], ["a"], ["a"], ["b"]]);
    let count = |models: &[&str]| {
        let models = models.iter().map(ToString::to_string).collect();
        ids(&trajectories, &Filter { models: Some(models), ..Filter::default() }).len()
    };
    assert_eq!((count(&["tiny"]), count(&["a"]), count(&["b"]), count(&["other"])), (1, 2, 1, 0));
    assert_eq!(count(&["other", "tiny"]), 1);
    let of_version =
        |version: &str| ids(&trajectories, &Filter { version: Some(version.to_owned()), ..Filter::default() }).len();
    assert_eq!(["3", "4", "a@1", "b@1", "5"].map(of_version), [2, 2, 1, 1, 0]);
}
