//! How values are spread over fixed buckets.
