//! throttlecrab's service: the quota and the key come with each call.
//!
//! It uses throttlecrab's fields and rounding: waits are whole seconds, rounded down. A quantity of
//! zero only peeks; an invalid quota is `INVALID_ARGUMENT`.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollgate::policy::Key;
use tollgate::throttle::{Throttle, ThrottleReply, ThrottleRules};
use tollgate::{Limiter, Rule, Store};

use crate::held::{GrpcTimeout, waiting_for_store};
use tollgate_grpc::call::{self as grpc, Refusal};
use tollgate_grpc::wire::{Reader, Write as _};

thread_local! {
    /// The rules of recent quotas, by thread.
    static RULES: RefCell<ThrottleRules> = RefCell::default();
}

/// A `ThrottleRequest`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThrottleRequest<'m> {
    key: &'m str,
    max_burst: i32,
    count_per_period: i32,
    period: i32,
    quantity: i32,
}

impl<'m> ThrottleRequest<'m> {
    pub(crate) fn read(message: &'m [u8]) -> Result<Self, Refusal> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => request.key = value.text()?,
                2 => request.max_burst = value.int32()?,
                3 => request.count_per_period = value.int32()?,
                4 => request.period = value.int32()?,
                5 => request.quantity = value.int32()?,
                _ => {}
            }
        }
        Ok(request)
    }

    fn quantity(&self) -> Result<u64, Refusal> {
        u64::try_from(self.quantity)
            .map_err(|_| Refusal::invalid_argument("quantity must not be negative".to_owned()))
    }

    fn rule(&self) -> Result<Arc<Rule>, Refusal> {
        let positive = |name: &str, number: i32| match u64::try_from(number) {
            Ok(number @ 1..) => Ok(number),
            _ => Err(Refusal::invalid_argument(format!("{name} must be 1 or more, and is {number}"))),
        };
        let numbers = Throttle {
            capacity: positive("max_burst", self.max_burst)?,
            count: positive("count_per_period", self.count_per_period)?,
            period: Duration::from_secs(positive("period", self.period)?),
        };
        let rule = RULES.with_borrow_mut(|rules| rules.rule(numbers).cloned());
        rule.map_err(|error| Refusal::invalid_argument(format!("these numbers cannot be served: {error}")))
    }
}

/// Decides, and waits for the store if necessary.
pub(crate) async fn throttle<S: Store>(
    limiter: &Limiter<S>,
    request: &ThrottleRequest<'_>,
    timeout: GrpcTimeout<'_>,
) -> Result<ThrottleReply, Refusal> {
    let (rule, quantity) = (request.rule()?, request.quantity()?);
    Ok(match limiter.try_throttle(&rule, Key::named(request.key.as_bytes()), quantity) {
        Ok(throttled) => throttled,
        // Boxed: it is large, and a store in this process never needs it.
        Err(pending) => {
            let decided = Box::pin(waiting_for_store(limiter, timeout, pending.finish(None))).await;
            ThrottleReply::of(&decided, &rule, quantity)
        }
    })
}

/// Encodes a `ThrottleResponse` with its prefix.
pub(crate) fn framed(throttled: &ThrottleReply) -> Bytes {
    grpc::framed(|out| {
        out.put_uint(1, u64::from(throttled.allowed));
        out.put_uint(2, int32(throttled.limit));
        out.put_uint(3, int32(throttled.remaining));
        out.put_uint(4, int32(throttled.short_by.as_secs()));
        out.put_uint(5, int32(throttled.reset_after.as_secs()));
    })
}

/// Saturates at the maximum of the field.
fn int32(number: u64) -> u64 {
    number.min(i32::MAX as u64)
}
