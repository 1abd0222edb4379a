//! The XML of the protocol: access policies, service properties, statistics, messages and lists of queues.
//!
//! Bodies are small trees of elements with text. Attributes, comments and processing instructions are
//! skipped; document types and entities beyond the five of XML itself are refused, so that a body never
//! means more than it says.

pub mod acl;
pub mod message;
pub mod queues;
pub mod service_properties;
pub mod stats;

pub(crate) mod text;
mod tree;

/// Where a body ceases to be XML: line and position, both from 1. None if its form is right.
pub fn fault(body: &[u8]) -> Option<(usize, usize)> {
    tree::fault(body)
}

/// Why a body is not what it should be. Each has an error code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    /// Not well-formed, the wrong root, or beyond a limit.
    #[error("the XML is not syntactically valid")]
    Syntax,
    /// A value that is not in the right form.
    #[error("the value of an XML node is not in the correct format")]
    NodeValue,
    /// An element that must be there is not.
    #[error("a required XML node is missing")]
    MissingNode,
    /// The id of an access policy of a queue is empty or too long. Azure names the place behind the policy.
    #[error("the id of a policy is empty or too long")]
    PolicyId {
        /// Line of that place, from 1.
        line: usize,
        /// Position in the line, from 1.
        position: usize,
    },
    /// An element that must not be there is.
    #[error("an XML node is not supported")]
    UnsupportedNode,
}
