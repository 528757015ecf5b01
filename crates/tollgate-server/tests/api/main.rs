//! The decision API, asked as its users ask it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod access;
mod auth;
mod bad_input;
mod check;
mod hostile;
mod named;
mod openapi;
mod outage;
mod pages;
mod settle;
mod support;
