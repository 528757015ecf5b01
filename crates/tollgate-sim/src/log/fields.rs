//! Maps the field names of JSON and CSV logs to properties of requests: `--field`, and well-known names.

use std::str::FromStr;

use super::names::KNOWN;

/// A property of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// Time.
    Time,
    /// Address of the client.
    Ip,
    /// Request line: `GET /path HTTP/1.1`.
    Request,
    /// Method: `GET`.
    Method,
    /// Path, optionally with a query, or a URL.
    Path,
    /// Query, without the `?`.
    Query,
    /// Host.
    Host,
    /// User.
    User,
    /// API key.
    ApiKey,
    /// Tenant.
    Tenant,
    /// Plan of the tenant.
    Plan,
    /// Cost in units.
    Cost,
    /// Status code of the response.
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

/// The deepest nesting of a field name.
const MAX_DEPTH: usize = 8;

/// Reason why a `--field` is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The `=`, or the text on one side of it, is missing.
    #[error("`--field {0}`: write WHAT=NAME, as in `--field time=@timestamp`")]
    NoPair(String),
    /// The property is unknown.
    #[error(
        "`--field {0}=…`: a request has time, ip, request, method, path, query, host, user, api_key, \
         tenant, plan, cost, status and header:NAME"
    )]
    Unknown(String),
    /// The name is nested too deeply.
    #[error("`{0}` is nested more than {max} deep", max = MAX_DEPTH)]
    TooDeep(String),
}

/// Field names that the user chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    chosen: Vec<(Field, String)>,
}

impl Fields {
    /// Parses entries such as `time=@timestamp`, `ip=client.addr` and `header:x-api-key=key`. If several entries name
    /// the same property, the first one that a line has counts. A CSV column may be a number, starting at 1.
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

    /// Whether the user chose a name for this property.
    pub(super) fn names(&self, field: &Field) -> bool {
        self.chosen.iter().any(|(chosen, _)| chosen == field)
    }

    /// Returns the names that the user chose.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &str> {
        self.chosen.iter().map(|(_, name)| name.as_str())
    }

    /// Whether columns are identified by number.
    pub(super) fn are_numbers(&self) -> bool {
        self.names(&Field::Time) && self.chosen().all(|name| name.parse::<u32>().is_ok_and(|it| it > 0))
    }

    /// Returns each property with all of its names in lower case, in order of preference.
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
                all.push((field, names.split(' ').map(str::to_owned).collect()));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_well_known_name_is_lower_case_and_belongs_to_a_field() {
        for (what, names) in KNOWN {
            assert!(what.parse::<Field>().is_ok(), "{what}");
            assert_eq!(names, names.to_ascii_lowercase(), "{what}");
            assert!(names.split(' ').all(|it| it.matches('.').count() < MAX_DEPTH), "{what}");
        }
    }

    #[test]
    fn an_invalid_field_says_what_to_write() {
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
    fn chosen_names_replace_well_known_names() {
        let fields = Fields::parse(&["ip=Peer", "ip=peer2"]).unwrap();
        let all = fields.all();
        let names = |field: &Field| all.iter().find(|(it, _)| it == field).map(|(_, names)| names.clone());
        assert_eq!(names(&Field::Ip), Some(vec!["peer".to_owned(), "peer2".to_owned()]));
        assert!(names(&Field::Time).unwrap().contains(&"@timestamp".to_owned()));
        assert_eq!(names(&Field::Cost), None);
    }
}
