//! Links between documents: every target exists, with its heading, and the book has every page.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Folders that are not of the project.
const SKIPPED: [&str; 4] = ["target", "node_modules", ".git", ".venv"];

/// The table of contents of the book.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Pages of `docs` that the book does not list: a page that has moved.
const UNLISTED: [&str; 2] = ["docs/SUMMARY.md", "docs/traps.md"];

/// Returns the links without a target, and the pages that are missing in the book.
pub fn findings(root: &Path) -> io::Result<Vec<String>> {
    let mut pages = Vec::new();
    collect(root, &mut pages)?;
    pages.sort();
    let mut findings = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page)?;
        let shown = page.strip_prefix(root).unwrap_or(page).display();
        for (line, target) in links(&text) {
            if let Some(why) = broken(page, &target)? {
                findings.push(format!("{shown}:{line}: ({target}) {why}"));
            }
        }
    }
    findings.extend(unlisted(root, &pages)?);
    Ok(findings)
}

/// Returns the pages of `docs` that the table of contents does not have.
fn unlisted(root: &Path, pages: &[PathBuf]) -> io::Result<Vec<String>> {
    let contents = fs::read_to_string(root.join(CONTENTS))?;
    let listed: BTreeSet<_> =
        links(&contents).into_iter().map(|(_, target)| normal(&root.join("docs").join(target))).collect();
    let is_page = |page: &&PathBuf| page.parent() == Some(&root.join("docs"));
    let missing = pages.iter().filter(is_page).filter(|page| !listed.contains(*page));
    let names = missing.map(|page| page.strip_prefix(root).unwrap_or(page).display().to_string());
    Ok(names
        .filter(|name| !UNLISTED.contains(&name.as_str()))
        .map(|name| format!("{name} is not in {CONTENTS}"))
        .collect())
}

/// Returns why a link does not work, if so. Links to other sites, and those of rustdoc to items, are not followed.
fn broken(page: &Path, target: &str) -> io::Result<Option<&'static str>> {
    if target.contains("::") || target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file =
        if path.is_empty() { page.to_owned() } else { normal(&page.parent().unwrap_or(page).join(path)) };
    if !file.exists() {
        return Ok(Some("does not exist"));
    }
    let Some(anchor) = anchor.filter(|_| file.extension().is_some_and(|it| it == "md")) else {
        return Ok(None);
    };
    Ok((!anchors(&fs::read_to_string(&file)?).contains(anchor)).then_some("has no such heading"))
}

/// Returns the anchors of a page: headings as GitHub and mdBook spell them, and `id` attributes.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in outside_code(text).map(|(_, line)| line) {
        if let Some(heading) = line.strip_prefix('#').map(|rest| rest.trim_start_matches('#'))
            && let Some(heading) = heading.strip_prefix(' ')
        {
            let mut anchor = slug(heading);
            let first = anchor.clone();
            let mut number = 0;
            while !anchors.insert(anchor) {
                number += 1;
                anchor = format!("{first}-{number}");
            }
        }
        for part in line.split("id=\"").skip(1) {
            anchors.extend(part.split('"').next().map(str::to_owned));
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    // The text of a link, without its target.
    let mut text = String::new();
    let mut rest = heading.trim();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let kept = text.chars().filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the lines outside of code blocks, with their numbers.
fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of links and pictures, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in outside_code(text) {
        // Code in a line has no links: every second part between back ticks.
        let prose: Vec<_> = line.split('`').step_by(2).collect();
        for part in prose.join("``").split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.starts_with('<') {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// Removes `..` from a path.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        if path.is_dir() && !path.is_symlink() {
            if !SKIPPED.contains(&name) {
                collect(&path, pages)?;
            }
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_headings_and_ids() {
        let text = "# One `two`, three!\n## A\n## A\n<a id=\"x\"></a>\n```\n# no\n```\n## [B](c.md) d\n";
        let expected = ["a", "a-1", "b-d", "one-two-three", "x"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_in_code_do_not_count() {
        let text = "[a](b.md) `[c](d.md)` ![e](f.png)\n```\n[g](h.md)\n```\n[i](#j)\n";
        let targets: Vec<_> = links(text).into_iter().map(|(_, it)| it).collect();
        assert_eq!(targets, ["b.md", "f.png", "#j"]);
    }
}
