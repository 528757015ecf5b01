//! The public types may move between threads and be shared by them.

use bytes::Bytes;
use http_body_util::Full;
use tollgate::SharedLimiter;
use tollgate_http::{
    Detached, HttpRequest, Identity, Limit, LimitBody, LimitFuture, LimitLayer, Peer, Rejection, RetryAfter,
    SlotGuard, SoftNotice, Tarpit,
};

fn is_shared<T: Send + Sync + std::fmt::Debug>() {}

fn moves<T: Send + std::fmt::Debug>() {}

#[test]
fn public_types_are_send_sync_and_debug() {
    is_shared::<LimitLayer>();
    is_shared::<Limit<()>>();
    is_shared::<SharedLimiter>();
    is_shared::<SlotGuard>();
    is_shared::<Detached>();
    is_shared::<HttpRequest<'_>>();
    is_shared::<Identity>();
    is_shared::<Peer>();
    is_shared::<Rejection<'_, '_>>();
    is_shared::<RetryAfter>();
    is_shared::<SoftNotice>();
    is_shared::<Tarpit>();
    moves::<LimitBody<Full<Bytes>>>();
    moves::<LimitFuture<std::future::Ready<()>, Full<Bytes>, ()>>();
}
