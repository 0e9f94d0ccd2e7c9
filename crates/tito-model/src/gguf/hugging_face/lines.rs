//! Tables of tensors, as data: a line for each, whose lengths are named by what they are.

use std::collections::BTreeMap;

use super::{
    order::{ByKeyHead, Order},
    tensors::{Change, Groups, Layout, NamedTensor, Source, TablePart},
};

/// A length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dim {
    One,
    Hidden,
    Vocab,
    /// How many heads queries have, and keys.
    Heads,
    KeyHeads,
    /// A head's width.
    Head,
    /// All heads of queries, all of keys, and both with those of values.
    Queries,
    Keys,
    QueriesKeysValues,
    /// What comes out of attention, before the way back.
    Attended,
    /// A dense feed-forward part, and its gates and ups as one.
    Intermediate,
    GateUp,
    /// How many experts there are, how wide each is, and its gates and ups as one.
    Experts,
    Expert,
    ExpertGateUp,
    /// What experts read and give, where states are compressed for them.
    ExpertState,
    /// What every token goes through besides, and its gates and ups as one.
    Shared,
    SharedGateUp,
    /// Compressed queries, compressed keys and values, and these with the part of keys that is rotated.
    QueryRank,
    Rank,
    RankRotated,
    /// A head's part of queries and keys that is not rotated, its values, and both of all heads.
    Apart,
    Value,
    ApartValues,
    /// Of what chooses tokens: heads, numbers of a key, and the queries of all heads.
    IndexHeads,
    IndexKey,
    IndexQueries,
    /// The rows of a short convolution's inputs, and how many tokens it reaches over.
    ConvolutionInputs,
    Taps,
    /// Queries and as many gates of what they give.
    QueriesGates,
    /// Of a layer with a recurrent state: the rows of its inputs, those that are convolved and those of queries and keys
    /// among them, heads, values of a head and of all heads, groups of heads that share keys and how many values one has,
    /// and the rows of steps and strengths.
    RecurrentInputs,
    Channels,
    QueriesKeys,
    RecurrentHeads,
    RecurrentValue,
    Inner,
    Groups,
    Group,
    StepsStrengths,
    /// A head of the layers whose heads are wider than those of others, all their heads of queries and of keys, and a dense
    /// feed-forward part that is wider.
    WideHead,
    WideQueries,
    WideKeys,
    WideIntermediate,
    /// Each layer's own input, those of all layers, and how many tokens have one.
    Input,
    Inputs,
    InputVocab,
}

/// The lengths of a model.
#[derive(Debug, Default)]
pub(super) struct Sizes(BTreeMap<Dim, usize>);

impl Sizes {
    pub(super) fn set(&mut self, sizes: impl IntoIterator<Item = (Dim, usize)>) {
        self.0.extend(sizes);
    }

    pub(super) fn get(&self, dim: Dim) -> usize {
        self.find(dim).expect("a family sets the lengths that its tensors have")
    }

    pub(super) fn find(&self, dim: Dim) -> Option<usize> {
        self.0.get(&dim).copied()
    }

    fn shape(&self, dims: &[Dim]) -> Vec<usize> {
        dims.iter().map(|dim| self.get(*dim)).collect()
    }
}

/// A tensor of the directory and of the file. `{}` in its name stands for each number of its count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    name: &'static str,
    shape: &'static [Dim],
    from: From,
    order: Option<OrderDims>,
    change: Option<Change>,
}

/// In which order the file has a tensor.
#[derive(Debug, Clone, Copy)]
enum OrderDims {
    Rotary(Dim),
    RowsByKeyHead { before: Option<Dim>, width: Dim },
    ColumnsByKeyHead { width: Dim },
}

