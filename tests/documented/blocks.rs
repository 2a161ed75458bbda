//! The console blocks of a Markdown file: `$ command`, and below it what it prints.

use std::fs;
use std::path::Path;

/// Stands for lines that are left out.
pub const ELLIPSIS: &str = "...";

#[derive(Clone, Debug)]
pub struct Command {
    /// File and line.
    pub at: String,
    /// Without its comment; one line.
    pub text: String,
    pub output: Vec<String>,
    /// Lines of the file that hold the output.
    from: usize,
    to: usize,
}

pub struct Doc {
    lines: Vec<String>,
    commands: Vec<Command>,
}

impl Doc {
    pub fn read(path: &Path) -> Doc {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut commands: Vec<Command> = Vec::new();
        let (mut inside, mut continued) = (false, false);
        for (number, line) in lines.iter().enumerate() {
            if line.starts_with("```") {
                inside = !inside && line == "```console";
                continue;
            }
            if !inside {
                continue;
            }
            if let Some(text) = line.strip_prefix("$ ") {
                commands.push(Command {
                    at: format!("{}:{}", path.display(), number + 1),
                    text: String::new(),
                    output: Vec::new(),
                    from: number + 1,
                    to: number + 1,
                });
                continued = add(commands.last_mut().unwrap(), text);
                continue;
            }
            let command = commands.last_mut().expect("a block begins with `$ `");
            if continued {
                continued = add(command, line);
                (command.from, command.to) = (number + 1, number + 1);
            } else {
                command.output.push(line.clone());
                command.to = number + 1;
            }
        }
        Doc { lines, commands }
    }

    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Shows `output` of the command `number`.
    pub fn show(&mut self, number: usize, output: Vec<String>) {
        let command = &self.commands[number];
        let (from, to) = (command.from, command.to);
        let moved = output.len() as isize - (to - from) as isize;
        self.lines.splice(from..to, output);
        for later in &mut self.commands[number + 1..] {
            later.from = later.from.strict_add_signed(moved);
            later.to = later.to.strict_add_signed(moved);
        }
    }

    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Lines of other code blocks that are no commands. Rust is no output.
    pub fn strangers(&self) -> Vec<String> {
        let (mut fence, mut continued) = (None, false);
        let mut strangers = Vec::new();
        for line in &self.lines {
            if let Some(kind) = line.strip_prefix("```") {
                fence = match fence {
                    None => Some(kind),
                    Some(_) => None,
                };
                continue;
            }
            let code = match fence {
                None => line.strip_prefix("    "),
                Some("console" | "rust" | "python" | "diff" | "toml") => None,
                Some(_) => Some(line.as_str()),
            };
            let Some(code) = code else { continue };
            let is_command = continued || is_command(code) || code.trim().is_empty();
            continued = code.ends_with('\\');
            if !is_command {
                strangers.push(code.to_owned());
            }
        }
        strangers
    }
}

fn is_command(code: &str) -> bool {
    let programs = [
        "stallscope",
        "nsys",
        "torchrun",
        "srun",
        "mpirun",
        "export",
        "cargo",
        "pip",
        "sha256sum",
        "tar",
        "install",
        "cp",
    ];
    let first = code.split(' ').next().unwrap_or_default();
    programs.contains(&first)
}

/// Adds a line to a command; whether another follows.
fn add(command: &mut Command, line: &str) -> bool {
    let line = line.split(" #").next().unwrap_or_default().trim();
    let (part, continued) = match line.strip_suffix('\\') {
        Some(part) => (part.trim_end(), true),
        None => (line, false),
    };
    if !command.text.is_empty() {
        command.text.push(' ');
    }
    command.text.push_str(part);
    continued
}
