//! Matches a request whose path has several readings.
//!
//! Servers interpret such a path differently, so the limits of every reading apply, each
//! once. `deny` refuses under any reading. `allow` and `except` require that they cover every
//! reading; otherwise a caller could bypass a limit by spelling.
//!
//! A limit that counts by a path parameter charges the keys of all readings. The key of the
//! server's reading is among them, so no spelling gets a fresh allowance.

use super::{Checks, KeyDerivation, Matched, RequestMatcher, applies};
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::matcher::RouteIds;
use crate::path::Readings;
use crate::policy::Policy;
use crate::properties::{Properties, View};
use crate::request::Request;

impl Policy {
    /// Matches a request whose path is not plain. It may still have one reading.
    #[inline(never)]
    pub(super) fn match_unusual_path<'p, R: Request + ?Sized>(
        &'p self,
        request: &R,
        out: &mut Checks<'p>,
    ) -> Matched<'p> {
        let readings = Readings::of(request.path(), self.paths);
        let is_refused = readings.is_excessive() || (self.paths.refuse_ambiguous && readings.is_ambiguous());
        if let Some(path) = readings.only()
            && !is_refused
        {
            return self.match_path(request, path, out);
        }
        let class = self.add_class(out, || self.classify_readings(request, &readings));
        let view = View { request, path: "", readings: Some(&readings), pattern: None };
        if let Some(entry) = self.deny.find(&self.identify, &view) {
            return Matched::Denied(entry);
        }
        if is_refused {
            return Matched::AmbiguousPath;
        }
        if let Some(entry) = self.allow.find(&self.identify, &view) {
            return Matched::Allowed(entry);
        }
        let mut matcher = RequestMatcher::new(self, out, class);
        matcher.walk_readings(request, &readings);
        matcher.finish()
    }
}

impl<'p: 'r, 'r> RequestMatcher<'p, 'r, '_> {
    /// Adds every limit that covers the request under any reading of its path, in file order.
    fn walk_readings<R: Request + ?Sized>(&mut self, request: &'r R, readings: &'r Readings<'r>) {
        let policy = self.policy;
        let mut found = Vec::new();
        for (at, path) in readings.iter().enumerate() {
            let mut routes = RouteIds::new();
            self.find_routes(request, path, &mut routes);
            found.extend(routes.iter().map(|&route| (route, at, path)));
        }
        found.sort_unstable();
        // The limits added so far, each with the index of its reading.
        let mut taken: Vec<(u32, usize)> = Vec::new();
        for (route, at, path) in found {
            let Some(&(index, pattern)) = policy.routes.get(route as usize) else { continue };
            let limit = &policy.limits[index as usize];
            let mut before = taken.iter().filter(|(known, _)| *known == index).peekable();
            let is_first = before.peek().is_none();
            let is_known = !is_first && !limit.counts_by_path() || before.any(|(_, known)| *known == at);
            if is_known
                || limit.mode == Mode::Off
                || !applies(limit, request)
                || readings.iter().all(|path| limit.excepts(path))
            {
                continue;
            }
            taken.push((index, at));
            let view = View { request, path, readings: None, pattern: limit.endpoints.get(pattern as usize) };
            if is_first || self.has_new_key(limit, &view) {
                self.out.repeats_limits |= !is_first;
                self.take(limit, &view);
            }
        }
    }

    /// Whether a limit that was added under another reading has another key under this one.
    #[cold]
    fn has_new_key(&self, limit: &Limit, view: &impl Properties<'r>) -> bool {
        let mut key = Key::default();
        let known = || self.out.iter().filter(|it| it.part == self.out.part && it.limit.place == limit.place);
        matches!(self.policy.derive(limit, view, &mut key), KeyDerivation::Whole | KeyDerivation::Ambiguous)
            && known().all(|it| it.key != key)
    }
}
