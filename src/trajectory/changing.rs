//! What clients change of trajectories: what is attached to them, and whether they are there.

use super::{CaptureError, MOST_TAGS, Note, Noted, Owner, Removal, Trajectories, index::notes_key, weight};

impl Trajectories {
    /// Changes what is attached to a trajectory.
    ///
    /// # Errors
    ///
    /// If the store failed; nothing is changed then.
    pub fn note(&self, owner: &Owner, id: &str, note: Note) -> Result<Noted, CaptureError> {
        let _noting = self.noting.lock();
        let (number, mut notes) = {
            let index = self.index.lock();
            let Some((number, tree)) = index.find(owner.as_ref(), id) else { return Ok(Noted::NoTrajectory) };
            if let Note::Reward { turn: Some(turn), .. } = &note
                && !tree.turns.iter().any(|number| index.nodes[number].id == *turn)
            {
                return Ok(Noted::NoTurn);
            }
            (number, tree.notes.clone())
        };
        let before = weight::of_notes(&notes);
        notes.change(note);
        if notes.tags.len() > MOST_TAGS {
            return Ok(Noted::TooManyTags);
        }
        let bytes = serde_json::to_vec(&notes).map_err(|error| CaptureError::Failed(error.to_string()))?;
        let (key, length) = (notes_key(number), bytes.len());
        if notes.is_empty() {
            let _leaving = self.leaving.lock();
            self.write(vec![key], Vec::new())?;
            self.index.lock().attach(number, notes.clone(), 0);
            return Ok(Noted::Done(notes));
        }
        self.check_size(number, weight::of_notes(&notes).saturating_sub(before), &[(&key, &bytes)])?;
        self.write(Vec::new(), vec![(key, bytes.into())])?;
        self.index.lock().attach(number, notes.clone(), length);
        self.settle_later(number);
        Ok(Noted::Done(notes))
    }

    /// Forgets a trajectory, and says whether there was one.
    ///
    /// # Errors
    ///
    /// If the store failed; the trajectory is not shown any more, and is deleted as soon as the store can be written.
    pub fn delete(&self, owner: &Owner, id: &str) -> Result<bool, CaptureError> {
        let found = {
            let mut index = self.index.lock();
            let found = index.find(owner.as_ref(), id).map(|(number, _)| number);
            if let Some(number) = found {
                index.fell(number);
            }
            found
        };
        Removal::Deleted.count(usize::from(found.is_some()));
        self.settle(None)?;
        Ok(found.is_some())
    }
}
