//! StartMirrorTopics (95).

use bytes::{BufMut, BytesMut};
use dataplane::wire::{ApiKey, WireError};

use super::codec::{
    Reader, put_entries, put_head, put_no_tags, put_nullable_string, put_one_tag, put_string,
};
use super::{Message, ResponseHead, START_MIRROR_TOPICS};

/// Starts topics of a mirror, by name or by pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartMirrorTopicsRequest {
    /// The mirror's name.
    pub mirror_name: String,
    /// Names or Java-style patterns that must match a whole name.
    pub include_patterns: Vec<String>,
    /// Patterns that win over the included ones.
    pub exclude_patterns: Vec<String>,
    /// How long the client waits, in milliseconds.
    pub timeout_ms: i32,
}

/// The outcome for each topic found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartMirrorTopicsResponse {
    /// Error of the request as a whole, if any.
    pub head: ResponseHead,
    /// One entry a topic.
    pub topics: Vec<StartedTopic>,
}

/// One topic's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedTopic {
    /// Topic name.
    pub name: String,
    /// Kafka error code, 0 for none.
    pub error_code: i16,
    /// For the operator.
    pub error_message: Option<String>,
}

const EXCLUDE_PATTERNS_TAG: u32 = 0;

impl Message for StartMirrorTopicsRequest {
    const API_KEY: ApiKey = START_MIRROR_TOPICS;

    fn encode(&self, out: &mut BytesMut) {
        put_string(out, &self.mirror_name);
        put_entries(out, &self.include_patterns, |out, pattern| put_string(out, pattern));
        out.put_i32(self.timeout_ms);
        if self.exclude_patterns.is_empty() {
            put_no_tags(out);
            return;
        }
        let mut excluded = BytesMut::new();
        put_entries(&mut excluded, &self.exclude_patterns, |out, pattern| put_string(out, pattern));
        put_one_tag(out, EXCLUDE_PATTERNS_TAG, &excluded);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("StartMirrorTopics request", bytes);
        let mut request = Self {
            mirror_name: reader.string("mirror_name")?,
            include_patterns: reader
                .entries("include_patterns", |reader| reader.string("include_pattern"))?,
            exclude_patterns: Vec::new(),
            timeout_ms: reader.int32("timeout_ms")?,
        };
        reader.tags(|tag, field| {
            if tag == EXCLUDE_PATTERNS_TAG {
                request.exclude_patterns =
                    field.entries("exclude_patterns", |field| field.string("exclude_pattern"))?;
            }
            Ok(())
        })?;
        reader.finish()?;
        Ok(request)
    }
}

impl Message for StartMirrorTopicsResponse {
    const API_KEY: ApiKey = START_MIRROR_TOPICS;

    fn encode(&self, out: &mut BytesMut) {
        put_head(out, &self.head);
        put_entries(out, &self.topics, |out, topic| {
            put_string(out, &topic.name);
            out.put_i16(topic.error_code);
            put_nullable_string(out, topic.error_message.as_deref());
            put_no_tags(out);
        });
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("StartMirrorTopics response", bytes);
        let response = Self {
            head: reader.head()?,
            topics: reader.entries("topics", |reader| {
                let topic = StartedTopic {
                    name: reader.string("name")?,
                    error_code: reader.int16("error_code")?,
                    error_message: reader.nullable_string("error_message")?,
                };
                reader.no_tags()?;
                Ok(topic)
            })?,
        };
        reader.no_tags()?;
        reader.finish()?;
        Ok(response)
    }
}
