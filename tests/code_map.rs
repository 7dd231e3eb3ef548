//! The code map of docs/architecture.md names every folder. (`words/links` checks its links.)

use std::fs;
use std::path::{Path, PathBuf};

/// Folders of build results and of foreign sources.
const NOT_OURS: [&str; 3] = ["target", "data", "node_modules"];

/// Returns the folders in `folder`; if `deep`, with all folders below them.
fn folders(folder: &Path, deep: bool) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        path.is_dir() && !name.starts_with('.') && !NOT_OURS.contains(&&*name)
    };
    let here: Vec<_> = paths.filter(is_ours).collect();
    let inner: Vec<_> = here.iter().filter(|_| deep).flat_map(|folder| folders(folder, true)).collect();
    here.into_iter().chain(inner).collect()
}

#[test]
fn the_code_map_names_every_folder() {
    let root = fs::canonicalize(env!("CARGO_MANIFEST_DIR")).unwrap();
    let docs = root.join("docs");
    let page = fs::read_to_string(docs.join("architecture.md")).unwrap();
    let map = page.split("\n## Code map\n").nth(1).and_then(|map| map.split("\n## ").next()).expect("the map");
    // Pairs of a folder named at the start of an entry, and the entry's text.
    let entries: Vec<(PathBuf, &str)> = map
        .split("\n- ")
        .skip(1)
        .filter_map(|entry| Some((entry.split(": ").next()?, entry.split("\n\n").next()?)))
        .flat_map(|(links, entry)| links.split("](").skip(1).map(move |link| (link.split(')').next().unwrap(), entry)))
        .map(|(link, entry)| (fs::canonicalize(docs.join(link)).unwrap(), entry))
        .collect();
    let entry_of = |folder: &Path| entries.iter().find(|(linked, _)| linked == folder).map(|(_, entry)| *entry);
    let sources = ["core/src", "src"].map(|source| root.join(source));
    let mut missing = vec![];
    // Each folder needs an entry, except for the two whose entries are a list.
    let with_a_list = ["core", "src"].map(|folder| root.join(folder));
    let top = folders(&root, false).into_iter().filter(|folder| !with_a_list.contains(folder));
    for folder in top.chain(sources.iter().flat_map(|source| folders(source, false))) {
        let Some(entry) = entry_of(&folder) else {
            missing.push(folder);
            continue;
        };
        // The entry has to name the folders inside.
        let source = if sources.iter().any(|source| folder.starts_with(source)) { folder } else { folder.join("src") };
        let is_crate = source.is_dir() && (source.join("lib.rs").exists() || source.join("main.rs").exists());
        if is_crate || sources.iter().any(|root| source.starts_with(root)) {
            let named =
                |inner: &PathBuf| entry.contains(&format!("`{}`", inner.file_name().unwrap().to_string_lossy()));
            missing.extend(folders(&source, true).into_iter().filter(|inner| !named(inner)));
        }
    }
    assert!(missing.is_empty(), "docs/architecture.md does not name {missing:#?}");
}
