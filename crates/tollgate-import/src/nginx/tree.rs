//! Parses directives and their blocks, and inserts included files.
//!
//! Only files in the text can be included: the output of `nginx -T` contains all of them,
//! each behind a comment with its name.
//!
//! Invariant: the size of the tree is bounded. Blocks and includes nest to [`MAX_DEPTH`], and at most
//! [`MAX_DIRECTIVES`] directives are created, even if a file includes itself. The recursion is
//! no deeper than that.

use std::collections::BTreeMap;

use tollgate_document::{Place, Problems};

use super::tokenizer::{Token, tokens};
use crate::output::quoted;

const MAX_FILE_BYTES: usize = 8 << 20;
const MAX_DEPTH: usize = 32;
const MAX_DIRECTIVES: usize = 200_000;

/// `name arguments;` or `name arguments { block }`.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) arguments: Vec<(String, Place)>,
    pub(super) block: Vec<Directive>,
}

impl Directive {
    /// Returns the argument with this index.
    pub(super) fn argument(&self, at: usize) -> Option<&str> {
        self.arguments.get(at).map(|(text, _)| text.as_str())
    }
}

/// A configuration, and the includes that could not be resolved.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) directives: Vec<Directive>,
    pub(super) not_included: Vec<(String, Place)>,
}

/// Parses a configuration, and reports its syntax errors.
pub(super) fn read(text: &str, problems: &mut Problems) -> Tree {
    let start = Place { source: 0, line: 1, column: 1, width: 1 };
    if text.len() > MAX_FILE_BYTES {
        problems.error(start, format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20));
        return Tree::default();
    }
    let tokens = tokens(text, problems);
    let mut files: Vec<(String, Vec<(Token, Place)>)> = vec![(String::new(), Vec::new())];
    for (token, place) in tokens {
        match token {
            Token::File(name) => files.push((name, Vec::new())),
            token => files.last_mut().expect("it begins with one").1.push((token, place)),
        }
    }
    files.retain(|(_, tokens)| !tokens.is_empty());
    let mut parsed = BTreeMap::new();
    let mut main = None;
    for (name, tokens) in files {
        let directives = Parser { tokens: tokens.into_iter(), depth: 0, problems }.block(None);
        if main.is_none() {
            main = Some((folder(&name).to_owned(), directives));
        } else {
            parsed.insert(name, directives);
        }
    }
    let Some((folder, directives)) = main else { return Tree::default() };
    let mut including = IncludeStack { folder, files: parsed, made: 0, not_included: Vec::new(), problems };
    let directives = including.expanded(directives, 0);
    Tree { directives, not_included: including.not_included }
}

fn folder(file: &str) -> &str {
    file.rfind('/').map_or("", |at| &file[..at])
}

struct Parser<'p> {
    tokens: std::vec::IntoIter<(Token, Place)>,
    depth: usize,
    problems: &'p mut Problems,
}

impl Parser<'_> {
    /// Returns the directives up to the end of a block, or of the file.
    fn block(&mut self, opened: Option<Place>) -> Vec<Directive> {
        let mut found = Vec::new();
        let mut words: Vec<(String, Place)> = Vec::new();
        while let Some((token, place)) = self.tokens.next() {
            match token {
                Token::Word(word) => words.push((word, place)),
                Token::End => found.extend(directive(std::mem::take(&mut words), Vec::new())),
                Token::Open => {
                    if self.depth >= MAX_DEPTH {
                        self.problems.error(place, format!("blocks nest deeper than {MAX_DEPTH}"));
                        return found;
                    }
                    self.depth += 1;
                    let block = self.block(Some(place));
                    self.depth -= 1;
                    found.extend(directive(std::mem::take(&mut words), block));
                }
                Token::Close => {
                    self.unended(&words);
                    if opened.is_none() {
                        self.problems.error(place, "this brace closes nothing");
                        continue;
                    }
                    return found;
                }
                Token::File(_) => {}
            }
        }
        self.unended(&words);
        if let Some(place) = opened {
            self.problems.error(place, "this block is never closed").label("it begins here");
        }
        found
    }

    fn unended(&mut self, words: &[(String, Place)]) {
        if let [(word, place), ..] = words {
            self.problems
                .error(*place, format!("{} does not end with `;`", quoted(word)))
                .label("add `;` behind its last word");
        }
    }
}

