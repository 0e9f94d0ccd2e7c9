//! The syntax of templates: jinja2's grammar, as a tree that is no deeper than its brackets and statements are nested.
//! What can be chained without end (operators, filters, attributes, `elif`, `not`) is a list in the tree, so that
//! neither reading, rendering nor dropping it needs a stack that grows with the source.

mod expressions;
mod parser;
mod statements;

pub(super) use statements::parse;

use std::sync::Arc;

use super::filters::Filter;
use super::operators::Operator;
use super::predicates::Predicate;
use super::value::Value;

pub(super) type Block = Vec<Statement>;

#[derive(Debug)]
pub(super) enum Statement {
    Text(Box<str>),
    Print(Expression),
    For(Box<For>),
    /// Conditions and what they guard, the first one that is true.
    If(Vec<(Expression, Block)>, Block),
    Set(Target, Expression),
    SetBlock(Target, Vec<Filtering>, Block),
    With(Vec<(Target, Expression)>, Block),
    Filter(Vec<Filtering>, Block),
    Macro(Arc<Macro>),
    Call(Box<Call>),
    /// A scope of its own: `generation` and `block`.
    Scope(Block),
    Break,
    Continue,
    /// What needs other templates, by its name: there are none.
    OtherTemplate(Box<str>),
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) iterated: Expression,
    pub(super) condition: Option<Expression>,
    pub(super) is_recursive: bool,
    pub(super) body: Block,
    pub(super) otherwise: Block,
}

/// A macro, or the body of a `call` block.
#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Box<str>,
    pub(super) parameters: Vec<(Box<str>, Option<Expression>)>,
    pub(super) body: Block,
    pub(super) uses: Uses,
}

/// Which of the variables that a macro has besides its parameters it speaks of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Uses {
    pub(super) caller: bool,
    pub(super) varargs: bool,
    pub(super) kwargs: bool,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) called: Expression,
    pub(super) arguments: Arguments,
    pub(super) body: Arc<Macro>,
}

/// What can be assigned to.
#[derive(Debug)]
pub(super) enum Target {
    Name(Box<str>),
    /// An attribute of the namespace that a variable holds.
    Attribute(Box<str>, Box<str>),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(super) enum Expression {
    Constant(Value),
    Name(Box<str>),
    List(Vec<Expression>),
    Tuple(Vec<Expression>),
    Dict(Vec<(Expression, Expression)>),
    /// One `not` or several.
    Not(usize, Box<Expression>),
    /// `-` where true and `+` where false, the outermost first.
    Signed(Vec<bool>, Box<Expression>),
    /// Operators of one precedence, from left to right.
    Arithmetic(Box<Expression>, Vec<(Operator, Expression)>),
    Concatenation(Vec<Expression>),
    Comparison(Box<Expression>, Vec<(Comparison, Expression)>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Conditional(Vec<Arm>),
    Postfix(Box<Expression>, Vec<Step>),
}

/// `value if test if test`, and the next arm stands after its `else`.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) value: Expression,
    pub(super) tests: Vec<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    NotIn,
}

#[derive(Debug)]
pub(super) enum Step {
    Attribute(Box<str>),
    Item(Expression),
    Slice(Box<[Option<Expression>; 3]>),
    Call(Arguments),
    Filter(Filtering),
    /// Negated where the flag is set.
    Test(Box<str>, Option<&'static Predicate>, Arguments, bool),
}

/// A filter, where there is one of that name, with its arguments.
#[derive(Debug)]
pub(super) struct Filtering {
    pub(super) name: Box<str>,
    pub(super) filter: Option<&'static Filter>,
    pub(super) arguments: Arguments,
}

#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) positional: Vec<Expression>,
    pub(super) named: Vec<(Box<str>, Expression)>,
    /// `*items`.
    pub(super) items: Option<Box<Expression>>,
    /// `**entries`.
    pub(super) entries: Option<Box<Expression>>,
}
