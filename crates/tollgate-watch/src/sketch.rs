//! The most frequent of a stream, from fixed memory (Space-Saving).
