//! The path from the root of a document to a value in it.

use std::fmt;

/// The path to a value of a document: the keys of objects and the indexes of lists. Whoever shows it decides how it is
/// spelt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A key that a request declares, or several such keys with dots between them.
    Name(&'static str),
    /// A key that the client chose.
    Key(String),
    /// An index of a list.
    Index(usize),
}

impl Path {
    /// Returns the same path, one step longer.
    #[must_use]
    pub fn then(mut self, segment: impl Into<Segment>) -> Self {
        self.push(segment);
        self
    }

    /// Adds a step at the end.
    pub fn push(&mut self, segment: impl Into<Segment>) {
        self.0.push(segment.into());
    }

    /// Removes the last step.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// Returns the steps.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }
}

impl From<&'static str> for Segment {
    fn from(name: &'static str) -> Self {
        Self::Name(name)
    }
}

impl From<String> for Segment {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl From<Segment> for Path {
    fn from(segment: Segment) -> Self {
        Self(vec![segment])
    }
}

impl From<&'static str> for Path {
    fn from(name: &'static str) -> Self {
        Segment::from(name).into()
    }
}

impl From<String> for Path {
    fn from(key: String) -> Self {
        Segment::from(key).into()
    }
}

impl FromIterator<Segment> for Path {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl fmt::Display for Path {
    /// Writes the path as Python spells it: `messages[3].content`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            let dot = if position == 0 { "" } else { "." };
            match segment {
                Segment::Name(name) => write!(f, "{dot}{name}")?,
                Segment::Key(key) => write!(f, "{dot}{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_spelt_with_dots_and_brackets() {
        let path = Path::from("messages").then(3).then("tool_calls").then(0).then("a key".to_owned());
        assert_eq!(path.to_string(), "messages[3].tool_calls[0].a key");
        assert_eq!(Path::default().to_string(), "");
    }
}
