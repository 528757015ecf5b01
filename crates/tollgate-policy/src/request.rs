//! The properties of a request that a policy reads.
//!
//! All are borrowed strings, so that the same policy serves a proxy, a gRPC
//! service, a queue consumer and a line of a log. The client address is determined
//! before, where sockets are known (`tollgate_http`), with the
//! [`ClientAddress`](crate::ClientAddress) of the policy.

use std::net::IpAddr;

use crate::cost::whole_units;

/// A request as a policy sees it.
///
/// Unknown properties may stay `None`. A user, for instance, is then looked up in the places that
/// `identify` lists.
pub trait Request {
    /// Returns the method, such as `GET` or `POST`.
    fn method(&self) -> &str;

    /// Returns the path as received, without the query.
    fn path(&self) -> &str;

    /// Returns the host of the request; a port is ignored.
    fn host(&self) -> Option<&str> {
        None
    }

    /// Returns the query, which follows the `?`.
    fn query(&self) -> Option<&str> {
        None
    }

    /// Returns the client address.
    fn client(&self) -> Option<IpAddr> {
        None
    }

    /// Returns the first value of a header. `name` is in lower case.
    fn header(&self, name: &str) -> Option<&[u8]> {
        let _ = name;
        None
    }

    /// Returns value number `index` of a header that may have several lines, as
    /// cookies have over HTTP/2.
    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        if index == 0 { self.header(name) } else { None }
    }

    /// Visits every line of a header in order.
    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        (0..).map_while(|index| self.header_line(name, index)).for_each(visit);
    }

    /// Visits the lines of every header whose name differs from this one only in `-` and `_`, if the
    /// upstream service may see them. CGI and its successors treat such headers as one.
    fn visit_lookalikes<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        let _ = (name, visit);
    }

    /// Returns a second host name of the request, such as a `Host` that differs
    /// from the authority of the target. The limits of both hosts apply, because
    /// the upstream service may use either.
    fn other_host(&self) -> Option<&str> {
        None
    }

    /// Whether the caller has identified the request. Then `user`, `tenant` and
    /// `plan` are final, and no header is read for them.
    fn is_identified(&self) -> bool {
        false
    }

    /// Returns the authenticated user, if known.
    fn user(&self) -> Option<&str> {
        None
    }

    /// Returns the API key, if known.
    fn api_key(&self) -> Option<&str> {
        None
    }

    /// Returns the tenant, if known.
    fn tenant(&self) -> Option<&str> {
        None
    }

    /// Returns the plan, if known.
    fn plan(&self) -> Option<&str> {
        None
    }

    /// Returns a claim of a token that the caller has verified.
    fn claim(&self, name: &str) -> Option<&str> {
        let _ = name;
        None
    }

    /// Visits every value of a claim. A claim with several different values identifies no caller.
    fn visit_claim<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r str)) {
        self.claim(name).into_iter().for_each(visit);
    }

    /// Returns the length of the body in bytes, if the request declares it. A chunked body has no
    /// declared length.
    fn body_length(&self) -> Option<u64> {
        if self.header("transfer-encoding").is_some() {
            return None;
        }
        whole_units(self.header("content-length")?.trim_ascii())
    }

    /// Returns the cost, if the caller overrides the policy. Zero checks without charging.
    fn cost(&self) -> Option<u64> {
        None
    }

    /// Whether the caller may report the final cost later, by the id of the decision.
    fn may_be_settled(&self) -> bool {
        false
    }
}

/// A [`Request`] built from its parts.
///
/// ```
/// # use tollgate_policy::{Call, Request};
/// let call = Call::new("GET", "/search?q=x").ip([203, 0, 113, 9]).api_key("k").header("X-Plan", "pro");
/// assert_eq!((call.path(), call.query()), ("/search", Some("q=x")));
/// assert_eq!(Request::header(&call, "x-plan"), Some(&b"pro"[..]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    method: &'a str,
    path: &'a str,
    host: Option<&'a str>,
    query: Option<&'a str>,
    client: Option<IpAddr>,
    headers: Vec<(&'a str, &'a [u8])>,
    user: Option<&'a str>,
    api_key: Option<&'a str>,
    tenant: Option<&'a str>,
    plan: Option<&'a str>,
    claims: Vec<(&'a str, &'a str)>,
    cost: Option<u64>,
}

impl<'a> Call<'a> {
    /// Creates a request for a path, which may include a query.
    pub fn new(method: &'a str, path: &'a str) -> Self {
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        Self { method, path, query, ..Self::default() }
    }

    /// Sets the client address.
    #[must_use]
    pub fn ip(mut self, client: impl Into<IpAddr>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// Sets the host.
    #[must_use]
    pub fn host(mut self, host: &'a str) -> Self {
        self.host = Some(host);
        self
    }

    /// Adds a header line. Names match in any case.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.headers.push((name, value.as_ref()));
        self
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: &'a str) -> Self {
        self.user = Some(user);
        self
    }

    /// Sets the API key.
    #[must_use]
    pub fn api_key(mut self, api_key: &'a str) -> Self {
        self.api_key = Some(api_key);
        self
    }

    /// Sets the tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: &'a str) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Sets the plan.
    #[must_use]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Adds a verified claim.
    #[must_use]
    pub fn claim(mut self, name: &'a str, value: &'a str) -> Self {
        self.claims.push((name, value));
        self
    }

    /// Sets the cost.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }
}

impl Request for Call<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.path
    }

    fn host(&self) -> Option<&str> {
        self.host
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_line(name, 0)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        let mut lines = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        lines.nth(index).map(|(_, value)| *value)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        let lines = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        lines.for_each(|(_, value)| visit(value));
    }

    fn user(&self) -> Option<&str> {
        self.user
    }

    fn api_key(&self) -> Option<&str> {
        self.api_key
    }

    fn tenant(&self) -> Option<&str> {
        self.tenant
    }

    fn plan(&self) -> Option<&str> {
        self.plan
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.claims.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn visit_claim<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r str)) {
        let values = self.claims.iter().filter(|(known, _)| *known == name);
        values.for_each(|(_, value)| visit(value));
    }

    fn cost(&self) -> Option<u64> {
        self.cost
    }

    fn may_be_settled(&self) -> bool {
        true
    }
}
