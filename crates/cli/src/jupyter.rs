//! `zfold jupyter`: kernels of notebooks that run under `zfold run`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::args::{InstallArgs, JupyterArgs, JupyterCommand};
use crate::shared::exit::{self, Failure, remark};
use crate::shared::file::NewFile;

/// The needs of a kernel, and the place of its interpreter.
const PROBE: &str = "import ipykernel, sys; print(sys.executable)";

/// Installs a kernel.
pub(crate) fn run(args: &JupyterArgs) -> Result<(), Failure> {
    let JupyterCommand::Install(args) = &args.command;
    let name = &args.name;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte)) {
        return Err(Failure::usage(format!(
            "'{name}' cannot be the name of a kernel: use letters, digits, '.', '-' and '_'"
        )));
    }
    let zfold = env::current_exe().map_err(|error| {
        Failure::new(format!("cannot find the path of zfold: {error}; is /proc mounted?"))
    })?;
    let python = interpreter(args.python.as_deref(), &zfold)?;
    let folder = data_folder(args.prefix.as_deref())?.join("kernels").join(name);
    let file = folder.join("kernel.json");
    if is_another(&file) {
        return Err(Failure::new(format!(
            "{} is a kernel that zfold did not make: choose another --name",
            folder.display()
        )));
    }
    let under_limit = under_limit(args, &zfold, &python);
    try_run(&under_limit);
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))?;
    NewFile::at(&file)?.write(&kernel(args, &under_limit))?;
    exit::write_data(format!("{}\n", file.display()).as_bytes())
}

fn is_mark(byte: u8) -> bool {
    matches!(byte, b'.' | b'-' | b'_')
}

/// Returns the path of the interpreter, which has what a kernel needs.
fn interpreter(given: Option<&Path>, zfold: &Path) -> Result<PathBuf, Failure> {
    let beside = zfold.with_file_name("python3");
    let python = match given {
        Some(given) => given,
        None if beside.exists() => &beside,
        None => Path::new("python3"),
    };
    let show = python.display();
    let output = Command::new(python).args(["-c", PROBE]).output().map_err(|error| {
        Failure::new(format!("cannot run {show}: {error}; name a Python interpreter with --python"))
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.lines().next_back() {
        Some(path) if output.status.success() => Ok(path.into()),
        _ => Err(Failure::new(format!(
            "{show} has no ipykernel: {show} -m pip install ipykernel, or name another \
                interpreter with --python"
        ))),
    }
}

/// Returns the interpreter's command line under the limit.
fn under_limit(args: &InstallArgs, zfold: &Path, python: &Path) -> Vec<String> {
    let (limit, codec) = (args.limit.to_string(), args.codec.to_string());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let words = [&text(zfold), "run", "--limit", &limit, "--codec", &codec, "--", &text(python)];
    words.map(str::to_owned).to_vec()
}

/// Says if kernels will not start here: where they are installed need not be where they run.
fn try_run(under_limit: &[String]) {
    let run = Command::new(&under_limit[0]).args(&under_limit[1..]).args(["-c", PROBE]).output();
    let reason = match run {
        Ok(Output { status, .. }) if status.success() => return,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "),
        Err(error) => error.to_string(),
    };
    remark(&format!("kernels cannot start here yet ({reason}); see zfold check"));
}

/// Returns the folder of Jupyter's data: below `prefix`, or this user's.
fn data_folder(prefix: Option<&Path>) -> Result<PathBuf, Failure> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    prefix
        .map(|prefix| prefix.join("share/jupyter"))
        .or_else(|| variable("JUPYTER_DATA_DIR"))
        .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("jupyter")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/jupyter")))
        .ok_or_else(|| Failure::new("HOME is not set: name a folder with --prefix"))
}

/// Returns whether there is a kernel that zfold did not install.
fn is_another(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else { return file.exists() };
    let kernel: Value = serde_json::from_str(&text).unwrap_or_default();
    kernel["argv"][1] != "run"
}

fn kernel(args: &InstallArgs, under_limit: &[String]) -> String {
    let launch = ["-m", "ipykernel_launcher", "-f", "{connection_file}"];
    let argv: Vec<&str> = under_limit.iter().map(String::as_str).chain(launch).collect();
    let default = || format!("Python 3 (zfold, {})", args.limit);
    let kernel = json!({
        "argv": argv,
        "display_name": args.display_name.clone().unwrap_or_else(default),
        "language": "python",
        "metadata": { "debugger": true },
    });
    format!("{kernel:#}\n")
}
