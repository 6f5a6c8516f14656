//! DescribeAcls, 1 to 3: SECURITY_DISABLED, as a broker without an authorizer says.

use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::call::text;
use super::errors::KafkaError;

pub(super) fn answer(_: DescribeAclsRequest) -> DescribeAclsResponse {
    DescribeAclsResponse::default()
        .with_error_code(KafkaError::SECURITY_DISABLED.code)
        .with_error_message(Some(text("this node has no authorizer")))
}
