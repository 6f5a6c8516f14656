//! What consumers subscribe to, as their protocol's metadata says.
//!
//! The metadata is the members' own business; this reads only as much of the consumer protocol as
//! every version has at its start: `version int16, topics [] string`.

use std::collections::BTreeSet;

use super::classic::Group;

/// The topics of all members; `None` when a member's metadata cannot be read, or the group is of
/// another kind than consumers.
pub(super) fn topics_of(group: &Group) -> Option<BTreeSet<String>> {
    let mut topics = BTreeSet::new();
    for member in group.members() {
        if group.protocol_type() != Some("consumer") {
            return None;
        }
        for (_, metadata) in &member.protocols {
            topics.extend(subscribed(metadata)?);
        }
    }
    Some(topics)
}

fn subscribed(mut bytes: &[u8]) -> Option<Vec<String>> {
    let (_version, rest) = bytes.split_first_chunk::<2>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    bytes = rest;
    let mut topics = Vec::new();
    for _ in 0..i32::from_be_bytes(*count) {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let len = usize::try_from(i16::from_be_bytes(*len)).ok()?;
        let (topic, rest) = rest.split_at_checked(len)?;
        topics.push(std::str::from_utf8(topic).ok()?.to_owned());
        bytes = rest;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_and_a_lying_count_is_not() {
        let metadata = b"\0\x03\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert_eq!(subscribed(metadata), Some(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(subscribed(b"\0\x01\x7f\xff\xff\xff\0\x01a"), None);
        assert_eq!(subscribed(b""), None);
    }
}
