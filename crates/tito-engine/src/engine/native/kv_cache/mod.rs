//! Which places of the cache belong to which sequence, and which can be used again.
//!
//! Pure bookkeeping: numbers of places and hashes, no tensors. A place holds a block of keys and values, or a copy of a
//! recurrent state: each of these has a pool of its own. A place is *held* by any number of sequences, *kept* when
//! nobody holds it but its content is known by a hash, or *free*. New content takes kept places, first the one that was
//! released longest ago.

mod hash;
mod told;

use std::collections::{BTreeMap, HashMap};

pub(crate) use hash::BlockHash;
pub(crate) use told::{NewBlock, Told};

/// The number of a place in its pool.
pub(crate) type PlaceId = u32;

/// The number of a block of keys and values.
pub(crate) type BlockId = PlaceId;

/// All places of one kind.
#[derive(Debug)]
pub(crate) struct Places {
    /// How many there are.
    count: PlaceId,
    /// The places that were ever taken. The others take no memory, neither here nor where their content is.
    touched: Vec<Place>,
    /// The places among them that are neither held nor kept; the last one is taken first.
    free: Vec<PlaceId>,
    /// The kept places, in the order in which sequences let go of them.
    kept: BTreeMap<u64, PlaceId>,
    by_hash: HashMap<BlockHash, PlaceId>,
    clock: u64,
    /// The content that became unknown one by one, where somebody wants to be told.
    hidden: Option<Vec<BlockHash>>,
}

#[derive(Debug, Clone, Default)]
struct Place {
    holders: u32,
    hash: Option<BlockHash>,
    /// When the last holder let go of it.
    released: u64,
}

