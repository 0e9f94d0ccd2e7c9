//! Names of weights that were given, where one could be that of a later update that nobody names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Names that begin with the number of an update to come, by that number.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<u64, BTreeSet<Arc<str>>>);

impl Names {
    /// Notes what weights are called that came with the update of this number, or before the next one.
    pub(super) fn note(&mut self, name: &Arc<str>, number: u64) {
        // Updates to come have higher numbers.
        self.0 = self.0.split_off(&number.saturating_add(1));
        let digits = name.split_once('.').map_or(&**name, |(digits, _)| digits);
        if let Ok(named) = digits.parse::<u64>()
            && named > number
        {
            self.0.entry(named).or_default().insert(Arc::clone(name));
        }
    }

    /// What the weights of an update are called that nobody names: its number, with a suffix where other weights had it.
    pub(super) fn of_update(&self, number: u64) -> Arc<str> {
        let given = self.0.get(&number);
        let is_new = |name: &Arc<str>| given.is_none_or(|given| !given.contains(name));
        let suffixed = (1_u64..).map(|suffix| format!("{number}.{suffix}").into());
        let mut names = std::iter::once(number.to_string().into()).chain(suffixed);
        names.find(is_new).expect("not every suffix was given")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_that_nobody_names_has_a_name_that_no_weights_had() {
        let mut names = Names::default();
        for (name, number) in [("default", 0), ("3", 1), ("3.1", 1), ("03", 1), ("step-4", 2), ("4.2", 2), ("2", 2)] {
            names.note(&name.into(), number);
        }
        assert_eq!([3, 4, 5].map(|number| names.of_update(number).to_string()), ["3.2", "4", "5"]);
        names.note(&"4".into(), 3);
        names.note(&"4.1".into(), 3);
        assert_eq!(&*names.of_update(4), "4.3");
    }

    #[test]
    fn names_are_forgotten_once_no_update_can_have_them() {
        let mut names = Names::default();
        for number in 0..100 {
            names.note(&(number + 1).to_string().into(), number);
            names.note(&number.to_string().into(), number);
        }
        assert_eq!(names.0.len(), 1);
        names.note(&"x".into(), u64::MAX);
        assert!(names.0.is_empty());
    }
}
