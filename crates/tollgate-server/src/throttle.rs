//! `POST /throttle`: throttlecrab's API, in which each call sets its limit.
//!
//! Seconds are truncated to integers, as its clients expect: a wait of 900 ms is returned as 0.
//! `/v1/check` returns milliseconds. Unknown fields are ignored, as in throttlecrab. Errors are problem
//! documents with an additional `error` member, which its clients read.
//!
//! The arithmetic is in `tollgate::throttle`.

use std::cell::RefCell;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http_body::Body;
use tollgate::policy::Key;
use tollgate::throttle::{Throttle, ThrottleReply, ThrottleRules};
use tollgate::{DetachedPending, Rule, Store};
use tollgate_api::Throttled;

use crate::api::Inner;
use crate::body::{MAX_BODY_BYTES, collect, read};
use crate::json::{Text, Units};
use crate::problem::Problem;
use crate::reply::{Reply, json_of};

const FIELDS: &[&str] = &["key", "max_burst", "count_per_period", "period", "quantity"];

/// A request that borrows its texts.
type ThrottleRequest<'b> = tollgate_api::ThrottleRequest<Text<'b>, Units>;

thread_local! {
    /// Each worker caches its last rules, so that threads do not contend.
    static THROTTLES: RefCell<ThrottleRules> = RefCell::default();
}

impl<S: Store> Inner<S> {
    pub(crate) async fn throttle<B>(&self, headers: &HeaderMap, body: B) -> Result<Reply, Problem>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let answer = match collect(headers, body, MAX_BODY_BYTES).await {
            Ok(body) => self.throttle_body(&body).await,
            Err(problem) => Err(problem),
        };
        answer.map_err(Problem::with_error)
    }

    async fn throttle_body(&self, body: &[u8]) -> Result<Reply, Problem> {
        let throttled = match self.try_throttle(body)? {
            Ok(throttled) => throttled,
            // Boxed, so that the futures of other routes do not carry its size.
            Err(waiting) => Box::pin(waiting.finish()).await,
        };
        Ok(json_of(&throttled))
    }

    /// Answers a throttle call, or returns it if the store has to be waited for. An error charges nothing.
    pub(crate) fn try_throttle(&self, body: &[u8]) -> Result<Result<Throttled, WaitingThrottle<S>>, Problem> {
        let request: ThrottleRequest<'_> = read(body, FIELDS)?;
        let (rule, quantity) = rule(&request)?;
        let (limiter, key) = (self.limiter.load(), Key::named(request.key.as_str().as_bytes()));
        let pending = match limiter.try_throttle(&rule, key, quantity) {
            Ok(throttled) => return Ok(Ok(view(&throttled))),
            Err(pending) => pending.detach(),
        };
        Ok(Err(WaitingThrottle { pending, rule, quantity }))
    }
}

/// A throttle call whose decision waits for the store.
pub(crate) struct WaitingThrottle<S> {
    pending: DetachedPending<S>,
    rule: Arc<Rule>,
    quantity: u64,
}

impl<S: Store> WaitingThrottle<S> {
    pub(crate) async fn finish(self) -> Throttled {
        let Self { pending, rule, quantity } = self;
        view(&pending.finish(None, |decision| ThrottleReply::of(decision, &rule, quantity)).await)
    }
}

fn rule(request: &ThrottleRequest<'_>) -> Result<(Arc<Rule>, u64), Problem> {
    let positive = |value: Units, name: &str| match value.called(name)? {
        0 => Err(Problem::senseless(format!("`{name}` must be more than zero"))),
        value => Ok(value),
    };
    let quantity = request.quantity.map_or(Ok(1), |it| it.called("quantity"))?;
    let throttle = Throttle {
        capacity: positive(request.max_burst, "max_burst")?,
        count: positive(request.count_per_period, "count_per_period")?,
        period: Duration::from_secs(positive(request.period, "period")?),
    };
    let rule = THROTTLES.with_borrow_mut(|kept| kept.rule(throttle).cloned());
    rule.map(|rule| (rule, quantity)).map_err(|error| Problem::conflict(error.to_string()))
}

fn view(throttled: &ThrottleReply) -> Throttled {
    let ThrottleReply { allowed, limit, remaining, short_by, reset_after, .. } = *throttled;
    let (reset_after, retry_after) = (reset_after.as_secs(), short_by.as_secs());
    Throttled { allowed, limit, remaining, reset_after, retry_after }
}
