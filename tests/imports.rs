//! Checks that imports go one way: neither files nor folders of a crate import each other in a circle.
//!
//! Paths of `use` count, and those that begin with `crate::` or `super::` anywhere else, except in tests. An import
//! through a `pub use` counts as one of the file with the item.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The sources that are checked.
const ROOTS: [&str; 9] =
    ["quorum/src", "core/src", "src", "client/src", "agent/src", "cli/src", "sim/src", "bench/src", "fuzz/src"];

/// A module's path in its crate.
type Module = Vec<String>;

/// The imports of each file.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// A crate's modules: the imports of each, and the names that each re-exports.
struct Sources {
    imports: BTreeMap<Module, Vec<Module>>,
    /// For each module the names that it re-exports, with the modules that have them; `None` for an item of another
    /// crate.
    passed_on: BTreeMap<Module, BTreeMap<String, Option<Module>>>,
}

#[test]
fn files_and_folders_import_each_other_one_way() {
    for root in ROOTS {
        let graph = Sources::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(root)).graph();
        assert!(graph.values().map(BTreeSet::len).sum::<usize>() > graph.len(), "{root}: {graph:?}");
        assert_eq!(circle(&graph), None, "a circle of files in {root}");
        assert_eq!(circle(&folders(&graph)), None, "a circle of folders in {root}");
    }
}

/// `src/ffi`, the wrapper of the server's C API, can be read and changed without the rest of the module.
#[test]
fn the_seam_imports_nothing_from_outside() {
    let graph = Sources::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).graph();
    for (file, imported) in graph.iter().filter(|(file, _)| file.starts_with("ffi")) {
        assert!(imported.iter().all(|imported| imported.starts_with("ffi::")), "{file} imports {imported:?}");
    }
}

/// The program and the agent reach nodes through connections of the client; of redis-rs they use only commands and
/// values.
#[test]
fn programs_have_no_connections_of_their_own() {
    let allowed = ["Arg", "Cmd", "FromRedisValue", "ParsingError", "Value", "cmd"];
    for root in ["agent/src", "cli/src"] {
        for (file, text) in texts(Path::new(env!("CARGO_MANIFEST_DIR")).join(root)) {
            let names = |path: &str| match path.strip_prefix('{').and_then(|list| list.split('}').next()) {
                Some(list) => list.split(',').map(|name| name.trim().to_owned()).collect(),
                None => vec![path.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()],
            };
            let named: Vec<String> = code(&text).split("redis::").skip(1).flat_map(names).collect();
            assert!(named.iter().all(|name| allowed.contains(&&**name)), "{root}, {file:?}: {named:?}");
        }
    }
}

#[test]
fn a_circle_is_found_also_by_way_of_a_re_export() {
    let texts = [
        ("", "pub use a::{deep::Deep, A as B};\npub use another::thing;\nmod a;"),
        ("a", "use crate::c;\npub mod deep;"),
        (
            "a::deep",
            "// use crate::c;\nuse super::{other, A};\nuse crate::thing::Item;\n#[cfg(test)]\nmod tests { use crate::c; }",
        ),
        ("c", "fn f() { crate::Deep::new() }"),
    ];
    let sources =
        |texts: &[(&str, &str)]| Sources::of(texts.iter().map(|(name, text)| (module(name), text.to_string())));
    let graph = sources(&texts).graph();
    assert_eq!(graph["c"], BTreeSet::from(["a::deep".to_owned()]));
    assert_eq!(circle(&graph).unwrap(), "a -> c -> a::deep -> a");
    let one_way = [texts[0], texts[1], texts[2], ("c", "fn f() { elsewhere::Deep::new() }")];
    assert_eq!(circle(&sources(&one_way).graph()), None);
}

impl Sources {
    /// Reads the modules in the folder `root`.
    fn read(root: PathBuf) -> Self {
        Self::of(texts(root))
    }

    fn of(texts: impl IntoIterator<Item = (Module, String)>) -> Self {
        let texts: BTreeMap<_, _> = texts.into_iter().collect();
        let (mut imports, mut passed_on) = (BTreeMap::new(), BTreeMap::new());
        for (module, text) in &texts {
            let code = code(text);
            // A path relative to the file names a child module, or another crate with that name, which does not count.
            let absolute = |path: &[String]| match path[0].as_str() {
                "crate" => Some(path[1..].to_vec()),
                "super" => {
                    let up = path.iter().take_while(|part| *part == "super").count();
                    Some([&module[..module.len().checked_sub(up)?], &path[up..]].concat())
                }
                _ => {
                    let child = [module.as_slice(), &path[..1]].concat();
                    texts.contains_key(&child).then(|| [module.as_slice(), path].concat())
                }
            };
            let mut imported: Vec<Module> = inline(&code).filter_map(|path| absolute(&path)).collect();
            let mut names = BTreeMap::new();
            for (is_public, tree) in uses(&code) {
                for (path, name) in branches(&tree, &[]) {
                    let path = absolute(&path);
                    imported.extend(path.clone());
                    if is_public {
                        names.insert(name, path);
                    }
                }
            }
            imports.insert(module.clone(), imported);
            passed_on.insert(module.clone(), names);
        }
        Self { imports, passed_on }
    }

