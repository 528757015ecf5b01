//! Tests of the HTTP API.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod access;
mod auth;
mod bad_input;
mod check;
mod explain;
mod fleet;
mod hostile;
mod lab;
mod learned_limits;
mod limit_keys;
mod openapi;
mod operator;
mod outage;
mod page;
mod pages;
mod priority;
mod queue;
mod roles;
mod settle;
mod shapes;
mod shed;
mod support;
mod switches;
mod throttle;
