//! The vocabulary of a conversation: messages, their content, tools, tool calls and the token ids they carry.
//!
//! These types are what the wire carries, kept exactly: numbers inside tool schemas and arguments as Python reads
//! them, ids unparsed until someone needs them. Refuses HTTP, templates and anything that only one endpoint knows.

mod content;
mod message;
mod thoughts;
mod tokens;
mod tool;
mod unread;

pub use content::{Content, ContentPart, Image, ImageSize};
pub use message::{AssistantItem, Message, Role};
pub use thoughts::ThoughtFields;
pub use tokens::{InvalidTokenIds, TokenBundle, TokenIds};
pub(crate) use tool::canonical_arguments;
pub use tool::{FunctionTool, InvalidTool, ToolCall};
pub use unread::UnreadFields;
