//! Ids that a node makes for itself.

use std::io::Read;

use storage::TopicId;

/// A random id in Kafka's form of a UUID. Like Kafka's it never begins with a dash, which a command
/// line would take for an option.
pub(crate) fn random_id() -> std::io::Result<TopicId> {
    let mut source = std::fs::File::open("/dev/urandom")?;
    loop {
        let mut bytes = [0u8; 16];
        source.read_exact(&mut bytes)?;
        // Version 4, variant 1, as every other maker of UUIDs writes them.
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = TopicId(bytes);
        if !id.to_string().starts_with('-') {
            return Ok(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_are_printable_everywhere() {
        let ids: Vec<_> = (0..200).map(|_| random_id().unwrap().to_string()).collect();
        assert!(ids.iter().all(|id| id.len() == 22 && !id.starts_with('-')));
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
