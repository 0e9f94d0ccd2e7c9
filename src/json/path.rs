//! Ways to values.

use std::fmt;

/// A way to a value of a document: keys of objects and indexes of lists. Who shows it decides how it is spelt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

/// One step of a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A key that a request declares, or several of them with dots between.
    Name(&'static str),
    /// A key of the client's own.
    Key(String),
    /// An index of a list.
    Index(usize),
}

impl Path {
    /// The same way, one step further.
    #[must_use]
    pub fn then(mut self, segment: impl Into<Segment>) -> Self {
        self.push(segment);
        self
    }

    /// Goes one step further.
    pub fn push(&mut self, segment: impl Into<Segment>) {
        self.0.push(segment.into());
    }

    /// Goes one step back.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// The steps.
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
    /// As Python spells it: `messages[3].content`.
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