/// Where a tensor comes from.
#[derive(Debug, Clone, Copy)]
enum From {
    Whole(&'static str),
    Reshaped(&'static str, &'static [Dim]),
    Each(&'static str, Dim),
    Groups(&'static Table),
}

/// Tables that are put together of parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    /// How many there are.
    pub(super) count: Dim,
    /// Sources: names, shapes, and parts.
    pub(super) parts: &'static [(&'static str, &'static [Dim], PartDims)],
    /// Whether the rows of parts alternate.
    pub(super) alternate: bool,
    /// Whether the table is turned in the end.
    pub(super) turned: bool,
}

/// A part of a table: the length of its rows in the file, and whether it is turned first.
pub(super) type PartDims = (Dim, bool);

/// A tensor that the file has as it is.
pub(super) const fn line(source: &'static str, name: &'static str, shape: &'static [Dim]) -> Line {
    new(name, shape, From::Whole(source))
}

/// One for each of `count`, which the file has one after the other.
pub(super) const fn each(source: &'static str, count: Dim, name: &'static str, shape: &'static [Dim]) -> Line {
    new(name, shape, From::Each(source, count))
}

/// One that is put together of several, or turned.
pub(super) const fn grouped(table: &'static Table, name: &'static str, shape: &'static [Dim]) -> Line {
    new(name, shape, From::Groups(table))
}

const fn new(name: &'static str, shape: &'static [Dim], from: From) -> Line {
    Line { name, shape, from, order: None, change: None }
}

impl Line {
    /// The same, whose rotary halves the file interleaves in each of the heads.
    pub(super) const fn rotary(self, heads: Dim) -> Self {
        Self { order: Some(OrderDims::Rotary(heads)), ..self }
    }

    /// The same, whose rows are, after those that come before, heads of values, which the file does not have by the heads of
    /// keys that they share.
    pub(super) const fn rows_by_key_head(self, before: Option<Dim>, width: Dim) -> Self {
        Self { order: Some(OrderDims::RowsByKeyHead { before, width }), ..self }
    }

    /// The same of columns.
    pub(super) const fn columns_by_key_head(self, width: Dim) -> Self {
        Self { order: Some(OrderDims::ColumnsByKeyHead { width }), ..self }
    }

    /// The same numbers in another shape in the file.
    pub(super) const fn reshaped(self, shape: &'static [Dim]) -> Self {
        match self.from {
            From::Whole(source) => Self { from: From::Reshaped(source, shape), ..self },
            _ => self,
        }
    }

    /// The same, of which the file has the exponentials, negated.
    pub(super) const fn logarithm(self) -> Self {
        Self { change: Some(Change::NegatedLogarithm), ..self }
    }

    /// The same, of which the file has one more.
    pub(super) const fn less_one(self) -> Self {
        Self { change: Some(Change::LessOne), ..self }
    }

    /// The tensors of this line, with what comes before their names.
    pub(super) fn tensors(&self, sizes: &Sizes, before: [&str; 2]) -> Vec<NamedTensor> {
        let shape = sizes.shape(self.shape);
        let source = |name: &str, shape: Vec<usize>| vec![Source::whole(format!("{}{name}", before[0]), shape)];
        let named = |name: String, sources, layout| NamedTensor {
            name: format!("{}{name}", before[1]),
            shape: shape.clone(),
            sources,
            layout,
            change: self.change,
        };
        let one = |sources, layout| vec![named(self.name.to_owned(), sources, layout)];
        match self.from {
            From::Whole(from) => one(source(from, shape.clone()), self.layout(sizes)),
            From::Reshaped(from, dims) => one(source(from, sizes.shape(dims)), self.layout(sizes)),
            From::Each(from, count) => {
                let count = sizes.get(count);
                let all: Vec<usize> = [&[count][..], &shape].concat();
                let name = |number: usize| self.name.replace("{}", &number.to_string());
                (0..count).map(|slice| named(name(slice), source(from, all.clone()), Layout::Slice(slice))).collect()
            }
            From::Groups(table) => {
                let sources = table.parts.iter().flat_map(|(name, dims, _)| source(name, sizes.shape(dims))).collect();
                let part = |(columns, turned): PartDims| TablePart { columns: sizes.get(columns), turned };
                let parts = table.parts.iter().map(|(_, _, dims)| part(*dims)).collect();
                let Table { alternate, turned, .. } = *table;
                one(sources, Layout::Groups(Groups { count: sizes.get(table.count), parts, alternate, turned }))
            }
        }
    }
    /// How one tensor of the file becomes this.
    fn layout(&self, sizes: &Sizes) -> Layout {
        let by_key_head = |before: Option<Dim>, width| {
            let key_heads = sizes.get(Dim::Groups);
            let shared_by = sizes.get(Dim::RecurrentHeads) / key_heads;
            let before = before.map_or(0, |before| sizes.get(before));
            // Where each has keys of its own, both orders are the same.
            (shared_by > 1).then_some(Order::ByKeyHead(ByKeyHead {
                before,
                key_heads,
                shared_by,
                width: sizes.get(width),
            }))
        };
        match self.order {
            None => Layout::Whole,
            Some(OrderDims::Rotary(heads)) => Layout::Rows(Order::Rotary(sizes.get(heads))),
            Some(OrderDims::RowsByKeyHead { before, width }) => {
                by_key_head(before, width).map_or(Layout::Whole, Layout::Rows)
            }
            Some(OrderDims::ColumnsByKeyHead { width }) => {
                by_key_head(None, width).map_or(Layout::Whole, Layout::Columns)
            }
        }
    }
}
