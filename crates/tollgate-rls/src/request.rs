//! A `RateLimitRequest`, parsed without copying.
//!
//! The numbers of descriptors and entries are bounded, because the configuration of the proxy
//! determines them. Values, which clients choose, may have any length that fits the message and any
//! bytes (`lossy_utf8`): a call must not fail because of them, since most proxies admit a request
//! if the call fails.
//!
//! Not here: the JSON format (`json`).

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::lossy_utf8::lossy_utf8;
use crate::unit::{self, Unit};
use tollgate_grpc::call::Refusal;
use tollgate_grpc::wire::{Reader, Value, WireError};

/// The maximum number of descriptors of a request.
pub(crate) const MAX_DESCRIPTORS: usize = 100;
/// The maximum number of entries of a descriptor.
pub(crate) const MAX_ENTRIES: usize = 50;

/// A request of a proxy.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimitRequest<'m> {
    pub(crate) domain: &'m str,
    pub(crate) descriptors: SmallVec<[Descriptor<'m>; 2]>,
    /// The hits of each descriptor that has no hits of its own. Zero: not given.
    pub(crate) hits: u32,
}

/// Keys and values of a descriptor.
pub(crate) type Entries<'m> = SmallVec<[(&'m str, &'m str); 4]>;

/// The entries of a descriptor, and how it counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor<'m> {
    pub(crate) entries: Entries<'m>,
    pub(crate) instead: Option<Override>,
    /// Zero only peeks.
    pub(crate) hits: Option<u64>,
    /// Whether the hits are refunded.
    pub(crate) gives_back: bool,
}

/// A quota that the proxy sends, instead of the configured one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) requests: u32,
    /// The unit as sent: an invalid unit is refused after the whole request has been read.
    pub(crate) unit: u64,
}

impl Override {
    /// Returns the unit, or an error if it is invalid.
    pub(crate) fn unit(self) -> Result<Unit, Refusal> {
        unit::of_override(self.unit).ok_or_else(|| {
            let unit = self.unit;
            Refusal::invalid_argument(format!(
                "a limit override has no unit: `limit.unit` is {unit}; send SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5) or YEAR (6)"
            ))
        })
    }
}

impl<'m> RateLimitRequest<'m> {
    /// Parses and validates a message. `place` holds the rewritten message if values are not valid
    /// UTF-8.
    #[inline]
    pub(crate) fn read(message: &'m [u8], place: &'m OnceLock<Vec<u8>>) -> Result<Self, Refusal> {
        read_lossy_utf8(message, place, Self::read_text)
    }

    fn read_text(message: &'m [u8]) -> Result<Self, Refusal> {
        let mut hits = 0;
        let mut request = Self::read_fields(message, |number, value| {
            if number == 3 {
                hits = value.uint32()?;
            }
            Ok(())
        })?;
        request.hits = hits;
        request.validate()
    }

    /// Reads the domain and the descriptors of a message, and passes its other fields to `other`. The request
    /// is not validated.
    #[inline]
    pub(crate) fn read_fields(
        message: &'m [u8],
        mut other: impl FnMut(u32, Value<'m>) -> Result<(), WireError>,
    ) -> Result<Self, Refusal> {
        let mut request = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => request.domain = value.text()?,
                2 => {
                    if request.descriptors.len() >= MAX_DESCRIPTORS {
                        return Err(too_many_descriptors());
                    }
                    request.descriptors.push(Descriptor::default());
                    if let Some(descriptor) = request.descriptors.last_mut() {
                        descriptor.read(value.bytes()?)?;
                    }
                }
                _ => other(number, value)?,
            }
        }
        Ok(request)
    }

    /// Validates a request from any encoding.
    pub(crate) fn validate(self) -> Result<Self, Refusal> {
        if self.domain.is_empty() {
            return Err(Refusal::invalid_argument("rate limit domain must not be empty".to_owned()));
        }
        if self.descriptors.is_empty() {
            return Err(Refusal::invalid_argument("rate limit descriptor list must not be empty".to_owned()));
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(too_many_descriptors());
        }
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            descriptor.check(at)?;
        }
        Ok(self)
    }

    /// Removes refunds, except those that `is_release` selects. If the request has nothing else, it is
    /// refused; otherwise it is answered, because a proxy admits a request if the call fails.
    #[cold]
    pub(crate) fn drop_refunds(
        &mut self,
        is_release: impl Fn(&Descriptor<'m>) -> bool,
    ) -> Result<(), Refusal> {
        let is_refund = |it: &Descriptor<'m>| it.gives_back && !is_release(it);
        if self.descriptors.iter().all(is_refund) {
            return Err(Refusal::forbidden(
                "hits are not given back on this port: allow it with `rls.refunds: true`, or ask callers for a \
                 certificate (`rls.tls.client_ca`)"
                    .to_owned(),
            ));
        }
        for descriptor in self.descriptors.iter_mut().filter(|it| is_refund(it)) {
            // The descriptor only peeks.
            descriptor.hits = Some(0);
        }
        Ok(())
    }

    /// The cost of a descriptor, if it is given.
    pub(crate) fn cost(&self, descriptor: &Descriptor<'_>) -> Option<u64> {
        descriptor.cost(self.hits)
    }
}

