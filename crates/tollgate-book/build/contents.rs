//! The contents of the book: its pages, and their names as files.

/// The contents of the book.
pub(crate) struct Contents {
    entries: Vec<Entry>,
}

enum Entry {
    Part(String),
    /// The title and the file of a page, relative to the root of the repository.
    Page(String, String),
}

impl Contents {
    /// Reads `docs/SUMMARY.md`.
    pub(crate) fn read(summary: &str) -> Self {
        let entry = |line: &str| {
            if let Some(part) = line.strip_prefix("# ") {
                return Some(Entry::Part(part.to_owned()));
            }
            let (title, link) = line.trim_start_matches("- ").strip_prefix('[')?.split_once("](")?;
            Some(Entry::Page(title.to_owned(), resolved("docs", link.strip_suffix(')')?)))
        };
        // The first line is the title of the book.
        Self { entries: summary.lines().skip(1).filter_map(entry).collect() }
    }

    /// Returns the files of the pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Part(_) => None,
            Entry::Page(_, file) => Some(file.as_str()),
        })
    }

    /// Returns the contents as links, the current page marked.
    pub(crate) fn links(&self, current: &str) -> String {
        let link = |entry: &Entry| match entry {
            Entry::Part(title) => format!("<li class=\"part\">{title}</li>\n"),
            Entry::Page(title, file) => {
                let mark = if file == current { " aria-current=\"page\"" } else { "" };
                format!("<li><a href=\"{}\"{mark}>{title}</a></li>\n", name_of(file))
            }
        };
        self.entries.iter().map(link).collect()
    }
}

/// Returns the name under which a page is served.
pub(crate) fn name_of(file: &str) -> String {
    let short = file.strip_prefix("docs/").or_else(|| file.strip_prefix("crates/")).unwrap_or(file);
    short.to_lowercase().replace('/', "-").replace(".md", ".html")
}

/// Resolves a link from a folder.
pub(crate) fn resolved(folder: &str, link: &str) -> String {
    let mut parts: Vec<_> = folder.split('/').filter(|it| !it.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
