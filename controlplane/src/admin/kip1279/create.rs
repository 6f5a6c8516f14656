//! CreateClusterMirror (94).

use bytes::BytesMut;
use dataplane::wire::{ApiKey, WireError};

use super::codec::{Reader, put_entries, put_head, put_no_tags, put_nullable_string, put_string};
use super::{CREATE_CLUSTER_MIRROR, Message, ResponseHead};

/// Makes a mirror: where from, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateClusterMirrorRequest {
    /// The mirror's name.
    pub mirror_name: String,
    /// Its configuration, with the names of Kafka clients and of KIP-1279.
    pub configs: Vec<MirrorConfig>,
}

/// One setting of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Name.
    pub name: String,
    /// Value; `None` for the default.
    pub value: Option<String>,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateClusterMirrorResponse {
    /// Error, if any.
    pub head: ResponseHead,
}

impl Message for CreateClusterMirrorRequest {
    const API_KEY: ApiKey = CREATE_CLUSTER_MIRROR;

    fn encode(&self, out: &mut BytesMut) {
        put_string(out, &self.mirror_name);
        put_entries(out, &self.configs, |out, config| {
            put_string(out, &config.name);
            put_nullable_string(out, config.value.as_deref());
            put_no_tags(out);
        });
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("CreateClusterMirror request", bytes);
        let request = Self {
            mirror_name: reader.string("mirror_name")?,
            configs: reader.entries("configs", |reader| {
                let config = MirrorConfig {
                    name: reader.string("name")?,
                    value: reader.nullable_string("value")?,
                };
                reader.no_tags()?;
                Ok(config)
            })?,
        };
        reader.no_tags()?;
        reader.finish()?;
        Ok(request)
    }
}

impl Message for CreateClusterMirrorResponse {
    const API_KEY: ApiKey = CREATE_CLUSTER_MIRROR;

    fn encode(&self, out: &mut BytesMut) {
        put_head(out, &self.head);
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("CreateClusterMirror response", bytes);
        let response = Self { head: reader.head()? };
        reader.no_tags()?;
        reader.finish()?;
        Ok(response)
    }
}
