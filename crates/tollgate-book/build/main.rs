//! Renders the pages of `docs/SUMMARY.md`, and lists them as `FILES`.

mod contents;
mod page;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

use flate2::{Compression, GzBuilder};

use contents::Contents;

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo says where to write"))?;
    let out = Path::new(&out);
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=book.css");
    let mut files = BTreeMap::new();
    let summary = root.join("docs/SUMMARY.md");
    if let Ok(summary) = fs::read_to_string(&summary) {
        println!("cargo::rerun-if-changed={}", root.join("docs").display());
        let contents = Contents::read(&summary);
        for file in contents.pages() {
            println!("cargo::rerun-if-changed={}", root.join(file).display());
            let text = fs::read_to_string(root.join(file))?;
            files.insert(contents::name_of(file), page::render(file, &text, &contents).into_bytes());
        }
        for entry in fs::read_dir(root.join("docs/images"))? {
            let path = entry?.path();
            let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            if page::is_embedded_image(&name) {
                files.insert(name, fs::read(path)?);
            }
        }
        files.insert("book.css".to_owned(), fs::read("book.css")?);
    }
    let mut list = format!("static FILES: [(&str, &[u8]); {}] = [\n", files.len());
    for (name, body) in &files {
        // Without a time, so that the same pages are the same bytes.
        let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        encoder.write_all(body)?;
        fs::write(out.join(name), encoder.finish()?)?;
        let _never =
            writeln!(list, "    ({name:?}, include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))),");
    }
    list.push_str("];\n");
    fs::write(out.join("files.rs"), list)
}
