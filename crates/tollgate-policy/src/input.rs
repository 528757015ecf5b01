//! The inputs that a policy is matched against: requests and descriptors.

use std::fmt;
use std::net::IpAddr;

use crate::descriptor::Descriptor;
use crate::match_request::{Checks, Matched};
use crate::policy::Policy;
use crate::request::Request;

/// An input of a policy: a [`Request`], or a [`Descriptor`] that a proxy sent in place of one.
///
/// Limits on paths apply to requests, limits on descriptors apply to descriptors.
pub trait Input {
    /// Adds the checks of the limits that apply to `out`, which is not cleared.
    fn add_checks<'p>(&self, policy: &'p Policy, out: &mut Checks<'p>) -> Matched<'p>
    where
        Self: Sized;

    /// Returns the input as an observer receives it.
    fn subject(&self) -> Subject<'_>;
}

impl<R: Request> Input for R {
    #[inline]
    fn add_checks<'p>(&self, policy: &'p Policy, out: &mut Checks<'p>) -> Matched<'p> {
        policy.add_request(self, out)
    }

    fn subject(&self) -> Subject<'_> {
        Subject::Request(self)
    }
}

impl Input for Descriptor<'_> {
    fn add_checks<'p>(&self, policy: &'p Policy, out: &mut Checks<'p>) -> Matched<'p> {
        policy.add_descriptor(self, out)
    }

    fn subject(&self) -> Subject<'_> {
        Subject::Descriptor(*self)
    }
}

impl Input for Subject<'_> {
    fn add_checks<'p>(&self, policy: &'p Policy, out: &mut Checks<'p>) -> Matched<'p> {
        match self {
            Self::Request(request) => policy.add_request(*request, out),
            Self::Descriptor(descriptor) => policy.add_descriptor(descriptor, out),
        }
    }

    fn subject(&self) -> Subject<'_> {
        *self
    }
}

/// The subject of a decision: an input whose type is known at run time.
#[derive(Clone, Copy)]
pub enum Subject<'s> {
    /// A request.
    Request(&'s dyn Request),
    /// A descriptor, which has no method, path, host or headers.
    Descriptor(Descriptor<'s>),
}

impl<'s> Subject<'s> {
    /// Returns the request, if the subject is one.
    pub const fn request(self) -> Option<&'s dyn Request> {
        match self {
            Self::Request(request) => Some(request),
            Self::Descriptor(_) => None,
        }
    }

    /// Returns the client address.
    pub fn client(self) -> Option<IpAddr> {
        match self {
            Self::Request(request) => request.client(),
            Self::Descriptor(descriptor) => descriptor.client(),
        }
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(_) => f.write_str("Request"),
            Self::Descriptor(descriptor) => descriptor.fmt(f),
        }
    }
}
