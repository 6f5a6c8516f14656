//! DescribeClusterMirrors (99).

use bytes::{BufMut, BytesMut};
use dataplane::wire::{ApiKey, WireError};

use super::codec::{
    Reader, put_entries, put_head, put_no_tags, put_nullable_string, put_one_tag, put_string,
};
use super::{DESCRIBE_CLUSTER_MIRRORS, Message, ResponseHead};

/// Asks how mirrors and their partitions are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DescribeClusterMirrorsRequest {
    /// Which; empty for all.
    pub mirror_names: Vec<String>,
    /// Whether to say what the caller may do.
    pub include_authorized_operations: bool,
    /// Only mirrors of this source cluster.
    pub cluster_id: Option<String>,
}

/// How mirrors are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DescribeClusterMirrorsResponse {
    /// Error of the request as a whole, if any.
    pub head: ResponseHead,
    /// One entry a mirror.
    pub mirrors: Vec<DescribedMirror>,
}

/// One mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedMirror {
    /// Kafka error code: it could not be described. 0 for none.
    pub error_code: i16,
    /// With code 0: what is wrong with the mirror as a whole, if anything.
    pub error_message: Option<String>,
    /// Its name.
    pub mirror_name: String,
    /// Its `bootstrap.servers`.
    pub source_bootstrap: String,
    /// The source's cluster id.
    pub source_cluster_id: String,
    /// Operations the caller may do, as Kafka's bit set; `i32::MIN` when not asked for.
    pub authorized_operations: i32,
    /// Its topics.
    pub topics: Vec<DescribedTopic>,
}

/// One topic of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedTopic {
    /// Its name.
    pub topic_name: String,
    /// Its partitions.
    pub partitions: Vec<DescribedPartition>,
}

/// One partition of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedPartition {
    /// Index.
    pub partition_index: i32,
    /// KIP-1279's state word.
    pub state_value: String,
    /// Why it is FAILED, or what it waits for.
    pub error_message: Option<String>,
    /// Attempts since the last success.
    pub retry_attempt: i16,
    /// The source's end offset, -1 while unknown.
    pub source_offset: i64,
    /// Our end offset.
    pub destination_offset: i64,
    /// Epoch of the last mirrored batch, -1 for none.
    pub last_mirror_epoch: i32,
    /// Our end offset when mirroring last stopped, -1 while it runs.
    pub last_mirror_offset: i64,
}

const CLUSTER_ID_TAG: u32 = 0;

impl Message for DescribeClusterMirrorsRequest {
    const API_KEY: ApiKey = DESCRIBE_CLUSTER_MIRRORS;

    fn encode(&self, out: &mut BytesMut) {
        put_entries(out, &self.mirror_names, |out, name| put_string(out, name));
        out.put_u8(self.include_authorized_operations.into());
        let Some(cluster_id) = &self.cluster_id else { return put_no_tags(out) };
        let mut field = BytesMut::new();
        put_string(&mut field, cluster_id);
        put_one_tag(out, CLUSTER_ID_TAG, &field);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("DescribeClusterMirrors request", bytes);
        let mut request = Self {
            mirror_names: reader.entries("mirror_names", |reader| reader.string("mirror_name"))?,
            include_authorized_operations: reader.boolean("include_authorized_operations")?,
            cluster_id: None,
        };
        reader.tags(|tag, field| {
            if tag == CLUSTER_ID_TAG {
                request.cluster_id = field.nullable_string("cluster_id")?;
            }
            Ok(())
        })?;
        reader.finish()?;
        Ok(request)
    }
}

impl Message for DescribeClusterMirrorsResponse {
    const API_KEY: ApiKey = DESCRIBE_CLUSTER_MIRRORS;

    fn encode(&self, out: &mut BytesMut) {
        put_head(out, &self.head);
        put_entries(out, &self.mirrors, put_mirror);
        put_no_tags(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("DescribeClusterMirrors response", bytes);
        let response =
            Self { head: reader.head()?, mirrors: reader.entries("mirrors", read_mirror)? };
        reader.no_tags()?;
        reader.finish()?;
        Ok(response)
    }
}

fn put_mirror(out: &mut BytesMut, mirror: &DescribedMirror) {
    out.put_i16(mirror.error_code);
    put_nullable_string(out, mirror.error_message.as_deref());
    put_string(out, &mirror.mirror_name);
    put_string(out, &mirror.source_bootstrap);
    put_string(out, &mirror.source_cluster_id);
    out.put_i32(mirror.authorized_operations);
    put_entries(out, &mirror.topics, |out, topic| {
        put_string(out, &topic.topic_name);
        put_entries(out, &topic.partitions, put_partition);
        put_no_tags(out);
    });
    put_no_tags(out);
}

fn put_partition(out: &mut BytesMut, partition: &DescribedPartition) {
    out.put_i32(partition.partition_index);
    put_string(out, &partition.state_value);
    put_nullable_string(out, partition.error_message.as_deref());
    out.put_i16(partition.retry_attempt);
    out.put_i64(partition.source_offset);
    out.put_i64(partition.destination_offset);
    out.put_i32(partition.last_mirror_epoch);
    out.put_i64(partition.last_mirror_offset);
    put_no_tags(out);
}

fn read_mirror(reader: &mut Reader<'_>) -> Result<DescribedMirror, WireError> {
    let mirror = DescribedMirror {
        error_code: reader.int16("error_code")?,
        error_message: reader.nullable_string("error_message")?,
        mirror_name: reader.string("mirror_name")?,
        source_bootstrap: reader.string("source_bootstrap")?,
        source_cluster_id: reader.string("source_cluster_id")?,
        authorized_operations: reader.int32("authorized_operations")?,
        topics: reader.entries("topics", |reader| {
            let topic = DescribedTopic {
                topic_name: reader.string("topic_name")?,
                partitions: reader.entries("partitions", read_partition)?,
            };
            reader.no_tags()?;
            Ok(topic)
        })?,
    };
    reader.no_tags()?;
    Ok(mirror)
}

fn read_partition(reader: &mut Reader<'_>) -> Result<DescribedPartition, WireError> {
    let partition = DescribedPartition {
        partition_index: reader.int32("partition_index")?,
        state_value: reader.string("state_value")?,
        error_message: reader.nullable_string("error_message")?,
        retry_attempt: reader.int16("retry_attempt")?,
        source_offset: reader.int64("source_offset")?,
        destination_offset: reader.int64("destination_offset")?,
        last_mirror_epoch: reader.int32("last_mirror_epoch")?,
        last_mirror_offset: reader.int64("last_mirror_offset")?,
    };
    reader.no_tags()?;
    Ok(partition)
}
