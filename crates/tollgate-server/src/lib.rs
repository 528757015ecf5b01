//! The decision service: HTTP API and forward auth.
//!
//! Not here: sockets. It is handed requests and hands back answers.
