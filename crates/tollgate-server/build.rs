//! Lists the files of `page/`, so that each of them is served by `src/page.rs`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            // Skips hidden files and copies of editors.
            if path.is_file() && name.bytes().all(is_plain) && !name.starts_with('.') {
                files.push((name, path));
            }
        }
    }
    files.sort();
    let mut list = format!("static FILES: [File; {}] = [\n", files.len());
    for (name, path) in &files {
        let path = path.display().to_string();
        let _never = writeln!(list, "    File::new({name:?}, include_bytes!({path:?})),");
    }
    list.push_str("];\n");
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo says where to write"))?;
    fs::write(Path::new(&out).join("page_files.rs"), list)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}
