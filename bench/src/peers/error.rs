//! Why a peer cannot be measured.

use crate::node::NodeError;
use crate::run::SubjectError;

/// Each a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A program is not installed.
    #[error("{program} is not installed: install {package}, or leave {without} out")]
    Missing {
        /// What is looked for in `PATH`.
        program: String,
        /// What to install, by its usual name.
        package: &'static str,
        /// What needs it.
        without: &'static str,
    },
    /// The peer, or a tool, failed: its own words.
    #[error("{0}")]
    Failed(String),
    /// Files or processes.
    #[error("cannot {0}: {1}")]
    Io(String, std::io::Error),
    /// The operator ended the benchmark meanwhile.
    #[error("interrupted")]
    Interrupted,
}

impl PeerError {
    /// From the system's error, with what was being done.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |error| Self::Io(doing, error)
    }
}

impl From<NodeError> for PeerError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Node(words) => Self::Failed(words),
            NodeError::Io(doing, error) => Self::Io(doing, error),
        }
    }
}

impl From<PeerError> for SubjectError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Interrupted => Self::Interrupted,
            other => Self::Failed(other.to_string()),
        }
    }
}
