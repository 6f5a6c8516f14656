//! The records of `__consumer_offsets`, as Kafka's schema has them.
//!
//! ```text
//! key 0, 1  group string, topic string, partition int32
//! value 0   offset int64, metadata string, commit timestamp int64
//! value 1   the same, expire timestamp int64
//! value 2   as 0
//! value 3   offset int64, leader epoch int32, metadata string, commit timestamp int64
//! value 4   as 3, compact, with tagged fields (0: topic id)
//!
//! key 2     group string
//! value 0   protocol type string, generation int32, protocol string?, leader string?,
//!           members [] {id string, client id string, client host string, session timeout int32,
//!           subscription bytes, assignment bytes}
//! value 1   rebalance timeout int32 before the session timeout
//! value 2   current state timestamp int64 before the members
//! value 3   group instance id string? after the member id
//! ```
//!
//! Each begins with its version as int16. A null value deletes its key. This node writes value
//! version 3 of both: the newest that every release with leader epochs reads. Keys of other
//! versions (newer group protocols) are skipped.

use std::sync::Arc;

use super::table::Committed;

const OFFSET_KEY_VERSION: i16 = 1;
const OFFSET_VALUE_VERSION: i16 = 3;
const GROUP_KEY_VERSION: i16 = 2;
const GROUP_VALUE_VERSION: i16 = 3;

/// What a record's key names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKey {
    /// A group's offset of one partition.
    Offset { group: String, topic: String, partition: i32 },
    /// A group's members.
    Group { group: String },
}

/// A group and its members, as they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) protocol_type: String,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) state_timestamp_ms: i64,
    pub(crate) members: Vec<MemberRecord>,
}

/// A member, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberRecord {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Vec<u8>,
    pub(crate) assignment: Vec<u8>,
}

impl RecordKey {
    /// `None` for what is damaged or of a kind this node does not keep.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields { bytes };
        match fields.i16()? {
            0 | 1 => Some(Self::Offset {
                group: fields.string()?,
                topic: fields.string()?,
                partition: fields.i32()?,
            }),
            GROUP_KEY_VERSION => Some(Self::Group { group: fields.string()? }),
            _ => None,
        }
    }
}

pub(super) fn offset_key(group: &str, topic: &str, partition: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(10 + group.len() + topic.len());
    out.extend_from_slice(&OFFSET_KEY_VERSION.to_be_bytes());
    put_string(&mut out, group);
    put_string(&mut out, topic);
    out.extend_from_slice(&partition.to_be_bytes());
    out
}

pub(super) fn group_key(group: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + group.len());
    out.extend_from_slice(&GROUP_KEY_VERSION.to_be_bytes());
    put_string(&mut out, group);
    out
}

pub(super) fn offset_value(committed: &Committed) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + committed.metadata.len());
    out.extend_from_slice(&OFFSET_VALUE_VERSION.to_be_bytes());
    out.extend_from_slice(&committed.offset.to_be_bytes());
    out.extend_from_slice(&committed.leader_epoch.to_be_bytes());
    put_string(&mut out, &committed.metadata);
    out.extend_from_slice(&committed.commit_timestamp_ms.to_be_bytes());
    out
}

/// `None` for a value that is damaged or of an unknown version.
pub(super) fn read_offset_value(bytes: &[u8]) -> Option<Committed> {
    let mut fields = Fields { bytes };
    let version = fields.i16()?;
    if !(0..=4).contains(&version) {
        return None;
    }
    let offset = fields.i64()?;
    let leader_epoch = if version >= 3 { fields.i32()? } else { -1 };
    let metadata = if version >= 4 { fields.compact_string()? } else { fields.string()? };
    let commit_timestamp_ms = fields.i64()?;
    Some(Committed { offset, leader_epoch, metadata: Arc::from(metadata), commit_timestamp_ms })
}

impl GroupRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&GROUP_VALUE_VERSION.to_be_bytes());
        put_string(&mut out, &self.protocol_type);
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_nullable_string(&mut out, self.protocol.as_deref());
        put_nullable_string(&mut out, self.leader.as_deref());
        out.extend_from_slice(&self.state_timestamp_ms.to_be_bytes());
        out.extend_from_slice(&(self.members.len() as i32).to_be_bytes());
        for member in &self.members {
            put_string(&mut out, &member.member_id);
            put_nullable_string(&mut out, member.instance_id.as_deref());
            put_string(&mut out, &member.client_id);
            put_string(&mut out, &member.client_host);
            out.extend_from_slice(&member.rebalance_timeout_ms.to_be_bytes());
            out.extend_from_slice(&member.session_timeout_ms.to_be_bytes());
            put_bytes(&mut out, &member.subscription);
            put_bytes(&mut out, &member.assignment);
        }
        out
    }

    /// `None` for a value that is damaged or of an unknown version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields { bytes };
        let version = fields.i16()?;
        if !(0..=GROUP_VALUE_VERSION).contains(&version) {
            return None;
        }
        let mut record = Self {
            protocol_type: fields.string()?,
            generation: fields.i32()?,
            protocol: fields.nullable_string()?,
            leader: fields.nullable_string()?,
            state_timestamp_ms: if version >= 2 { fields.i64()? } else { -1 },
            members: Vec::new(),
        };
        // Not reserved by the count: each member takes bytes that have to be there.
        for _ in 0..fields.i32()? {
            record.members.push(fields.member(version)?);
        }
        Some(record)
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    // Every string came through a message with the same kind of length, or is one of ours.
    let len = text.len().min(i16::MAX as usize);
    out.extend_from_slice(&(len as i16).to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..len]);
}

