//! `host:port` as configuration files and flags spell it.

use std::fmt;
use std::sync::Arc;

/// A broker's address, not yet resolved: names are looked up anew for every connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: Arc<str>,
    /// A port.
    pub port: u16,
}

/// Why text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address: {reason}; write HOST:PORT, and [IPV6]:PORT for IPv6")]
pub struct AddressError {
    text: String,
    reason: &'static str,
}

impl Address {
    /// Reads `HOST:PORT` or `[IPV6]:PORT`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let refuse = |reason| AddressError { text: text.to_owned(), reason };
        let trimmed = text.trim();
        let (host, port) = trimmed.rsplit_once(':').ok_or_else(|| refuse("there is no port"))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                rest.strip_suffix(']').ok_or_else(|| refuse("the bracket is not closed"))?
            }
            None if host.contains(':') => return Err(refuse("an IPv6 address needs brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(refuse("there is no host"));
        }
        if host.chars().any(|c| c.is_whitespace() || c == '/') {
            return Err(refuse("the host has a character that no host name has"));
        }
        match port.parse() {
            Ok(0) | Err(_) => Err(refuse("the port is not a number from 1 to 65535")),
            Ok(port) => Ok(Self { host: host.into(), port }),
        }
    }

    /// Reads a comma-separated list, as `bootstrap.servers` has it. Never empty on success.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, AddressError> {
        let addresses: Vec<_> = text
            .split(',')
            .filter(|part| !part.trim().is_empty())
            .map(Self::parse)
            .collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(AddressError { text: text.to_owned(), reason: "the list is empty" });
        }
        Ok(addresses)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_both_ip_families_are_read_and_printed_alike() {
        for text in ["broker-1.example:9092", "10.0.0.1:1", "[::1]:65535"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_fault_is_named() {
        for (text, part) in [
            ("localhost", "no port"),
            (":9092", "no host"),
            ("::1:9092", "brackets"),
            ("[::1:9092", "not closed"),
            ("a:0", "1 to 65535"),
            ("a:99999", "1 to 65535"),
            ("a b:1", "character"),
        ] {
            let message = Address::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_list_skips_blanks_but_is_never_empty() {
        assert_eq!(Address::parse_list(" a:1, b:2 ,").unwrap().len(), 2);
        assert!(Address::parse_list(" , ").is_err());
        assert!(Address::parse_list("a:1,b").is_err());
    }
}
