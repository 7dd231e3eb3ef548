//! Runs one target on one input, or on every file of a folder, to inspect a crash of the fuzzer. Prints the steps of a
//! single input.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use palisade_fuzz::TARGETS;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, input] = arguments.as_slice() else { return usage("two arguments are needed") };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        return usage(&format!("there is no target {name}"));
    };
    let files = match inputs(Path::new(input)) {
        Ok(files) => files,
        Err(error) => return usage(&format!("{input} cannot be read: {error}")),
    };
    palisade_fuzz::TELLS.store(files.len() == 1, Ordering::Relaxed);
    for (file, bytes) in &files {
        println!("{}: {} bytes", file.display(), bytes.len());
        (target.run)(bytes);
    }
    println!("{} inputs, every promise kept", files.len());
    ExitCode::SUCCESS
}

fn inputs(path: &Path) -> std::io::Result<Vec<(std::path::PathBuf, Vec<u8>)>> {
    let files = if path.is_dir() {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?
    } else {
        vec![path.to_owned()]
    };
    files.into_iter().map(|file| Ok((file.clone(), std::fs::read(file)?))).collect()
}

fn usage(what: &str) -> ExitCode {
    let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    eprintln!("{what}: name a target ({}) and a file or a folder with inputs", names.join(", "));
    ExitCode::FAILURE
}
