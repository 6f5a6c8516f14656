//! `--command-config`: how the command line reaches a node.

use std::path::Path;
use std::time::Duration;

use super::mirror::{MirrorConfigError, read_properties};
use crate::client::Security;

/// A Kafka client's properties, as far as they matter for a few requests. Names of other settings are
/// accepted: the same file serves Kafka's own tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandConfig {
    /// `client.id`.
    pub client_id: Option<String>,
    /// `request.timeout.ms`.
    pub request_timeout: Option<Duration>,
}

impl CommandConfig {
    /// Reads a file; a security protocol that is not supported is refused.
    pub fn read(path: &Path) -> Result<Self, MirrorConfigError> {
        let mut config = Self::default();
        let mut problems = Vec::new();
        for (name, value) in read_properties(path)? {
            match name.as_str() {
                "client.id" => config.client_id = Some(value),
                "request.timeout.ms" => match value.trim().parse() {
                    Ok(millis) => config.request_timeout = Some(Duration::from_millis(millis)),
                    Err(_) => problems.push(format!("{name}: {value:?} is not a whole number")),
                },
                "security.protocol" => {
                    if let Err(error) = Security::parse(&value) {
                        problems.push(error.to_string());
                    }
                }
                _ => {}
            }
        }
        if problems.is_empty() { Ok(config) } else { Err(MirrorConfigError(problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_read_and_the_rest_is_left_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "client.id=ops\nrequest.timeout.ms=500\nsome.thing=1\n")
            .unwrap();
        let config = CommandConfig::read(file.path()).unwrap();
        assert_eq!(config.client_id.as_deref(), Some("ops"));
        assert_eq!(config.request_timeout, Some(Duration::from_millis(500)));
        std::fs::write(file.path(), "security.protocol=SSL\nrequest.timeout.ms=x\n").unwrap();
        assert_eq!(CommandConfig::read(file.path()).unwrap_err().0.len(), 2);
    }
}
