//! Detects fields of `--field` that no request of a log has, which are probably misspelled.
//!
//! Not here: a missing CSV column, which is an error at the start (`csv`).

use tollgate::Request as _;

use super::fields::Field;
use super::options::ReadOptions;
use crate::Entry;

/// The fields of `--field` that have occurred so far.
#[derive(Debug)]
pub struct FieldUsage {
    /// Fields that have not occurred, with the names that were looked for.
    missing: Vec<(Field, Vec<String>)>,
    /// The names of the cost, if `--field` gives them.
    cost: Option<Vec<String>>,
    requests: u64,
    without_cost: u64,
}

impl FieldUsage {
    /// Creates the record for the fields that the options name.
    pub fn of(reading: &ReadOptions) -> Self {
        let fields = &reading.fields;
        let all = fields.all().into_iter();
        let mut missing: Vec<_> = all.filter(|(field, _)| fields.names(field)).collect();
        let cost = missing.iter().position(|(field, _)| *field == Field::Cost);
        let cost = cost.map(|at| missing.remove(at).1);
        Self { missing, cost, requests: 0, without_cost: 0 }
    }

    /// Records a request of the log.
    pub fn request(&mut self, entry: &Entry) {
        self.requests += 1;
        self.without_cost += u64::from(entry.cost.is_none());
        // Usually empty after the first lines.
        self.missing.retain(|(field, _)| !has(entry, field));
    }

    /// Returns a message for each field that has not occurred.
    pub fn notes(&self) -> Vec<String> {
        if self.requests == 0 {
            return Vec::new();
        }
        let list = |names: &[String]| names.join("`, `");
        let mut notes: Vec<_> = self
            .missing
            .iter()
            .map(|(_, names)| {
                format!("no request of the log has the field `{}` that `--field` names", list(names))
            })
            .collect();
        if let Some(names) = self.cost.as_ref().filter(|_| self.without_cost > 0) {
            let which = if self.without_cost == self.requests {
                "no request of the log has".to_owned()
            } else {
                format!("{} of {} requests do not have", self.without_cost, self.requests)
            };
            notes.push(format!(
                "{which} a cost in the field `{}` (a number that is not negative): those cost what the policy says",
                list(names)
            ));
        }
        notes
    }
}

fn has(entry: &Entry, field: &Field) -> bool {
    match field {
        // A request always has a time.
        Field::Time => true,
        Field::Ip => entry.client.is_some(),
        Field::Request | Field::Path => !entry.path().is_empty(),
        Field::Method => !entry.method().is_empty(),
        Field::Query => entry.query().is_some(),
        Field::Host => entry.host().is_some(),
        Field::User => entry.user().is_some(),
        Field::ApiKey => entry.api_key().is_some(),
        Field::Tenant => entry.tenant().is_some(),
        Field::Plan => entry.plan().is_some(),
        Field::Cost => entry.cost.is_some(),
        Field::Status => entry.status.is_some(),
        Field::Header(name) => entry.header(name).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::Fields;
    use super::*;

    #[test]
    fn missing_fields_and_invalid_costs_are_noted() {
        let fields = Fields::parse(&["user=who", "tenant=org", "cost=tokens", "header:X-Key=key"]).unwrap();
        let mut met = FieldUsage::of(&ReadOptions::default().fields(fields));
        assert!(met.notes().is_empty());
        let mut entry = Entry::new(5, "GET", "/");
        entry.set_user("ann");
        met.request(&entry);
        entry.cost = Some(4);
        met.request(&entry);
        let notes = met.notes();
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].contains("`org`") && notes[1].contains("`key`"), "{notes:?}");
        assert!(
            notes[2].starts_with("1 of 2 requests do not have a cost in the field `tokens`"),
            "{notes:?}"
        );
    }
}
