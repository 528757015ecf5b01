//! Who calls, as the application's own authentication found out.
//!
//! A policy can look for users and keys in headers, but it cannot verify them.
//! A middleware that has puts an [`Identity`] into the request's extensions,
//! and from then on no header says who calls.
//!
//! Not here: authentication.

/// Who calls, verified. Put into the request's extensions by whoever verified it.
///
/// User, tenant and plan come from it alone: what it leaves unsaid is not known,
/// whatever headers claim. So an empty one means that somebody looked and found
/// nobody, and `X-User-Id: admin` makes no admin. An API key that stays unsaid
/// is still looked for where the policy's `identify` section says: a key is
/// something a caller shows, and this layer may well come before its check.
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
    /// Nobody in particular yet. As it is, it says that nobody is logged in.
    pub fn new() -> Self {
        Self::default()
    }

    /// This user is logged in.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// A program calls with this key.
    #[must_use]
    pub fn api_key(self, api_key: impl Into<String>) -> Self {
        Self { api_key: Some(api_key.into()), ..self }
    }

    /// The call is for this customer.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The customer is on this plan.
    #[must_use]
    pub fn plan(self, plan: impl Into<String>) -> Self {
        Self { plan: Some(plan.into()), ..self }
    }

    /// The verified token says this. A claim that is given several different values names no
    /// caller: limits count by the client's address then.
    #[must_use]
    pub fn claim(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.claims.push((name.into(), value.into()));
        self
    }
}

/// Says which parts are known and not what they are: keys do not belong in logs.
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
