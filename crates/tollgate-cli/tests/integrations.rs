//! Real proxies with a real Tollgate, using the files in `integrations/`.
//!
//! Each file runs as users copy it, with other addresses and with long timeouts, so that a busy machine
//! does not affect the result. `make test` installs nginx, Caddy and `HAProxy`. Traefik is not in
//! Debian: `integrations/traefik.rs` replays its requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod contract;
pub(crate) mod message;
pub(crate) mod proxy;
mod service;
mod traefik;

use message::Ask;
use proxy::{Between, Proxy, UpstreamRequest};
use service::{Service, app};

/// Runs every test of the contract for a proxy.
macro_rules! keeps_the_contract {
    ($name:ident, $proxy:expr; $($sentence:ident,)*) => {
        mod $name {
            use super::{contract, proxy::Proxy};
            $(#[test]
            fn $sentence() {
                contract::$sentence($proxy);
            })*
        }
    };
    ($($name:ident: $proxy:expr;)*) => {
        $(keeps_the_contract! { $name, $proxy;
            admitted_requests_show_what_is_left,
            refused_requests_say_why_and_when,
            of_two_limits_the_one_that_refuses_is_named,
            what_costs_several_units_is_refused_by_name_too,
            forged_headers_buy_nothing,
            a_trusted_proxy_in_front_may_name_the_client,
            limits_see_the_path_and_method_of_the_client,
            no_spelling_of_a_path_passes_its_limit,
            methods_and_bodies_arrive_as_they_were_sent,
            no_request_more_than_the_limit_passes,
            what_else_refuses_keeps_its_status,
            the_query_of_a_client_chooses_nothing,
            two_keys_and_a_fresh_token_for_each_request_share_one_allowance,
            tollgate_gets_the_request_without_its_body,
            where_tollgate_wants_a_token_the_proxy_shows_it,
            without_an_answer_nothing_passes,
            without_an_answer_everything_passes_if_wished,
            whoever_lets_pass_without_an_answer_still_refuses_with_one,
            requests_of_any_size_are_refused_and_break_nothing,
        })*
    };
}

keeps_the_contract! {
    nginx_by_403: Proxy::NginxBy403;
    nginx_by_429: Proxy::NginxBy429;
    caddy: Proxy::Caddy;
    haproxy: Proxy::Haproxy;
}

/// `@tollgate_500` sees every internal error of nginx, of which only some are refusals.
#[test]
fn nginx_keeps_a_500_that_no_limit_caused() {
    for proxy in [Proxy::NginxBy403, Proxy::NginxBy429] {
        let confused = Service::start(|_| Some("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"));
        let app = Service::start(app);
        let running =
            proxy.start(Between { tollgate: UpstreamRequest::Answering(confused.address), app: app.address });
        assert_eq!(Ask::new("GET /search").send(running.address).status(), 500, "{proxy:?}");
        assert_eq!(app.requests().len(), 0);
    }
}

/// During an outage of its store, Tollgate may refuse with 503, which nginx treats as an error.
#[test]
fn nginx_keeps_the_503_of_a_limit_that_cannot_count() {
    for proxy in [Proxy::NginxBy403, Proxy::NginxBy429] {
        let storeless = Service::start(|_| {
            Some("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
        });
        let app = Service::start(app);
        let running = proxy
            .start(Between { tollgate: UpstreamRequest::Answering(storeless.address), app: app.address });
        let answer = Ask::new("GET /search").send(running.address);
        assert_eq!((answer.status(), answer.header("retry-after")), (503, Some("1")), "{answer:?}");
        assert_eq!(answer.json()["status"], 503);
        assert_eq!(app.requests().len(), 0);
    }
}
