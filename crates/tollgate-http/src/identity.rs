//! The caller's identity, as verified by the application's authentication.
//!
//! A policy can read users and keys from headers but cannot verify them. A middleware that verifies
//! them puts an [`Identity`] into the request's extensions. From then on, headers no longer
//! determine the user, tenant or plan.
//!
//! Not here: authentication.

/// The verified identity of a caller, in the extensions of a request.
///
/// User, tenant and plan are taken only from it: a field that it leaves empty is unknown, whatever
/// headers claim. An empty identity therefore means that the caller is anonymous, and `X-User-Id:
/// admin` has no effect. An API key that it leaves empty is still read from the place that the
/// policy's `identify` section names, because the layer may run before the key is checked.
///
/// ```
/// # use tollgate_http::Identity;
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(Identity::new().user("ann").plan("pro").claim("org", "acme"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub(crate) user: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) plan: Option<String>,
    pub(crate) claims: Vec<(String, String)>,
}

impl Identity {
    /// Creates the identity of an anonymous caller.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the authenticated user.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// Sets the API key of the caller.
    #[must_use]
    pub fn api_key(self, api_key: impl Into<String>) -> Self {
        Self { api_key: Some(api_key.into()), ..self }
    }

    /// Sets the tenant that the request is made for.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// Sets the plan of the tenant.
    #[must_use]
    pub fn plan(self, plan: impl Into<String>) -> Self {
        Self { plan: Some(plan.into()), ..self }
    }

    /// Adds a claim of the verified token. A claim with several different values identifies no
    /// caller: limits then count by the client's address.
    #[must_use]
    pub fn claim(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.claims.push((name.into(), value.into()));
        self
    }
}

/// Shows which fields are set but not their values: keys must not reach logs.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("user", &self.user.is_some())
            .field("api_key", &self.api_key.is_some())
            .field("tenant", &self.tenant.is_some())
            .field("plan", &self.plan)
            .field("claims", &self.claims.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_reach_logs() {
        let shown = format!("{:?}", Identity::new().user("ann").api_key("sk-secret").claim("sub", "hidden"));
        for secret in ["ann", "sk-secret", "hidden"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
