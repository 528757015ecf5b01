//! Reads arbitrary bytes as the protobuf message `RateLimitRequest` of Envoy's rate limit service.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    let _ = tollgate_rls::fuzz::is_valid_request(message);
});