impl Places {
    /// `count` free places.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            count: PlaceId::try_from(count).expect("fewer than 2^32 places"),
            touched: Vec::new(),
            free: Vec::new(),
            kept: BTreeMap::new(),
            by_hash: HashMap::new(),
            clock: 0,
            hidden: None,
        }
    }

    /// The same, with [`Places::hidden`].
    pub(crate) fn telling(self) -> Self {
        Self { hidden: Some(Vec::new()), ..self }
    }

    /// Takes what became unknown since the last call, but for what [`Places::forget`] forgot.
    pub(crate) fn hidden(&mut self) -> Vec<BlockHash> {
        self.hidden.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The number of all places.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    fn untouched(&self) -> usize {
        self.len() - self.touched.len()
    }

    /// The number of places that can be had: free or kept.
    pub(crate) fn available(&self) -> usize {
        self.untouched() + self.free.len() + self.kept.len()
    }

    /// The number of places that sequences hold.
    pub(crate) fn held(&self) -> usize {
        self.len() - self.available()
    }

    /// The place with this content, if there is one. Finding it does not hold it.
    pub(crate) fn find(&self, hash: &BlockHash) -> Option<PlaceId> {
        self.by_hash.get(hash).copied()
    }

    /// How many places have content that is known.
    #[cfg(test)]
    pub(crate) fn known(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether nobody holds the place.
    pub(crate) fn is_kept(&self, place: PlaceId) -> bool {
        self.touched[place as usize].holders == 0
    }

    /// Holds a place that [`Places::find`] gave.
    pub(crate) fn hold(&mut self, place: PlaceId) {
        let entry = &mut self.touched[place as usize];
        if entry.holders == 0 {
            self.kept.remove(&entry.released);
        }
        entry.holders += 1;
    }

    /// Takes a place for new content, if any can be had.
    pub(crate) fn take(&mut self) -> Option<PlaceId> {
        let place = self.take_free().or_else(|| self.evict())?;
        self.touched[place as usize].holders = 1;
        Some(place)
    }

    /// Takes a place for new content, if there is one without content that is known.
    pub(crate) fn take_free(&mut self) -> Option<PlaceId> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.untouched() > 0 => self.touch(),
            None => return None,
        };
        self.touched[place as usize].holders = 1;
        Some(place)
    }

    fn touch(&mut self) -> PlaceId {
        let place = PlaceId::try_from(self.touched.len()).expect("fewer than 2^32 places");
        self.touched.push(Place::default());
        place
    }

    fn evict(&mut self) -> Option<PlaceId> {
        let (_, place) = self.kept.pop_first()?;
        self.hide(place);
        Some(place)
    }

    /// Makes a held place's content known, and says whether it was not. Where another place has the same content already, that one
    /// stays known.
    pub(crate) fn publish(&mut self, place: PlaceId, hash: BlockHash) -> bool {
        let entry = &mut self.touched[place as usize];
        debug_assert!(entry.holders > 0, "whoever computed a place's content holds it");
        let is_new = entry.hash.is_none() && !self.by_hash.contains_key(&hash);
        if is_new {
            entry.hash = Some(hash);
            self.by_hash.insert(hash, place);
        }
        is_new
    }

    /// Makes a held place's content unknown, so that nobody else comes to hold it.
    pub(crate) fn hide(&mut self, place: PlaceId) {
        if let Some(hash) = self.touched[place as usize].hash.take() {
            self.by_hash.remove(&hash);
            if let Some(hidden) = &mut self.hidden {
                hidden.push(hash);
            }
        }
    }

    /// Lets go of a place.
    pub(crate) fn release(&mut self, place: PlaceId) {
        let entry = &mut self.touched[place as usize];
        entry.holders = entry.holders.checked_sub(1).expect("a place is let go of as often as it was held");
        if entry.holders > 0 {
            return;
        }
        if entry.hash.is_some() {
            self.clock += 1;
            entry.released = self.clock;
            self.kept.insert(self.clock, place);
        } else {
            self.free.push(place);
        }
    }

    /// Frees the place with this content, if it is known and nobody holds it.
    pub(crate) fn give_up(&mut self, hash: &BlockHash) {
        if let Some(place) = self.find(hash).filter(|place| self.is_kept(*place)) {
            self.hold(place);
            self.hide(place);
            self.release(place);
        }
    }

    /// Forgets the content of every place, so that none is used again; held places stay held.
    pub(crate) fn forget(&mut self) {
        self.by_hash.clear();
        for place in &mut self.touched {
            place.hash = None;
        }
        self.free.extend(std::mem::take(&mut self.kept).into_values());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(content: u32) -> BlockHash {
        BlockHash::root(0, None, None).then(&[content])
    }

    #[test]
    fn a_kept_place_is_found_until_it_is_needed() {
        let mut places = Places::new(2);
        let first = places.take().unwrap();
        places.publish(first, hash(1));
        places.release(first);
        assert_eq!((places.find(&hash(1)), places.available(), places.held()), (Some(first), 2, 0));
        let second = places.take().unwrap();
        assert_ne!(second, first, "a free place goes before a kept one");
        assert_eq!(places.take(), Some(first));
        assert_eq!((places.find(&hash(1)), places.take()), (None, None));
    }

    #[test]
    fn the_place_that_was_let_go_of_first_gives_way_first() {
        let mut places = Places::new(3);
        let taken: Vec<PlaceId> = (0..3).map(|_| places.take().unwrap()).collect();
        for (content, place) in (0..).zip(&taken) {
            places.publish(*place, hash(content));
        }
        for index in [1, 0, 2] {
            places.release(taken[index]);
        }
        places.hold(taken[1]);
        places.release(taken[1]);
        assert_eq!([places.take(), places.take(), places.take()], [taken[0], taken[2], taken[1]].map(Some));
    }

    #[test]
    fn two_places_of_the_same_content_are_known_by_the_first() {
        let mut places = Places::new(2);
        let (first, second) = (places.take().unwrap(), places.take().unwrap());
        places.publish(first, hash(1));
        places.publish(second, hash(1));
        places.release(second);
        places.release(first);
        assert_eq!(places.find(&hash(1)), Some(first));
        assert_eq!(places.take(), Some(second));
        assert_eq!(places.find(&hash(1)), Some(first));
    }

    #[test]
    fn forgotten_places_are_free_once_they_are_let_go_of() {
        let mut places = Places::new(2);
        let (kept, held) = (places.take().unwrap(), places.take().unwrap());
        places.publish(kept, hash(1));
        places.publish(held, hash(2));
        places.release(kept);
        places.forget();
        assert_eq!((places.find(&hash(1)), places.find(&hash(2)), places.available()), (None, None, 1));
        places.release(held);
        assert_eq!((places.available(), places.kept.len()), (2, 0));
    }

    #[test]
    fn places_that_were_never_taken_take_no_memory() {
        let mut places = Places::new(u32::MAX as usize / 2);
        assert_eq!((places.take(), places.take(), places.held()), (Some(0), Some(1), 2));
        places.release(0);
        assert_eq!((places.take(), places.available()), (Some(0), places.len() - 2));
    }

    #[test]
    fn content_that_is_used_is_kept_longer_and_content_that_is_given_up_is_gone() {
        let mut places = Places::new(3);
        let taken: Vec<PlaceId> = (0..3).map(|_| places.take().unwrap()).collect();
        for (content, place) in (0..).zip(&taken) {
            places.publish(*place, hash(content));
            places.release(*place);
        }
        places.hold(taken[0]);
        places.release(taken[0]);
        places.give_up(&hash(2));
        assert_eq!((places.find(&hash(2)), places.available()), (None, 3));
        assert_eq!([places.take(), places.take(), places.take()], [taken[2], taken[1], taken[0]].map(Some));
    }

    #[test]
    fn hidden_content_is_found_by_nobody_and_held_content_is_not_given_up() {
        let mut places = Places::new(2);
        let place = places.take().unwrap();
        places.publish(place, hash(1));
        places.give_up(&hash(1));
        assert_eq!(places.find(&hash(1)), Some(place));
        places.hide(place);
        assert_eq!((places.find(&hash(1)), places.held()), (None, 1));
        places.release(place);
        assert_eq!((places.available(), places.kept.len()), (2, 0));
    }

    proptest! {
        /// Against a model that knows only who holds what.
        #[test]
        fn no_place_is_lost_or_held_twice(actions in prop::collection::vec((0..7_u8, 0..8_u32), 1..200)) {
            let mut places = Places::new(6);
            let mut held: Vec<PlaceId> = Vec::new();
            for (action, number) in actions {
                match action {
                    0 => {
                        let distinct: std::collections::BTreeSet<_> = held.iter().copied().collect();
                        if let Some(place) = places.take() {
                            prop_assert!(!held.contains(&place));
                            held.push(place);
                        } else {
                            prop_assert_eq!(distinct.len(), 6);
                        }
                    }
                    1 if !held.is_empty() => _ = places.publish(held[number as usize % held.len()], hash(number)),
                    2 if !held.is_empty() => places.release(held.swap_remove(number as usize % held.len())),
                    3 => if let Some(place) = places.find(&hash(number)) {
                        places.hold(place);
                        held.push(place);
                    },
                    4 if number == 0 => places.forget(),
                    5 => places.give_up(&hash(number)),
                    6 if !held.is_empty() => places.hide(held[number as usize % held.len()]),
                    _ => {}
                }
                let distinct: std::collections::BTreeSet<_> = held.iter().copied().collect();
                prop_assert_eq!(places.held(), distinct.len());
            }
        }
    }
}
