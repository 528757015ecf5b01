//! The reasons why a built limit is rejected.

/// An error that prevents limits from forming a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is invalid. Names appear in headers and metrics, which restrict their characters.
    #[error("`{0}` cannot name a limit: 1 to 64 of the characters A-Z a-z 0-9 . _ -")]
    Name(String),
    /// Two limits share a name. Usage is stored by name.
    #[error("two limits are called `{0}`")]
    SameName(String),
    /// The limit is in a group that cannot have it: requests are matched against it, or its name has another
    /// prefix than the group, or the prefix of the group is the beginning of another one.
    #[error("`{0}` cannot be in this group of limits")]
    Group(String),
    /// The endpoint does not start with a slash, or its pattern cannot match any path.
    #[error("limit `{name}` cannot cover `{endpoint}`: {why}")]
    Endpoint {
        /// The name of the limit.
        name: String,
        /// The endpoint pattern that was passed.
        endpoint: String,
        /// The reason why the pattern is invalid.
        why: String,
    },
    /// The descriptor pattern or the domain is invalid, or conflicts with another option.
    #[error("limit `{name}` cannot cover descriptors: {why}")]
    Descriptor {
        /// The name of the limit.
        name: String,
        /// The reason why it is invalid.
        why: String,
    },
    /// The limit has no key. The key is never guessed.
    #[error("limit `{0}` has no key: use KeySource::Global for one allowance for all requests")]
    NoKey(String),
    /// The key uses a path parameter that an endpoint lacks.
    #[error("no request to `{endpoint}` has the key `path:{parameter}` of limit `{name}`")]
    NoSuchParameter {
        /// The name of the limit.
        name: String,
        /// The endpoint that lacks the parameter.
        endpoint: String,
        /// The parameter.
        parameter: String,
    },
    /// The limit has no quota.
    #[error("limit `{0}` has no quota")]
    NoQuota(String),
    /// The limit learns its number of slots, and has a quota as well or bounds that exclude each other.
    #[error("limit `{0}` learns its slots: it has no quota, and 1 <= min <= max")]
    Adaptive(String),
    /// The limit cannot settle costs, because the final cost of its requests is never reported.
    #[error("limit `{name}` cannot settle costs: {why}")]
    Settle {
        /// The name of the limit.
        name: String,
        /// The reason.
        why: String,
    },
    /// Two windows of the limit have the same length, so one of them is redundant.
    #[error("two windows of limit `{name}` are {length} long")]
    SameWindow {
        /// The name of the limit.
        name: String,
        /// The length of both windows.
        length: String,
    },
}