impl<'m> Descriptor<'m> {
    /// The cost, if it is given: its own hits, or those of the request.
    pub(crate) fn cost(&self, hits: u32) -> Option<u64> {
        self.hits.or_else(|| (hits > 0).then_some(u64::from(hits)))
    }

    #[inline]
    fn read(&mut self, message: &'m [u8]) -> Result<(), Refusal> {
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next_field()? {
            match number {
                1 => {
                    if self.entries.len() >= MAX_ENTRIES {
                        return Err(too_many_entries());
                    }
                    self.entries.push(entry(value.bytes()?)?);
                }
                2 => self.instead.get_or_insert_default().read(value.bytes()?)?,
                3 => {
                    let hits = self.hits.get_or_insert(0);
                    each(value.bytes()?, |number, value| {
                        if number == 1 {
                            *hits = value.varint()?;
                        }
                        Ok(())
                    })?;
                }
                4 => self.gives_back = value.varint()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn check(&self, at: usize) -> Result<(), Refusal> {
        if self.entries.is_empty() {
            return Err(Refusal::invalid_argument(format!("rate limit descriptor {at} has no entries")));
        }
        if self.entries.len() > MAX_ENTRIES {
            return Err(too_many_entries());
        }
        for (key, _) in &self.entries {
            if key.is_empty() {
                return Err(Refusal::invalid_argument(format!(
                    "an entry of rate limit descriptor {at} has no key"
                )));
            }
        }
        self.instead.map_or(Ok(()), |it| it.unit().map(drop))
    }
}

impl Override {
    fn read(&mut self, message: &[u8]) -> Result<(), WireError> {
        each(message, |number, value| {
            match number {
                1 => self.requests = value.uint32()?,
                2 => self.unit = value.varint()?,
                _ => {}
            }
            Ok(())
        })
    }
}

#[inline]
fn entry(message: &[u8]) -> Result<(&str, &str), WireError> {
    let (mut key, mut text) = ("", "");
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        match number {
            1 => key = value.text()?,
            2 => text = value.text()?,
            _ => {}
        }
    }
    Ok((key, text))
}

/// Reads a message whose values may be invalid UTF-8. `place` holds the rewritten message then.
#[inline]
pub(crate) fn read_lossy_utf8<'m, T>(
    message: &'m [u8],
    place: &'m OnceLock<Vec<u8>>,
    read: impl Fn(&'m [u8]) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    read(message).or_else(|refusal| match rewritten(message, place) {
        Some(text) => read(text),
        None => Err(refusal),
    })
}

/// Returns the message with valid UTF-8 in values; `None` if the values are not the reason of a refusal.
#[cold]
fn rewritten<'m>(message: &[u8], place: &'m OnceLock<Vec<u8>>) -> Option<&'m [u8]> {
    let text = lossy_utf8(message).ok().flatten()?;
    Some(place.get_or_init(|| text))
}

/// Passes each field of a message to `with`.
pub(crate) fn each<'m>(
    message: &'m [u8],
    mut with: impl FnMut(u32, Value<'m>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next_field()? {
        with(number, value)?;
    }
    Ok(())
}

fn too_many_descriptors() -> Refusal {
    Refusal::invalid_argument(format!("a request has at most {MAX_DESCRIPTORS} rate limit descriptors"))
}

fn too_many_entries() -> Refusal {
    Refusal::invalid_argument(format!("a rate limit descriptor has at most {MAX_ENTRIES} entries"))
}