fn put_nullable_string(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_string(out, text),
        None => out.extend_from_slice(&(-1i16).to_be_bytes()),
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// Reads fields in order; `None` ends a record that does not hold what it claims.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    fn text(&mut self, len: usize) -> Option<String> {
        self.take(len).and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned)
    }

    fn string(&mut self) -> Option<String> {
        self.nullable_string()?
    }

    fn nullable_string(&mut self) -> Option<Option<String>> {
        match self.i16()? {
            -1 => Some(None),
            len => self.text(usize::try_from(len).ok()?).map(Some),
        }
    }

    fn compact_string(&mut self) -> Option<String> {
        let mut len: usize = 0;
        for shift in [0, 7, 14] {
            let [byte] = self.array::<1>()?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return self.text(len.checked_sub(1)?);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = usize::try_from(self.i32()?).ok()?;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn member(&mut self, version: i16) -> Option<MemberRecord> {
        let member_id = self.string()?;
        let instance_id = if version >= 3 { self.nullable_string()? } else { None };
        let client_id = self.string()?;
        let client_host = self.string()?;
        let rebalance_timeout_ms = if version >= 1 { Some(self.i32()?) } else { None };
        let session_timeout_ms = self.i32()?;
        Some(MemberRecord {
            member_id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms: rebalance_timeout_ms.unwrap_or(session_timeout_ms),
            session_timeout_ms,
            subscription: self.bytes()?,
            assignment: self.bytes()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed() -> Committed {
        Committed { offset: 42, leader_epoch: 7, metadata: "m".into(), commit_timestamp_ms: 9 }
    }

    #[test]
    fn an_offset_has_kafkas_layout() {
        assert_eq!(offset_key("g", "t", 3), b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
        assert_eq!(
            offset_value(&committed()),
            b"\0\x03\0\0\0\0\0\0\0\x2a\0\0\0\x07\0\x01m\0\0\0\0\0\0\0\x09"
        );
        let key = RecordKey::Offset { group: "g".into(), topic: "t".into(), partition: 3 };
        assert_eq!(RecordKey::decode(&offset_key("g", "t", 3)), Some(key));
        assert_eq!(read_offset_value(&offset_value(&committed())), Some(committed()));
    }

    #[test]
    fn older_and_newer_offset_values_are_read() {
        let without_epoch = Committed { leader_epoch: -1, ..committed() };
        let offset = b"\0\0\0\0\0\0\0\x2a";
        let time = b"\0\0\0\0\0\0\0\x09";
        for version in [0u8, 1, 2] {
            let mut bytes = [&[0, version][..], offset, b"\0\x01m", time].concat();
            if version == 1 {
                bytes.extend_from_slice(b"\0\0\0\0\0\0\0\x63");
            }
            assert_eq!(read_offset_value(&bytes), Some(without_epoch.clone()));
        }
        let newest = [&b"\0\x04"[..], offset, b"\0\0\0\x07", b"\x02m", time, b"\0"].concat();
        assert_eq!(read_offset_value(&newest), Some(committed()));
        assert_eq!(read_offset_value(b"\0\x05"), None);
    }

    #[test]
    fn a_group_comes_back_as_it_was_and_no_shorter() {
        let record = GroupRecord {
            protocol_type: "consumer".into(),
            generation: 5,
            protocol: Some("range".into()),
            leader: None,
            state_timestamp_ms: 123,
            members: vec![MemberRecord {
                member_id: "m".into(),
                instance_id: Some("i".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout_ms: 2,
                session_timeout_ms: 3,
                subscription: vec![1, 2],
                assignment: vec![3],
            }],
        };
        let bytes = record.encode();
        assert_eq!(GroupRecord::decode(&bytes), Some(record));
        for len in 0..bytes.len() {
            assert_eq!(GroupRecord::decode(&bytes[..len]), None);
        }
        let key = RecordKey::Group { group: "gruppe/ä 1".into() };
        assert_eq!(RecordKey::decode(&group_key("gruppe/ä 1")), Some(key));
    }

    #[test]
    fn keys_of_other_protocols_are_skipped() {
        assert_eq!(RecordKey::decode(b"\0\x03\0\x01g"), None);
        assert_eq!(RecordKey::decode(b""), None);
    }
}
