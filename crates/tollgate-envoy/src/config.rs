//! A set of files: one domain per file, or several files of one domain merged.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate::policy::Lint;
use tollgate::{Limit, Policy};
use tollgate_document::{Diagnostic, Diagnostics, Document, Located, Problems};

use crate::file_format::{self, Descriptor, shown};
use crate::section::quoted;

/// The maximum number of descriptors in all files together.
const MAX_DESCRIPTORS: usize = 100_000;

/// The name and the text of a configuration file.
#[derive(Clone, Debug)]
pub struct EnvoyFile {
    /// The file name in messages.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

/// A set of parsed configuration files.
///
/// ```
/// # use tollgate_envoy::{EnvoyConfig, EnvoyFile};
/// let file = |text: &str| EnvoyFile { name: "shop.yaml".into(), text: text.into() };
/// let config = EnvoyConfig::read(&[file("
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: {unit: minute, requests_per_unit: 10}
/// ")], false).unwrap();
/// assert_eq!(config.domains()[0].name, "shop");
///
/// let wrong = EnvoyConfig::read(&[file("domain: shop\ndescriptors: [{kye: user}]\n")], false).unwrap_err();
/// let (name, mistakes) = &wrong[0];
/// assert!(mistakes.render(name).contains("did you mean `key`?"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct EnvoyConfig {
    pub(crate) domains: Vec<Arc<Domain>>,
    pub(crate) warnings: Vec<(String, Diagnostics)>,
}

/// A domain and the tree of its descriptors.
#[derive(Clone, Debug)]
pub struct Domain {
    /// The name, as the proxy sends it.
    pub name: String,
    /// The name of its file; of the first one, if there are several.
    pub file: String,
    /// The descriptors of the first level, in the order of the files.
    pub descriptors: Vec<Descriptor>,
}

/// A file while the set is read.
struct ParsedFile<'f> {
    name: &'f str,
    document: Document,
    problems: Problems,
    content: Option<(Located<String>, Vec<Descriptor>)>,
}

impl EnvoyConfig {
    /// Parses files, or returns all mistakes in each of them. With `merge`,
    /// several files may contain descriptors of one domain; otherwise that is a mistake.
    pub fn read(files: &[EnvoyFile], merge: bool) -> Result<Self, Vec<(String, Diagnostics)>> {
        let mut mistakes = Vec::new();
        let mut read = Vec::new();
        let mut left = MAX_DESCRIPTORS;
        for file in files {
            match Document::parse_expanded(&file.text) {
                Ok(document) => {
                    let mut problems = Problems::default();
                    let content = file_format::read(document.root(), &mut left, &mut problems);
                    read.push(ParsedFile { name: &file.name, document, problems, content });
                }
                Err(wrong) => mistakes.push((file.name.clone(), wrong.reworded(reword))),
            }
        }
        compare(&mut read, merge);
        let mut config = Self::default();
        for ParsedFile { name, document, problems, content } in read {
            let wrong = problems.has_errors();
            let found = problems.into_diagnostics(&document);
            if wrong {
                mistakes.push((name.to_owned(), found));
                continue;
            }
            if !found.is_empty() {
                config.warnings.push((name.to_owned(), found));
            }
            if let Some((domain, descriptors)) = content {
                config.add(domain.value, name, descriptors);
            }
        }
        if mistakes.is_empty() {
            return Ok(config);
        }
        let place = |name: &str| files.iter().position(|file| file.name == name);
        mistakes.sort_by_key(|(name, _)| place(name));
        Err(mistakes)
    }

    /// Returns the lint warnings by file.
    pub fn warnings(&self) -> &[(String, Diagnostics)] {
        &self.warnings
    }

    /// Returns the domains in the order of the files.
    pub fn domains(&self) -> &[Arc<Domain>] {
        &self.domains
    }

    /// Returns the limits of a policy on descriptors of a domain that the files decide, each with that
    /// domain. The files decide such a domain alone, so the limit never applies.
    pub fn decided_alone<'p>(&self, policy: &'p Policy) -> Vec<(&'p Limit, &Domain)> {
        let domain = |name: &str| self.domains.iter().map(|it| &**it).find(|domain| domain.name == name);
        let found = |limit: &'p Limit| limit.domains().filter_map(domain).map(move |it| (limit, it));
        policy.limits().iter().filter(|limit| limit.candidate_of().is_none()).flat_map(found).collect()
    }

    fn add(&mut self, name: String, file: &str, descriptors: Vec<Descriptor>) {
        match self.domains.iter_mut().find(|domain| domain.name == name) {
            Some(domain) => Arc::make_mut(domain).descriptors.extend(descriptors),
            None => self.domains.push(Arc::new(Domain { name, file: file.to_owned(), descriptors })),
        }
    }
}

/// Replaces advice that is valid for policies only.
fn reword(mistake: &mut Diagnostic) {
    mistake.help.retain(|help| !help.contains("`endpoint`") && !help.contains("behind the API"));
    if mistake.label == "to YAML this is a reference" {
        mistake.label("to YAML this is an alias without an anchor above it");
        mistake.help = vec!["write it between quotes: \"*\"".to_owned()];
    }
    if mistake.label.contains("policy") {
        mistake.label("one file holds one domain");
    }
}

/// Checks all files together.
fn compare(files: &mut [ParsedFile<'_>], merge: bool) {
    let mut domains: HashMap<String, String> = HashMap::new();
    let mut keys: HashMap<(String, String, Option<String>), String> = HashMap::new();
    let mut names: HashMap<String, HashSet<String>> = HashMap::new();
    for ParsedFile { name: file, problems, content, .. } in &mut *files {
        let Some((domain, descriptors)) = content else { continue };
        let here = |line: u32| format!("{file}, line {line}");
        let described = quoted(&domain.value);
        if let Some(first) = domains.get(&domain.value).filter(|_| !merge) {
            problems
                .error(domain.place, format!("two files hold the domain {described}"))
                .label(format!("first in {first}"))
                .help("combine them, or enable merging: `rls: {merge_domains: true}`");
            continue;
        }
        domains.entry(domain.value.clone()).or_insert_with(|| here(domain.place.line));
        for descriptor in &*descriptors {
            let id = (domain.value.clone(), descriptor.key.value.clone(), descriptor.value.clone());
            if let Some(first) = keys.get(&id) {
                problems
                    .error(
                        descriptor.key.place,
                        format!("{} is written twice in {described}", shown(descriptor)),
                    )
                    .label(format!("first in {first}"))
                    .help("combine both in one of the files");
            }
            keys.entry(id).or_insert_with(|| here(descriptor.key.place.line));
        }
        let known = names.entry(domain.value.clone()).or_default();
        each_limit(descriptors, &mut |limit| known.extend(limit.name.clone()));
    }
    for ParsedFile { problems, content, .. } in files {
        let Some((domain, descriptors)) = content else { continue };
        let Some(known) = names.get(&domain.value) else { continue };
        each_limit(descriptors, &mut |limit| {
            for name in limit.replaces.iter().filter(|name| !known.contains(&name.value)) {
                problems
                    .warning(
                        Lint::EnvoyReplacesNothing,
                        name.place,
                        format!("no limit of this domain is called {}", quoted(&name.value)),
                    )
                    .label("so nothing is replaced");
            }
        });
    }
}

/// Visits all limits of a tree. The depth of the file bounds the recursion.
fn each_limit(descriptors: &[Descriptor], each: &mut impl FnMut(&file_format::RateLimit)) {
    for descriptor in descriptors {
        descriptor.rate_limit.iter().for_each(&mut *each);
        each_limit(&descriptor.descriptors, each);
    }
}
