//! Which field of JSON and CSV is what: what `--field` says, and what is known without it.

use std::fmt;
use std::str::FromStr;

use super::names::KNOWN;

/// What a field of a log says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// When.
    Time,
    /// Who called, as an address.
    Ip,
    /// `GET /path HTTP/1.1`.
    Request,
    /// `GET`.
    Method,
    /// A path, with its query perhaps, or a URL.
    Path,
    /// What stands behind the `?`.
    Query,
    /// The host asked for.
    Host,
    /// Who was logged in.
    User,
    /// The key a program called with.
    ApiKey,
    /// The customer.
    Tenant,
    /// The customer's plan.
    Plan,
    /// What it cost.
    Cost,
    /// What was answered.
    Status,
    /// A header, by its name in lower case.
    Header(String),
}

impl FromStr for Field {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "time" => Self::Time,
            "ip" | "client" => Self::Ip,
            "request" => Self::Request,
            "method" => Self::Method,
            "path" | "url" => Self::Path,
            "query" => Self::Query,
            "host" => Self::Host,
            "user" => Self::User,
            "api_key" => Self::ApiKey,
            "tenant" => Self::Tenant,
            "plan" => Self::Plan,
            "cost" => Self::Cost,
            "status" => Self::Status,
            _ => match name.strip_prefix("header:") {
                Some(header) if !header.is_empty() => Self::Header(header.to_ascii_lowercase()),
                _ => return Err(()),
            },
        })
    }
}

/// Deeper than any log is nested.
const MAX_DEPTH: usize = 8;

/// What is wrong with a `--field`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// There is no `=`, or nothing on one side of it.
    NoPair(String),
    /// Nothing that a request has.
    Unknown(String),
    /// Nested too deeply.
    TooDeep(String),
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPair(written) => {
                write!(f, "`--field {written}`: write WHAT=NAME, as in `--field time=@timestamp`")
            }
            Self::Unknown(what) => write!(
                f,
                "`--field {what}=…`: a request has time, ip, request, method, path, query, host, user, api_key, \
                 tenant, plan, cost, status and header:NAME"
            ),
            Self::TooDeep(name) => write!(f, "`{name}` is nested more than {MAX_DEPTH} deep"),
        }
    }
}

impl std::error::Error for FieldError {}

/// Which field is what, as far as somebody said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    chosen: Vec<(Field, String)>,
}

impl Fields {
    /// From `time=@timestamp`, `ip=client.addr`, `header:x-api-key=key` and the like. Of several for the same, the
    /// first that a line has counts. A column of CSV may be a number, from one.
    ///
    /// ```
    /// use tollgate_sim::log::Fields;
    ///
    /// assert!(Fields::parse(&["time=@timestamp", "header:X-Api-Key=request.key"]).is_ok());
    /// assert!(Fields::parse(&["when=@timestamp"]).is_err());
    /// ```
    pub fn parse<S: AsRef<str>>(written: &[S]) -> Result<Self, FieldError> {
        let mut chosen = Vec::with_capacity(written.len());
        for written in written {
            let written = written.as_ref();
            let pair = written.split_once('=').map(|(what, name)| (what.trim(), name.trim()));
            let Some((what, name)) = pair.filter(|(what, name)| !what.is_empty() && !name.is_empty()) else {
                return Err(FieldError::NoPair(written.to_owned()));
            };
            let field = what.parse().map_err(|()| FieldError::Unknown(what.to_owned()))?;
            if name.matches('.').count() >= MAX_DEPTH {
                return Err(FieldError::TooDeep(name.to_owned()));
            }
            chosen.push((field, name.to_owned()));
        }
        Ok(Self { chosen })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Whether somebody said where this is.
    pub(super) fn names(&self, field: &Field) -> bool {
        self.chosen.iter().any(|(chosen, _)| chosen == field)
    }

    /// Those that somebody named.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &str> {
        self.chosen.iter().map(|(_, name)| name.as_str())
    }

    /// Whether columns are numbered, and not named.
    pub(super) fn are_numbers(&self) -> bool {
        self.names(&Field::Time) && self.chosen().all(|name| name.parse::<u32>().is_ok_and(|it| it > 0))
    }

    /// Each field with all its names in lower case, the ones to prefer first.
    pub(super) fn all(&self) -> Vec<(Field, Vec<String>)> {
        let mut all: Vec<(Field, Vec<String>)> = Vec::new();
        for (field, name) in &self.chosen {
            let name = name.to_ascii_lowercase();
            match all.iter_mut().find(|(known, _)| known == field) {
                Some((_, names)) => names.push(name),
                None => all.push((field.clone(), vec![name])),
            }
        }
        for (what, names) in KNOWN {
            let Ok(field) = what.parse() else { continue };
            if !self.names(&field) {
                all.push((field, names.iter().map(ToString::to_string).collect()));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_of_a_field_and_in_lower_case() {
        for (what, names) in KNOWN {
            assert!(what.parse::<Field>().is_ok(), "{what}");
            assert!(names.iter().all(|it| *it == it.to_ascii_lowercase()), "{what}");
            assert!(names.iter().all(|it| it.matches('.').count() < MAX_DEPTH), "{what}");
        }
    }

    #[test]
    fn a_mistake_says_what_to_write() {
        let cases = [
            ("time", "write WHAT=NAME"),
            ("=x", "write WHAT=NAME"),
            ("time=", "write WHAT=NAME"),
            ("tiem=x", "a request has time, ip"),
            ("header:=x", "header:NAME"),
            ("ip=a.b.c.d.e.f.g.h.i", "nested more than 8 deep"),
        ];
        for (written, expected) in cases {
            let error = Fields::parse(&[written]).unwrap_err().to_string();
            assert!(error.contains(expected), "{written}: {error}");
        }
    }

    #[test]
    fn what_somebody_named_takes_the_place_of_what_is_known() {
        let fields = Fields::parse(&["ip=Peer", "ip=peer2"]).unwrap();
        let all = fields.all();
        let names = |field: &Field| all.iter().find(|(it, _)| it == field).map(|(_, names)| names.clone());
        assert_eq!(names(&Field::Ip), Some(vec!["peer".to_owned(), "peer2".to_owned()]));
        assert!(names(&Field::Time).unwrap().contains(&"@timestamp".to_owned()));
        assert_eq!(names(&Field::Cost), None);
    }
}