/// Creates a directive from words; `None` without words.
fn directive(mut words: Vec<(String, Place)>, block: Vec<Directive>) -> Option<Directive> {
    if words.is_empty() {
        return None;
    }
    let (name, place) = words.remove(0);
    Some(Directive { name, place, arguments: words, block })
}

struct IncludeStack<'p> {
    folder: String,
    files: BTreeMap<String, Vec<Directive>>,
    made: usize,
    not_included: Vec<(String, Place)>,
    problems: &'p mut Problems,
}

impl IncludeStack<'_> {
    fn expanded(&mut self, directives: Vec<Directive>, depth: usize) -> Vec<Directive> {
        let mut all = Vec::new();
        for mut directive in directives {
            self.made += 1;
            if self.made == MAX_DIRECTIVES {
                self.problems.error(directive.place, format!("more than {MAX_DIRECTIVES} directives"));
            }
            if self.made >= MAX_DIRECTIVES {
                break;
            }
            if directive.name == "include" {
                all.extend(self.included(&directive, depth));
                continue;
            }
            directive.block = self.expanded(std::mem::take(&mut directive.block), depth);
            all.push(directive);
        }
        all
    }

    fn included(&mut self, include: &Directive, depth: usize) -> Vec<Directive> {
        let wanted = include.argument(0).unwrap_or_default();
        let path = if wanted.starts_with('/') || self.folder.is_empty() {
            wanted.to_owned()
        } else {
            format!("{}/{wanted}", self.folder)
        };
        let names: Vec<_> = self.files.keys().filter(|name| fits(&path, name)).cloned().collect();
        // Files of types and parameters are common and contain no limits.
        let harmless =
            ["mime.types", "fastcgi_params", "fastcgi.conf", "proxy_params", "uwsgi_params", "scgi_params"]
                .iter()
                .any(|known| wanted.ends_with(known));
        if names.is_empty() && !harmless {
            self.not_included.push((wanted.to_owned(), include.place));
        }
        if depth >= MAX_DEPTH {
            self.problems.error(include.place, "files include each other without end");
            return Vec::new();
        }
        let files: Vec<_> = names.iter().filter_map(|name| self.files.get(name).cloned()).collect();
        files.into_iter().flat_map(|file| self.expanded(file, depth + 1)).collect()
    }
}

/// Whether a path matches a pattern in which `*` stands for any part of one name.
fn fits(pattern: &str, path: &str) -> bool {
    let (patterns, names): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
    patterns.len() == names.len()
        && patterns.iter().zip(names).all(|(pattern, name)| name_fits(pattern, name))
}

fn name_fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_included_where_nginx_t_shows_them() {
        let text = "# configuration file /etc/nginx/nginx.conf:\nhttp { include conf.d/*.conf; include mime.types; }\n\
                    # configuration file /etc/nginx/conf.d/a.conf:\nserver { listen 80; include /etc/other; }\n";
        let mut problems = Problems::default();
        let tree = read(text, &mut problems);
        assert!(!problems.has_errors());
        let [http] = &tree.directives[..] else { panic!("{tree:?}") };
        assert_eq!((http.name.as_str(), http.block[0].name.as_str()), ("http", "server"));
        assert_eq!(tree.not_included.len(), 1);
    }

    #[test]
    fn files_that_include_each_other_end() {
        let text =
            "# configuration file /a:\ninclude /b;\n# configuration file /b:\ninclude /b; include /b; x;\n";
        let mut problems = Problems::default();
        read(text, &mut problems);
        assert!(problems.has_errors());
    }

    #[test]
    fn stars_stand_for_parts_of_one_name() {
        assert!(fits("/etc/*.conf", "/etc/a.conf") && fits("/a*b*c", "/axbyc") && fits("/a", "/a"));
        assert!(!fits("/etc/*.conf", "/etc/x/a.conf") && !fits("/a*b", "/a") && !fits("/aba*ba", "/aba"));
    }
}
