//! Entry points for the fuzz targets in `fuzz/`. Not part of the API.

use std::sync::OnceLock;

use crate::request::RateLimitRequest;

/// Whether these bytes are a valid `RateLimitRequest` message.
pub fn is_valid_request(message: &[u8]) -> bool {
    RateLimitRequest::read(message, &OnceLock::new()).is_ok()
}
