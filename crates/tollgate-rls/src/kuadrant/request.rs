//! The messages of Kuadrant's methods, parsed without copying.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Span;
use tollgate_grpc::call::Refusal;
use tollgate_grpc::wire::WireError;

use crate::request::{RateLimitRequest, each};
use crate::upstream::ResolvedDescriptors;

/// The path of the service.
const SERVICE: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/";
/// The longest time for which an estimate is reserved, as Limitador's default.
const MAX_HOLD_TIME: Duration = Duration::from_secs(60);

/// A method of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Check,
    Report,
    Reserve,
    Commit,
}

impl Method {
    /// Returns the method with this path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        Some(match path.strip_prefix(SERVICE)? {
            "CheckRateLimit" => Self::Check,
            "Report" => Self::Report,
            "Reserve" => Self::Reserve,
            "Commit" => Self::Commit,
            _ => return None,
        })
    }
}

/// The request of a method. Each descriptor has the hits that the method charges.
#[derive(Clone, Debug)]
pub(super) struct KuadrantCall<'m> {
    pub(super) method: Method,
    pub(super) request: RateLimitRequest<'m>,
    /// The estimate of `Reserve`, or the actual amount of `Commit`.
    pub(super) amount: u64,
    /// The id of the reservation that `Commit` ends.
    pub(super) reservation: &'m str,
    /// The time for which `Reserve` asks.
    ttl: Option<Duration>,
}

impl<'m> KuadrantCall<'m> {
    /// Parses and validates a message. Descriptors without entries are left out.
    pub(super) fn read(method: Method, message: &'m [u8]) -> Result<Self, Refusal> {
        let (mut amount, mut ttl, mut reservation) = (0, None, "");
        let mut request = RateLimitRequest::read_fields(message, |number, value| {
            match (method, number) {
                (Method::Check | Method::Report, 3) => amount = u64::from(value.uint32()?),
                (Method::Reserve, 3) | (Method::Commit, 4) => amount = value.varint()?,
                (Method::Reserve, 4) => ttl = Some(duration(value.bytes()?)?),
                (Method::Commit, 3) => reservation = value.text()?,
                _ => {}
            }
            Ok(())
        })?;
        request.descriptors.retain(|it| !it.entries.is_empty());
        for (at, descriptor) in request.descriptors.iter_mut().enumerate() {
            if descriptor.gives_back {
                return Err(Refusal::invalid_argument(
                    "this method gives no hits back: use ShouldRateLimit, or Commit with the actual amount"
                        .to_owned(),
                ));
            }
            descriptor.instead = None;
            descriptor.hits = Some(match method {
                Method::Check => 0,
                Method::Report => descriptor.hits.unwrap_or_else(|| amount.max(1)),
                Method::Reserve | Method::Commit => amount,
            });
            descriptor.check(at)?;
        }
        Ok(Self { method, request, amount, reservation, ttl })
    }

    /// Returns the time for which an estimate is reserved.
    pub(super) fn hold_time(&self) -> Span {
        self.ttl.map_or(MAX_HOLD_TIME, |ttl| ttl.min(MAX_HOLD_TIME)).into()
    }

    /// Returns the request with hits of zero, which charge nothing.
    pub(super) fn look(&self) -> RateLimitRequest<'m> {
        let mut request = self.request.clone();
        request.descriptors.iter_mut().for_each(|it| it.hits = Some(0));
        request
    }

    /// Returns the request without the descriptors that `Reserve` charges, and the limits of the others.
    pub(super) fn without_reserved<'p>(
        &self,
        met: ResolvedDescriptors<'p>,
    ) -> (RateLimitRequest<'m>, ResolvedDescriptors<'p>) {
        let mut request = self.request.clone();
        let each = met.iter().zip(&request.descriptors);
        let kept: SmallVec<[bool; 2]> = each.map(|(met, it)| met.charged_alone(it).is_none()).collect();
        let mut at = kept.iter();
        request.descriptors.retain(|_| at.next().copied().unwrap_or(false));
        let met = met.into_iter().zip(kept).filter_map(|(met, is_kept)| is_kept.then_some(met)).collect();
        (request, met)
    }
}

/// Reads a `google.protobuf.Duration`. A negative one is zero.
fn duration(message: &[u8]) -> Result<Duration, WireError> {
    let (mut seconds, mut nanos) = (0, 0);
    each(message, |number, value| {
        match number {
            1 => seconds = value.varint()?,
            2 => nanos = value.varint()?,
            _ => {}
        }
        Ok(())
    })?;
    // Negative numbers are large ones here.
    let is_negative = i64::try_from(seconds).is_err() || i64::try_from(nanos).is_err();
    let time = Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos));
    Ok(if is_negative { Duration::ZERO } else { time })
}
