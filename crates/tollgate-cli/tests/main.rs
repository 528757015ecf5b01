//! Tests of the `tollgate` binary, one module for each command or surface.
//!
//! One binary instead of many, because linking each takes seconds.

mod bench;
mod book;
mod canned;
mod client;
mod client_libraries;
mod client_tls;
mod clients;
mod commands;
mod configuration;
mod cookbook;
mod documents;
mod envoy;
mod first_run;
mod fleet;
mod import;
mod integrations;
mod kuadrant;
mod operator;
mod outbound;
mod page;
mod peers;
mod postgres;
mod prometheus;
mod ratelimit;
mod redis;
mod regions;
mod replay;
mod resp;
mod rlqs;
mod serve;
mod service;
mod simulate;
mod socket_activation;
mod stream_done;
mod surfaces;
mod surfaces_redis;
mod surfaces_tls;
mod testing;
mod top;
mod validate;
