//! How a connection is secured, as `security.protocol` says.

use tokio::net::TcpStream;

use super::{Address, ClientError};

/// The security of a connection, checked once when a configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Security {
    /// No encryption, no authentication.
    #[default]
    Plaintext,
}

/// A security protocol that we cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// Kafka has it, this build of Longhaul does not.
    #[error(
        "security.protocol {0} is not supported by this version of Longhaul, which connects with \
         PLAINTEXT only"
    )]
    NotSupported(String),
    /// Nobody has it.
    #[error("security.protocol {0:?} is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL")]
    Unknown(String),
}

impl Security {
    /// Reads the value of `security.protocol`.
    pub fn parse(protocol: &str) -> Result<Self, SecurityError> {
        match protocol.trim().to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Ok(Self::Plaintext),
            "SSL" | "SASL_PLAINTEXT" | "SASL_SSL" => {
                Err(SecurityError::NotSupported(protocol.trim().to_owned()))
            }
            _ => Err(SecurityError::Unknown(protocol.to_owned())),
        }
    }

    /// Does the handshakes that come before the first Kafka request.
    // Async because every protocol but this one has something to wait for.
    pub(super) async fn secure(
        self,
        stream: TcpStream,
        _address: &Address,
    ) -> Result<TcpStream, ClientError> {
        match self {
            Self::Plaintext => Ok(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_refused_by_name() {
        assert_eq!(Security::parse("plaintext"), Ok(Security::Plaintext));
        assert!(Security::parse("SASL_SSL").unwrap_err().to_string().contains("SASL_SSL"));
        assert!(Security::parse("TLS").unwrap_err().to_string().contains("not one of"));
    }
}
