//! What a policy wants to know about a request.
//!
//! Plain borrowed strings, so that the same policy serves a proxy, a gRPC
//! service, a queue consumer and a line of a log. The client address is settled
//! before: which hop to believe is decided where sockets are known
//! (`tollgate_http`), with the [`ClientAddress`](crate::ClientAddress) of the policy.

use std::net::IpAddr;

use crate::cost::whole_units;
use crate::descriptor::Descriptor;

/// A request as a policy sees it.
///
/// Everything that a caller does not know may stay `None`: who the user is, for
/// instance, is then looked for where `identify` says.
pub trait Request {
    /// `GET`, `POST` and so on.
    fn method(&self) -> &str;

    /// The path as it came, without the query.
    fn path(&self) -> &str;

    /// The host asked for; a port does not matter.
    fn host(&self) -> Option<&str> {
        None
    }

    /// What stands behind the `?`.
    fn query(&self) -> Option<&str> {
        None
    }

    /// The client's address, settled. Of a descriptor: its `remote_address`.
    fn client(&self) -> Option<IpAddr> {
        self.descriptor()?.client()
    }

    /// The first value of a header. The name is given in lower case.
    fn header(&self, name: &str) -> Option<&[u8]> {
        let _ = name;
        None
    }

    /// Value number `index` of a header that may come in several lines, as
    /// cookies do over HTTP/2.
    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        if index == 0 { self.header(name) } else { None }
    }

    /// Visits every line of a header, in the order in which they came.
    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        (0..).map_while(|index| self.header_line(name, index)).for_each(visit);
    }

    /// Visits the lines of every header whose name differs from this one in `-` and `_` alone, where
    /// the service behind may see them. CGI and its successors take such headers for one.
    fn visit_lookalikes<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        let _ = (name, visit);
    }

    /// A second name that the request gives for its host: a `Host` that differs
    /// from the authority of the target, say. Limits of both hosts apply, since
    /// nobody here knows which of them the service will believe.
    fn other_host(&self) -> Option<&str> {
        None
    }

    /// Whether the caller has settled who calls. Then `user`, `tenant` and
    /// `plan` are what it says and nothing else: no header names them.
    fn is_identified(&self) -> bool {
        false
    }

    /// Who is logged in, if the caller has found out. Of a descriptor: its entry of this name.
    fn user(&self) -> Option<&str> {
        self.descriptor()?.value("user")
    }

    /// The key a program calls with, if the caller has found out. Of a descriptor: its entry of this name.
    fn api_key(&self) -> Option<&str> {
        self.descriptor()?.value("api_key")
    }

    /// The customer, if the caller has found out. Of a descriptor: its entry of this name.
    fn tenant(&self) -> Option<&str> {
        self.descriptor()?.value("tenant")
    }

    /// The plan of the customer, if the caller has found out. Of a descriptor: its entry of this name.
    fn plan(&self) -> Option<&str> {
        self.descriptor()?.value("plan")
    }

    /// A claim of a token that the caller has verified.
    fn claim(&self, name: &str) -> Option<&str> {
        let _ = name;
        None
    }

    /// Visits every value of a claim. A claim with several different values names no caller.
    fn visit_claim<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r str)) {
        self.claim(name).into_iter().for_each(visit);
    }

    /// How long its body is, where the request says so before it comes: not where the body
    /// comes in chunks.
    fn body_length(&self) -> Option<u64> {
        if self.header("transfer-encoding").is_some() {
            return None;
        }
        whole_units(self.header("content-length")?.trim_ascii())
    }

    /// What the request costs, where the caller knows better than the policy. Zero only looks.
    fn cost(&self) -> Option<u64> {
        None
    }

    /// Whether the caller may report the final cost later, by the id of the decision.
    fn may_be_settled(&self) -> bool {
        false
    }

    /// The descriptor that stands for the request, where a proxy sent one. Then the limits on
    /// descriptors apply, and those on paths do not.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }
}

/// Whoever has a reference can show it as well as the request itself.
impl<R: Request + ?Sized> Request for &R {
    fn method(&self) -> &str {
        (**self).method()
    }

    fn path(&self) -> &str {
        (**self).path()
    }

    fn host(&self) -> Option<&str> {
        (**self).host()
    }

    fn query(&self) -> Option<&str> {
        (**self).query()
    }

    fn client(&self) -> Option<IpAddr> {
        (**self).client()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        (**self).header(name)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        (**self).header_line(name, index)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        (**self).visit_header(name, visit);
    }

    fn visit_lookalikes<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        (**self).visit_lookalikes(name, visit);
    }

    fn other_host(&self) -> Option<&str> {
        (**self).other_host()
    }

    fn is_identified(&self) -> bool {
        (**self).is_identified()
    }

    fn user(&self) -> Option<&str> {
        (**self).user()
    }

    fn api_key(&self) -> Option<&str> {
        (**self).api_key()
    }

    fn tenant(&self) -> Option<&str> {
        (**self).tenant()
    }

    fn plan(&self) -> Option<&str> {
        (**self).plan()
    }

    fn claim(&self, name: &str) -> Option<&str> {
        (**self).claim(name)
    }

    fn visit_claim<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r str)) {
        (**self).visit_claim(name, visit);
    }

    fn body_length(&self) -> Option<u64> {
        (**self).body_length()
    }

    fn cost(&self) -> Option<u64> {
        (**self).cost()
    }

    fn may_be_settled(&self) -> bool {
        (**self).may_be_settled()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        (**self).descriptor()
    }
}

/// A request put together by hand.
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
    descriptor: Option<Descriptor<'a>>,
}

impl<'a> Call<'a> {
    /// A request for a path, with its query if it has one.
    pub fn new(method: &'a str, path: &'a str) -> Self {
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        Self { method, path, query, ..Self::default() }
    }

    /// What a proxy describes by a descriptor.
    pub fn described(descriptor: Descriptor<'a>) -> Self {
        Self {
            client: descriptor.client(),
            user: descriptor.value("user"),
            api_key: descriptor.value("api_key"),
            tenant: descriptor.value("tenant"),
            plan: descriptor.value("plan"),
            descriptor: Some(descriptor),
            ..Self::default()
        }
    }

    /// From this client.
    #[must_use]
    pub fn ip(mut self, client: impl Into<IpAddr>) -> Self {
        self.client = Some(client.into());
        self
    }

    /// To this host.
    #[must_use]
    pub fn host(mut self, host: &'a str) -> Self {
        self.host = Some(host);
        self
    }

    /// With one more header line. Names match in any case.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.headers.push((name, value.as_ref()));
        self
    }

    /// By this user.
    #[must_use]
    pub fn user(mut self, user: &'a str) -> Self {
        self.user = Some(user);
        self
    }

    /// With this key.
    #[must_use]
    pub fn api_key(mut self, api_key: &'a str) -> Self {
        self.api_key = Some(api_key);
        self
    }

    /// For this customer.
    #[must_use]
    pub fn tenant(mut self, tenant: &'a str) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// On this plan.
    #[must_use]
    pub fn plan(mut self, plan: &'a str) -> Self {
        self.plan = Some(plan);
        self
    }

    /// With a verified claim.
    #[must_use]
    pub fn claim(mut self, name: &'a str, value: &'a str) -> Self {
        self.claims.push((name, value));
        self
    }

    /// Costing this much.
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

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.descriptor
    }
}
