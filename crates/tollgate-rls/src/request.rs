//! A `RateLimitRequest`, read without copying.
//!
//! Bounded in what a proxy's settings decide: whoever sends more descriptors or entries than any
//! proxy makes is told so. What a client chooses, the values, is as long as the message has room
//! for and may be any bytes (`lossy_utf8`): a call must not fail for it, since most proxies let pass
//! what has no answer.
//!
//! Not here: the same as JSON (`json`).

use std::sync::OnceLock;

use smallvec::SmallVec;

use crate::grpc::Refusal;
use crate::lossy_utf8::lossy_utf8;
use crate::unit::Unit;
use crate::wire::{Reader, Value, WireError};

/// The most descriptors of one request.
pub(crate) const MAX_DESCRIPTORS: usize = 100;
/// The most entries of one descriptor.
pub(crate) const MAX_ENTRIES: usize = 50;

/// What a proxy asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimitRequest<'m> {
    pub(crate) domain: &'m str,
    pub(crate) descriptors: SmallVec<[Descriptor<'m>; 2]>,
    /// Of each descriptor that says nothing itself. Zero: it was not said.
    pub(crate) hits: u32,
}

/// Words and their values, and how they count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor<'m> {
    pub(crate) entries: SmallVec<[(&'m str, &'m str); 4]>,
    pub(crate) instead: Option<Override>,
    /// Zero only looks.
    pub(crate) hits: Option<u64>,
    /// The hits are given back.
    pub(crate) gives_back: bool,
}

/// Numbers that the proxy brings, instead of those that are configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) requests: u32,
    /// As it was sent: what is no unit is turned down when everything has been read.
    pub(crate) unit: u64,
}

impl Override {
    /// The unit, which must be one.
    pub(crate) fn unit(self) -> Result<Unit, Refusal> {
        Unit::of_override(self.unit).ok_or_else(|| {
            let unit = self.unit;
            Refusal::senseless(format!(
                "a limit override has no unit: `limit.unit` is {unit}; send SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5) or YEAR (6)"
            ))
        })
    }
}

impl<'m> RateLimitRequest<'m> {
    /// Reads a message, and looks whether it makes sense. The place is for another spelling of it,
    /// where values are no text.
    #[inline]
    pub(crate) fn read(message: &'m [u8], place: &'m OnceLock<Vec<u8>>) -> Result<Self, Refusal> {
        Self::read_text(message).or_else(|refusal| Self::read_lossy_utf8(message, place, refusal))
    }

    #[cold]
    fn read_lossy_utf8(
        message: &[u8],
        place: &'m OnceLock<Vec<u8>>,
        refusal: Refusal,
    ) -> Result<Self, Refusal> {
        match lossy_utf8(message) {
            Ok(Some(text)) => Self::read_text(place.get_or_init(|| text)),
            _ => Err(refusal),
        }
    }

    fn read_text(message: &'m [u8]) -> Result<Self, Refusal> {
        let mut asked = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => asked.domain = value.text()?,
                2 => {
                    if asked.descriptors.len() >= MAX_DESCRIPTORS {
                        return Err(too_many_descriptors());
                    }
                    asked.descriptors.push(Descriptor::default());
                    if let Some(descriptor) = asked.descriptors.last_mut() {
                        descriptor.read(value.bytes()?)?;
                    }
                }
                3 => asked.hits = value.uint32()?,
                _ => {}
            }
        }
        asked.checked()
    }

    /// What must hold, however it was sent.
    pub(crate) fn checked(self) -> Result<Self, Refusal> {
        if self.domain.is_empty() {
            return Err(Refusal::senseless("rate limit domain must not be empty".to_owned()));
        }
        if self.descriptors.is_empty() {
            return Err(Refusal::senseless("rate limit descriptor list must not be empty".to_owned()));
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(too_many_descriptors());
        }
        for (at, descriptor) in self.descriptors.iter().enumerate() {
            descriptor.check(at)?;
        }
        Ok(self)
    }

    /// Leaves nothing to be given back. Refused if there is nothing else; where there is, the call is answered
    /// all the same: a proxy lets pass what it gets no answer for.
    #[cold]
    pub(crate) fn drop_refunds(&mut self) -> Result<(), Refusal> {
        if self.descriptors.iter().all(|it| it.gives_back) {
            return Err(Refusal::forbidden(
                "hits are not given back on this port: allow it with `rls.refunds: true`, or ask callers for a \
                 certificate (`rls.tls.client_ca`)"
                    .to_owned(),
            ));
        }
        for descriptor in self.descriptors.iter_mut().filter(|it| it.gives_back) {
            // It is told how its key stands, and changes nothing.
            descriptor.hits = Some(0);
        }
        Ok(())
    }

    /// What a descriptor takes, if anybody said so.
    pub(crate) fn cost(&self, descriptor: &Descriptor<'_>) -> Option<u64> {
        descriptor.hits.or_else(|| (self.hits > 0).then_some(u64::from(self.hits)))
    }
}

impl<'m> Descriptor<'m> {
    #[inline]
    fn read(&mut self, message: &'m [u8]) -> Result<(), Refusal> {
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.next()? {
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

    fn check(&self, at: usize) -> Result<(), Refusal> {
        if self.entries.is_empty() {
            return Err(Refusal::senseless(format!("rate limit descriptor {at} has no entries")));
        }
        if self.entries.len() > MAX_ENTRIES {
            return Err(too_many_entries());
        }
        for (key, _) in &self.entries {
            if key.is_empty() {
                return Err(Refusal::senseless(format!("an entry of rate limit descriptor {at} has no key")));
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
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => key = value.text()?,
            2 => text = value.text()?,
            _ => {}
        }
    }
    Ok((key, text))
}

fn each<'m>(
    message: &'m [u8],
    mut with: impl FnMut(u32, Value<'m>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.next()? {
        with(number, value)?;
    }
    Ok(())
}

fn too_many_descriptors() -> Refusal {
    Refusal::senseless(format!("a request has at most {MAX_DESCRIPTORS} rate limit descriptors"))
}

fn too_many_entries() -> Refusal {
    Refusal::senseless(format!("a rate limit descriptor has at most {MAX_ENTRIES} entries"))
}
