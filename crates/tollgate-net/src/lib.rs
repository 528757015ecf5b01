//! Sockets for Tollgate's surfaces: listeners, TLS, PROXY protocol, HTTP
//! connections with their caps and timeouts, and draining.
//!
//! Not here: what a request means. A surface brings a service.
