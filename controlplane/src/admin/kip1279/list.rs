//! ListClusterMirrors (98).

use bytes::{BufMut, BytesMut};
use dataplane::wire::{ApiKey, WireError};

use super::codec::{Reader, put_entries, put_head, put_no_tags, put_string};
use super::{LIST_CLUSTER_MIRRORS, Message, ResponseHead};

/// Asks for every mirror.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListClusterMirrorsRequest {
    /// Whether the answer names the topics, or only counts them.
    pub include_topic_names: bool,
}

/// Every mirror.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListClusterMirrorsResponse {
    /// Error, if any.
    pub head: ResponseHead,
    /// One entry a mirror.
    pub mirrors: Vec<ListedMirror>,
}

/// One mirror.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedMirror {
    /// Its name.
    pub mirror_name: String,
    /// Its `bootstrap.servers`.
    pub source_bootstrap: String,
    /// The source's cluster id.
    pub source_cluster_id: String,
    /// How many topics it mirrors.
    pub topic_count: i32,
    /// Their names, when asked for.
    pub topic_names: Vec<String>,
}

impl Message for ListClusterMirrorsRequest {
    const API_KEY: ApiKey = LIST_CLUSTER_MIRRORS;

    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.include_topic_names.into());
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("ListClusterMirrors request", bytes);
        let request = Self { include_topic_names: reader.boolean("include_topic_names")? };
        reader.no_tags()?;
        reader.finish()?;
        Ok(request)
    }
}

impl Message for ListClusterMirrorsResponse {
    const API_KEY: ApiKey = LIST_CLUSTER_MIRRORS;

    fn encode(&self, out: &mut BytesMut) {
        put_head(out, &self.head);
        put_entries(out, &self.mirrors, |out, mirror| {
            put_string(out, &mirror.mirror_name);
            put_string(out, &mirror.source_bootstrap);
            put_string(out, &mirror.source_cluster_id);
            out.put_i32(mirror.topic_count);
            put_entries(out, &mirror.topic_names, |out, name| put_string(out, name));
            put_no_tags(out);
        });
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("ListClusterMirrors response", bytes);
        let response = Self {
            head: reader.head()?,
            mirrors: reader.entries("mirrors", |reader| {
                let mirror = ListedMirror {
                    mirror_name: reader.string("mirror_name")?,
                    source_bootstrap: reader.string("source_bootstrap")?,
                    source_cluster_id: reader.string("source_cluster_id")?,
                    topic_count: reader.int32("topic_count")?,
                    topic_names: reader
                        .entries("topic_names", |reader| reader.string("topic_name"))?,
                };
                reader.no_tags()?;
                Ok(mirror)
            })?,
        };
        reader.no_tags()?;
        reader.finish()?;
        Ok(response)
    }
}
