//! The code blocks of a page, with the markers above them.
//!
//! ```text
//! <!-- run: COMMAND -->           a command that readers do not see, before the block
//! <!-- not run: REASON -->        no test runs the block
//! <!-- tested by: FILE -->        this file of tests reads the page
//! <!-- output -->                 the JSON that the last command printed
//! <!-- shape of the output -->    the same with other values
//! ```

/// A code block.
pub(crate) struct Block {
    /// The line of its first fence.
    pub(crate) line: usize,
    /// The word after the fence, such as `console`.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// The comments directly above the block.
    markers: Vec<String>,
}

impl Block {
    /// Returns the values of a marker.
    pub(crate) fn marked<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b str> {
        self.markers.iter().filter_map(move |it| it.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn has_marker(&self, name: &str) -> bool {
        self.markers.iter().any(|it| it == name)
    }

    /// Returns the keys at the top of a YAML file.
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .filter(|line| !line.starts_with(['#', ' ', '-']))
            .filter_map(|it| Some(it.split_once(':')?.0))
    }

    /// Returns the name of the file that the block is: `# NAME.yaml` in its first line.
    pub(crate) fn file(&self) -> Option<&str> {
        let name = self.text.lines().next()?.strip_prefix("# ")?.split(',').next()?;
        name.strip_suffix(".yaml").filter(|stem| !stem.contains(' ')).map(|_| name)
    }

    /// Returns the block as a policy if its first key is one of these words.
    pub(crate) fn policy(&self, words: &[String]) -> Option<String> {
        let is_yaml = matches!(self.kind.as_str(), "yaml" | "yml");
        let is_test_file = self.file().is_some_and(|file| file.ends_with(".test.yaml"));
        let is_policy = is_yaml
            && !is_test_file
            && self.keys().next().is_some_and(|key| words.iter().any(|it| it == key));
        let has_limits = self.keys().any(|key| key == "limits");
        is_policy.then(|| format!("{}{}", self.text, if has_limits { "" } else { "limits: []\n" }))
    }

    /// Whether the block is a YAML file with this key.
    pub(crate) fn has_key(&self, wanted: &str) -> bool {
        self.kind == "yaml" && self.keys().any(|key| key == wanted)
    }
}

/// Returns the code blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut markers): (Vec<Block>, Vec<String>) = (Vec::new(), Vec::new());
    // The indentation of the open block.
    let mut open = None;
    for (number, line) in (1..).zip(page.lines()) {
        let bare = line.trim();
        if let Some(kind) = bare.strip_prefix("```") {
            open = if open.is_some() {
                None
            } else {
                let (kind, markers) = (kind.trim().to_owned(), std::mem::take(&mut markers));
                blocks.push(Block { line: number, kind, text: String::new(), markers });
                Some(line.len() - line.trim_start().len())
            };
        } else if let (Some(indent), Some(block)) = (open, blocks.last_mut()) {
            block.text.push_str(line.get(indent..).unwrap_or_default());
            block.text.push('\n');
        } else if let Some(marker) = bare.strip_prefix("<!-- ").and_then(|it| it.strip_suffix(" -->")) {
            markers.push(marker.to_owned());
        } else if !bare.is_empty() {
            markers.clear();
        }
    }
    blocks
}
