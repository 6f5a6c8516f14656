//! A request as the test sees it, and what the test answers.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, DescribeClusterResponse,
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable};

use crate::keys;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Call {
    /// Node id of the broker it came to.
    pub broker: i32,
    /// Number of the connection, from 0, over the whole cluster.
    pub connection: u64,
    /// Where it came from.
    pub peer: SocketAddr,
    /// How many requests of this API came before it, over the whole cluster.
    pub number: usize,
    /// When it arrived.
    pub at: Instant,
    /// API key.
    pub api_key: i16,
    /// API version.
    pub version: i16,
    /// The client's name for itself.
    pub client_id: String,
    /// What it asks.
    pub request: Request,
}

impl Call {
    /// The Fetch request it is.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn fetch(&self) -> &FetchRequest {
        match &self.request {
            Request::Fetch(request) => request,
            other => panic!("not a Fetch: {other:?}"),
        }
    }
}

macro_rules! messages {
    ($($name:ident $request:ident $response:ident $key:ident,)*) => {
        /// A decoded request.
        #[derive(Clone, Debug)]
        pub enum Request {
            $(#[doc = concat!("[`", stringify!($request), "`].")] $name($request),)*
            /// The body of an API the stand-in does not speak.
            Other(Bytes),
        }

        /// A response.
        #[derive(Clone, Debug)]
        pub enum Response {
            $(#[doc = concat!("[`", stringify!($response), "`].")] $name($response),)*
        }

        impl Request {
            /// Reads a body; an unknown API's or version's is kept as it is.
            pub(crate) fn decode(api_key: i16, version: i16, mut body: Bytes) -> Self {
                let whole = body.clone();
                let read = match api_key {
                    $(keys::$key => $request::decode(&mut body, version).map(Self::$name),)*
                    _ => Ok(Self::Other(whole.clone())),
                };
                read.unwrap_or(Self::Other(whole))
            }
        }

        impl Response {
            /// Writes the body.
            pub(crate) fn encode(&self, version: i16) -> Bytes {
                let mut out = BytesMut::new();
                match self {
                    $(Self::$name(response) => response.encode(&mut out, version),)*
                }
                .expect("a response with fields its version has");
                out.freeze()
            }
        }
    };
}

messages! {
    ApiVersions ApiVersionsRequest ApiVersionsResponse API_VERSIONS,
    DescribeCluster DescribeClusterRequest DescribeClusterResponse DESCRIBE_CLUSTER,
    Fetch FetchRequest FetchResponse FETCH,
    ListOffsets ListOffsetsRequest ListOffsetsResponse LIST_OFFSETS,
    Metadata MetadataRequest MetadataResponse METADATA,
    OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse
        OFFSET_FOR_LEADER_EPOCH,
}

/// A change to the answer the stand-in would give.
type Edit = Box<dyn FnOnce(&mut Response) + Send>;

/// What a test's hook answers to a [`Call`].
pub enum Reply {
    /// What a broker with these logs would say.
    Ordinary,
    /// The same, changed.
    Edited(Edit),
    /// This response.
    Answer(Response),
    /// These bytes behind the response header.
    Body(Bytes),
    /// These bytes on the connection as they are: no length, no header.
    Raw(Bytes),
    /// Nothing now; then the other reply.
    Later(Duration, Box<Reply>),
    /// Nothing, ever; the connection stays open and later requests on it wait behind this one.
    Silence,
    /// The connection is closed.
    Close,
}

impl Reply {
    /// The ordinary answer to a Fetch, changed.
    pub fn edited_fetch(change: impl FnOnce(&mut FetchResponse) + Send + 'static) -> Self {
        Self::Edited(Box::new(move |response| match response {
            Response::Fetch(response) => change(response),
            other => panic!("not a Fetch response: {other:?}"),
        }))
    }

    /// A Fetch answer that is nothing but an error of the whole request.
    #[must_use]
    pub fn fetch_error(error_code: i16) -> Self {
        Self::Answer(Response::Fetch(FetchResponse::default().with_error_code(error_code)))
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ordinary => "Ordinary",
            Self::Edited(_) => "Edited",
            Self::Answer(_) => "Answer",
            Self::Body(_) => "Body",
            Self::Raw(_) => "Raw",
            Self::Later(..) => "Later",
            Self::Silence => "Silence",
            Self::Close => "Close",
        })
    }
}
