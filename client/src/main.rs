//! `pftp`: see [`client::shell`].

fn main() -> std::process::ExitCode {
    client::shell::main()
}
