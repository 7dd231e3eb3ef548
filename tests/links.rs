//! Links between documents lead to an existing file, and to an existing heading in it.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of build results and of sources that are not ours.
const NOT_OURS: [&str; 5] = ["target", "data", ".git", "corpus", "node_modules"];

/// Appends every document in `folder`.
pub fn documents(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
            documents(&path, into);
        } else if name.ends_with(".md") {
            into.push(path);
        }
    }
}

/// Returns the targets of a document's links: the text in parentheses after brackets, outside of code.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2));
    // A link's text may be code, so that its end and its target are in the next part of the prose.
    prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next()).collect()
}

/// Returns the anchor of a heading, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    let mut all = vec![];
    documents(Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
    let mut count = 0;
    let mut broken = vec![];
    for document in &all {
        let text = fs::read_to_string(document).unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let found = target.exists()
                && (heading.is_empty()
                    || fs::read_to_string(&target)
                        .unwrap()
                        .lines()
                        .any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading));
            if !found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 50, "{count} links");
}
