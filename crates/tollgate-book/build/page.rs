//! A page as HTML: links lead to other pages of the book, and headings can be linked to.

use std::collections::HashMap;

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::contents::{Contents, name_of, resolved};

/// Whether an image is part of the book. Photographs of the dashboard are not: they are larger than all other files.
pub(crate) fn is_embedded_image(name: &str) -> bool {
    name.strip_suffix(".svg").is_some_and(|stem| !stem.is_empty())
}

/// Renders a page.
pub(crate) fn render(file: &str, markdown: &str, contents: &Contents) -> String {
    let parser = Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    let mut body = String::new();
    let title = title(markdown);
    html::push_html(&mut body, rewritten(parser.collect(), file, contents).into_iter());
    let links = contents.links(file);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} · Tollgate</title>\n\
         <link rel=\"stylesheet\" href=\"../page/style.css\">\n<link rel=\"stylesheet\" href=\"book.css\">\n\
         <script src=\"../page/theme.js\"></script>\n</head>\n<body class=\"book\">\n\
         <a class=\"skip\" href=\"#text\">Skip to the text</a>\n\
         <nav aria-label=\"Contents\">\n<p><a href=\"../\">Dashboard</a> <button class=\"button quiet\" id=\"theme\" type=\"button\">Theme: auto</button></p>\n\
         <ul>\n{links}</ul>\n</nav>\n<main id=\"text\" tabindex=\"-1\">\n{body}</main>\n</body>\n</html>\n"
    )
}

fn title(markdown: &str) -> String {
    let title = markdown.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Book");
    title.replace('`', "").replace('&', "&amp;").replace('<', "&lt;")
}

fn rewritten<'t>(events: Vec<Event<'t>>, file: &str, contents: &Contents) -> Vec<Event<'t>> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut out: Vec<Event<'t>> = Vec::with_capacity(events.len());
    let mut ids = HashMap::new();
    // The place of the open heading, and its text.
    let mut heading: Option<(usize, String)> = None;
    let mut is_linked = true;
    for event in events {
        if let (Event::Text(text) | Event::Code(text), Some((_, words))) = (&event, &mut heading) {
            words.push_str(text);
        }
        match event {
            Event::Start(Tag::Heading { .. }) => {
                heading = Some((out.len(), String::new()));
                out.push(event);
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((place, words)) = heading.take()
                    && let Some(Event::Start(Tag::Heading { id, .. })) = out.get_mut(place)
                {
                    *id = Some(anchor(&words, &mut ids).into());
                }
                out.push(event);
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let target = target(&dest_url, folder, contents);
                is_linked = target.is_some();
                if let Some(dest_url) = target.map(CowStr::from) {
                    out.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
                }
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let name = dest_url.rsplit('/').next().filter(|name| is_embedded_image(name));
                is_linked = name.is_some();
                if let Some(dest_url) = name.map(|name| CowStr::from(name.to_owned())) {
                    out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
                }
            }
            // Links and images do not nest.
            Event::End(TagEnd::Link | TagEnd::Image) if !is_linked => {}
            // Markers for the tests.
            Event::Html(comment) if comment.trim_start().starts_with("<!--") => {}
            other => out.push(other),
        }
    }
    out
}

/// Returns the target of a link in the book; `None` if it leads out of the book, into the repository.
fn target(link: &str, folder: &str, contents: &Contents) -> Option<String> {
    if link.contains("://") || link.starts_with('#') {
        return Some(link.to_owned());
    }
    let (path, fragment) =
        link.split_once('#').map_or((link, String::new()), |(path, it)| (path, format!("#{it}")));
    let file = resolved(folder, path);
    contents.pages().any(|page| page == file).then(|| format!("{}{fragment}", name_of(&file)))
}

/// Returns the anchor of a heading, as in the sources: lower case, hyphens, a number if it is not the first.
fn anchor(words: &str, ids: &mut HashMap<String, usize>) -> String {
    let kept = |it: char| match it {
        ' ' => Some('-'),
        '-' | '_' => Some(it),
        it if it.is_alphanumeric() => it.to_lowercase().next(),
        _ => None,
    };
    let slug: String = words.chars().filter_map(kept).collect();
    let seen = ids.entry(slug.clone()).or_insert(0);
    *seen += 1;
    if *seen == 1 { slug } else { format!("{slug}-{}", *seen - 1) }
}