    /// Returns the module that has the item at `path`.
    fn of_item(&self, path: &[String]) -> Option<Module> {
        let len = (0..=path.len()).rev().find(|&len| self.imports.contains_key(&path[..len]))?;
        let (module, item) = path.split_at(len);
        match item.first().and_then(|name| self.passed_on[module].get(name)) {
            Some(Some(from)) => self.of_item(&[from, &item[1..]].concat()),
            Some(None) => None,
            None => Some(module.to_vec()),
        }
    }

    fn graph(&self) -> Graph {
        let of = |(module, imports): (&Module, &Vec<Module>)| {
            let imported = imports.iter().filter_map(|path| self.of_item(path)).filter(|imported| imported != module);
            (name_of(module), imported.map(|imported| name_of(&imported)).collect())
        };
        self.imports.iter().map(of).collect()
    }
}

/// Returns the modules in the folder `root` with their texts, except for those of tests.
fn texts(root: PathBuf) -> Vec<(Module, String)> {
    let mut folders = vec![(root, Module::new())];
    let mut texts = vec![];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let inner = || module.iter().cloned().chain([name.to_owned()]).collect();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push((path.clone(), inner()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let of = if ["mod", "lib", "main"].contains(&name) { module.clone() } else { inner() };
                texts.push((of, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    texts
}

/// Removes tests and comments from a text.
fn code(text: &str) -> String {
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(super) mod tests {"];
    let text = tests.iter().fold(text, |text, tests| text.split(tests).next().unwrap());
    text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
}

fn name_of(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

fn module(name: &str) -> Module {
    name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the trees of `use` statements, and whether each is public.
fn uses(code: &str) -> Vec<(bool, String)> {
    let statement = |statement: &str| {
        let (before, tree) = statement.rsplit_once("use ")?;
        let before = before.rsplit(['\n', '{', '}', ']']).next().unwrap().trim();
        (before.is_empty() || before.starts_with("pub")).then(|| (!before.is_empty(), tree.to_owned()))
    };
    code.split(';').filter_map(statement).collect()
}

/// Returns the paths in a tree of a `use` statement, each with the name that it introduces.
fn branches(tree: &str, before: &[String]) -> Vec<(Module, String)> {
    let tree = tree.trim();
    if let Some((path, inner)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) {
        let path = [before, &module(path.trim())].concat();
        let mut depth = 0;
        let apart = inner.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        return apart.filter(|part| !part.trim().is_empty()).flat_map(|part| branches(part, &path)).collect();
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut path = [before, &module(path)].concat();
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = if alias.is_empty() { path.last().cloned().unwrap_or_default() } else { alias.to_owned() };
    vec![(path, name)]
}

/// Returns the paths that begin with `crate::` or `super::` outside of `use`.
fn inline(code: &str) -> impl Iterator<Item = Module> {
    let is_part = |c: char| c.is_alphanumeric() || "_:$".contains(c);
    code.split(move |c| !is_part(c))
        .filter(|path| ["crate::", "super::"].iter().any(|start| path.starts_with(start)))
        .filter(|path| !path.ends_with("::"))
        .map(module)
}

/// Returns the graph with folders in place of the files in them.
fn folders(graph: &Graph) -> Graph {
    let folder = |file: &String| file.split("::").next().unwrap().to_owned();
    let mut folders = Graph::new();
    for (file, imported) in graph {
        let imported = imported.iter().map(folder).filter(|other| *other != folder(file));
        folders.entry(folder(file)).or_default().extend(imported);
    }
    folders
}

/// Returns a circle from file to file, if there is one. Files whose imports lead to no circle are removed first.
fn circle(graph: &Graph) -> Option<String> {
    let mut left = graph.clone();
    loop {
        let leaves: BTreeSet<_> =
            left.iter().filter(|(_, imported)| imported.is_empty()).map(|(file, _)| file.clone()).collect();
        if leaves.is_empty() {
            break;
        }
        left.retain(|file, _| !leaves.contains(file));
        left.values_mut().for_each(|imported| imported.retain(|file| !leaves.contains(file)));
    }
    // Each of the files left imports another of them, so following the imports leads to a circle.
    let mut path = vec![left.keys().next()?];
    loop {
        let next = left[path[path.len() - 1]].first()?;
        if let Some(start) = path.iter().position(|file| *file == next) {
            path.push(next);
            return Some(path[start..].iter().map(|file| file.as_str()).collect::<Vec<_>>().join(" -> "));
        }
        path.push(next);
    }
}
